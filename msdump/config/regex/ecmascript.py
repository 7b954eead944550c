r"""ECMAScript regular expressions, as MindSpore's ``name-regex(...)`` takes them, translated into Python's.

The grammar is that of C++'s std::regex as GCC's library reads it, which MindSpore is built with:

    expression  = alternative {"|" alternative}
    alternative = {assertion | atom {quantifier}}
    assertion   = "^" | "$" | "\b" | "\B" | ("(?=" | "(?!") expression ")"
    atom        = character | "." | escape | class | ("(" | "(?:") expression ")" | "\" number
    quantifier  = ("*" | "+" | "?" | "{" n ["," [m]] "}") ["?"]

Python's own syntax differs in much of this: it knows possessive quantifiers (``a++`` repeats twice
here), octal numbers (``\01`` is NUL and "1" here), ``\A``, lookbehind, flags and names of groups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from msdump.config.regex.character_classes import is_quoted_class, parse_class
from msdump.config.regex.escapes import parse_escape, refuse

_MOST_STATES: Final = 100_000  # of the automaton, as in GCC's library
_MOST_NESTED: Final = 100  # brackets in brackets: Python's stack is finite
_LONGEST_NUMBER: Final = 9  # digits of a repetition
_QUANTIFIERS: Final = "*+?{"
_REPETITION: Final = re.compile(r"\{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*)")
_GROUPS: Final = {"(?:": "(?:", "(?=": "(?=", "(?!": "(?!"}
_ANY: Final = r"[^\n\r]"


@dataclass(frozen=True, slots=True)
class _Part:
    """A translated part of the expression.

    Attributes:
        text: The part in Python's syntax.
        states: States that GCC's automaton takes for it.
    """

    text: str
    states: int


def translate(expression: str) -> str:
    r"""Return the expression of Python's ``re`` and ``regex`` that matches the same names.

    >>> translate("Default/.+Conv2D-op[0-9]{1,2}$")
    'Default/(?:[^\\n\\r])+Conv2D\\-op(?:[\\U00000030-\\U00000039]){1,2}\\Z'
    >>> translate("{3}")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    msdump.config.faults.GrammarError: not a regular expression: nothing stands here that '{' could ...

    Of several matches of one name either may find another one: quantifiers that take as little
    as possible become greedy.

    Raises:
        GrammarError: It is no ECMAScript; the fault stands where the grammar was left.
    """
    return _Parser(expression).translate()


class _Parser:
    """Reads one expression from left to right: a method for each line of the grammar."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._offset = 0
        self._groups = 0
        self._open: list[int] = []  # numbers of the groups whose closing bracket is still to come
        self._depth = 0  # of brackets, those without a number too

    def translate(self) -> str:
        part = self._expression()
        if self._offset < len(self._text):
            self._refuse(self._offset, self._offset + 1, _left_over(self._text[self._offset]))
        return part.text

    def _expression(self) -> _Part:
        parts = [self._alternative()]
        while self._takes("|"):
            parts.append(self._alternative())
        return _Part("|".join(part.text for part in parts), sum(part.states + 1 for part in parts))

    def _alternative(self) -> _Part:
        text, states = "", 0
        while part := self._term():
            text += part.text
            states += part.states
            if states > _MOST_STATES:
                self._refuse_size()
        return _Part(text, states)

    def _term(self) -> _Part | None:
        if self._offset == len(self._text) or self._text[self._offset] in "|)*+?{":
            return None
        assertion = self._assertion()
        if assertion:
            return assertion
        part = self._atom()
        while self._peek() in _QUANTIFIERS:
            part = self._repeated(part)
        return part

    def _peek(self) -> str:
        """Return the next character, at the end NUL, which has no meaning in the grammar."""
        return self._text[self._offset] if self._offset < len(self._text) else "\0"

    def _takes(self, text: str) -> bool:
        is_next = self._text.startswith(text, self._offset)
        self._offset += len(text) * is_next
        return is_next

    def _assertion(self) -> _Part | None:
        for sign, text in {"^": r"\A", "$": r"\Z", r"\b": r"\b", r"\B": r"\B"}.items():
            if self._takes(sign):
                return _Part(text, 1)
        if self._text.startswith(("(?=", "(?!"), self._offset):
            return self._group()
        return None

    def _atom(self) -> _Part:
        start, char = self._offset, self._text[self._offset]
        if char == "(":
            return self._group()
        self._offset += 1
        if char == ".":
            return _Part(_ANY, 1)
        if char == "[":
            text, self._offset = parse_class(self._text, start)
            return _Part(text, 1)
        if char == "\\":
            return self._escape(start)
        return _Part(re.escape(char), 1)

    def _escape(self, start: int) -> _Part:
        following = self._text[self._offset : self._offset + 1]
        if is_quoted_class(following):
            self._offset += 1
            return _Part(f"\\{following}", 1)
        if following.isdecimal() and following.isascii() and following != "0":
            return self._reference(start)
        char, self._offset = parse_escape(self._text, start)
        return _Part(re.escape(char), 1)

    def _reference(self, start: int) -> _Part:
        r"""Read a reference back to what a group has matched, ``\1``."""
        match = re.compile("[0-9]+").match(self._text, self._offset)
        assert match is not None, "the caller saw a digit"
        self._offset = match.end()
        number = int(match[0]) if len(match[0]) <= _LONGEST_NUMBER else self._groups + 1
        if number > self._groups:
            message = f"\\{match[0]} refers to no group before it; there are {self._groups}"
            self._refuse(start, self._offset, message)
        if number in self._open:
            self._refuse(start, self._offset, f"\\{match[0]} stands inside the group that it refers to")
        return _Part(f"(?P=g{number})", 1)

    def _group(self) -> _Part:
        start = self._offset
        opening = _GROUPS.get(self._text[start : start + 3])
        if opening is None and self._text.startswith("(?", start):
            self._refuse(start, start + 3, _foreign_group(self._text[start:]))
        if opening is None:
            # named, not numbered: in \10 the name tells where the number of the group ends
            self._groups += 1
            opening = f"(?P<g{self._groups}>"
            self._open.append(self._groups)
        self._offset += 1 if opening.startswith("(?P") else len(opening)
        part = self._enclosed(start)
        if opening.startswith("(?P"):
            self._open.pop()
        return _Part(f"{opening}{part.text})", part.states + 2)

    def _enclosed(self, start: int) -> _Part:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            self._refuse(start, start + 1, f"more than {_MOST_NESTED} brackets stand inside each other")
        part = self._expression()
        self._depth -= 1
        if not self._takes(")"):
            if self._offset < len(self._text):
                self._refuse(self._offset, self._offset + 1, _left_over(self._text[self._offset]))
            self._refuse(start, start + 1, "the bracket is not closed")
        return part

    def _repeated(self, part: _Part) -> _Part:
        """Read one quantifier; a second one repeats what the first one has repeated."""
        char = self._peek()
        if char == "{":
            text, copies = self._repetition()
        else:
            self._offset += 1
            text, copies = char, 1
        self._takes("?")  # as little as possible: no matter where only a match or none is asked for
        # the library builds {n,m} by copying the automaton of the part, and refuses one that grows too large
        states = part.states * copies + 1
        if states > _MOST_STATES:
            self._refuse_size()
        # in brackets of its own: a quantifier behind a quantifier would be a possessive one to Python
        return _Part(f"(?:{part.text}){text}", states)

    def _repetition(self) -> tuple[str, int]:
        """Read ``{n,m}``; return its text, and how many copies of the repeated part the automaton holds."""
        match = _REPETITION.match(self._text, self._offset)
        assert match is not None, "the caller saw the bracket"
        start, self._offset = self._offset, match.end()
        least, most = match["least"], match["most"]
        if not least or not self._takes("}"):
            self._refuse(
                start, self._offset, "a repetition is {n}, {n,} or {n,m}; write \\{ for the character"
            )
        if max(len(least.lstrip("0")), len(most.lstrip("0"))) > _LONGEST_NUMBER:
            self._refuse(start, self._offset, "the repetition number is too large")
        if most and int(most) < int(least):
            self._refuse(start, self._offset, f"the repetition runs backwards; write {{{most},{least}}}")
        text = f"{{{int(least)}{match['comma']}{int(most) if most else ''}}}"
        return text, max(int(least), int(most or 0)) + bool(match["comma"])

    def _refuse_size(self) -> NoReturn:
        message = f"repetitions make it longer than {_MOST_STATES} characters; use smaller ones, or * and +"
        self._refuse(0, self._offset, message)

    def _refuse(self, start: int, end: int, message: str) -> NoReturn:
        refuse(self._text, start, end, message)


def _left_over(char: str) -> str:
    if char == ")":
        return "no bracket is open here; write \\) for the character"
    return f"nothing stands here that {char!r} could repeat; write \\{char} for the character"


_FOREIGN: Final = {
    "(?<=": "lookbehind",
    "(?<!": "lookbehind",
    "(?<": "names of groups",
    "(?P": "names of groups",
    "(?#": "comments",
    "(?>": "atomic groups",
    "(?(": "conditions",
    "(?|": "groups of one number",
}


def _foreign_group(text: str) -> str:
    kind = next((words for sign, words in _FOREIGN.items() if text.startswith(sign)), "flags")
    return f"ECMAScript has no {kind}; behind (? stands ':', '=' or '!'"
