"""The root directory of a dump (``path``): which texts are accepted, and which MindSpore itself refuses."""

from __future__ import annotations

import re
from typing import Final

from msdump.config.faults import GrammarError, TextFault

_LONGEST_PART: Final = 255  # bytes that a file system takes
_LONGEST_ROOT: Final = 3400  # Linux takes 4,096 of a whole path: the dump's directories and names follow

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_/-]")
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")  # of a text with surrogates no file name can be made


def parse_root(text: str) -> str:
    """Return the root of the dump without repeated and trailing slashes.

    >>> parse_root("/home//dumps/")
    '/home/dumps'

    Raises:
        GrammarError: It is relative, holds a character that no file name has, or is too long, as
            a whole or in a component.
    """
    # a surrogate has no UTF-8 bytes: lengths can only be measured where none stands in the text
    faults = [
        TextFault(match.start(), match.end(), f"a path cannot hold {match[0]!r}; remove it")
        for match in _UNUSABLE.finditer(text)
    ]
    faults = faults or [*_length_faults(text)]
    if not text.startswith("/"):
        faults.insert(0, TextFault(0, 1, "the path must be absolute, starting with '/'"))
    if faults:
        raise GrammarError(text, *faults)
    return "/" + "/".join(part for part in text.split("/") if part)


def foreign_characters(root: str) -> str:
    """Return the characters of a root for which MindSpore itself refuses it, each once.

    MindSpore takes letters, digits, "_", "-" and "/" alone; msdump writes to such a root and warns.

    >>> foreign_characters("/data/my.models/a b.c")
    '. '
    """
    return "".join(dict.fromkeys(_FOREIGN.findall(root)))


def _length_faults(text: str) -> list[TextFault]:
    faults = []
    for match in re.finditer("[^/]+", text):
        size = len(match[0].encode())
        if size > _LONGEST_PART:
            message = f"a part of the path has {size} bytes; a file system takes {_LONGEST_PART}"
            faults.append(TextFault(match.start(), match.end(), message))
    size = len(text.encode())
    if size > _LONGEST_ROOT:
        message = f"the path has {size} bytes; at most {_LONGEST_ROOT} leave room for the files below it"
        faults.append(TextFault(0, len(text), message))
    return faults
