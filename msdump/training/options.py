"""Options in one text, ``adamw:0.001,weight_decay=0.1``: positional ones first, then by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from msdump.errors import InputError, name_hint


@dataclass(frozen=True, slots=True)
class OptionRule:
    """A test of an option's value, and the allowed values in words."""

    holds: Callable[[Any], bool]
    text: str


def _number(holds: Callable[[Any], bool], text: str) -> OptionRule:
    return OptionRule(lambda value: isinstance(value, Real) and holds(value), text)


def at_least(low: float) -> OptionRule:
    """Return the rule of finite numbers that are at least ``low``."""
    return _number(lambda value: low <= value < math.inf, f"{low:g} or more")


def above(low: float) -> OptionRule:
    """Return the rule of finite numbers above ``low``."""
    return _number(lambda value: low < value < math.inf, f"more than {low:g}")


def between(low: float, high: float) -> OptionRule:
    """Return the rule of numbers between ``low`` and ``high``, both excluded."""
    return _number(lambda value: low < value < high, f"between {low:g} and {high:g}")


def each(rule: OptionRule) -> OptionRule:
    """Return the rule of values that a rule allows, and of lists of such values."""

    def holds(value: Any) -> bool:
        return np.ndim(value) in {0, 1} and np.size(value) > 0 and all(map(rule.holds, np.atleast_1d(value)))

    return OptionRule(holds, f"{rule.text}, or a list of such numbers")


def optional(rule: OptionRule) -> OptionRule:
    """Return the rule of None and of values that a rule allows."""
    return OptionRule(lambda value: value is None or rule.holds(value), rule.text)


def one_of(names: Collection[str]) -> OptionRule:
    """Return the rule of an option that must be one of some texts."""
    return OptionRule(lambda value: value in names, " or ".join(names))


def identifier() -> OptionRule:
    """Return the rule of names of Python attributes, and of no name."""
    return OptionRule(
        lambda value: isinstance(value, str) and (not value or value.isidentifier()),
        "the name of an attribute, of letters, digits and _",
    )


Rules = Mapping[str, OptionRule]


@dataclass(frozen=True, slots=True)
class Options:
    """Base of options, and no options; ``rules`` has the rules by field."""

    rules: ClassVar[Rules] = {}

    def __post_init__(self) -> None:
        """Refuse (InputError) values that their rules do not allow, and name the allowed ones."""
        faults = [
            f"{name} is {getattr(self, name)}; must be {rule.text}"
            for name, rule in self.rules.items()
            if not rule.holds(getattr(self, name))
        ]
        if faults:
            raise InputError(f"{type(self).__name__}: {'; '.join(faults)}")


def parsed(choice: Any, kinds: Mapping[str, Callable[..., Any]], title: str, *, number: str = "") -> Any:
    """Return an object from a text, and any other object as it is; InputError for a wrong name or option."""
    text = f"{number}:{choice}" if number and _is_number(choice) else choice
    if not isinstance(text, str):
        return text
    name, _, rest = text.partition(":")
    if name not in kinds:
        raise InputError(
            f"unknown {title} {name!r}: must be one of {', '.join(kinds)}{name_hint(name, kinds)}"
        )
    return built(kinds[name], rest, f"{title} {text!r}")


def _is_number(choice: Any) -> bool:
    try:
        float(choice)
    except (TypeError, ValueError):
        return False
    return True


def built(kind: Callable[..., Any], values: str | Mapping[str, Any], title: str) -> Any:
    """Return an object of a dataclass with defaults for all fields; InputError for a wrong option."""
    allowed = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    try:
        named = _named(values, allowed) if isinstance(values, str) else values
        return kind(**{name: _value(name, value, allowed) for name, value in named.items()})
    except InputError as error:
        example = ", ".join(f"{option}={_shown(default)}" for option, default in allowed.items())
        allowed_text = f"the options are {example}" if allowed else "there are no options"
        raise InputError(f"{title}: {error}; {allowed_text}") from None


def _named(text: str, allowed: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    names, is_named = iter(allowed), False
    for part in text.split(",") if text else ():
        name, equals, value = (item.strip() for item in part.partition("="))
        is_named |= bool(equals)
        if not equals:
            if is_named:
                raise InputError(f"{part!r} has no name, but follows an option with a name")
            name, value = next(names, ""), name
            if not name:
                raise InputError(f"{part!r} is one value too many")
        if name in values:
            raise InputError(f"{name} is given twice")
        values[name] = value
    return values


def _value(name: str, text: Any, defaults: Mapping[str, Any]) -> Any:
    """Return the value of an option, of a text in the type of its default."""
    if name not in defaults:
        raise InputError(f"unknown option {name!r}{name_hint(name, defaults)}")
    if not isinstance(text, str) or isinstance(defaults[name], str):
        return text
    if isinstance(defaults[name], bool):
        if (flag := _FLAGS.get(text.lower())) is None:
            raise InputError(f"{name} is {text!r}; must be true or false")
        return flag
    try:
        first, *others = map(float, text.split())
    except ValueError:
        raise InputError(f"{name} is {text!r}; must be a number") from None
    return (first, *others) if others else first


_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
