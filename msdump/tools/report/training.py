"""Loss and gradient norms of a training over its iterations."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind
from msdump.tools.report.operators import ReportedOperator
from msdump.tools.report.series import StatisticSeries
from msdump.tools.watching import dumped
from msdump.watch.conditions import Role
from msdump.watch.subjects import subject

_MOST_INPUTS: Final = 16  # of an optimizer

_Place = tuple[int, str]


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """A number of a training over its iterations.

    Attributes:
        name: What it is: "loss" or "gradient norm".
        rank: Number of the rank.
        of: The operator of the loss; how many gradients the norm is of.
        values: By iteration; NaN where nothing was dumped.
    """

    name: str
    rank: int
    of: str
    values: tuple[float, ...]


def curves(
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    graphs: Mapping[_Place, OperatorGraph],
) -> list[TrainingCurve]:
    """Return the losses and the norms of all gradients that optimizers read, by rank."""
    rows = {(each.operator, each.io, each.slot): row for row, each in enumerate(series.tensors)}
    return [*_losses(operators, series, graphs), *_norms(operators, series, rows)]


def _losses(
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    graphs: Mapping[_Place, OperatorGraph],
) -> Iterator[TrainingCurve]:
    table = next((series.numbers[name] for name in ("avg", "max", "min") if name in series.numbers), None)
    for row, tensor in enumerate(series.tensors):
        operator = operators[tensor.operator]
        if table is None or tensor.io is not IO.OUTPUT:
            continue
        graph = graphs.get((operator.rank, operator.place))
        is_loss = dumped.is_loss_output(graph, operator.described, tensor.slot)
        told = subject(operator.op_type, operator.name, tensor.io, tensor.slot, is_loss=is_loss)
        # without a graph, shapes tell the loss from the logits' gradient beside it
        if Role.LOSS in told.roles and tensor.shape in {"", "1"}:
            yield TrainingCurve("loss", operator.rank, operator.name, tuple(table[row].tolist()))


def _norms(
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    rows: Mapping[tuple[int, IO, int], int],
) -> Iterator[TrainingCurve]:
    norms = series.numbers.get("l2norm")
    if norms is None:
        return
    by_rank: dict[int, list[int]] = {}
    for place, operator in enumerate(operators):
        row = _gradient(operators, place, rows)
        if row is not None:
            by_rank.setdefault(operator.rank, []).append(row)
    for rank, members in by_rank.items():
        known = norms[members]
        sums = np.sqrt(np.nansum(known**2, axis=0))
        sums[np.isnan(known).all(axis=0)] = np.nan
        struck = np.isnan(known) & (series.states[members] > 0)
        sums[struck.any(axis=0)] = np.nan
        yield TrainingCurve("gradient norm", rank, f"{len(members)} gradients", tuple(sums.tolist()))


def _gradient(
    operators: Sequence[ReportedOperator], place: int, rows: Mapping[tuple[int, IO, int], int]
) -> int | None:
    """Return the row of the gradient that an optimizer reads: its input, or what wrote that."""
    operator = operators[place]
    slot = _gradient_slot(operator.op_type)
    if slot is None:
        return None
    row = rows.get((place, IO.INPUT, slot))
    sources = () if operator.described is None else operator.described.inputs
    if row is None and slot < len(sources) and sources[slot].kind is SourceKind.OPERATOR:
        writers = (each for each in operator.reads if operators[each].name == sources[slot].name)
        row = next((rows.get((each, IO.OUTPUT, sources[slot].slot)) for each in writers), None)
    return row


@functools.cache
def _gradient_slot(op_type: str) -> int | None:
    """Return the number of the input that is an optimizer's gradient, None of what is no optimizer."""
    slots = range(_MOST_INPUTS)
    return next((slot for slot in slots if Role.GRADIENT in subject(op_type, "", IO.INPUT, slot).roles), None)
