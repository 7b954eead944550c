"""Arguments of pyACL's functions, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError

T = TypeVar("T")


def item_at(items: Sequence[T], index: Any) -> T:
    """Return the item at an index.

    Raises:
        AclError: 100000: there is none.
    """
    if not isinstance(index, int) or not 0 <= index < len(items):
        raise AclError(AclCode.INVALID_PARAM, f"index {index!r}: there are {len(items)}, counted from 0")
    return items[index]


def path_text(value: object, parameter: str) -> str:
    """Return an argument that must be a path.

    Raises:
        AclError: 100000: it is no text.
    """
    if not isinstance(value, str):
        raise AclError(AclCode.INVALID_PARAM, f"{parameter} = {value!r}: a path is expected")
    return value


def text(value: Any, name: str) -> str:
    """Return an argument that must be a text.

    Raises:
        AclError: 100000: it is none.
    """
    if not isinstance(value, str):
        raise AclError(AclCode.INVALID_PARAM, f"{name} = {value!r}: a text is expected")
    return value


def is_number(value: Any) -> bool:
    """Tell whether an argument is an int, as every handle, address and size is."""
    return isinstance(value, int)


def dimensions(value: Any) -> tuple[int, ...]:
    """Return an argument that must be a shape.

    Raises:
        AclError: 100000: it is no list of numbers from 0.
    """
    if not isinstance(value, (list, tuple)) or not all(isinstance(dim, int) and dim >= 0 for dim in value):
        raise AclError(AclCode.INVALID_PARAM, f"shape {value!r}: a list of dimensions from 0 is expected")
    return tuple(value)


def handles(value: Any, name: str) -> list[Any]:
    """Return an argument that must be a list of handles.

    Raises:
        AclError: 100000: it is no list.
    """
    if not isinstance(value, (list, tuple)):
        raise AclError(AclCode.INVALID_PARAM, f"{name} = {value!r}: a list of handles is expected")
    return list(value)
