"""``msdump compare`` of dumps of which one holds statistics alone."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msdump.cli import messages
from msdump.tools import reports
from msdump.tools.compare.pairing import dump_folders
from msdump.tools.compare.verdict import statistic_rows
from msdump.tools.compare.verdict.statistic_rows import RowResult, RowSide
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import AGREEING, BAD, TensorVerdict

_SHOWN: Final = 30  # tensors; of more only those that differ are printed
_TITLES: Final = (
    *("Directory", "Op Type", "Op Name", "Pass", "IO", "Slot"),
    *("Verdict", "RelativeDifference", "Reason"),
)


def run(
    dumped: str, golden: str, output: str, limits: Limits, executions: tuple[int | None, int | None]
) -> bool | None:
    """Compare and print; return whether everything agrees, None where nothing has a counterpart.

    Args:
        dumped: The dump that is examined.
        golden: The dump that it is compared with.
        output: Directory of the table.
        limits: What counts as agreement.
        executions: Number of the execution of each side, None: the last one that is whole.

    Raises:
        ToolError: A dump cannot be used, or the table cannot be written.
        DumpReadError: A table of statistics cannot be read.
    """
    pairs = dump_folders.pair_statistics(dumped, golden)
    results: list[RowResult] = []
    for pair in pairs.pairs:
        dumped_rows, golden_rows = _read(pair.dumped, executions[0]), _read(pair.golden, executions[1])
        results += statistic_rows.compare(pair.label, dumped_rows, golden_rows, limits)
    compared = [result for result in results if result.verdict is not TensorVerdict.UNCHECKED]
    if not compared:
        messages.say(f"error: nothing was compared: no row of {dumped} has a counterpart in {golden}")
        return None
    for line in _lines(results):
        print(line)
    for path in pairs.alone:
        messages.say(f"warning: {path} has no counterpart")
    print(f"written   {reports.write(output, reports.stamped('compare', '.csv'), [_table(results)])}")
    return not any(result.verdict in BAD for result in results)


def _read(path: str, execution: int | None) -> RowSide:
    # Where several runs dumped into one path, the user is told which one is read.
    side = statistic_rows.read(path, execution)
    messages.tell_execution(path, side.execution, side.executions)
    return side


def _lines(results: Sequence[RowResult]) -> Iterator[str]:
    bad = [result for result in results if result.verdict in BAD]
    is_long = len(results) > _SHOWN and not messages.verbosity()
    for result in bad[:_SHOWN] if is_long else results:
        reason = f"  {result.note}" if result.note else ""
        yield f"{_name(result):<64}{result.difference:>10.1e}  {result.verdict}{reason}"
    yield f"first     {_name(bad[0]) if bad else 'nothing differs'}"
    counts = Counter(result.verdict for result in results)
    failed = counts[TensorVerdict.SHAPE] + counts[TensorVerdict.UNREADABLE]
    agreeing = sum(counts[verdict] for verdict in AGREEING)
    yield (
        f"compared  {len(results) - counts[TensorVerdict.UNCHECKED]:,} rows of statistics: {agreeing:,} agree"
        f" ({counts[TensorVerdict.EQUAL]:,} equal), {counts[TensorVerdict.DIFFERS]:,} differ,"
        f" {failed:,} failed"
    )
    if counts[TensorVerdict.UNCHECKED]:
        yield f"alone     {counts[TensorVerdict.UNCHECKED]:,} rows without a counterpart"


def _name(result: RowResult) -> str:
    name, side, slot, number = result.place
    place = f"{result.label} " if result.label else ""
    return f"{place}{name}{f' (pass {number})' if number else ''} {side} {slot}"


def _table(results: Sequence[RowResult]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_TITLES)
    for result in results:
        name, side, slot, number = result.place
        cells = (result.label, result.op_type, name, number, side, slot)
        writer.writerow((*cells, result.verdict, f"{result.difference:.6g}", result.note))
    return text.getvalue()
