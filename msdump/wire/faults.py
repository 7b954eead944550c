"""What keeps bytes from being a protobuf message."""

from __future__ import annotations

import enum


class WireFault(enum.Enum):
    """What keeps bytes from being a message."""

    LONG_NUMBER = enum.auto()
    TORN_NUMBER = enum.auto()
    FIELD_NUMBER = enum.auto()
    WIRE_TYPE = enum.auto()
    TORN_FIELD = enum.auto()


class WireError(ValueError):
    """Bytes that are no protobuf message; who reads a file says so in its own words.

    Attributes:
        fault: What is wrong.
        start: First byte of the number or field.
        end: Where a number breaks off.
        value: The field number, the wire type or the size that is wrong.
        left: Bytes that are left for a field.
    """

    def __init__(self, fault: WireFault, start: int, *, end: int = 0, value: int = 0, left: int = 0) -> None:
        """Keep what is wrong, and where."""
        super().__init__(fault.name, start)
        self.fault = fault
        self.start = start
        self.end = end
        self.value = value
        self.left = left

    @property
    def missing(self) -> int:
        """Bytes that a field lacks."""
        return self.value - self.left
