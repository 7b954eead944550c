"""Curves of a report: losses and gradient norms, histograms of elements."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.look import watching
from msdump.look.report.operators import ReportedOperator
from msdump.look.report.series import Fault, StatisticSeries
from msdump.read import Iteration, MeasuredRecord, OperatorGraph, Record, SourceKind
from msdump.record import IO
from msdump.watch import Role, subject

_MOST_INPUTS: Final = 16  # inputs of an optimizer that are searched for the gradient


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """A curve of a training, such as the loss, over its iterations.

    Attributes:
        name: "loss" or "gradient norm".
        rank: Number of the rank.
        of: The operator of the loss; how many gradients the norm is of.
        values: By iteration; NaN where nothing was dumped.
    """

    name: str
    rank: int
    of: str
    values: tuple[float, ...]


def training_curves(
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    graphs: Mapping[tuple[int, str], OperatorGraph],
) -> Iterator[TrainingCurve]:
    """Yield the losses, then by rank the norm of all gradients that optimizers read."""
    table = next((series.numbers[name] for name in ("avg", "max", "min") if name in series.numbers), None)
    for row, tensor in enumerate(series.tensors):
        operator = operators[tensor.operator]
        if table is None or tensor.io is not IO.OUTPUT:
            continue
        graph = graphs.get((operator.rank, operator.place))
        is_loss = watching.is_loss_output(graph, operator.described, tensor.slot)
        roles = subject(operator.op_type, operator.name, tensor.io, tensor.slot, is_loss=is_loss).roles
        # without a graph file only the shape distinguishes the loss from the second output, a gradient
        if Role.LOSS in roles and (is_loss or tensor.shape in {"", "1"}):
            yield TrainingCurve("loss", operator.rank, operator.name, tuple(table[row].tolist()))
    if "l2norm" not in series.numbers:
        return
    rows = {(each.operator, each.io, each.slot): row for row, each in enumerate(series.tensors)}
    by_rank: dict[int, list[int]] = {}
    for place, operator in enumerate(operators):
        slot = _gradient_slot(operator.op_type)
        if slot is None:
            continue
        gradient = rows.get((place, IO.INPUT, slot))  # else the output of the operator that writes it
        sources = () if operator.described is None else operator.described.inputs
        if gradient is None and slot < len(sources) and sources[slot].kind is SourceKind.OPERATOR:
            writers = (each for each in operator.reads if operators[each].name == sources[slot].name)
            gradient = next((rows.get((each, IO.OUTPUT, sources[slot].slot)) for each in writers), None)
        if gradient is not None:
            by_rank.setdefault(operator.rank, []).append(gradient)
    for rank, members in by_rank.items():
        known = series.numbers["l2norm"][members]
        sums = np.sqrt(np.nansum(known**2, axis=0))
        is_unknown = np.isnan(known)  # of a dumped tensor: NaN
        sums[is_unknown.all(axis=0) | (is_unknown & (series.states[members] > 0)).any(axis=0)] = np.nan
        yield TrainingCurve("gradient norm", rank, f"{len(members)} gradients", tuple(sums.tolist()))


@functools.cache
def _gradient_slot(op_type: str) -> int | None:
    slots = range(_MOST_INPUTS)
    return next((slot for slot in slots if Role.GRADIENT in subject(op_type, "", IO.INPUT, slot).roles), None)


_BINS: Final = 48
_SAMPLED: Final = 1 << 20  # elements of a tensor that are counted at most


@dataclass(frozen=True, slots=True)
class TensorHistogram:
    """The elements of a tensor in bins of equal width.

    Attributes:
        operator: Place of its operator in the list.
        tensor: Which, ``output:0``.
        iteration: Number of the iteration.
        low: Where the first bin begins.
        high: Where the last bin ends.
        counts: Number of elements in each bin, of the finite ones.
        golden: The same of golden's tensor, in the same bins; none where there is none.
        sampled: Number of elements that were counted.
        size: Number of elements that there are.
        nonfinite: Number of counted elements that are NaN or infinite.
    """

    operator: int
    tensor: str
    iteration: int
    low: float
    high: float
    counts: tuple[int, ...]
    golden: tuple[int, ...]
    sampled: int
    size: int
    nonfinite: int


def operator_histograms(
    operator: int, names: tuple[str, ...], directory: Iteration, golden: Iteration | None, fault: Fault
) -> Iterator[TensorHistogram]:
    """Yield the histograms of an operator's outputs in an iteration; none where only statistics were saved.

    Names are full and as files spell them; ``golden`` is the same iteration of the golden dump.
    """
    try:
        records = _outputs(directory, names)
        others = {} if golden is None else {each.slot: each for each in _outputs(golden, names)}
        for record in records:
            mine = _elements(record)
            if mine is None:
                continue
            values, size = mine
            finite = values[np.isfinite(values)]
            other = None if record.slot not in others else _elements(others[record.slot])
            golden_finite = np.empty(0) if other is None else other[0][np.isfinite(other[0])]
            both = np.concatenate((finite, golden_finite))
            low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 0.0)
            span = (low, high) if np.isfinite(high - low) else (low / 2, high / 2)
            counts, in_golden = (
                tuple(np.histogram(each, _BINS, span)[0].tolist()) if both.size else (0,) * _BINS
                for each in (finite, golden_finite)
            )
            yield TensorHistogram(
                *(operator, f"{record.io}:{record.slot}", directory.number, *span, counts),
                *(() if other is None else in_golden, values.size, size, values.size - finite.size),
            )
    except (DumpReadError, FormatError) as error:
        fault(str(error))


def _outputs(directory: Iteration, names: tuple[str, ...]) -> list[Record]:
    records = next(filter(None, (directory.tensors_of(name) for name in names)), ())
    kept = [each for each in records if not isinstance(each, MeasuredRecord)]
    last = {(each.io, each.slot): each for each in kept}  # the last pass of a loop replaces earlier ones
    outputs = [each for (io, _), each in last.items() if io == "output"]
    return outputs or [*last.values()]


def _elements(record: Record) -> tuple[np.ndarray, int] | None:
    """Return a sample of a tensor's elements as float64, and their number; None if empty, text or complex."""
    array = watching.elements(record)
    is_small_float = dtypes.from_numpy(array.dtype).name.startswith(("bfloat", "float", "hifloat"))
    if not array.size or (array.dtype.kind in "SUOcV" and not is_small_float):
        return None
    step = -(-array.size // _SAMPLED)
    sample = array.reshape(-1)[::step]
    return dtypes.widen(sample, dtypes.from_numpy(sample.dtype)).astype(np.float64), array.size
