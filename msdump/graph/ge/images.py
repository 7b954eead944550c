"""Layouts of images and volumes, and attributes that have a number for each of their axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msdump.errors import InputError
from msdump.graph.ge.body import CallBody

IMAGE: Final = 4
VOLUME: Final = 5
_FIRST: Final = {IMAGE: "NCHW", VOLUME: "NCDHW"}
"""The runtime's layouts, with the channels before the places, by rank."""
_LAST: Final = {IMAGE: "NHWC", VOLUME: "NDHWC"}
_FILTERS_LAST: Final = {IMAGE: "HWCN", VOLUME: "DHWCN"}
_BEFORE_PLACES: Final = 2


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The order of a tensor's axes.

    Attributes:
        name: A letter for each axis as the tensor has them, such as ``NHWC``.
        host: The same letters as the runtime has them, such as ``NCHW``.
    """

    name: str
    host: str

    def to_host(self, b: CallBody, value: str) -> str:
        """Return a value of this layout in the runtime's."""
        return _moved(b, value, self.name, self.host)

    def from_host(self, b: CallBody, value: str) -> str:
        """Return a value of the runtime's layout in this one."""
        return _moved(b, value, self.host, self.name)

    def sorted(self, numbers: list[int] | tuple[int, ...]) -> list[int]:
        """Return numbers, one for each axis of this layout, in the runtime's order."""
        return [numbers[self.name.index(axis)] for axis in self.host]

    def window(self, b: CallBody, attribute: str) -> list[int]:
        """Return what an attribute with a number for each axis says of the places."""
        return self.places(b.listed(attribute, len(self.name)))

    def places(self, numbers: list[int]) -> list[int]:
        """Return those of numbers, one for each axis, that are of depth, height and width."""
        return self.sorted(numbers)[_BEFORE_PLACES:]

    def pads(self, b: CallBody, attribute: str = "pads") -> list[int]:
        """Return pads, in GE begin and end of each axis in turn, in ONNX's order: all begins, all ends."""
        given = b.listed(attribute, 2 * (len(self.name) - _BEFORE_PLACES))
        return [*given[0::2], *given[1::2]]


def layout(b: CallBody, rank: int = IMAGE, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes: what ``data_format`` says, else what their description does.

    The device's formats are those of channels before places, so others give the operator a kind of its own.

    Raises:
        InputError: There is no such layout, or the input has another rank.
    """
    found = b["data_format"] or described(b, rank, slot).name
    allowed = (_FIRST[rank], _LAST[rank])
    if found not in allowed:
        raise InputError(
            f"operator {b.op_type!r}: attribute 'data_format' = {found!r}: {' or '.join(allowed)} is expected"
        )
    if len(b.inputs[slot].shape) != rank:
        shape = b.inputs[slot].shape
        raise InputError(f"operator {b.op_type!r}: input {slot} of shape {shape}: {rank} dimensions expected")
    if found == _LAST[rank]:
        b.kind = f"{b.kind}Of{found}"
    return AxisOrder(found, _FIRST[rank])


def described(b: CallBody, rank: int, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes as the caller describes them, by default the runtime's."""
    stated = b.inputs[slot].format
    return AxisOrder(stated if stated == _LAST[rank] else _FIRST[rank], _FIRST[rank])


def filters(b: CallBody, images: AxisOrder, slot: int = 1) -> AxisOrder:
    """Return the layout of a convolution's filters: as described, else what goes with that of the images."""
    stated, rank = b.inputs[slot].format, len(images.host)
    if sorted(stated) == sorted(images.host):
        return AxisOrder(stated, images.host)
    return AxisOrder(images.host if images.name == images.host else _FILTERS_LAST[rank], images.host)


def _moved(b: CallBody, value: str, before: str, after: str) -> str:
    order = [before.index(axis) for axis in after]
    return value if before == after else b.node("Transpose", value, perm=order)
