"""The document of ``msdump compare --json``, and the parts of it that other comparisons have, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools.judge.errors import TensorError
from msdump.tools.judge.evidence import OperatorPlace, OwnError
from msdump.tools.judge.findings import Finding, Report, TensorResult
from msdump.tools.judge.verdicts import TensorVerdict, Verdict
from msdump.tools.scores import algorithms

_OF_TENSOR: Final = {
    TensorVerdict.UNCHECKED: Verdict.UNCHECKED,
    TensorVerdict.EQUAL: Verdict.EQUAL,
    TensorVerdict.AGREES: Verdict.AGREES,
    TensorVerdict.UNREADABLE: Verdict.UNREADABLE,
    TensorVerdict.SHAPE: Verdict.SHAPE,
    TensorVerdict.DTYPE: Verdict.DTYPE,
    TensorVerdict.DIFFERS: Verdict.OWN,
}


class ErrorNumbers(Part):
    """How far two tensors are apart; masked elements have no part in it."""

    is_same: bool
    """Whether every element has the same bits, once the narrower type is widened."""

    distance: Number
    """Norm of the difference, divided by that of golden; of statistics their largest difference."""

    cosine: Number
    """Cosine similarity; NaN where one of the two is zero, or NaN stand at other places."""

    largest: Number
    """Largest difference of two elements."""

    scaled: Number
    """Largest difference, divided by the largest golden element."""

    ulps: Number | None
    """Largest difference in units of the last place of the coarser type; null where nobody counted them."""

    misplaced: int
    """Number of elements that are NaN or infinite on one side, and not the same on the other."""

    masked: int
    """Number of elements that hold a mask's constant on both sides."""

    changed: int
    """Number of elements that differ, of integers and truth values; else 0."""


class ComparedTensor(Part):
    """A tensor beside its counterpart."""

    tensor: str
    """Which, "input:0" or "output:0"."""

    name: str | None
    """Name of the value or the parameter; null where it is not known."""

    verdict: TensorVerdict
    """The verdict on it."""

    dtype: str | None
    """Its element type; null where it is not known."""

    golden_dtype: str | None
    """Element type of its counterpart; null without one."""

    shape: list[int]
    """Its shape on the host."""

    limit: Number | None
    """Largest distance that was allowed; null where the two had to be the same, or were not compared."""

    error: ErrorNumbers | None
    """How far the two are apart; null where they were not compared."""

    scores: dict[str, str]
    """Scores as CANN's comparison prints them, by algorithm; none where they were not computed."""

    note: str | None
    """Reason of the verdict, where the numbers do not tell; null for none."""


class OwnErrorOfOutput(Part):
    """An output beside the one that the operator gives when it runs again on the examined side's inputs."""

    output: int
    """Number of the output."""

    error: ErrorNumbers
    """How far the two are apart."""

    allowed: Number
    """Distance that is explained: by rounding, by 8 bits, or as the limit given says."""

    is_explained: bool
    """Whether the error is no more than that."""

    arithmetic: str
    """What it ran again in: "float32", "Ascend:force_fp16", "float64"."""

    note: str | None
    """What the numbers do not tell; null for nothing."""


class JudgedOperator(Part):
    """One execution of an operator, and the verdict on it."""

    operator: str
    """Its full scoped name; the name that files have where that is all that is known."""

    op_type: str | None
    """Its type; null where it is not known."""

    verdict: Verdict
    """Whose error it is."""

    note: str | None
    """Reason of the verdict in words; null where the numbers tell."""

    onnx_name: str | None
    """Name of its node in the model; null where it is not known."""

    scope: str | None
    """Its scope; null where it is not known."""

    source: str | None
    """Its line in the source, "net.py:12: x = self.fc(x)"; null where it is not known."""

    iteration: int | None
    """Number of the iteration; null where it is not known."""

    rank: int | None
    """Number of the rank; null where it is not known."""

    pass_number: int | None
    """Which of its runs in the iteration it is, from 0; null where it ran once."""

    execution: int | None
    """Number of the execution, where several left files in one place; else null."""

    directory: str | None
    """Directory of its files below the dump; null where there is only one."""

    order: int
    """Place in the execution of its directory, from 1; 0 of an operator that did not run."""

    replaces: str | None
    """The golden operator in whose place it stands; null where both have the same one."""

    reaches_output: bool | None
    """Whether NaN or an infinity that it makes reaches an output of the network; null: not known."""

    own: list[OwnErrorOfOutput]
    """Its own error by output; none where it did not run again."""

    inputs: list[ComparedTensor]
    """What it reads."""

    outputs: list[ComparedTensor]
    """What it writes."""


