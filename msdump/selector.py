"""Which operators are dumped: ``dump_mode`` and the items of ``kernels``.

>>> operators = ("Default/conv1-Conv2d/Conv2D-op0", "Default/fc-Dense/MatMul-op0")
>>> by_type = KernelPattern(PatternKind.TYPE, "conv2d", "Conv2D")
>>> [by_type.matches(name) for name in operators]
[True, False]
>>> by_name = KernelPattern(PatternKind.NAME, "Default/fc-Dense/MatMul-op0", "Default/fc-Dense/MatMul-op0")
>>> [by_name.matches(name) for name in operators]
[False, True]
>>> regex = KernelPattern(PatternKind.REGEX, "fc", 'name-regex(fc)', searches=True, translated="fc")
>>> [regex.matches(name) for name in operators]
[False, True]
>>> [Selector(DumpMode.KERNELS, (by_type, by_name)).selects(name) for name in operators]
[True, True]
>>> [Selector(DumpMode.MARKED).selects(name, is_marked=name == operators[1]) for name in operators]
[False, True]
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from msdump.errors import ConfigValueError, Problem
from msdump.expressions import expression
from msdump.reasons import Reason


class DumpMode(enum.IntEnum):
    """Which operators are dumped (``dump_mode``)."""

    ALL = 0
    KERNELS = 1
    MARKED = 2


class PatternKind(enum.StrEnum):
    """How a ``kernels`` item matches an operator's full name."""

    REGEX = "regex"
    NAME = "name"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """One item of ``kernels``.

    Attributes:
        kind: regex, exact name, or operator type.
        text: The expression, name or type.
        item: The item as the user wrote it, for messages.
        searches: For a regex: match anywhere in the name (O2) instead of the whole name.
        translated: A regex in Python's syntax.
        place: Where the item stands, for messages.
    """

    kind: PatternKind
    text: str
    item: str
    searches: bool = False
    translated: str = ""
    place: str = "kernels"

    def matches(self, full_name: str) -> bool:
        """Tell whether the item selects an operator or parameter by its full name.

        A type is a case-insensitive substring of what stands after the last "/"
        and before the last "-" of the name (O0/O1 ``kernels``); it therefore
        also matches parameters, as the reference does. Spaces of a name do not
        count: the reader removes those of the item, as the reference does.

        Raises:
            ConfigValueError: Matching a regex takes too long.
        """
        # vendor: MindSpore strips the spaces of an item, which then could match no name with spaces
        full_name = full_name.replace(" ", "")
        if self.kind is PatternKind.NAME:
            return self.text == full_name
        if self.kind is PatternKind.TYPE:
            # vendor: MindSpore cuts at the last hyphen, so that a type never matches the operator's number
            component = full_name.rpartition("/")[2]
            return self.text.lower() in (component.rpartition("-")[0] or component).lower()
        try:
            return expression(self.translated, searches=self.searches).matches(full_name)
        except TimeoutError:
            message = (
                f"{self.item!r} takes too long to match {full_name!r}; write it without repeated groups"
                " whose parts overlap, as in (a+)+"
            )
            raise ConfigValueError(self.place, (Problem("", message),)) from None


@dataclass(frozen=True, slots=True)
class Selector:
    """Which operators are dumped.

    Attributes:
        mode: All, those that ``patterns`` select, or those that ``set_dump`` marked.
        patterns: The items of ``kernels``; none under ``KERNELS`` selects everything.
    """

    mode: DumpMode = DumpMode.ALL
    patterns: tuple[KernelPattern, ...] = ()

    def selects(self, full_name: str, *, is_marked: bool = False) -> bool:
        """Tell whether an operator or parameter is dumped."""
        return self.refusal(full_name, is_marked=is_marked) is None

    def refusal(self, full_name: str, *, is_marked: bool = False) -> Reason | None:
        """Return why an operator or parameter is not dumped, None where it is."""
        if self.mode is DumpMode.MARKED:
            return None if is_marked else Reason.NOT_MARKED
        if self.mode is DumpMode.ALL or not self.patterns:
            return None
        is_named = any(pattern.matches(full_name) for pattern in self.patterns)
        return None if is_named else Reason.NOT_IN_KERNELS
