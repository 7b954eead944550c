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

from msdump.config.faults import GrammarError, TextFault
from msdump.config.regex.ecmascript import translate
from msdump.iterations import IterationSet
from msdump.selector import KernelPattern, PatternKind

_SEGMENT: Final = re.compile(r" *(?P<low>[0-9]+) *(?:- *(?P<high>[0-9]+) *)?")
_SEGMENTS_ALLOWED: Final = "write numbers and ranges joined by '|', as in '0|5-8|100-120', or 'all' alone"
_MOST_GE_SEGMENTS: Final = 100
_BIGGEST: Final = (1 << 64) - 1
_REGEX_OPENS: Final = "name-regex("


def parse_iterations(text: str, *, for_ge: bool = False) -> IterationSet:
    """Return the set of iteration numbers that an ``iteration`` text describes.

    >>> parse_iterations("0 | 5-8 | 7-9").spans
    ((0, 0), (5, 9))
    >>> 3 in parse_iterations("all")
    True
    >>> parse_iterations("0|8-5")
    Traceback (most recent call last):
    msdump.config.faults.GrammarError: the range 8-5 runs backwards; write 5-8

    Args:
        text: The text.
        for_ge: The text becomes the graph engine's ``ge.exec.dumpStep``, which takes 100 segments at most
            and no range of one number.

    Raises:
        GrammarError: A segment is empty, malformed, reversed or beyond 64 bit (the reference
            never matches such segments, without a word).
    """
    if text.strip(" ") == "all":
        return IterationSet()
    spans: list[tuple[int, int]] = []
    faults: list[TextFault] = []
    offset = 0
    # every segment is looked at, also behind a faulty one: a user gets all faults of a text in one go
    for segment in text.split("|"):
        match = _SEGMENT.fullmatch(segment)
        low, high = _bounds(match) if match else (0, 0)
        message = _range_message(segment, low, high) if match else _malformed_message(text, segment)
        if not message and for_ge:
            message = _ge_message(match, low, high)
        if message:
            faults.append(_fault_of(segment, offset, message))
        spans.append((low, high))
        offset += len(segment) + 1
    if for_ge and len(spans) > _MOST_GE_SEGMENTS:
        message = f"the graph engine takes {_MOST_GE_SEGMENTS} segments at most, these are {len(spans)}"
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
    text = item.replace(" ", "")  # vendor: all spaces of an item vanish, those inside a regex too
    if not text:
        return None
    if text.startswith(_REGEX_OPENS):
        expression, translated = _expression(text)
        return KernelPattern(PatternKind.REGEX, expression, item, searches, translated)
    if "/" in text or "-op" in text:
        return KernelPattern(PatternKind.NAME, text, item)
    return KernelPattern(PatternKind.TYPE, text, item)


def _bounds(match: re.Match[str]) -> tuple[int, int]:
    low = _clamped_number(match["low"])
    return low, _clamped_number(match["high"]) if match["high"] else low


def _clamped_number(digits: str) -> int:
    """Return the number that decimal digits write, 2^64 for any that is greater."""
    significant = digits.lstrip("0") or "0"
    # Python refuses to convert more than 4,300 digits; the length alone tells that these are too many
    return int(significant) if len(significant) <= len(str(_BIGGEST)) else _BIGGEST + 1


def _range_message(segment: str, low: int, high: int) -> str:
    if max(low, high) > _BIGGEST:
        return f"{segment.strip()} does not fit into 64 bit"
    if low > high:
        return f"the range {segment.strip()} runs backwards; write {high}-{low}"
    return ""


def _ge_message(match: re.Match[str] | None, low: int, high: int) -> str:
    if match is not None and match["high"] and low == high:
        return f"the graph engine takes no range of one number; write {low}"
    return ""


def _malformed_message(text: str, segment: str) -> str:
    if text.strip().lower() == "all":
        return "write 'all' in lower case"
    if not segment.strip():
        return f"a segment is empty; {_SEGMENTS_ALLOWED}"
    return f"{segment.strip()!r} is neither a number nor a range; {_SEGMENTS_ALLOWED}"


def _fault_of(segment: str, offset: int, message: str) -> TextFault:
    """Return the fault of a segment, placed at its text without the spaces around it."""
    start = offset + len(segment) - len(segment.lstrip())
    end = offset + len(segment.rstrip())
    # a segment of spaces alone has no text to point at: the caret marks the spaces
    return (
        TextFault(start, end, message) if start < end else TextFault(offset, offset + len(segment), message)
    )


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
