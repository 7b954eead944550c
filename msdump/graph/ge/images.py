"""Layouts of images and volumes, and attributes that have a number for each of their axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msdump.errors import InputError
from msdump.graph.ge.body import CallBody

IMAGE: Final = 4
VOLUME: Final = 5
_FIRST: Final = {IMAGE: "NCHW", VOLUME: "NCDHW"}
"""The runtime's layouts, with the channels before the spatial axes, by rank."""
_LAST: Final = {IMAGE: "NHWC", VOLUME: "NDHWC"}
_FILTERS_LAST: Final = {IMAGE: "HWCN", VOLUME: "DHWCN"}
_BEFORE_PLACES: Final = 2  # batch and channels stand before the spatial axes


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The order of a tensor's axes.

    Attributes:
        name: A letter for each axis as the tensor has them, such as ``NHWC``.
        host: The same letters as the runtime has them, such as ``NCHW``.
    """

    name: str
    host: str

    def to_host(self, call: CallBody, value: str) -> str:
        """Return a value of this layout in the runtime's."""
        return _moved(call, value, self.name, self.host)

    def from_host(self, call: CallBody, value: str) -> str:
        """Return a value of the runtime's layout in this one."""
        return _moved(call, value, self.host, self.name)

    def sorted(self, numbers: list[int] | tuple[int, ...]) -> list[int]:
        """Return numbers, one for each axis of this layout, in the runtime's order."""
        return [numbers[self.name.index(axis)] for axis in self.host]

    def window(self, call: CallBody, attribute: str) -> list[int]:
        """Return the numbers of the spatial axes out of an attribute with one for each axis."""
        return self.places(call.listed(attribute, len(self.name)))

    def places(self, numbers: list[int]) -> list[int]:
        """Return the numbers of depth, height and width out of one for each axis."""
        return self.sorted(numbers)[_BEFORE_PLACES:]

    def pads(self, call: CallBody, attribute: str = "pads") -> list[int]:
        """Return pads in ONNX's order, all begins and then all ends; GE has begin and end of each axis."""
        pairs = call.listed(attribute, 2 * (len(self.name) - _BEFORE_PLACES))
        return [*pairs[0::2], *pairs[1::2]]


def layout(call: CallBody, rank: int = IMAGE, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes: that of ``data_format``, else that of their description.

    Device formats start from channels before spatial axes (NCHW); another layout changes the call's kind,
    ``Conv2DOfNHWC``, which has no device format.

    Raises:
        InputError: There is no such layout, or the input has another rank.
    """
    name = call["data_format"] or described(call, rank, slot).name
    allowed = (_FIRST[rank], _LAST[rank])
    if name not in allowed:
        raise InputError(
            f"operator {call.op_type!r}: attribute 'data_format' = {name!r}:"
            f" {' or '.join(allowed)} is expected"
        )
    if len(call.inputs[slot].shape) != rank:
        shape = call.inputs[slot].shape
        raise InputError(
            f"operator {call.op_type!r}: input {slot} of shape {shape}: {rank} dimensions expected"
        )
    if name == _LAST[rank]:
        call.kind = f"{call.kind}Of{name}"
    return AxisOrder(name, _FIRST[rank])


def described(call: CallBody, rank: int, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes as the caller describes them, by default the runtime's."""
    # ND and device formats say nothing of the order of axes
    stated = call.inputs[slot].format
    return AxisOrder(stated if stated == _LAST[rank] else _FIRST[rank], _FIRST[rank])


def filters(call: CallBody, images: AxisOrder, slot: int = 1) -> AxisOrder:
    """Return the layout of a convolution's filters: as described, else the one that goes with the images'."""
    stated, rank = call.inputs[slot].format, len(images.host)
    if sorted(stated) == sorted(images.host):
        return AxisOrder(stated, images.host)
    # TensorFlow's pair: images NHWC with filters HWCN; ONNX's: NCHW with NCHW
    return AxisOrder(images.host if images.name == images.host else _FILTERS_LAST[rank], images.host)


def _moved(call: CallBody, value: str, before: str, after: str) -> str:
    order = [before.index(axis) for axis in after]
    return value if before == after else call.node("Transpose", value, perm=order)
