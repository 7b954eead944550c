"""Arguments of pyACL's functions, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msdump.config.acl_codes import AclCode
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
