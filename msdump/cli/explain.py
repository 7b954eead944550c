"""``msdump explain``: the files that a dump holds of an operator, and why there are no others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from msdump import env
from msdump.cli import messages, options, sections
from msdump.cli.program import FAILED, leave
from msdump.config import saved, source
from msdump.errors import DumpReadError
from msdump.frontends import mindspore
from msdump.graph import loader
from msdump.look.explain import Explainer, Explanation, SlotAccount, file_of
from msdump.plan import Context, DeviceTarget, DumpPlan, FilePlan, JitLevel, Tree
from msdump.read import Dump, MeasuredRecord, Record, open_dump
from msdump.reasons import Reason
from msdump.selector import IterationSet


def context_of(dump: Dump, options_given: dict[str, Any]) -> Context:
    """Return the context in which the dump was made: from the options, the dump, or the environment."""
    implied: dict[str, Any] = {}
    rank = next(iter(dump.ranks.values()), None)
    if dump.all_models:
        implied = {"device_target": DeviceTarget.ASCEND, "jit_level": JitLevel.O2}
    elif rank is not None and isinstance(rank.device, dict):
        implied = {"device_target": rank.device.get("device_target")}
    elif rank is not None and rank.is_known:  # only an Ascend's metadata names no device
        implied = {"device_target": DeviceTarget.ASCEND}
    explicit = {name: value for name, value in options_given.items() if value is not None}
    mindspore.set_options(**(implied | explicit))
    return mindspore.current_context()


def kept_config(dump: Dump) -> str | None:
    """Return the path of the copy of the configuration in a dump, None where there is none."""
    return next((path for rank in dump.ranks.values() if (path := rank.config_file)), None)


def plan_of(path: str, context: Context, dump: Dump) -> DumpPlan | None:
    """Return the plan of a configuration; None, with a warning, if its dumps have another layout."""
    plan = saved.parse(source.read(path, "--config"), path, context, dump.path)
    is_empty = not (dump.ranks or dump.all_models)
    if plan is not None and (is_empty or (plan.files.tree is Tree.RANKS) == bool(dump.ranks)):
        return plan
    messages.say(
        f"warning: {path}: does not describe the dump {dump.path} and is not used"
        " (--device-target, --jit-level)"
    )
    return None


_WIDTH: Final = 12
_SHOWN: Final = 3  # files of one input or output; -v lists all


def _explanation_lines(explanation: Explanation, explainer: Explainer) -> Iterator[str]:
    dump, plan = explainer.dump, explainer.plan
    subject = explanation.subject
    node = f", ONNX node {subject.node_name!r}" if subject.node_name else ""
    yield _line("operator:", f"{subject.operator.op_type} {subject.operator.full_name}".strip() + node)
    if subject.reason is Reason.FUSED and subject.node is not None:
        yield _line("fused:", f"into {subject.node.operator.full_name}, described below")
    configuration = [plan.source] if explainer.is_configured else []
    model = [] if explainer.model is None else [explainer.model.source]
    yield _line("sources:", " and ".join([*configuration, *model]) or "only the dump")
    steps = (each.key.iteration if each.key.step is None else each.key.step for each in dump.iterations)
    numbers = {number for number in steps if number is not None}
    held = str(IterationSet.of_numbers(numbers)) if numbers else "none"
    asked = f", the configuration selects {plan.when.iterations}" if explainer.is_configured else ""
    yield _line("iterations:", f"the dump holds {held}{asked}")
    limit = None if messages.verbosity() else _SHOWN
    for slot in explanation.slots:
        yield from _titled(
            f"{slot.io} {slot.slot}:" if slot.slot is not None else f"{slot.io}s:", _slot(slot, dump, limit)
        )
    yield from _titled("constants:", _files(explanation.constants, dump, limit))
    if any(_is_open(slot) for slot in explanation.slots):
        given = {"--config FILE.json": configuration, "--model MODEL.onnx": model}
        if missing := [option for option, sources in given.items() if not sources]:
            yield f"add {' and '.join(missing)} for more reasons"


def _titled(title: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield _line(title, text)
        title = ""


def _line(title: str, text: str) -> str:
    return f"{title:<{_WIDTH}}{text}".rstrip()


def _slot(slot: SlotAccount, dump: Dump, limit: int | None) -> Iterator[str]:
    if slot.value:
        yield slot.value
    yield from _files(slot.tensors, dump, limit)
    if slot.reason is not None:
        yield f"no file: {slot.reason.sentence}"
    for reason, numbers in slot.missing.items():
        iterations = [number for number in numbers if number is not None]
        ranges = IterationSet.of_numbers(iterations) if iterations else "some"
        yield f"no file in iteration {ranges}: {reason.sentence}"
    if _is_open(slot):
        yield "no file, for an unknown reason"


def _files(tensors: Sequence[Record], dump: Dump, limit: int | None) -> Iterator[str]:
    for tensor in tensors[:limit]:
        path = os.path.relpath(file_of(tensor), dump.path)
        yield f"a row of {path}" if isinstance(tensor, MeasuredRecord) else path
    if limit is not None and len(tensors) > limit:
        yield f"... and {len(tensors) - limit} more; -v lists all"


def _is_open(slot: SlotAccount) -> bool:
    return not (slot.tensors or slot.reason or slot.missing)


@click.command(name="explain", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump directory.")
@click.argument(
    "operator", help="Operator: full name or its end, file name or its operator part, or ONNX node name."
)
@sections.selection(
    "--model", type=click.Path(), metavar="MODEL.onnx", help="Model of the dump, for operators without files."
)
@sections.selection(
    "--config",
    type=click.Path(),
    metavar="FILE.json",
    show_default="the copy in DUMP, else $MINDSPORE_DUMP_CONFIG",
    help="Configuration of the dump.",
)
@sections.selection("--iteration", type=click.IntRange(min=0), show_default="all", help="Iteration.")
@options.context
@messages.verbose
def command(
    *, dump: str, operator: str, model: str | None, config: str | None, iteration: int | None, **context: Any
) -> None:
    """Explain which files an operator has in a dump.

    The explanation has the files, and the reason for each absent file. Some reasons need --model
    or the configuration. Nothing runs.

    Examples:
        msdump explain dump Conv2D-op0
        msdump explain dump Conv2D-op0 --model model.onnx --config data_dump.json

    Exit codes:
        0  The operator is explained.
        1  The operator is unknown, or a file could not be read.
        2  The dump, the model, the configuration or an option is wrong.
    """
    config_path = config or env.read(env.DUMP_CONFIG)
    try:
        opened = open_dump(dump)
    except DumpReadError as error:
        if not (config_path and model):  # they suffice for an explanation
            raise
        messages.say(f"warning: {error}")
        opened = Dump(os.path.abspath(dump))  # noqa: PTH100 - as open_dump has it
    dump_context = context_of(opened, context)
    path = config or kept_config(opened) or config_path
    plan = None if path is None else plan_of(path, dump_context, opened)
    # without a configuration: the plan that dumps everything, as far as the dump shows how it was made
    made_in, has_ranks = dump_context, bool(opened.ranks)
    if made_in.device_target is DeviceTarget.ASCEND and made_in.jit_level is None:
        made_in = replace(made_in, jit_level=JitLevel.O0 if has_ranks else JitLevel.O2)
    tree = Tree.RANKS if has_ranks else Tree.MODELS
    everything = DumpPlan("", b"", made_in, FilePlan(opened.path, tree=tree))
    graph = None if model is None else loader.load(model, context=dump_context)
    explainer = Explainer(opened, graph, plan or everything, iteration, is_configured=plan is not None)
    subject = explainer.find(operator)
    if isinstance(subject, str):
        messages.say(f"error: {dump}: {subject}")
        leave(FAILED)
    print("\n".join(_explanation_lines(explainer.explain(subject), explainer)))
