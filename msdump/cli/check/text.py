"""What ``msdump check`` prints of a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msdump.cli import messages
from msdump.cli.check.checked import ModelCheck, operators_like
from msdump.cli.counts import plural
from msdump.graph.graph import Graph, Node
from msdump.plan import DumpPlan
from msdump.reasons import Reason
from msdump.record import OperatorRef
from msdump.selector import DumpMode
from msdump.tools.preview.forecast import Amount, Forecast
from msdump.tools.preview.matches import Matches

_SHOWN: Final = 20  # kernels that are listed; -v lists all
_WIDE: Final = 4096  # columns: a narrow terminal breaks long names itself, a table would cut them
_OTHER_DEVICE: Final = "support_device does not hold this device"


def print_model(checked: ModelCheck) -> None:
    """Print what a configuration does to a model."""
    graph, plan = checked.graph, checked.plan
    print(f"\nmodel:      {graph.source}, {_counts(graph, checked.selected)}")
    _print_matches(checked.selected, plan)
    print("\n".join(_forecast_lines(checked.amounts, plan)))
    _print_left_out(checked.left_out)
    for node, reason, is_certain in checked.cannot_run:
        remark = "" if is_certain else " (only where its branch or loop runs)"
        print(f"cannot run: {node.operator.full_name}{remark}: {reason}")


def print_operators_like(text: str, nodes: Sequence[Node]) -> None:
    """Print the ``kernels`` item that a text suggests, and the operators whose names contain the text."""
    hint, named = operators_like(text, nodes)
    print(f"\n{text!r}: {hint or 'no operator is called like that'}")
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


def _forecast_lines(amounts: Forecast | None, plan: DumpPlan) -> Iterator[str]:
    if amounts is None:
        empty = "the model has no operators"
        yield f"forecast:   nothing, because {empty if plan.is_enabled else _OTHER_DEVICE}"
        return
    yield from _amounts(amounts, plan)


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
