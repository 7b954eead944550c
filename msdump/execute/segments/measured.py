"""Operators whose values were measured in their segment's session, as an observer is shown them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.frames import Frames
from msdump.execute.runtime import OrtValue
from msdump.execute.segments.segment import Segment
from msdump.graph.kernel.measuring import ADDRESSES
from msdump.observer import Observer, take_measured
from msdump.statistics.insession import SessionMeasures, stand_ins


def fed(segment: Segment, frame: Frame, found: SessionMeasures | None) -> dict[str, OrtValue]:
    """Return what the session of a segment is fed.

    Args:
        segment: The segment.
        frame: The values.
        found: Where it writes what it measures, None: it measures nothing.
    """
    feeds = {name: frame[slot] for name, slot in segment.feeds}
    if found is not None:
        feeds[ADDRESSES] = values.owned(found.addresses)
    return feeds


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
    tensor = frames.shared_tensors(dict(zip(segment.measured, arrays, strict=True)))
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
