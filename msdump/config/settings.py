"""The blocks of a configuration file as one flat set of settings.

No key stands in two blocks, so that a rule can name a key without its block. A key whose value is missing or
wrong is *unusable*: reading it raises, so that whatever would follow from it is skipped instead of reported a
second time.
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
        """Start with facts that do not come from the file, such as ``device_id``."""
        self._values: dict[str, Any] = dict(facts)
        # kept apart from what the file says: MindSpore decides by the file which keys it reads at all
        self._forced: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}
        self._keys_in_file: set[str] = set()
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

    def as_configured(self, key: str) -> Any:
        """Return the value that the file or the default gives a key, whatever a rule replaced it by since.

        Raises:
            UnusableError: It is missing or wrong in the file.
        """
        if key in self._unusable:
            raise UnusableError(key)
        return self._values[key]

    def items(self, key: str) -> list[Any]:
        """Return the items of a list, also where some of them are wrong; nothing where it is no list."""
        value = self._values[key]
        return value if isinstance(value, list) else []

    def __setitem__(self, key: str, value: Any) -> None:
        """Replace a value."""
        self._forced[key] = value

    def has(self, key: str) -> bool:
        """Tell whether the file gives a key or a block."""
        return key in self._keys_in_file

    def path(self, key: str) -> Path:
        """Return the path of a key or a block in the file."""
        return self._paths[key]

    def is_usable(self, key: str) -> bool:
        """Tell whether a key has a usable value."""
        return key not in self._unusable

    def give_up(self, key: str) -> None:
        """Mark a value as unusable: rules that read it are skipped."""
        self._unusable.add(key)

    def load(self, name: str, model: type[Section], block: Any, report: FaultReport) -> None:
        """Read one block: the values of its keys, defaults for those that it lacks, its faults.

        Args:
            name: Key of the block.
            model: Its model.
            block: What the file holds there, ``ABSENT`` for nothing.
            report: Takes a block that is missing or no object, and keys that are missing.
        """
        self._paths[name] = (name,)
        self._define(name, model)
        if isinstance(block, dict):
            self._keys_in_file.add(name)
            self._take(name, model, block, report)
        elif block is not ABSENT:  # one fault for the block, none for each of its keys
            report.error((name,), f"= {show(block)}: must be an object")
            self._keys_in_file.add(name)
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
        keys = block.keys() & model.model_fields.keys()
        self._keys_in_file |= keys
        self._unusable -= keys
        # the values as JSON holds them, not as pydantic returns them: one fault would leave it with none
        self._values |= {key: block[key] for key in keys}
        for key in _required(model):
            if key not in keys:
                report.error((name, key), f"is missing: must be {allowed_of(model, key).text}")
        for fault in _faults(name, model, block):
            self.give_up(fault.key.removesuffix("[]"))
            self.faults.append(fault)


def _required(model: type[Section]) -> list[str]:
    return [key for key, field in model.model_fields.items() if field.is_required()]


def allowed_of(model: type[Section], key: str) -> Allowed:
    """Return what a field takes, in the words of its error message."""
    return next(note for note in model.model_fields[key].metadata if isinstance(note, Allowed))


def _faults(name: str, model: type[Section], block: dict[str, Any]) -> Iterator[FieldFault]:
    try:
        model.model_validate(block)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            if detail["type"] != "missing":  # those the caller reports, with what the key must be
                yield _fault(name, model, detail["loc"], detail["input"])


def _fault(name: str, model: type[Section], location: Path, value: Any) -> FieldFault:
    """Return pydantic's finding in msdump's words.

    Args:
        name: Key of the block.
        model: Its model.
        location: The key, and behind it an index where an item of its list is wrong.
        value: The wrong value.
    """
    key, *index = location
    allowed = allowed_of(model, str(key))
    expected, suffix = (allowed.item, "[]") if index else (allowed.text, "")
    annotation = model.model_fields[str(key)].annotation
    # a value that should be a list has no one choice that it could have meant
    is_scalar = bool(index) or typing.get_origin(annotation) is not list
    hint = did_you_mean(value, choices(annotation)) if is_scalar else ""
    return FieldFault(f"{key}{suffix}", (name, *location), f"= {show(value)}: must be {expected}{hint}")


def choices(annotation: Any) -> tuple[Any, ...]:
    """Return the literal values of an annotation, however deep it holds them."""
    if annotation is bool:
        return (True, False)
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in choices(part))
