"""Advice on where to look first, drawn from the result of a comparison (msaccucmp's ``-advisor``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.tools.compare.cann.comparison import Row

SUMMARY: Final = "advisor_summary.txt"
"""Name of the file of the advice."""

_SIMILARITY: Final = "CosineSimilarity"
_ENOUGH: Final = 0.99  # vendor: a smaller cosine similarity counts as different
_NONE: Final = "NA"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to look at first.

    Attributes:
        kind: Name of the check that found something, "NA" for none.
        index: Number of the operator in the result, "NA" for none.
        text: The advice.
    """

    kind: str
    index: str
    text: str

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the summary.

        >>> Advice("FP16 Overflow", "7", "Mend that first.").lines()
        ('Detection Type: FP16 Overflow', 'Operator Index: 7', 'Expert Advice: Mend that first.')
        """
        return (
            f"Detection Type: {self.kind}",
            f"Operator Index: {self.index}",
            f"Expert Advice: {self.text}",
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of a comparison, as the checks read it.

    Attributes:
        rows: The rows, in the order of the file.
        similarities: Cosine similarity of each row, NaN where there is none.
        inputs: Names of the graph's inputs.
    """

    rows: Sequence[Row]
    similarities: Sequence[float]
    inputs: Sequence[str]

    def first_below(self, operators: Sequence[str] | None = None) -> Row | None:
        """Return the first row whose cosine similarity is below ``_ENOUGH``.

        Args:
            operators: Names of the operators that count, None: all.
        """
        for row, similarity in zip(self.rows, self.similarities, strict=True):
            if similarity < _ENOUGH and (operators is None or row.pair.dumped in operators):
                return row
        return None


def advise(rows: Sequence[Row], names: Sequence[str], inputs: Sequence[str]) -> Advice:
    """Return the advice of the first check that finds something; one of "NA" where none does.

    Args:
        rows: The result, in the order of the file.
        names: Algorithms by name, in the order of the scores.
        inputs: Names of the graph's inputs, none where they are not known.
    """
    column = names.index(_SIMILARITY) if _SIMILARITY in names else None
    # vendor: the tool reads its own table, so what the six decimals round up counts as enough.
    similarities = [math.nan if column is None else _number(row.scores[column]) for row in rows]
    evidence = Evidence(rows, similarities, inputs)
    suggestions = (check(evidence) for check in _CHECKS)
    return next(filter(None, suggestions), Advice(_NONE, _NONE, _NONE))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _overflow(evidence: Evidence) -> Advice | None:
    for row in evidence.rows:
        if row.overflow == "YES":
            text = "A float16 tensor overflows. Mend that first, then compare again."
            return Advice("FP16 Overflow", str(row.pair.index), text)
    return None


def _inputs(evidence: Evidence) -> Advice | None:
    row = evidence.first_below(evidence.inputs)
    if row is None:
        return None
    text = "The two networks did not get the same input. Compare the data and how it is prepared."
    return Advice("Input Inconsistent", str(row.pair.index), text)


def _consistency(evidence: Evidence) -> Advice | None:
    known_similarities = [similarity for similarity in evidence.similarities if not math.isnan(similarity)]
    if not known_similarities:
        return None
    row = evidence.first_below()
    if row is None:
        failed = sum(bool(row.pair.fault) for row in evidence.rows)
        others = f" that could be compared agree; {failed} could not" if failed else " agree"
        text = f"All tensors{others}. If the network is still wrong, look at what is made of its outputs."
        return Advice("Global Consistency", _NONE, text)
    # The last row that has a similarity is the network's output, or nearest to it.
    is_result_good = known_similarities[-1] >= _ENOUGH
    text = (
        "Some tensors differ, yet the last one agrees. That may come from optimisations and can be ignored."
        if is_result_good
        else "Some tensors differ, and so does the last one. Look at the first; quantisation may be why."
    )
    return Advice("Global Consistency", str(row.pair.index), text)


# From cause to effect: an overflow or another input explains whatever differs behind it.
_CHECKS: Final[tuple[Callable[[Evidence], Advice | None], ...]] = (_overflow, _inputs, _consistency)
