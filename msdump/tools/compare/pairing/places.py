"""Which operators of a graph file are compared: the texts of ``-r`` and ``-s``."""

from __future__ import annotations

import logging
from typing import Final

from msdump.errors import ToolError
from msdump.tools.compare.pairing.fusion_rules import FusionRules
from msdump.tools.return_codes import ReturnCode

_TO_THE_END: Final = "-1"
_log = logging.getLogger("msdump.tools")


def of_range(text: str, rules: FusionRules) -> frozenset[int]:
    """Return the places of a range ``start,end,step`` (``-r``).

    An empty start is 1, an empty end or -1 the last place, an empty step 1. The end belongs to the
    range whatever the step.

    >>> from types import SimpleNamespace
    >>> sorted(of_range("1,,3", SimpleNamespace(last=9)))
    [1, 4, 7, 9]

    Raises:
        ToolError: The text is malformed, or a number is out of range.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3:  # noqa: PLR2004 - start, end, step
        raise ToolError(ReturnCode.PARAMETER, f"-r {text!r} is not start,end,step, such as 1,-1,1")
    start, step = (_number(part or "1", "-r", text) for part in (parts[0], parts[2]))
    end = rules.last if parts[1] in {"", _TO_THE_END} else _number(parts[1], "-r", text)
    allowed = (
        ("start", start, 1, rules.last),
        ("end", end, start, rules.last),
        ("step", step, 1, max(rules.last - 1, 1)),
    )
    for name, value, low, high in allowed:
        if not low <= value <= high:
            raise ToolError(
                ReturnCode.INDEX, f"-r {text!r}: the {name} is {value}, it must be {low} to {high}"
            )
    return frozenset((*range(start, end + 1, step), end))


def of_select(text: str, rules: FusionRules) -> frozenset[int]:
    """Return the places of a list ``1,5,7`` (``-s``); places beyond the last are left out with a warning.

    Raises:
        ToolError: The text is malformed, or the graph has none of the places.
    """
    chosen = {_number(part, "-s", text) for part in filter(None, map(str.strip, text.split(",")))}
    places = {number for number in chosen if number <= rules.last}
    if not places:
        raise ToolError(
            ReturnCode.PARAMETER, f"-s {text!r}: the places of the operators are 1 to {rules.last}"
        )
    if missing := sorted(chosen - places):
        _log.warning("-s: the places of the operators are 1 to %d; left out %s", rules.last, missing)
    return frozenset(places)


def _number(part: str, option: str, text: str) -> int:
    if not (part.isascii() and part.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"{option} {text!r}: {part!r} is no whole number")
    return int(part)


def groups(places: frozenset[int], rules: FusionRules) -> frozenset[int]:
    """Return the numbers of the groups whose operators stand at these places."""
    return frozenset(each.index for each in rules.operators if each.sequence in places)