class UnevenOperator(Part):
    """An operator of a loop that ran more often on one side."""

    operator: str
    """The operator as the names of files have it."""

    mine: int
    """Number of its executions on the examined side."""

    golden: int
    """Number of its executions on the golden side."""


class CompareDocument(JsonDocument):
    """The verdicts of a comparison."""

    verdict: Verdict
    """That of the first operator at fault, else the worst of the others; "unchecked" without any."""

    first: str | None
    """The first operator that differs; null where none does."""

    accused: list[str]
    """The operators that are at fault, in the order of execution."""

    tensors: dict[TensorVerdict, int]
    """Number of tensors by verdict."""

    operators: list[JudgedOperator]
    """All operators, directory by directory in the order of execution, behind them golden's of which mine has
    no files; each once."""

    uneven: list[UnevenOperator]
    """Operators of loops that did not run equally often."""

    unreadable: list[str]
    """Golden files that cannot be read."""

    alone: list[str]
    """Directories without a counterpart."""

    table: str | None
    """File of the table of all tensors; null where none was written."""


def document(report: Report, *, alone: Sequence[str] = (), table: str | None = None) -> CompareDocument:
    """Return the document of a report.

    Args:
        report: The verdicts.
        alone: Directories without a counterpart.
        table: File of the table.
    """
    return CompareDocument(
        verdict=report.verdict,
        first=None if report.first is None else _name(report.first.place),
        accused=[_name(finding.place) for finding in report.accused],
        tensors=dict(report.tensors),
        operators=[
            *(judged(finding) for finding in report.findings),
            *map(judged, report.absent),
        ],
        uneven=[
            UnevenOperator(operator=each.name, mine=each.dumped, golden=each.golden) for each in report.uneven
        ],
        unreadable=[*report.unreadable],
        alone=[*alone],
        table=table,
    )


def document_of_files(path: str, result: TensorResult) -> CompareDocument:
    """Return the document of two files of one tensor each.

    Args:
        path: The file that is examined.
        result: The verdict on its tensor.
    """
    # An operator without inputs, named by the file: readers need not know two forms.
    report = Report()
    report.add(Finding(OperatorPlace(path, order=1), _OF_TENSOR[result.verdict], (result,), result.note))
    return document(report)


def judged(finding: Finding) -> JudgedOperator:
    """Return the verdict on an operator as a document has it."""
    place = finding.place
    return JudgedOperator(
        operator=_name(place),
        op_type=place.op_type or None,
        verdict=finding.verdict,
        note=finding.note or None,
        onnx_name=place.onnx_name or None,
        scope=place.scope or None,
        source=place.source or None,
        iteration=place.iteration,
        rank=place.rank,
        pass_number=place.pass_number,
        execution=place.execution,
        directory=place.label or None,
        order=place.order,
        replaces=finding.replaces or None,
        reaches_output=finding.reaches_output,
        own=[_own(error) for error in finding.own],
        inputs=[compared(tensor) for tensor in finding.inputs],
        outputs=[compared(tensor) for tensor in finding.outputs],
    )


def compared(tensor: TensorResult) -> ComparedTensor:
    """Return the verdict on a tensor as a document has it."""
    evidence = tensor.evidence
    return ComparedTensor(
        tensor=f"{tensor.io}:{tensor.slot}",
        name=evidence.name or None,
        verdict=tensor.verdict,
        dtype=evidence.dtype or None,
        golden_dtype=evidence.golden_dtype or None,
        shape=[*evidence.shape],
        limit=tensor.limit,
        error=None if evidence.error is None else numbers(evidence.error),
        scores=dict(zip(algorithms.ALL, evidence.scores, strict=False)),  # none where nothing was compared
        note=tensor.note or None,
    )


def numbers(error: TensorError) -> ErrorNumbers:
    """Return how far two tensors are apart as a document has it."""
    return ErrorNumbers(
        is_same=error.is_same,
        distance=error.distance,
        cosine=error.cosine,
        largest=error.largest,
        scaled=error.scaled,
        ulps=None if math.isnan(error.ulps) else error.ulps,
        misplaced=error.misplaced,
        masked=error.masked,
        changed=error.changed,
    )


def _own(own: OwnError) -> OwnErrorOfOutput:
    return OwnErrorOfOutput(
        output=own.slot,
        error=numbers(own.error),
        allowed=own.allowed,
        is_explained=own.is_explained,
        arithmetic=own.arithmetic,
        note=own.note or None,
    )


def _name(place: OperatorPlace) -> str:
    return place.full_name or place.name
