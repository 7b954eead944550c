"""What happens inside the session of a segment: values are measured, or written to files."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.frames import Frames
from msdump.execute.runtime import OrtValue
from msdump.execute.segments.segment import MeasuredOperators, Measuring, Segment
from msdump.graph.kernel.linked import SessionLooks
from msdump.graph.kernel.measuring import ADDRESSES
from msdump.observer import Observer, RanNode, places_of, saving, take_measured, tensors_of
from msdump.statistics import passes
from msdump.statistics.insession import MEASURE, SAVE, SessionMeasures, stand_ins
from msdump.statistics.totals import SeveralTotals, StatisticNeed, Totals
from msdump.store.session_files import SessionFiles


def measuring(looks: SessionLooks) -> Measuring | None:
    """Return where a session writes what it measures, None where it measures nothing."""
    if not looks.measured:
        return None
    found = SessionMeasures(len(looks.measured))
    return Measuring(found, values.owned(found.addresses))


def fed(segment: Segment, frame: Frame, files: SessionFiles | None) -> dict[str, OrtValue]:
    """Return what the session of a segment is fed.

    Args:
        segment: The segment.
        frame: The values.
        files: Its files, None: it writes none.
    """
    feeds = {name: frame[slot] for name, slot in segment.feeds}
    if segment.measuring is not None:
        feeds[ADDRESSES[MEASURE]] = segment.measuring.addresses
    if files is not None:
        if segment.fed_addresses is None or segment.fed_addresses[0] is not files.addresses:
            segment.fed_addresses = files.addresses, values.owned(files.addresses)
        feeds[ADDRESSES[SAVE]] = segment.fed_addresses[1]
    return feeds


def writing(
    segment: Segment, files: SessionFiles | None, observer: Observer | None
) -> AbstractContextManager[Container[int]]:
    """Tell an observer what a session writes in a context, also where it fails.

    Args:
        segment: The segment.
        files: Its files, None: it writes none.
        observer: The observer.

    Returns:
        The context, which gives the positions of operators whose files are there once the session has failed.
    """
    return _NOTHING if files is None or observer is None else _writing(segment, files, observer)


@contextmanager
def _writing(segment: Segment, files: SessionFiles, observer: Observer) -> Iterator[set[int]]:
    complete: set[int] = set()
    try:
        yield complete
    except Exception:
        complete.update(_completed(segment, files))
        raise
    finally:
        files.close()
        saving(observer).saved(segment.saved, files)


_NOTHING: Final[AbstractContextManager[Container[int]]] = nullcontext(())


def _completed(segment: Segment, files: SessionFiles) -> set[int]:
    """Return the operators all of whose files are there, and remove those of others: they run once more."""
    seen = files.seen.tolist()
    incomplete = {tensor.position for tensor, is_seen in zip(segment.saved, seen, strict=True) if not is_seen}
    for slot, tensor in enumerate(segment.saved):
        if tensor.position in incomplete:
            files.remove(slot)
    return {tensor.position for tensor in segment.saved} - incomplete


def show_measured(
    segment: Segment, measuring: Measuring, frame: Frame, frames: Frames, observer: Observer
) -> bool:
    """Show the operators of a segment to an observer that needs no elements; return whether that was enough.

    Args:
        segment: The segment, which has run.
        measuring: What its session has measured.
        frame: The values that it was given and gives.
        frames: Where values stand.
        observer: The observer.
    """
    kinds, last = measuring.found.kinds, measuring.last
    if last is None or last.kinds != kinds or last.watched is not observer.watched:
        arrays = stand_ins(kinds)
        if arrays is None:
            return False
        ran = _ran(segment, arrays, frame, frames, observer)
        tensors = tensors_of(ran)
        if not {*map(id, tensors)} <= {*map(id, arrays)}:
            return take_measured(observer, ran, _found(measuring.found, arrays, tensors, segment.looks.need))
        last = _operators(kinds, observer.watched, ran, arrays)
        measuring.last = last if isinstance(observer.watched, tuple) else None  # another may change in place
    return take_measured(observer, last.ran, measuring.found.together(last.places, last.counts))


def _ran(
    segment: Segment, arrays: Sequence[np.ndarray], frame: Frame, frames: Frames, observer: Observer
) -> list[RanNode]:
    """Return the operators that an observer looks at, with what stands for the values that were measured."""
    tensor = frames.shared_tensors(dict(zip(segment.looks.measured, arrays, strict=True)))
    return [
        (
            operator.position,
            [tensor(name, frame) for name in operator.inputs] if observer.wants_inputs else (),
            [tensor(name, frame) for name in operator.outputs] if observer.wants_outputs else (),
        )
        for operator in segment.shown
        if observer.watched[operator.position]
    ]


def _operators(
    kinds: bytes, watched: Sequence[bool], ran: Sequence[RanNode], arrays: Sequence[np.ndarray]
) -> MeasuredOperators:
    """Return operators all of whose tensors were measured."""
    tensors = tensors_of(ran)
    places: slice | list[int] = places_of(tensors, arrays)
    if places == [*range(len(arrays))]:
        places = slice(None)
    return MeasuredOperators(kinds, watched, ran, places, np.array([array.size for array in tensors]))


def _found(
    session: SessionMeasures,
    arrays: Sequence[np.ndarray],
    tensors: Sequence[np.ndarray],
    need: StatisticNeed,
) -> SeveralTotals:
    """Return what is known of tensors; those that the session could not measure are measured here."""
    found = dict(zip(map(id, arrays), session.totals(arrays), strict=True))
    others = [(each, dtypes.from_numpy(each.dtype)) for each in tensors if id(each) not in found]
    others = [(each, dtype) for each, dtype in others if each.size and passes.is_measurable(dtype)]
    measured = passes.measure_all(others, need)
    found |= {id(each): totals for (each, _), totals in zip(others, measured, strict=True)}
    return SeveralTotals.of([found.get(id(each)) or Totals(each.size) for each in tensors])
