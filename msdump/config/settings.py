"""The blocks of a configuration file as one flat set of settings.

No key stands in two blocks, so that a rule can name a key without its block. A key with a missing or
wrong value is *unusable*: reading it raises, so that consequences are skipped instead of reported a second
time.

A configuration may also be a Python mapping. It is encoded as the JSON file that it stands for: so it gets
the same checks and messages (without lines) and lies beside the dump as the same text.
"""

from __future__ import annotations

import json
import math
import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from msdump.config.models import Allowed, Section
from msdump.config.source import FaultReport, Path, choice, did_you_mean, json_path, show
from msdump.errors import ConfigValueError, Problem

MAPPING_SOURCE: Final = "config"
"""Name in messages in place of a file: the argument ``config`` of ``msdump.load``."""

_SCALARS: Final = (str, bool, int, type(None))

_ALLOWED: Final = "texts, numbers, True, False, None, lists, dictionaries and paths"


def mapping_bytes(config: Mapping[str, Any]) -> bytes:
    r"""Return the bytes of the JSON file that a mapping stands for; tuples become lists, paths texts.

    >>> mapping_bytes({"common_dump_settings": {"kernels": ("Conv2D",)}})
    b'{\n  "common_dump_settings": {\n    "kernels": [\n      "Conv2D"\n    ]\n  }\n}\n'

    Raises:
        ConfigValueError: A value has no counterpart in JSON; its JSON path is named.
    """
    try:
        return f"{json.dumps(_json_value(config, ()), indent=2)}\n".encode()
    except RecursionError:
        problem = Problem("$", "is nested too deeply, or contains itself")
    # raised outside of the handler: hundreds of lines of recursion would hang on the error as its context
    raise ConfigValueError(MAPPING_SOURCE, (problem,))


def _json_value(value: Any, path: Path) -> Any:
    """Return a value of the mapping as json.dumps takes it; ``path`` leads to it, for the message."""
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # json.dumps would write NaN and Infinity, which are no JSON: the reader would refuse its own file
    if isinstance(value, _SCALARS) or (isinstance(value, float) and math.isfinite(value)):
        return value
    type_name = type(value).__name__
    message = f"= {show(repr(value))}: {type_name} is not a value of JSON; must be one of {_ALLOWED}"
    raise ConfigValueError(MAPPING_SOURCE, (Problem(json_path(path), message),))


ABSENT: Final = object()
"""In the place of a block that the file does not hold."""


class UnusableError(LookupError):
    """A setting that has no usable value."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A wrong value; ``key`` ends in ``[]`` if the wrong value is an item of a list."""

    key: str
    path: Path
    message: str


class Settings:
    """The values of all keys of all blocks, defaults filled in."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """Start with facts that do not come from the file, such as ``device_id``."""
        self._values: dict[str, Any] = dict(facts)
        # values that rules set; kept apart, as the file's values decide which keys MindSpore reads
        self._forced: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}
        self._keys_in_file: set[str] = set()
        self._unusable: set[str] = set()
        self.faults: list[FieldFault] = []  # wrong values; the reader decides by the mode whether they matter

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; UnusableError if it is missing or wrong in the file."""
        value = self.as_configured(key)
        return self._forced.get(key, value)

    def as_configured(self, key: str) -> Any:
        """Return the value of the file or the default; UnusableError if the file has none or a wrong one."""
        if key in self._unusable:
            raise UnusableError(key)
        return self._values[key]

    def items(self, key: str) -> list[Any]:
        """Return the items of a list, also where some of them are wrong; nothing where it is no list."""
        value = self._values[key]
        return value if isinstance(value, list) else []

    def __setitem__(self, key: str, value: Any) -> None:
        """Replace a value; the one of the file stays in ``as_configured``."""
        self._forced[key] = value

    def has(self, key: str) -> bool:
        """Return whether the file gives a key or a block."""
        return key in self._keys_in_file

    def path(self, key: str) -> Path:
        """Return the path of a key or a block in the file."""
        return self._paths[key]

    def is_usable(self, key: str) -> bool:
        """Return whether the value of a key is neither missing nor wrong."""
        return key not in self._unusable

    def give_up(self, key: str) -> None:
        """Mark a value as unusable: rules that read it are skipped."""
        self._unusable.add(key)

    def load(self, name: str, model: type[Section], block: Any, report: FaultReport) -> None:
        """Read one block: values, defaults of missing keys, faults; ``ABSENT`` if the file lacks it."""
        self._paths[name] = (name,)
        for key, field in model.model_fields.items():
            self._paths[key] = (name, key)
            self._values[key] = field.get_default(call_default_factory=False)
        self._unusable |= set(_required(model))
        if isinstance(block, dict):
            self._keys_in_file.add(name)
            keys = block.keys() & model.model_fields.keys()
            self._keys_in_file |= keys
            self._unusable -= keys
            # the raw JSON values: pydantic returns no values at all if one of them is faulty
            self._values |= {key: block[key] for key in keys}
            for key in _required(model):
                if key not in keys:
                    report.error((name, key), f"is missing: must be {allowed_of(model, key).text}")
            for (named, *index), message in value_faults(model, block):
                wrong = str(named)
                self.give_up(wrong)
                fault = FieldFault(f"{wrong}[]" if index else wrong, (name, wrong, *index), message)
                self.faults.append(fault)
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


def _required(model: type[Section]) -> list[str]:
    return [key for key, field in model.model_fields.items() if field.is_required()]


def allowed_of(model: type[Section], key: str) -> Allowed:
    """Return the allowed values of a field, in the words of its error message."""
    field = model.model_fields[key]
    notes = (note for note in field.metadata if isinstance(note, Allowed))
    return next(notes, None) or Allowed(choice(map(repr, choices(field.annotation))))


def value_faults(model: type[Section], block: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield path (a key, for an item of a list with its index) and message of each wrong value."""
    try:
        model.model_validate(block)
    except ValidationError as error:
        seen: set[Path] = set()  # pydantic reports a union's value once for each type of the union
        for detail in error.errors(include_url=False, include_context=False):
            key, *index = detail["loc"]
            value = block.get(str(key))
            is_item = bool(index) and isinstance(value, list)
            place = (key, index[0]) if is_item else (key,)
            if detail["type"] == "missing" or place in seen:
                continue
            seen.add(place)
            allowed, annotation = allowed_of(model, str(key)), model.model_fields[str(key)].annotation
            if is_item:
                value = block[str(key)][index[0]]
            # no hint for a value that should be a list: its items have choices, the whole has none
            is_scalar = is_item or typing.get_origin(annotation) is not list
            hint = did_you_mean(value, choices(annotation)) if is_scalar else ""
            yield place, f"= {show(value)}: must be {allowed.item if is_item else allowed.text}{hint}"


def choices(annotation: Any) -> tuple[Any, ...]:
    """Return the values of the ``Literal`` types in an annotation, nested ones included."""
    if annotation is bool:
        return (True, False)
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in choices(part))
