"""What all documents of ``--json`` have in common: their base, their numbers, and the one of an error.

JSON has no NaN and no infinities: they are the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which
Python's ``float`` and JavaScript's ``Number`` read. A number that was not computed is null.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from msdump.config.described import Described

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_UNDECODED: Final = re.compile(r"[\ud800-\udfff]")
_NONFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _as_json(number: float) -> float | str:
    return number if math.isfinite(number) else _NONFINITE[str(float(number))]


Number = Annotated[
    float,
    PlainSerializer(_as_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": list(_NONFINITE.values())}]}),
]
"""A number that may be NaN or infinite."""


class Part(Described, BaseModel):
    """An object inside a document."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JsonDocument(Part):
    """What a command prints with ``--json``."""

    error: str | None = None
    """What the command said of its errors on standard error, a line each; null where it said nothing."""


class ErrorDocument(Part):
    """What any command prints with ``--json`` that was stopped before it had anything to tell."""

    error: str
    """Why it was stopped, as on standard error; several faults are lines."""


def text(document: Part) -> str:
    r"""Return a document as it is printed: ASCII, one line for each value.

    Bytes of a file's name that are no UTF-8 have no form in JSON: they stand as ``\xff``.

    >>> text(ErrorDocument(error="\u00e9 and \udcff"))
    '{\n  "error": "\\u00e9 and \\\\xff"\n}\n'
    """
    printed = json.dumps(document.model_dump(mode="json"), indent=2, allow_nan=False, ensure_ascii=False)
    return _NOT_ASCII.sub(_escaped, printed) + "\n"


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if _UNDECODED.fullmatch(character):  # as Python's surrogateescape reads such a byte
        return f"\\\\x{ord(character) & 0xFF:02x}"
    return json.dumps(character)[1:-1]
