"""The file of acl.json: its bytes, with CANN's limits on size (10 MiB) and nesting (ten levels)."""

from __future__ import annotations

import re
from typing import Final

from msdump import reading
from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import AclFaults

_BIGGEST: Final = 10 << 20
_DEEPEST: Final = 10
_BRACKETS: Final = (("{", "}"), ("[", "]"))


def read(path: str) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        AclError: 100003 for a path that is no readable regular file of at most 10 MiB, 100006
            for objects or arrays that are nested more than ten deep.
    """
    faults = AclFaults(path)
    try:
        data = reading.read_bytes(path, _BIGGEST)
    except (IsADirectoryError, reading.NotRegularError) as error:
        raise faults.unparsable("it is not a regular file", AclCode.INVALID_FILE) from error
    except OSError as error:
        raise faults.unparsable(error.strerror or str(error), AclCode.INVALID_FILE) from error
    for opening, closing in _BRACKETS:
        if _is_too_deep(data, opening, closing):
            reason = f"more than {_DEEPEST} levels of {opening}{closing} are nested"
            raise faults.unparsable(reason, AclCode.PARSE_FILE)
    return data


def _is_too_deep(data: bytes, opening: str, closing: str) -> bool:
    """Tell whether brackets of one kind are nested more than ten deep."""
    depth = 0
    # vendor: brackets inside of texts count too, and each kind of bracket has a count of its own
    for match in re.finditer(f"[{re.escape(opening + closing)}]".encode(), data):
        depth = depth + 1 if match[0] == opening.encode() else max(0, depth - 1)
        if depth > _DEEPEST:
            return True
    return False
