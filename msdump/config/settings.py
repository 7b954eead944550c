"""The blocks of a configuration file as one flat set of settings.

A key whose value is missing or wrong is *unusable*: reading it raises, so that
whatever would follow from it is skipped instead of reported a second time.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from msdump.config.faults import FaultReport, did_you_mean, show
from msdump.config.models import Allowed, Section
from msdump.config.source import Path

ABSENT: Final = object()
"""In the place of a block that the file does not hold."""


class UnusableError(LookupError):
    """A setting that has no usable value."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A wrong value of one key.

    Attributes:
        key: The key; with ``[]`` behind it where an item of its list is wrong.
        path: Path of the value.
        message: What is wrong with it.
    """

    key: str
    path: Path
    message: str


class Settings:
    """The values of all keys of all blocks, defaults filled in.

    Attributes:
        faults: Wrong values; the reader decides by the mode whether they matter.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """Start with facts that do not come from the file, under names of their own."""
        self._values: dict[str, Any] = dict(facts)
        self._forced: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}
        self._given: set[str] = set()
        self._unusable: set[str] = set()
        self.faults: list[FieldFault] = []

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key.

        Raises:
            UnusableError: It is missing or wrong in the file.
        """
        if key in self._unusable:
            raise UnusableError(key)
        return self._forced.get(key, self._values[key])

    def given(self, key: str) -> Any:
        """Return the value that the file or the default gives a key, whatever replaced it since.

        Raises:
            UnusableError: It is missing or wrong in the file.
        """
        if key in self._unusable:
            raise UnusableError(key)
        return self._values[key]

    def items(self, key: str) -> list[Any]:
        """Return the items of a list, also where some of them are wrong; nothing where it is no list."""
        found = self._values[key]
        return found if isinstance(found, list) else []

    def __setitem__(self, key: str, value: Any) -> None:
        """Replace a value."""
        self._forced[key] = value

    def has(self, key: str) -> bool:
        """Tell whether the file gives a key or a block."""
        return key in self._given

    def path(self, key: str) -> Path:
        """Return the path of a key or a block in the file."""
        return self._paths[key]

    def is_usable(self, key: str) -> bool:
        """Tell whether a key has a usable value."""
        return key not in self._unusable

    def give_up(self, key: str) -> None:
        """Mark a value as wrong."""
        self._unusable.add(key)

    def load(self, name: str, model: type[Section], block: Any, report: FaultReport) -> None:
        """Take in one block: its values, the defaults of its other keys, its faults.

        Args:
            name: Key of the block.
            model: Its model.
            block: What the file holds there, ``ABSENT`` for nothing.
            report: Takes a block that is missing or no object, and keys that are missing.
        """
        self._paths[name] = (name,)
        self._define(name, model)
        if isinstance(block, dict):
            self._given.add(name)
            self._take(name, model, block, report)
        elif block is not ABSENT:
            report.error((name,), f"= {show(block)}: must be an object")
            self._given.add(name)
            self._unusable |= model.model_fields.keys()
        elif required := _required(model):
            report.error((name,), f"is missing: it must hold {', '.join(required)}")
            self._unusable |= model.model_fields.keys()

    def use_defaults(self, model: type[Section]) -> None:
        """Replace the values of a block's keys by their defaults."""
        for key, field in model.model_fields.items():
            self[key] = field.get_default(call_default_factory=False)

    def _define(self, name: str, model: type[Section]) -> None:
        for key, field in model.model_fields.items():
            self._paths[key] = (name, key)
            self._values[key] = field.get_default(call_default_factory=False)
        self._unusable |= set(_required(model))

    def _take(self, name: str, model: type[Section], block: dict[str, Any], report: FaultReport) -> None:
        given = block.keys() & model.model_fields.keys()
        self._given |= given
        self._unusable -= given
        self._values |= {key: block[key] for key in given}
        for key in _required(model):
            if key not in given:
                report.error((name, key), f"is missing: must be {_allowed(model, key).text}")
        for fault in _faults(name, model, block):
            self.give_up(fault.key.removesuffix("[]"))
            self.faults.append(fault)


def _required(model: type[Section]) -> list[str]:
    return [key for key, field in model.model_fields.items() if field.is_required()]


def _allowed(model: type[Section], key: str) -> Allowed:
    return next(note for note in model.model_fields[key].metadata if isinstance(note, Allowed))


def _faults(name: str, model: type[Section], block: dict[str, Any]) -> Iterator[FieldFault]:
    try:
        model.model_validate(block)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            if detail["type"] != "missing":
                yield _fault(name, model, detail["loc"], detail["input"])


def _fault(name: str, model: type[Section], loc: Path, value: Any) -> FieldFault:
    key, *within = loc
    allowed = _allowed(model, str(key))
    words, suffix = (allowed.item, "[]") if within else (allowed.text, "")
    annotation = model.model_fields[str(key)].annotation
    is_scalar = bool(within) or typing.get_origin(annotation) is not list
    hint = did_you_mean(value, _choices(annotation)) if is_scalar else ""
    return FieldFault(f"{key}{suffix}", (name, *loc), f"= {show(value)}: must be {words}{hint}")


def _choices(annotation: Any) -> tuple[Any, ...]:
    """Return the literal values of an annotation, however deep it holds them."""
    if annotation is bool:
        return (True, False)
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in _choices(part))
