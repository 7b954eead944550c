"""Handles: the numbers by which pyACL's functions name objects."""

from __future__ import annotations

import itertools
from typing import Any, Final, TypeVar

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError

T = TypeVar("T")

_FIRST: Final = 0x5500_0000_1000  # as a pointer of a C library would look
_STEP: Final = 0x40


class Handles:
    """Objects by their handles: ints that look like pointers and are never given twice."""

    def __init__(self) -> None:
        """Start without objects."""
        self._numbers = itertools.count(_FIRST, _STEP)
        self._objects: dict[int, object] = {}

    def add(self, item: object) -> int:
        """Return a new handle of an object."""
        handle = next(self._numbers)
        self._objects[handle] = item
        return handle

    def get(self, handle: Any, kind: type[T]) -> T:
        """Return the object of a handle.

        Raises:
            AclError: 100000: the handle is none of such an object.
        """
        item = self._objects.get(handle) if isinstance(handle, int) else None
        if not isinstance(item, kind):
            name = getattr(kind, "TITLE", kind.__name__)
            raise AclError(AclCode.INVALID_PARAM, f"{handle!r} is no handle of a {name}; was it destroyed?")
        return item

    def remove(self, handle: Any, kind: type[T]) -> T:
        """Forget a handle and return its object; AclError as in ``get``."""
        item = self.get(handle, kind)
        del self._objects[handle]
        return item
