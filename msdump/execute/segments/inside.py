"""What happens inside the session of a segment: values are measured, or written to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.frames import Frames
from msdump.execute.runtime import OrtValue
from msdump.execute.segments.segment import Segment
from msdump.graph.kernel.measuring import ADDRESSES
from msdump.observer import Observer, saving, take_measured
from msdump.statistics.insession import MEASURE, SAVE, SessionMeasures, stand_ins
from msdump.store.session_files import SessionFiles


def fed(
    segment: Segment, frame: Frame, found: SessionMeasures | None, files: SessionFiles | None
) -> dict[str, OrtValue]:
    """Return what the session of a segment is fed.

    Args:
        segment: The segment.
        frame: The values.
        found: Where it writes what it measures, None: it measures nothing.
        files: Its files, None: it writes none.
    """
    feeds = {name: frame[slot] for name, slot in segment.feeds}
    if found is not None:
        feeds[ADDRESSES[MEASURE]] = values.owned(found.addresses)
    if files is not None:
        feeds[ADDRESSES[SAVE]] = values.owned(files.addresses)
    return feeds


@contextmanager
def writing(segment: Segment, files: SessionFiles | None, observer: Observer | None) -> Iterator[set[int]]:
    """Tell an observer what a session writes in this context, also where it fails.

    Args:
        segment: The segment.
        files: Its files, None: it writes none.
        observer: The observer.

    Yields:
        The positions of the operators whose files are there, once the session has failed.
    """
    complete: set[int] = set()
    if files is None or observer is None:
        yield complete
        return
    try:
        yield complete
    except Exception:
        complete.update(_completed(segment, files))
        raise
    finally:
        files.close()
        saving(observer).saved(segment.saved, files)


def _completed(segment: Segment, files: SessionFiles) -> set[int]:
    """Return the operators all of whose files are there, and remove those of others: they run once more."""
    seen = files.seen.tolist()
    incomplete = {tensor.position for tensor, is_seen in zip(segment.saved, seen, strict=True) if not is_seen}
    for slot, tensor in enumerate(segment.saved):
        if tensor.position in incomplete:
            files.remove(slot)
    return {tensor.position for tensor in segment.saved} - incomplete


def show_measured(
    segment: Segment, found: SessionMeasures, frame: Frame, frames: Frames, observer: Observer
) -> bool:
    """Show the operators of a segment to an observer that needs no elements; return whether that was enough.

    Args:
        segment: The segment, which has run.
        found: What its session has found.
        frame: The values that it was given and gives.
        frames: Where values stand.
        observer: The observer.
    """
    arrays = _stand_ins(segment, found.kinds)
    if arrays is None:
        return False
    tensor = frames.shared_tensors(dict(zip(segment.looks.measured, arrays, strict=True)))
    ran = [
        (
            operator.position,
            [tensor(name, frame) for name in operator.inputs] if observer.wants_inputs else (),
            [tensor(name, frame) for name in operator.outputs] if observer.wants_outputs else (),
        )
        for operator in segment.shown
        if observer.watched[operator.position]
    ]
    totals = dict(zip(map(id, arrays), found.totals(arrays), strict=True))
    return take_measured(observer, ran, totals)


def _stand_ins(segment: Segment, kinds: bytes) -> Sequence[np.ndarray] | None:
    """Return arrays that stand for the values; they are made anew where types or shapes have changed."""
    known, arrays = segment.kinds
    if kinds == known:
        return arrays
    made = stand_ins(kinds)
    if made is not None:
        segment.kinds = (kinds, made)
    return made
