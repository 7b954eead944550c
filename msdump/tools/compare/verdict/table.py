"""The table of a comparison: a row for each tensor, in the order of execution."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msdump.record import IO
from msdump.tools.judge.evidence import OperatorPlace
from msdump.tools.judge.findings import Finding, TensorResult
from msdump.tools.scores import algorithms

_TITLES: Final = (
    *("Directory", "Order", "Operator", "Type", "Pass", "Tensor", "Shape", "DataType", "GoldenDataType"),
    "Verdict",
    *algorithms.ALL,
    *("Distance", "Limit", "Note"),
    *("OperatorVerdict", "OperatorNote", "ScaledError", "Ulps", "Masked", "OwnError"),
    *("FullName", "Scope", "Source", "Iteration", "Rank", "Execution"),
)


def table(findings: Iterable[Finding], absent: Iterable[Finding] = ()) -> str:
    """Return the text of the csv file with a row for each tensor, in the order of execution.

    Args:
        findings: The operators.
        absent: Golden operators that the examined side has no files of, a row for each.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_TITLES)
    writer.writerows(row for finding in findings for row in _rows(finding))
    writer.writerows(map(_absent, absent))
    return text.getvalue()


def _rows(finding: Finding) -> Iterator[Sequence[object]]:
    place = finding.place
    number = "" if place.pass_number is None else place.pass_number
    for tensor in finding.tensors:
        evidence = tensor.evidence
        yield (
            *(place.label, place.order, place.name, place.op_type, number),
            *(f"{tensor.io}:{tensor.slot}", shape(tensor), evidence.dtype, evidence.golden_dtype),
            tensor.verdict,
            *(evidence.scores or ("",) * len(algorithms.ALL)),
            "" if evidence.error is None else f"{evidence.error.distance:.6g}",
            "" if tensor.limit is None else f"{tensor.limit:.6g}",
            reason(finding, tensor),
            *(finding.verdict, finding.note, *_numbers(tensor), _own(finding, tensor)),
            *_where(place),
        )


def _where(place: OperatorPlace) -> tuple[object, ...]:
    numbers = (place.iteration, place.rank, place.execution)
    return (
        *(place.full_name, place.scope, place.source),
        *("" if each is None else each for each in numbers),
    )


def _absent(finding: Finding) -> Sequence[object]:
    place, verdict = finding.place, finding.verdict
    numbers = ("",) * (len(algorithms.ALL) + 2)
    own = (place.label, "", place.name, place.op_type, "", "", "", "", "", verdict, *numbers, "")
    return (*own, verdict, finding.note, "", "", "", "", *_where(place))


def _numbers(tensor: TensorResult) -> tuple[object, ...]:
    error = tensor.evidence.error
    return ("", "", "") if error is None else (f"{error.scaled:.6g}", f"{error.ulps:.6g}", error.masked)


def _own(finding: Finding, tensor: TensorResult) -> str:
    own = (each for each in finding.own if tensor.io is IO.OUTPUT and each.slot == tensor.slot)
    return next((f"{each.error.distance:.6g}" for each in own), "")


def shape(tensor: TensorResult) -> str:
    """Return a shape in a word, ``8x3x224x224``."""
    return "x".join(map(str, tensor.evidence.shape))


def reason(finding: Finding, tensor: TensorResult | None) -> str:
    """Return the text of a tensor's last column: the reason of its verdict, where numbers do not give it."""
    place = f"in the place of {finding.replaces}" if finding.replaces else ""
    return "; ".join(filter(None, (place, tensor.note if tensor is not None else "")))
