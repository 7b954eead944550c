"""The document of ``msdump check --json``."""

from __future__ import annotations

from collections.abc import Iterable

from msdump.cli.check.checked import ModelCheck
from msdump.cli.documents.document import JsonDocument, Part
from msdump.record import OperatorRef
from msdump.tools.preview.forecast import Amount, Forecast


class NamedOperator(Part):
    """An operator."""

    name: str
    """Its full scoped name."""

    op_type: str
    """Its type as the device calls it."""


class UnmatchedItem(Part):
    """An item of "kernels" that selects nothing."""

    item: str
    """The item as the configuration has it."""

    hint: str | None
    """What may be meant; null where nothing is close."""


class FileAmount(Part):
    """A number of files."""

    files: int
    """How many files."""

    bytes: int
    """Bytes in all of them."""


class DumpForecast(Part):
    """What a dump will write."""

    once: FileAmount
    """Written once: graph files, metadata, constants."""

    per_iteration: FileAmount
    """Written in each dumped iteration."""

    iterations: int | None
    """Number of dumped iterations; null where they have no end."""

    total: FileAmount | None
    """Written in all; null where the iterations have no end."""

    unknown: int
    """Tensors of an iteration whose shape only a run shows; the amounts lack them."""

    branches: int
    """Tensors that branches and loops write each time they run; the amounts lack them."""

    skipped: dict[str, int]
    """Tensors of an iteration that get no file, by reason."""


class LeftOut(Part):
    """What gets no file."""

    what: str
    """"operator", "input" or "output"."""

    reason: str
    """Why."""

    count: int
    """How many of the model."""


class Unrunnable(Part):
    """An operator that nothing here can run."""

    name: str
    """Its full scoped name."""

    is_certain: bool
    """Whether every run reaches it; false inside branches and loops."""

    reason: str
    """Why."""


class CheckedModel(Part):
    """What the configuration does to a model."""

    source: str
    """The model's file."""

    operators: int
    """Number of its operators, with those in branches and loops."""

    compiled: int | None
    """Number of kernels that the device compiles them into; null where it does not."""

    dumped: list[NamedOperator]
    """The operators that are dumped, in the order of execution."""

    parameters: list[str]
    """Weights and inputs that are dumped at the end of each iteration."""

    unmatched: list[UnmatchedItem]
    """Items of "kernels" that select nothing."""

    forecast: DumpForecast | None
    """What is written; null where that is nothing."""

    left_out: list[LeftOut]
    """What gets no file, by reason."""

    cannot_run: list[Unrunnable]
    """Operators that nothing here can run."""


class FoundOperators(Part):
    """The operators that a text may mean."""

    text: str
    """The text of --find."""

    suggestion: str | None
    """The item of "kernels" to write; null where no operator is called like that."""

    operators: list[NamedOperator]
    """Operators whose names contain the text."""


class CheckDocument(JsonDocument):
    """What a dump configuration does."""

    plan: dict[str, str]
    """What it does, in words by subject: device, files, iterations, operators, tensors, ..."""

    model: CheckedModel | None = None
    """What it does to a model; null without --model, and with --find."""

    found: FoundOperators | None = None
    """The operators that --find is about; null without it."""


def named(operators: Iterable[OperatorRef]) -> list[NamedOperator]:
    """Return operators as a document lists them."""
    return [NamedOperator(name=each.full_name, op_type=each.op_type) for each in operators]


def _forecast_part(forecast: Forecast) -> DumpForecast:
    return DumpForecast(
        once=_amount(forecast.once),
        per_iteration=_amount(forecast.per_iteration),
        iterations=forecast.iterations,
        total=None if forecast.total is None else _amount(forecast.total),
        unknown=forecast.unknown,
        branches=forecast.branches,
        skipped={str(reason): count for reason, count in forecast.skipped.items()},
    )


def _amount(amount: Amount) -> FileAmount:
    return FileAmount(files=amount.files, bytes=amount.bytes)


def found_part(text: str, suggestion: str, found: Iterable[OperatorRef]) -> FoundOperators:
    """Return the operators that a text may mean."""
    return FoundOperators(text=text, suggestion=suggestion or None, operators=named(found))


def model_part(checked: ModelCheck) -> CheckedModel:
    """Return what a configuration does to a model."""
    selected, amounts = checked.selected, checked.amounts
    return CheckedModel(
        source=checked.graph.source,
        operators=sum(len(inner.operators) for inner in checked.graph.walk()),
        compiled=selected.count if selected.is_compiled else None,
        dumped=named(selected.kernels),
        parameters=[*selected.parameters],
        unmatched=[UnmatchedItem(item=each.item, hint=each.hint or None) for each in selected.unmatched],
        forecast=None if amounts is None else _forecast_part(amounts),
        left_out=[
            LeftOut(what=noun, reason=str(reason), count=count)
            for (noun, reason), count in checked.left_out.items()
        ],
        cannot_run=[
            Unrunnable(name=node.operator.full_name, is_certain=is_certain, reason=reason)
            for node, reason, is_certain in checked.cannot_run
        ],
    )
