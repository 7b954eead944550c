"""``msdump check``: describes a configuration, and previews what it does to a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from msdump.capture.suggestions import operators, suggest
from msdump.cli import messages, options
from msdump.cli.counts import plural
from msdump.config import mindspore as config_reader
from msdump.config import source
from msdump.execute.compilation import emulated
from msdump.frontends import mindspore
from msdump.graph import loader
from msdump.graph.graph import Graph, Node
from msdump.plan import DumpPlan
from msdump.reasons import Reason
from msdump.record import OperatorRef
from msdump.selector import DumpMode
from msdump.tools.preview.describe import describe
from msdump.tools.preview.forecast import Amount, Forecast, forecast
from msdump.tools.preview.inputs import check_sizes
from msdump.tools.preview.left_out import left_out
from msdump.tools.preview.matches import Matches, matches
from msdump.tools.preview.runnable import unrunnable

_SHOWN: Final = 20  # kernels that are listed; -v lists all
_WIDE: Final = 4096  # columns: a narrow terminal breaks long names itself, a table would cut them
_OTHER_DEVICE: Final = "support_device does not hold this device"


@click.command(name="check")
@click.argument("config", type=click.Path())
@click.option("--model", type=click.Path(), metavar="MODEL.onnx", help="Say what is dumped of this model.")
@click.option("--find", metavar="TEXT", help="List operators that TEXT may mean, and the item.")
@click.option("--train", is_flag=True, help="Say it of the model's training step.")
@options.dimensions
@options.context
def command(
    *,
    config: str,
    model: str | None,
    find: str | None,
    train: bool,
    dimensions: dict[str, int],
    **context: Any,
) -> None:
    """Say in words what CONFIG, a MINDSPORE_DUMP_CONFIG file, does.

    With --model: which of its kernels match, how many files and bytes a
    dump writes, what is left out and why, and which operators nothing here
    can run. Nothing runs and nothing is written. Exit codes: 0 the
    configuration is good, 1 the model has an operator outside of branches
    and loops that nothing here can run, 2 the configuration has faults,
    which are all named.
    """
    if find is not None and model is None:
        raise click.UsageError("--find needs --model")
    mindspore.set_options(**context)
    where = mindspore.current_context()
    plan = config_reader.parse(source.read(config, "CONFIG"), config, where)
    print(describe(plan))
    if model is None:
        return
    graph = loader.load(model, keeps_classes=where.reserves_class_names)
    graph = graph.training_step() if train else graph
    check_sizes(graph, dimensions)
    device = emulated(graph, plan, plan.context)
    if find is not None:
        _print_operators_like(find, operators(graph if device is None else device.graph))
        return
    selected = matches(graph, plan, device)
    print(f"\nmodel:      {graph.source}, {_counts(graph, selected)}")
    _print_matches(selected, plan)
    # Loaded again with sizes: without them it is the graph whose names of sizes graph files show.
    settled = loader.load(model, sizes=dimensions) if dimensions else graph
    settled = settled.step if train else settled
    print("\n".join(_forecast_lines(graph, plan, settled)))
    _print_left_out(left_out(graph, plan, device))
    if not _tell_runs(settled):
        raise SystemExit(1)


def _tell_runs(graph: Graph) -> bool:
    """Print the operators that have no kernel; return whether a run may succeed nevertheless.

    It may if they all lie in branches or loops, which a run need not take.
    """
    # The operators of the main graph run in every step; those inside branches and loops perhaps never.
    always = {node.operator.full_name for node in graph.operators}
    may_succeed = True
    for node, reason in unrunnable(graph):
        is_certain = node.operator.full_name in always
        may_succeed = may_succeed and not is_certain
        remark = "" if is_certain else " (only where its branch or loop runs)"
        print(f"cannot run: {node.operator.full_name}{remark}: {reason}")
    return may_succeed


def _print_operators_like(text: str, nodes: Sequence[Node]) -> None:
    """Print the ``kernels`` item that a text suggests, and the operators whose names contain the text."""
    hint = suggest(text, nodes)
    print(f"\n{text!r}: {hint or 'no operator is called like that'}")
    lower = text.lower()
    named = [node.operator for node in nodes if lower in f"{node.operator.full_name} {node.name}".lower()]
    for operator in named:
        print(f"  {operator.op_type:<20} {operator.full_name}")


def _counts(graph: Graph, selected: Matches) -> str:
    count = sum(len(inner.operators) for inner in graph.walk())
    compiled = f", compiled into {plural(selected.count, 'kernel')}" if selected.is_compiled else ""
    return f"{plural(count, 'operator')}{compiled}, {len(selected.kernels)} dumped"


def _print_matches(selected: Matches, plan: DumpPlan) -> None:
    shown = selected.kernels if messages.verbosity() else selected.kernels[:_SHOWN]
    if sys.stdout.isatty():  # a pipe gets plain lines, which grep and cut understand
        _print_table(shown)
    else:
        print("\n".join(f"  {operator.op_type:<20} {operator.full_name}" for operator in shown))
    if len(shown) < len(selected.kernels):
        print(f"  ... and {len(selected.kernels) - len(shown)} more; -v lists all")
    if selected.parameters:
        print(f"parameters: {len(selected.parameters)}, at the end of each dumped iteration")
    if plan.what.selector.mode is DumpMode.MARKED:
        print("set_dump marks operators while the program runs; the forecast is without them")
    for item in selected.unmatched:
        print(f"matches nothing: {item.item!r}" + (f" ({item.hint})" if item.hint else ""))


def _print_table(operators: Sequence[OperatorRef]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("  operator type", "full name", box=None, pad_edge=False)
    for operator in operators:
        table.add_row(f"  {operator.op_type}", operator.full_name)
    Console(width=_WIDE).print(table)


def _print_left_out(counts: Mapping[tuple[str, Reason], int]) -> None:
    """Print how many operators, inputs and outputs get no file, by reason."""
    title = "left out:"
    for (noun, reason), count in counts.items():
        print(f"{title:<12}{plural(count, noun)}: {reason}")
        title = ""


def _forecast_lines(graph: Graph, plan: DumpPlan, settled: Graph) -> Iterator[str]:
    if not plan.is_enabled or not graph.nodes:
        empty = "the model has no operators"
        yield f"forecast:   nothing, because {empty if plan.is_enabled else _OTHER_DEVICE}"
        return
    yield from _amounts(forecast(graph, plan, settled), plan)


def _amounts(amounts: Forecast, plan: DumpPlan) -> Iterator[str]:
    unknown = f", and {plural(amounts.unknown, 'tensor')} of unknown shape" if amounts.unknown else ""
    yield f"forecast:   {_amount(amounts.per_iteration)} for each iteration{unknown}"
    if amounts.branches:
        yield f"            {plural(amounts.branches, 'tensor')} more each time that branches and loops run"
    yield f"            {_amount(amounts.once)} once: graph files, metadata, constants"
    if amounts.total is not None:
        number = plural(amounts.iterations or 0, "iteration")
        yield f"            {_amount(amounts.total)} for {number} in all{unknown and ', and those'}"
    for reason, count in amounts.skipped.items():
        yield f"            no file for {plural(count, 'tensor')} of each iteration: {reason}"
    if amounts.total is not None and 0 < plan.files.max_bytes < amounts.total.bytes:
        yield f"            more than max_bytes {plan.files.max_bytes:,}: what does not fit is skipped"


def _amount(amount: Amount) -> str:
    return f"{plural(amount.files, 'file')}, {amount.bytes:,} bytes"
