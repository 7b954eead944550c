"""The messages of acl.json's faults, in the words of CANN's own: EP0001 to EP0008, one text each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError

NOT_FOUND: Final = "The configuration item is not found"
EMPTY: Final = "The configuration item value is empty"

_MOST_CHARACTERS: Final = 200  # a longer value is cut in a message


@dataclass(frozen=True, slots=True)
class AclFaults:
    """Words the faults of one file; every method returns the error to raise.

    Attributes:
        path: The file, as the user gave it.
    """

    path: str

    def item(self, item: str, reason: str) -> AclError:
        """Word an item that is missing, empty or of the wrong type."""
        return _refused(
            "EP0001",
            f"The content of configuration item {item} in configuration file {self.path} is invalid."
            f" Reason: {reason}.",
        )

    def choice(self, value: str, item: str, allowed: Iterable[str]) -> AclError:
        """Word a value that is none of those allowed."""
        return _refused(
            "EP0002", f"{self._value(value, item)} is invalid. Expected value: {'/'.join(sorted(allowed))}."
        )

    def value(self, value: str, item: str, reason: str) -> AclError:
        """Word a value that breaks a rule."""
        return _refused("EP0003", f"{self._value(value, item)} is invalid. Reason: {reason}.")

    def unparsable(self, reason: str, code: AclCode = AclCode.INVALID_DUMP_CONFIG) -> AclError:
        """Word a file that cannot be read or is not JSON."""
        return _refused("EP0004", f"Failed to parse file {self.path}. Reason: {reason}.", code)

    def conflict(self, reason: str, code: AclCode = AclCode.INVALID_DUMP_CONFIG) -> AclError:
        """Word two items that do not go together."""
        return _refused(
            "EP0005",
            f"Conflict of configuration items in configuration file {self.path}. Reason: {reason}.",
            code,
        )

    def _value(self, value: str, item: str) -> str:
        shown = value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}..."
        return f"Value {shown} for configuration item {item} in configuration file {self.path}"


def null_pointer(function: str, parameter: str) -> AclError:
    """Word an argument that must not be None."""
    text = f"{function} failed because {parameter} cannot be a NULL pointer."
    return _refused("EP0007", text, AclCode.INVALID_PARAM)


def out_of_turn(function: str, reason: str, code: AclCode) -> AclError:
    """Word a call that comes before another one that it needs, or twice."""
    return _refused("EP0008", f"{function} failed. Reason: {reason}.", code)


def invalid_argument(function: str, value: object, parameter: str, reason: str) -> AclError:
    """Word an argument that cannot be used."""
    text = f"{function} failed. Value {value!r} for parameter {parameter} is invalid. Reason: {reason}."
    return _refused("EP0006", text, AclCode.INVALID_PARAM)


def _refused(number: str, text: str, code: AclCode = AclCode.INVALID_DUMP_CONFIG) -> AclError:
    return AclError(code, f"{number}: {text}")
