"""The options of CompilerConfig, each checked when it is set; errors and their texts are torchair's own."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Check = Callable[[Any], None]
"""Raises where a value cannot be taken."""

_log = logging.getLogger("msdump.torchair")


class Option:
    """One option; ``value`` is its text, as GE options are texts.

    Attributes:
        default: The value until another one is set.
    """

    __slots__ = ("_check", "_value", "default")

    def __init__(self, default: Any = None, check: Check | None = None) -> None:
        """Hold the default; without a check every value is taken."""
        self.default = default
        self._value = default
        self._check = check

    @property
    def value(self) -> str | None:
        """The text: "1" and "0" for booleans, None where there is nothing."""
        if isinstance(self._value, bool):
            return "1" if self._value else "0"
        return None if self._value is None else str(self._value)

    @value.setter
    def value(self, value: Any) -> None:
        if self._check is not None:
            self._check(value)
        self._value = value

    def __bool__(self) -> bool:
        """Tell whether something true is set."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Show the value."""
        return f"Option({self._value!r})"


class Callback(Option):
    """An option that holds a function; ``value`` is the function itself."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The function, None where there is none."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None and not callable(value):
            raise TypeError(f"value must be Callable or None, got {type(value)}")
        self._value = value

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self._value(*arguments)


class Group:
    """Options and groups of options by name; a name that it lacks is an error."""

    __slots__ = ("_members", "_name")

    _members: dict[str, Any]
    _name: str

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        """Hold the members under the name that messages show."""
        # past this class's own __setattr__, which sets options
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_members", dict(members))

    def __getattr__(self, key: str) -> Any:
        """Return a member."""
        # copy and pickle ask for special methods before there are members
        if key.startswith("__") or key not in self._members:
            raise AttributeError(f"{self._name!r} object has no attribute {key!r}")
        return self._members[key]

    def __setattr__(self, key: str, value: Any) -> None:
        """Set an option.

        Raises:
            ValueError: There is no such option, or the value is not one of those allowed.
            FileNotFoundError: The value names a file or directory that is not there.
            TypeError: The value is of the wrong type, or the name stands for a group.
        """
        member = self._members.get(key)
        if member is None:
            raise ValueError(f"{self._name} has no option {key}, all options {list(self._members)}")
        if isinstance(member, Option):
            member.value = value
        elif isinstance(value, Group):
            self._members[key] = value
        else:
            raise TypeError(f"{self._name}.{key} is a group of options, got {type(value)}: set its options")

    def __dir__(self) -> list[str]:
        """List the members."""
        return sorted(self._members)

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        """Return name and members: copying and pickling must not go through ``__getattr__``."""
        return self._name, self._members

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        """Take over the name and members of the original."""
        Group.__init__(self, *state)


class TolerantGroup(Group):
    """Options of the real device's compiler: they are taken and have no effect here."""

    __slots__ = ()

    def __setattr__(self, key: str, value: Any) -> None:
        """Accept any option and value, with a warning."""
        if isinstance(self._members.get(key), Group):
            super().__setattr__(key, value)
            return
        _log.warning("%s.%s = %r: has no effect on the emulated device", self._name, key, value)
        self._members.setdefault(key, Option()).value = value


def one_of(*allowed: Any) -> Check:
    """Return the check that a value is one of a few."""

    def check(value: Any) -> None:
        # 1 and 0 pass for True and False, to which they are equal
        if value not in allowed:
            raise ValueError(
                f"Value {value!r} (type: {type(value)}) not in optional list {list(allowed)!r}"
                f" (type: {type(allowed[0])})."
            )

    return check


def unless_none(check: Check) -> Check:
    """Return a check that takes None, too."""
    return lambda value: None if value is None else check(value)


def text_like(expression: str, example: str, *, shown: str = "") -> Check:
    """Return the check that a text follows a regular expression.

    Args:
        expression: The expression.
        example: A text that does, for the message.
        shown: The expression for the message, "" for the same.
    """
    pattern: Final = re.compile(expression)

    def check(value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"value must be str, got {type(value)}")
        if not pattern.match(value):  # vendor: match, not fullmatch, so that a line feed at the end passes
            raise ValueError(
                f"Please set legal regex value format match {shown or expression},"
                f" {value} is Illegal format, correct example:{example}."
            )

    return check


def directory(value: Any) -> None:
    """Check that a value is the path of a directory."""
    if value is None or not os.path.isdir(value):
        raise FileNotFoundError(
            f"Please set legal dir path, {value} is not found or is not a file directory!"
        )


def json_file(value: Any) -> None:
    """Check that a value is None or the path of a .json file."""
    if value is None:
        return
    if value == "":
        raise ValueError("File path cannot be empty!")
    if not (str(value).endswith(".json") and os.path.isfile(value)):
        raise FileNotFoundError(f"Please set legal file path, {value} is not found or is not '.json' file!")
