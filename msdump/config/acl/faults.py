"""The codes of pyACL and CANN's messages EP0001 to EP0008 of faults, and the bytes of an acl.json file."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msdump import reading
from msdump.errors import AclError


class AclCode(enum.IntEnum):
    """Return codes of pyACL (``aclError``) without the prefix ``ACL_ERROR_``; from 145000 on, GE's codes."""

    SUCCESS = 0
    INVALID_PARAM = 100000
    UNINITIALIZE = 100001
    REPEAT_INITIALIZE = 100002
    INVALID_FILE = 100003
    WRITE_FILE = 100004
    INVALID_FILE_SIZE = 100005
    PARSE_FILE = 100006
    FILE_MISSING_ATTR = 100007
    FILE_ATTR_INVALID = 100008
    INVALID_DUMP_CONFIG = 100009
    INVALID_PROFILING_CONFIG = 100010
    INVALID_MODEL_ID = 100011
    DESERIALIZE_MODEL = 100012
    PARSE_MODEL = 100013
    READ_MODEL_FAILURE = 100014
    MODEL_SIZE_INVALID = 100015
    MODEL_INPUT_NOT_MATCH = 100017
    MODEL_OUTPUT_NOT_MATCH = 100018
    OP_TYPE_NOT_MATCH = 100020
    OP_INPUT_NOT_MATCH = 100021
    OP_OUTPUT_NOT_MATCH = 100022
    OP_ATTR_NOT_MATCH = 100023
    OP_NOT_FOUND = 100024
    OP_LOAD_FAILED = 100025
    UNSUPPORTED_DATA_TYPE = 100026
    FORMAT_NOT_MATCH = 100027
    REPEAT_FINALIZE = 100037
    DUMP_ALREADY_RUN = 100044
    DUMP_NOT_RUN = 100045
    GE_PARAM_INVALID = 145000
    GE_EXEC_NOT_INIT = 145001
    GE_EXEC_MODEL_PATH_INVALID = 145002
    GE_EXEC_MODEL_ID_INVALID = 145003
    MODEL_DATA_SIZE_INVALID = 145006
    BAD_ALLOC = 200000
    API_NOT_SUPPORT = 200001
    INVALID_DEVICE = 200002
    STORAGE_OVER_LIMIT = 300000
    INTERNAL_ERROR = 500000
    FAILURE = 500001
    GE_FAILURE = 500002
    RT_FAILURE = 500003
    DRV_FAILURE = 500004
    PROFILING_FAILURE = 500005


NOT_FOUND: Final = "The configuration item is not found"
EMPTY: Final = "The configuration item value is empty"

_MOST_CHARACTERS: Final = 200  # a longer value is cut in a message


@dataclass(frozen=True, slots=True)
class AclFaults:
    """Makes the errors of one acl.json, in CANN's wording; every method returns the error to raise."""

    path: str

    def item(self, item: str, reason: str) -> AclError:
        """Return EP0001: an item is missing, empty or of the wrong type."""
        place = f"configuration item {item} in configuration file {self.path}"
        return _refused("EP0001", f"The content of {place} is invalid. Reason: {reason}.")

    def choice(self, value: str, item: str, allowed: Iterable[str]) -> AclError:
        """Return EP0002: a value is none of the allowed ones."""
        expected = "/".join(sorted(allowed))
        return _refused("EP0002", f"{self._value(value, item)} is invalid. Expected value: {expected}.")

    def value(self, value: str, item: str, reason: str) -> AclError:
        """Return EP0003: a value breaks a rule."""
        return _refused("EP0003", f"{self._value(value, item)} is invalid. Reason: {reason}.")

    def unparsable(self, reason: str, code: AclCode) -> AclError:
        """Return EP0004: the file cannot be read or is not JSON."""
        return _refused("EP0004", f"Failed to parse file {self.path}. Reason: {reason}.", code)

    def conflict(self, reason: str, code: AclCode = AclCode.INVALID_DUMP_CONFIG) -> AclError:
        """Return EP0005: two items exclude each other."""
        text = f"Conflict of configuration items in configuration file {self.path}. Reason: {reason}."
        return _refused("EP0005", text, code)

    def exclusion(self, condition: str, item: str, fate: str = "configured") -> AclError:
        """Return EP0005: an item is not allowed under a condition on another item."""
        condition = f"When configuration item {condition}"
        return self.conflict(f"{condition}, configuration item {item} cannot be {fate}")

    def _value(self, value: str, item: str) -> str:
        shown = value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}..."
        return f"Value {shown} for configuration item {item} in configuration file {self.path}"


def invalid(message: str) -> AclError:
    """Return error 100000 of an argument, with a message of msdump's own."""
    return AclError(AclCode.INVALID_PARAM, message)


def null_pointer(function: str, parameter: str) -> AclError:
    """Return EP0007: an argument is None."""
    text = f"{function} failed because {parameter} cannot be a NULL pointer."
    return _refused("EP0007", text, AclCode.INVALID_PARAM)


def out_of_turn(function: str, reason: str, code: AclCode) -> AclError:
    """Return EP0008: a function is called before another one that it requires, or twice."""
    return _refused("EP0008", f"{function} failed. Reason: {reason}.", code)


def invalid_argument(function: str, value: object, parameter: str, reason: str) -> AclError:
    """Return EP0006: an argument cannot be used."""
    text = f"{function} failed. Value {value!r} for parameter {parameter} is invalid. Reason: {reason}."
    return _refused("EP0006", text, AclCode.INVALID_PARAM)


def _refused(number: str, text: str, code: AclCode = AclCode.INVALID_DUMP_CONFIG) -> AclError:
    return AclError(code, f"{number}: {text}")


_BIGGEST: Final = 10 << 20
_DEEPEST: Final = 10


def read_file(path: str) -> bytes:
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
    # vendor: brackets inside of texts count too, and each kind of bracket has a count of its own
    for brackets in ("{}", "[]"):
        depth = 0
        for match in re.finditer(f"[{re.escape(brackets)}]".encode(), data):
            depth = depth + 1 if match[0] == brackets[:1].encode() else max(0, depth - 1)
            if depth > _DEEPEST:
                reason = f"more than {_DEEPEST} levels of {brackets} are nested"
                raise faults.unparsable(reason, AclCode.PARSE_FILE)
    return data
