"""JSON and JSON Schemas of the documents that commands print with ``--json``.

python -m msdump.cli.documents docs/schema

A document shows objects of the tools as their shapes say (``output.Shape``): pydantic models are made of the
shapes, with the types of the attributes, and with their docstrings as descriptions. JSON has no NaN and no
infinities: they are the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which Python's ``float`` and
JavaScript's ``Number`` read. A number that was not computed is null.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import importlib
import inspect
import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Union

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter, WithJsonSchema, create_model

from msdump.cli.output import Document, Shape

DOCUMENTS: Final = (
    *("baseline", "check", "compare", "convert", "diff", "diff --advise", "overflow", "pack", "query"),
    *("report", "run", "show", "trend", "watch"),
)
"""Commands that take ``--json``, and options that give another document; each has a module of its name."""

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]")
_UNDECODED: Final = re.compile(r"[\ud800-\udfff]")
_NONFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_LISTS: Final = (list, tuple, collections.abc.Sequence)
_MAPPINGS: Final = (dict, collections.abc.Mapping)


def _as_json(number: float) -> float | str:
    return number if math.isfinite(number) else _NONFINITE[str(float(number))]


Number = Annotated[
    float,
    PlainSerializer(_as_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": list(_NONFINITE.values())}]}),
]
"""A number that may be NaN or infinite."""


class ErrorDocument(BaseModel):
    """The output of any command with ``--json`` that was stopped before it had anything to show."""

    model_config = ConfigDict(extra="forbid")

    error: str = Field(description="Why it was stopped, as on standard error; several faults are lines.")


_ERROR: Final = (
    "What the command said of its errors on standard error, a line each; null where it said nothing."
)


def error_text(error: str) -> str:
    r"""Return the document of a command that was stopped by an error.

    Bytes of a file's name that are no UTF-8 have no form in JSON: they stand as ``\xff``.

    >>> error_text("\u00e9 and \udcff")
    '{\n  "error": "\\u00e9 and \\\\xff"\n}\n'
    """
    return _printed(ErrorDocument(error=error))


def text(document: Document, shown: object, error: str | None = None) -> str:
    """Return the document of an object as it is printed: ASCII, one line for each value."""
    fields = _plain(shown, document.shapes)
    return _printed(model(document).model_validate({"error": error, **fields}))


def _printed(document: BaseModel) -> str:
    printed = json.dumps(document.model_dump(mode="json"), indent=2, allow_nan=False, ensure_ascii=False)
    return _NOT_ASCII.sub(_escaped, printed) + "\n"


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if _UNDECODED.fullmatch(character):  # as Python's surrogateescape reads such a byte
        return f"\\\\x{ord(character) & 0xFF:02x}"
    return json.dumps(character)[1:-1]


def _plain(value: Any, shapes: Mapping[type, Shape]) -> Any:
    """Return a value with the objects in it as dicts of their fields."""
    if type(value) in _LISTS:  # exact types: a named tuple becomes an object, not a list
        return [_plain(each, shapes) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each, shapes) for key, each in value.items()}
    shape = _shape(type(value), shapes)
    if shape is None:
        return value
    return {
        name: _plain(shape.computed[name](value) if name in shape.computed else _read(value, *path), shapes)
        for name, path in shape.paths.items()
    }


def _read(value: Any, path: str, has_null: bool) -> Any:  # noqa: FBT001 - as shapes have it
    for number, name in enumerate(names := path.split(".")):
        if value is None:
            return None
        if type(value) in _LISTS:
            return [_read(each, ".".join(names[number:]), has_null) for each in value]
        value = getattr(value, name)
    is_number = isinstance(value, int | float)
    is_empty = value == "" or (is_number and (math.isnan(value) or value < 0))
    return None if has_null and is_empty else value


def _shape(kind: type, shapes: Mapping[type, Shape]) -> Shape | None:
    """Return the declared shape of a class, else all fields of a dataclass; None for any other class."""
    if kind in shapes or not dataclasses.is_dataclass(kind):
        return shapes.get(kind)
    return Shape(kind, " ".join(field.name for field in dataclasses.fields(kind)))


@functools.cache
def model(document: Document) -> type[BaseModel]:
    """Return the pydantic model of a document."""
    error = (str | None, Field(None, description=_ERROR))
    return _Models(document.shapes).model(document.shape, error=error)


class _Models:
    """The pydantic models of shapes."""

    def __init__(self, shapes: Mapping[type, Shape]) -> None:
        self._shapes = shapes
        self._models: dict[type, type[BaseModel]] = {}

    def model(self, shape: Shape, **more: Any) -> type[BaseModel]:
        fields: dict[str, Any] = {name: self._field(shape, name) for name in shape.paths}
        return create_model(
            shape.name,
            __doc__=_in_json(_first(shape.kind)),
            __config__=ConfigDict(extra="forbid"),
            **more,
            **fields,
        )

    def _field(self, shape: Shape, name: str) -> tuple[Any, Any]:
        function = shape.computed.get(name)
        if function is not None:
            hint, said = _returned(function), _first(function)
        else:
            path, has_null = shape.paths[name]
            hint, said = _followed(shape.kind, path.split("."), name)
            hint = hint | None if has_null else hint
        return self._shown(hint), Field(description=_in_json(said, hint))

    def _shown(self, hint: Any) -> Any:
        """Return the type of the JSON value that shows a value of a type."""
        origin, inner = typing.get_origin(hint), [*map(self._shown, typing.get_args(hint))]
        if origin in {Union, types.UnionType}:
            return Union[tuple(inner)]  # noqa: UP007 - as many as there are
        if origin in _LISTS:
            return list[inner[0]]  # type: ignore[valid-type]
        if origin in _MAPPINGS:
            return dict[inner[0], inner[1]]  # type: ignore[valid-type]
        if origin is collections.Counter:
            return dict[inner[0], int]  # type: ignore[valid-type]
        shape = _shape(hint, self._shapes) if isinstance(hint, type) else None
        if shape is not None:
            return self._models.get(hint) or self._models.setdefault(hint, self.model(shape))
        return Number if isinstance(hint, type) and issubclass(hint, float) else hint


def _followed(hint: Any, names: list[str], field: str) -> tuple[Any, str]:
    """Return type and description of the attribute at the end of a path of attributes that starts at a type.

    The description is that of the attribute on the path which has the field's name, else of the last one.
    """
    options = set(typing.get_args(hint)) if typing.get_origin(hint) in {Union, types.UnionType} else {hint}
    (kind,) = options - {types.NoneType}
    if typing.get_origin(kind) in _LISTS:
        found, said = _followed(typing.get_args(kind)[0], names, field)
        return list[found], said  # type: ignore[valid-type]
    found, said = _attribute(kind, names[0])
    if names[1:]:
        found, last = _followed(found, names[1:], field)
        said = said if names[0] == field else last
    return (found | None if types.NoneType in options else found), said


def _attribute(kind: type, name: str) -> tuple[Any, str]:
    member = inspect.getattr_static(kind, name, None)
    function = getattr(member, "fget", None) or getattr(member, "func", None)
    if function is not None:
        return _returned(function), _first(function)
    base = next(each for each in kind.__mro__ if name in inspect.get_annotations(each))
    said = dict(_ATTRIBUTE.findall(inspect.getdoc(base) or ""))
    return _evaluated(inspect.get_annotations(base)[name], vars(sys.modules[base.__module__])), said.get(
        name, ""
    )


def _returned(function: Callable[..., Any]) -> Any:
    return _evaluated(inspect.get_annotations(function)["return"], getattr(function, "__globals__", {}))


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    annotation = getattr(annotation, "__forward_arg__", annotation)  # ForwardRef in named tuples
    return eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - of our modules


def _first(documented: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _in_json(said: str, hint: Any = None) -> str:
    """Return a description of an attribute with JSON's null for None, and for "" and -1 that become null."""
    said = re.sub(r"\bNone\b", "null", " ".join(said.split())).replace("``", "")
    return re.sub('""|-1', "null", said) if types.NoneType in typing.get_args(hint) else said


def adapter(command: str) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a command's output: its document, or that of an error."""
    document: Document = importlib.import_module(f"msdump.cli.{command.rpartition('--')[2]}").DOCUMENT
    printed: Any = model(document) | ErrorDocument
    return TypeAdapter(printed)


def file_name(command: str) -> str:
    """Return the name of the file that holds a command's schema.

    >>> file_name("diff --advise")
    'diff_advise.schema.json'
    """
    return f"{command.replace(' --', '_')}.schema.json"


def schema_text(command: str) -> str:
    """Return the schema of the document that a command prints as the text of its file."""
    schema = adapter(command).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"msdump {command} --json"}
    return json.dumps({**head, **schema}, indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the schemas into the folder that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.cli.documents FOLDER")
    for command in DOCUMENTS:
        Path(arguments[0], file_name(command)).write_text(schema_text(command), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
