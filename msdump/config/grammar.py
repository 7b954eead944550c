"""The small grammars inside configuration values.

iterations = "all" | segment {"|" segment}        spaces are allowed
segment    = number | number "-" number           both ends included, numbers from 0
kernel     = "name-regex(" expression ")"         the whole name (O2: a part of it)
           | text with "/" or "-op"               the exact full name
           | other text                           a part of the operator type, in any case
"""

from __future__ import annotations

import re
from typing import Final

from msdump.config.regex import translate
from msdump.config.source import GrammarError, TextFault, clamped_number
from msdump.selector import IterationSet, KernelPattern, PatternKind

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


_SEGMENT: Final = re.compile(r" *(?P<low>[0-9]+) *(?:- *(?P<high>[0-9]+) *)?")
_SEGMENTS_ALLOWED: Final = "write numbers and ranges joined by '|', such as '0|5-8|100-120', or 'all'"
_MOST_GE_SEGMENTS: Final = 100
_BIGGEST: Final = (1 << 64) - 1
_REGEX_OPENS: Final = "name-regex("


def parse_iterations(text: str, *, for_ge: bool = False) -> IterationSet:
    """Return the set of iteration numbers that an ``iteration`` text describes.

    The graph engine (``ge.exec.dumpStep``) takes 100 segments at most and no range of one number.

    >>> parse_iterations("0 | 5-8 | 7-9").spans
    ((0, 0), (5, 9))
    >>> 3 in parse_iterations("all")
    True
    >>> parse_iterations("0|8-5")
    Traceback (most recent call last):
    msdump.config.source.GrammarError: the range 8-5 begins above its end; write 5-8

    Raises:
        GrammarError: A segment is empty, malformed, reversed or beyond 64 bit (the reference
            never matches such segments, without a word).
    """
    if text.strip(" ") == "all":
        return IterationSet()
    spans: list[tuple[int, int]] = []
    faults: list[TextFault] = []
    offset = 0
    for segment in text.split("|"):
        span, message = _parse_segment(segment, text, for_ge=for_ge)
        if message:
            # a segment of spaces alone has no text to point at: the caret marks the spaces
            shown = segment.strip() or segment
            start = offset + segment.index(shown)
            faults.append(TextFault(start, start + len(shown), message))
        spans.append(span)
        offset += len(segment) + 1
    if for_ge and len(spans) > _MOST_GE_SEGMENTS:
        message = f"the graph engine takes at most {_MOST_GE_SEGMENTS} segments, {len(spans)} are given"
        faults.append(TextFault(0, len(text), message))
    if faults:
        raise GrammarError(text, *faults)
    return IterationSet.of(spans)


def parse_kernel(item: str, *, searches: bool) -> KernelPattern | None:
    """Return the pattern that an item of ``kernels`` describes, None for an empty one.

    >>> parse_kernel("name-regex(Default/.+)", searches=False).matches("Default/Add-op0")
    True
    >>> parse_kernel("conv", searches=False).matches("Default/conv1-Conv2d/Conv2D-op3")
    True
    >>> parse_kernel("Default/Add-op0", searches=False).matches("default/add-op0")
    False

    Args:
        item: The item as the user wrote it.
        searches: A regex matches anywhere in a name (O2) instead of the whole name.

    Raises:
        GrammarError: A regex has no closing bracket or is none of ECMAScript.
    """
    text = item.replace(" ", "")  # vendor: all spaces of an item vanish, inside a regex too
    if not text:
        return None
    if text.startswith(_REGEX_OPENS):
        expression, translated = _expression(text)
        return KernelPattern(PatternKind.REGEX, expression, item, searches, translated)
    if "/" in text or "-op" in text:
        return KernelPattern(PatternKind.NAME, text, item)
    return KernelPattern(PatternKind.TYPE, text, item)


def _parse_segment(segment: str, text: str, *, for_ge: bool) -> tuple[tuple[int, int], str]:
    """Return the range of a segment of a text, both ends included, and its fault ("": it is valid)."""
    match, shown = _SEGMENT.fullmatch(segment), segment.strip()
    if match is None:
        fault = f"{shown!r} is neither a number nor a range; {_SEGMENTS_ALLOWED}"
        if text.strip().lower() == "all":
            fault = "write 'all' in lower case"
        elif not shown:
            fault = f"a segment is empty; {_SEGMENTS_ALLOWED}"
        return (0, 0), fault
    low = clamped_number(match["low"], _BIGGEST + 1)
    high = clamped_number(match["high"], _BIGGEST + 1) if match["high"] else low
    fault = ""
    if max(low, high) > _BIGGEST:
        fault = f"{shown} does not fit into 64 bit"
    elif low > high:
        fault = f"the range {shown} begins above its end; write {high}-{low}"
    elif for_ge and match["high"] and low == high:
        fault = f"the graph engine takes no range of one number; write {low}"
    return (low, high), fault


def _expression(text: str) -> tuple[str, str]:
    """Return the expression between the brackets of ``name-regex(...)``, and the same in Python's syntax."""
    if not text.endswith(")"):
        message = "the bracket of name-regex( is not closed; write name-regex(expression)"
        raise GrammarError(text, TextFault(len(text), len(text) + 1, message))
    offset = len(_REGEX_OPENS)
    expression = text[offset:-1]
    try:
        return expression, translate(expression)
    except GrammarError as error:
        # the translator counts from the start of the expression, a message shows the whole item
        faults_in_item = [
            TextFault(fault.start + offset, fault.end + offset, fault.message) for fault in error.faults
        ]
        raise GrammarError(text, *faults_in_item) from None
