"""The document of ``msdump diff --advise --json``: which operators to keep, and what that does."""

from __future__ import annotations

from collections.abc import Sequence

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools.advise.advice import KeepAdvice, SearchEnd
from msdump.tools.advise.files import TypeSet


class KeptOperator(Part):
    """An operator to keep."""

    name: str
    """Name of its node in the model."""

    operator: str
    """Its full scoped name."""

    op_type: str
    """Its type."""


class OutputErrors(Part):
    """The relative error of an output for one input."""

    input: str
    """The input: its file, or the seed and step of one that was made up."""

    output: str
    """Name of the output."""

    before: Number
    """Its error with nothing kept."""

    after: Number
    """Its error with the operators kept; where no set was found, with all of them kept."""

    is_unseen: bool
    """Whether the search has not seen the input."""


class KeptTypes(Part):
    """What lists of operator types would keep instead."""

    types: list[str]
    """The types, as a compiled graph calls them."""

    operators: int
    """Number of the operators of these types."""

    error: Number
    """Largest error of an output with all of them kept, for the inputs that the search has seen."""


class AdviseDocument(JsonDocument):
    """The smallest set of operators to keep that was found."""

    model: str
    """Path of the model."""

    variant: str
    """What the network runs on: "Ascend:force_fp16"."""

    bound: Number
    """Largest relative error that an output may have."""

    outcome: SearchEnd
    """How the search ended: the set keeps the bound on an input that it has not seen, on none such, there is
    no set, or the user interrupted."""

    to: str
    """The element type in which the operators are kept."""

    candidates: int
    """Number of operators that the device rounds."""

    kept: list[KeptOperator] | None
    """The operators to keep, in the order of their execution; null where no set was found."""

    types: KeptTypes | None
    """What lists of types would keep; null where there is nothing to keep."""

    errors: list[OutputErrors]
    """The errors of the outputs, input by input."""

    runs: Number
    """How often the whole network ran, parts of runs added up."""

    files: list[str]
    """Files that were written."""


def document(
    advice: KeepAdvice, variant: str, types: TypeSet | None = None, files: Sequence[str] = ()
) -> AdviseDocument:
    """Return the document of some advice.

    Args:
        advice: The advice.
        variant: What the network runs on, as the user wrote it.
        types: What keeping whole types means, None where there is nothing to keep.
        files: Paths of the files that were written.
    """
    candidates = advice.variants.candidates.values()
    return AdviseDocument(
        model=advice.variants.graph.source,
        variant=variant,
        bound=advice.bound,
        outcome=advice.outcome,
        to=advice.variants.to.name,
        candidates=sum(candidate.size for candidate in candidates),
        kept=None if advice.kept is None else _kept(advice),
        types=None if types is None else _types(types),
        errors=[
            OutputErrors(
                input=error.example,
                output=error.output,
                before=error.before,
                after=error.after,
                is_unseen=error.is_unseen,
            )
            for error in advice.errors
        ],
        runs=advice.runs,
        files=[*files],
    )


def _kept(advice: KeepAdvice) -> list[KeptOperator]:
    return [
        KeptOperator(name=node.name, operator=node.operator.full_name, op_type=node.operator.op_type)
        for node in advice.nodes
    ]


def _types(types: TypeSet) -> KeptTypes:
    return KeptTypes(types=[*types.types], operators=types.size, error=types.error)
