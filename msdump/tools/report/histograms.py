"""How the elements of chosen tensors are spread: from their files, sampled, beside golden's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.store.read.measured.records import MeasuredRecord
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.report.columns import Fault
from msdump.tools.watching import dumped

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


def of_operator(
    operator: int, names: tuple[str, ...], directory: Iteration, golden: Iteration | None, fault: Fault
) -> Iterator[TensorHistogram]:
    """Yield the histograms of an operator's outputs in an iteration; none where only statistics were saved.

    Args:
        operator: Place of the operator in the list.
        names: Its names, full and as files spell it.
        directory: The iteration.
        golden: The same iteration of the golden dump, None without one.
        fault: Gets what cannot be read.
    """
    try:
        records = _outputs(directory, names)
        others = {} if golden is None else {each.slot: each for each in _outputs(golden, names)}
        for record in records:
            mine = _elements(record)
            if mine is not None:
                other = others.get(record.slot)
                theirs = None if other is None else _elements(other)
                yield _histogram(operator, record, directory.number, mine, theirs)
    except (DumpReadError, FormatError) as error:
        fault(str(error))


def _outputs(directory: Iteration, names: tuple[str, ...]) -> list[Record]:
    records = next(filter(None, (directory.tensors_of(name) for name in names)), ())
    kept = [each for each in records if not isinstance(each, MeasuredRecord)]
    last = {(each.io, each.slot): each for each in kept}  # of several passes of a loop the last one
    outputs = [each for (io, _), each in last.items() if io == "output"]
    return outputs or [*last.values()]


def _elements(record: Record) -> tuple[np.ndarray, int] | None:
    """Return a sample of a tensor's elements as float64, and how many there are; None of texts and such."""
    array = dumped.elements(record)
    if not array.size or (array.dtype.kind in "SUOcV" and not _is_small_float(array)):
        return None
    step = -(-array.size // _SAMPLED)
    sample = array.reshape(-1)[::step]
    return dtypes.widen(sample, dtypes.from_numpy(sample.dtype)).astype(np.float64), array.size


def _is_small_float(array: np.ndarray) -> bool:
    return dtypes.from_numpy(array.dtype).name.startswith(("bfloat", "float", "hifloat"))


def _histogram(
    operator: int,
    record: Record,
    iteration: int,
    mine: tuple[np.ndarray, int],
    golden: tuple[np.ndarray, int] | None,
) -> TensorHistogram:
    values, size = mine
    finite = values[np.isfinite(values)]
    others = np.empty(0) if golden is None else golden[0][np.isfinite(golden[0])]
    both = np.concatenate((finite, others))
    low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 0.0)
    span = (low, high) if np.isfinite(high - low) else (low / 2, high / 2)
    counts = np.histogram(finite, _BINS, span)[0] if both.size else np.zeros(_BINS, int)
    theirs = () if golden is None else tuple(np.histogram(others, _BINS, span)[0].tolist())
    place = f"{record.io}:{record.slot}"
    return TensorHistogram(
        *(operator, place, iteration, *span, tuple(counts.tolist()), theirs),
        *(values.size, size, values.size - finite.size),
    )
