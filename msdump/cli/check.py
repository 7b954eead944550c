"""``msdump check``: describes a configuration, and previews its effects on a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

from msdump.capture import operators, suggest
from msdump.cli import messages, options, output, sections
from msdump.cli.output import Document, Shape
from msdump.config import mindspore as config_reader
from msdump.config import source
from msdump.errors import plural
from msdump.execute import emulated
from msdump.frontends import settings
from msdump.graph import MixedTypes, loader
from msdump.judge import sizes_of
from msdump.look import (
    Amount,
    Forecast,
    LeftOut,
    ModelPreview,
    Unmatched,
    Unrunnable,
    preview_model,
    subjects,
)
from msdump.plan import DumpPlan
from msdump.record import OperatorRef
from msdump.selector import DumpMode
from msdump.statistics import compiled


@dataclass(frozen=True, slots=True)
class FoundOperators:
    """The operators that a text may mean.

    Attributes:
        text: The text of --find.
        suggestion: The item of "kernels" to write, "" where no operator has such a name.
        operators: Operators with the text in their names.
    """

    text: str
    suggestion: str
    operators: list[OperatorRef]


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """The effects of a dump configuration.

    Attributes:
        plan: The effects in words by subject: device, files, iterations, operators, tensors, ...
        model: The effects on a model; None without --model, and with --find.
        found: The operators that --find is about; None without it.
    """

    plan: dict[str, str]
    model: ModelPreview | None = None
    found: FoundOperators | None = None


DOCUMENT: Final = Document(
    Shape(CheckedPlan, "plan model found", name="CheckDocument"),
    Shape(
        ModelPreview,
        "source=graph.source operators compiled dumped=kernels parameters unmatched forecast=amounts left_out"
        " cannot_run mixed_types",
        name="ModelCheck",
    ),
    Shape(Unmatched, "item hint?"),
    Shape(LeftOut, "what=noun reason count"),
    Shape(Forecast, "once per_iteration iterations total unknown unfit branches skipped"),
    Shape(Unrunnable, "name=node.operator.full_name is_certain reason"),
    Shape(MixedTypes, "name=node.operator.full_name variable inputs"),
    Shape(FoundOperators, "text suggestion? operators"),
    Shape(OperatorRef, "name=full_name op_type"),
)


_NO_LIBRARY: Final = (
    "numpy computes statistics, about 4 times slower: this installation lacks the compiled library"
    " (install the manylinux wheel, or from source with a C compiler)"
)
_SHOWN: Final = 20  # kernels that are listed; -v lists all
_OTHER_DEVICE: Final = "support_device does not contain this device"


def _operator_line(operator: OperatorRef) -> str:
    return f"  {operator.op_type:<20} {operator.full_name}"


def _lines_below(checked: ModelPreview, shown: int) -> Iterator[str]:
    plan = checked.plan
    if shown < len(checked.kernels):
        yield f"  ... and {len(checked.kernels) - shown} more; -v lists all"
    if checked.parameters:
        yield f"parameters: {len(checked.parameters)}, at the end of each dumped iteration"
    if plan.what.selector.mode is DumpMode.MARKED:
        yield "the forecast leaves out the operators that set_dump marks during the run"
    for item in checked.unmatched:
        yield f"matches nothing: {item.item!r}" + (f" ({item.hint})" if item.hint else "")
    yield from _forecast_lines(checked.amounts, plan)
    title = "left out:"
    for each in checked.left_out:
        yield f"{title:<12}{plural(each.count, each.noun)}: {each.reason}"
        title = ""
    for operator in checked.cannot_run:
        remark = "" if operator.is_certain else " (only if its branch or loop runs)"
        yield f"cannot run: {operator.node.operator.full_name}{remark}: {operator.reason}"
    for mixed in checked.mixed_types:
        yield f"warning:    {mixed}"


def _forecast_lines(amounts: Forecast | None, plan: DumpPlan) -> Iterator[str]:
    if amounts is None:
        empty = "the model has no operators"
        yield f"forecast:   nothing, because {empty if plan.is_enabled else _OTHER_DEVICE}"
        return
    unknown = f", and {plural(amounts.unknown, 'tensor')} of unknown shape" if amounts.unknown else ""
    if amounts.unfit.files:
        unknown += f", and {plural(amounts.unfit.files, 'tensor')} of {amounts.unfit.bytes:,} bytes that "
        unknown += "no array of this machine holds"
    yield f"forecast:   {_amount(amounts.per_iteration)} for each iteration{unknown}"
    if amounts.branches:
        yield f"            {plural(amounts.branches, 'tensor')} more each time that branches and loops run"
    yield f"            {_amount(amounts.once)} once: graph files, metadata, constants"
    if amounts.total is not None:
        number = plural(amounts.iterations or 0, "iteration")
        yield f"            {_amount(amounts.total)} for {number} in all{unknown and ', without these'}"
    for reason, count in amounts.skipped.items():
        yield f"            no file for {plural(count, 'tensor')} of each iteration: {reason}"
    if amounts.total is not None and 0 < plan.files.max_bytes < amounts.total.bytes:
        yield f"            exceeds max_bytes {plan.files.max_bytes:,}: files beyond it are skipped"


def _amount(amount: Amount) -> str:
    return f"{plural(amount.files, 'file')}, {amount.bytes:,} bytes"


_model: Final = sections.Section("Model")


@click.command(name="check", cls=sections.Command)
@click.argument("config", type=click.Path(), help="Dump configuration, as in $MINDSPORE_DUMP_CONFIG.")
@_model("--model", type=click.Path(), metavar="MODEL.onnx", help="Describe the dump of this model.")
@_model(
    "--find", metavar="TEXT", help="List operators with TEXT in their names, and an item for the key kernels."
)
@_model("--train", is_flag=True, help="Describe the dump of the training step.")
@options.dimensions
@options.context
@output.option
@messages.verbose
def command(
    *,
    config: str,
    model: str | None,
    find: str | None,
    train: bool,
    dimensions: dict[str, int],
    **context: Any,
) -> None:
    """Describe the dump that a configuration makes.

    With --model the description has the selected operators, the number and size of the files,
    the operators that are left out, and the operators that msdump cannot run. Nothing runs, and
    nothing is written.

    Examples:
        msdump check data_dump.json
        msdump check data_dump.json --model model.onnx
        msdump check data_dump.json --model model.onnx --find conv

    Exit codes:
        0  The configuration is valid.
        1  msdump cannot run an operator of the model outside of branches and loops.
        2  The configuration, the model or an option is wrong. All faults are listed.
    """
    if find is not None and model is None:
        raise click.UsageError("--find needs --model")
    where = settings.context_of(context)
    plan = config_reader.parse(source.read(config, "CONFIG"), config, where)
    library = {} if compiled.KERNEL else {"library": _NO_LIBRARY}
    words = subjects(plan) | library | options.unused_variable(plan)
    lines = (f"{subject + ':':<12}{text}" for subject, text in words.items())
    output.show(DOCUMENT, CheckedPlan(words), lines)
    if model is None:
        return
    graph = loader.load(model, context=where)
    graph = graph.training_step() if train else graph
    sizes = sizes_of(graph, dimensions)
    device = emulated(graph, plan, plan.context)
    if find is not None:
        nodes = operators(graph if device is None else device.graph)
        named = [
            each.operator
            for each in nodes
            if find.lower() in f"{each.operator.full_name} {each.name}".lower()
        ]
        found = FoundOperators(find, suggest(find, nodes), named)
        head = f"\n{find!r}: {found.suggestion or 'no operator has such a name'}"
        output.show(DOCUMENT, CheckedPlan(words, found=found), [head, *map(_operator_line, named)])
        return
    # Loaded again with the sizes of a run, which bytes depend on; graph files show the symbolic dimensions.
    settled = loader.load(model, sizes=sizes) if sizes else graph
    checked = preview_model(graph, plan, settled.step if train else settled, device)
    if output.wanted():
        output.put(DOCUMENT, CheckedPlan(words, checked))
    else:
        into = "" if checked.compiled is None else f", compiled into {plural(checked.compiled, 'kernel')}"
        count = f"{plural(checked.operators, 'operator')}{into}, {len(checked.kernels)} dumped"
        print(f"\nmodel:      {graph.source}, {count}")
        shown = checked.kernels if messages.verbosity() else checked.kernels[:_SHOWN]
        print("\n".join((*map(_operator_line, shown), *_lines_below(checked, len(shown)))))
    if not checked.may_succeed:
        raise SystemExit(1)
