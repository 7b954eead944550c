"""Rows of ``statistic.csv`` that do not measure the tensor beside them: one of the two files was changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msdump.statistics.table import STATISTICS, Nature
from msdump.tools.compare.measured import pairs, rows
from msdump.tools.compare.measured.differences import RowComparison
from msdump.tools.judge.verdicts import TensorVerdict

# Beside its own tensor a row has to be right in every count and digit.
_EXACT: Final = {
    each.category: 0.0
    for each in STATISTICS
    if each.nature in {Nature.COUNT, Nature.SIGN_COUNT, Nature.DIGEST}
}


def contradictions(path: str, execution: int | None = None) -> Iterator[str]:
    """Yield a message for each row of a directory that contradicts the tensor in its file.

    Tensors without a row, and those of which only the first elements were saved, are left out.

    Args:
        path: A directory of an iteration.
        execution: Number of the execution, None: the last one that is whole.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    side = rows.read(path, execution)
    if not side.rows:
        return
    measured = pairs.measured_like(side, path, execution).side
    comparison = RowComparison(_EXACT)
    for place, row in side.rows.items():
        if place not in measured.rows:
            continue
        evidence = comparison.evidence(row, measured.rows[place])
        if evidence.fault is TensorVerdict.DIFFERS or (evidence.error is not None and evidence.note):
            name, io, slot, _ = place
            yield f"{name} {io} {slot}: {evidence.note.partition(', beyond')[0]}"
