"""The document of ``msdump diff --json``: that of a comparison, and what lockstep alone has."""

from __future__ import annotations

from collections.abc import Sequence

from msdump.cli.documents import compare
from msdump.cli.documents.compare import CompareDocument, ErrorNumbers
from msdump.cli.documents.document import Number, Part
from msdump.tools.bisection.search import ExchangedPart
from msdump.tools.diff.comparison import LockstepComparison, OutputDifference
from msdump.tools.diff.sides import Side


class ComparedSide(Part):
    """One of the two networks."""

    model: str
    """Path of the model."""

    variant: str
    """What it ran on: "Ascend:force_fp16", "float32", ..."""


class NetworkOutput(Part):
    """An output of the network in one run."""

    iteration: int
    """Number of the run."""

    name: str
    """Name of the output."""

    error: ErrorNumbers | None
    """How far it is from golden's; null where it could not be compared."""


class DifferencePart(Part):
    """The smallest part of a model whose exchange explains the difference (--bisect)."""

    mine: list[str]
    """Its operators in the examined model."""

    golden: list[str]
    """The operators of the other model in whose place they stand."""

    difference: Number
    """Relative distance of the outputs that the part brings about."""

    whole: Number
    """The same of the two models."""

    files: list[str]
    """Files that were written of it."""


class DiffDocument(CompareDocument):
    """The verdicts of two networks in lockstep."""

    mine: ComparedSide
    """What is examined."""

    golden: ComparedSide
    """What it is compared with."""

    runs: int
    """How often both ran."""

    outputs: list[NetworkOutput]
    """The outputs of the network, run by run."""

    failures: list[str]
    """What ended a run of a side before its time."""

    part: DifferencePart | None
    """The part that explains the difference; null where none was looked for, or found."""


def document(comparison: LockstepComparison, part: DifferencePart | None = None) -> DiffDocument:
    """Return the document of two networks.

    Args:
        comparison: The two, compared.
        part: The part that explains the difference, None where none was looked for.
    """
    verdicts = compare.document(comparison.report)
    return DiffDocument(
        **dict(verdicts),
        mine=_side(comparison.mine),
        golden=_side(comparison.golden),
        runs=comparison.runs,
        outputs=[_output(each) for each in comparison.outputs],
        failures=[*comparison.failures],
        part=part,
    )


def part_document(part: ExchangedPart, files: Sequence[str]) -> DifferencePart:
    """Return a part that explains a difference as a document has it.

    Args:
        part: The part.
        files: Files that were written of it.
    """
    return DifferencePart(
        mine=part.names,
        golden=part.golden_names,
        difference=part.difference,
        whole=part.whole,
        files=[*files],
    )


def _side(side: Side) -> ComparedSide:
    return ComparedSide(model=side.model.source, variant=side.variant.text)


def _output(output: OutputDifference) -> NetworkOutput:
    error = output.evidence.error
    return NetworkOutput(
        iteration=output.iteration,
        name=output.evidence.name,
        error=None if error is None else compare.numbers(error),
    )
