r"""Regular expressions of C++'s std::regex, translated into Python's ``regex``.

MindSpore's ``name-regex(...)`` takes them. Their grammar is ECMAScript's in the form of C++'s std::regex as
GCC's library reads it, which MindSpore is built with; escapes are ``\n``, ``\x41``, ``\u0041``, ``\cA``,
classes ``[a-z]``, ``[^[:digit:]\w]``, ``[[.x.]]``:

    expression  = alternative {"|" alternative}
    alternative = {assertion | atom {quantifier}}
    assertion   = "^" | "$" | "\b" | "\B" | ("(?=" | "(?!") expression ")"
    atom        = character | "." | escape | class | ("(" | "(?:") expression ")" | "\" number
    quantifier  = ("*" | "+" | "?" | "{" n ["," [m]] "}") ["?"]

Python's own syntax differs in much of this: it has possessive quantifiers (``a++`` repeats twice
here), octal numbers (``\01`` is NUL and "1" here), ``\A``, lookbehind, flags and names of groups.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from msdump.config.source import GrammarError, TextFault, did_you_mean

POSIX_CLASSES: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "d": r"\d",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "s": r"\s",
    "space": r"\s",
    "upper": "A-Z",
    "w": r"\w",
    "xdigit": "0-9a-fA-F",
}
"""Characters of ``[:name:]``."""

_NAMES: Final = {
    "\0": "NUL SOH STX ETX EOT ENQ ACK alert backspace tab newline vertical-tab form-feed carriage-return"
    " SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC IS4 IS3 IS2 IS1",
    " ": "space exclamation-mark quotation-mark number-sign dollar-sign percent-sign ampersand apostrophe"
    " left-parenthesis right-parenthesis asterisk plus-sign comma hyphen period slash"
    " zero one two three four five six seven eight nine"
    " colon semicolon less-than-sign equals-sign greater-than-sign question-mark commercial-at",
    "[": "left-square-bracket backslash right-square-bracket circumflex underscore grave-accent",
    "{": "left-curly-bracket vertical-line right-curly-bracket tilde DEL",
}
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
COLLATING: Final = {letter: letter for letter in _LETTERS} | {
    name: chr(ord(first) + number)
    for first, names in _NAMES.items()
    for number, name in enumerate(names.split())
}
"""The character of ``[.name.]``: POSIX's names of characters."""

_BRACKETS: Final = {":": "character class", ".": "collating element", "=": "equivalence class"}
_EMPTY: Final = {False: "(?!)", True: r"[\s\S]"}  # [] matches nothing, [^] everything; Python has neither
_ASSERTIONS: Final = {"^": r"\A", "$": r"\Z", r"\b": r"\b", r"\B": r"\B"}
_QUOTED_CLASSES: Final = frozenset("dDsSwW")
_ESCAPED: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEXADECIMAL: Final = {"x": 2, "u": 4}  # digits that follow
_HEXADECIMAL_DIGITS: Final = re.compile("[0-9A-Fa-f]+")
_MOST_STATES: Final = 100_000  # of the automaton, as in GCC's library
_MOST_NESTED: Final = 100  # brackets in brackets: Python's stack is finite
_LONGEST_NUMBER: Final = 9  # digits of a repetition
_QUANTIFIERS: Final = frozenset("*+?{")
_REPETITION: Final = re.compile(r"\{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*)")
_ANY: Final = r"[^\n\r]"
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


class _Part(NamedTuple):
    """A translated part of the expression.

    Attributes:
        text: The part in Python's syntax.
        states: States that GCC's automaton takes for it.
    """

    text: str
    states: int


def translate(expression: str) -> str:
    r"""Return the expression of Python's ``re`` and ``regex`` that matches the same names.

    Characters of classes are written as escapes of eight digits, so that none has a meaning in Python.

    >>> translate("Default/.+Conv2D-op[0-9]{1,2}$")
    'Default/(?:[^\\n\\r])+Conv2D\\-op(?:[\\U00000030-\\U00000039]){1,2}\\Z'
    >>> translate("{3}")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    msdump.config.source.GrammarError: not a regular expression: nothing stands here that '{' could ...

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
        self._open: list[int] = []  # numbers of the groups that are not closed yet
        self._depth = 0  # of brackets, those without a number too

    def translate(self) -> str:
        part = self._expression()
        self._refuse_rest()
        return part.text

    def _expression(self) -> _Part:
        parts = [self._alternative()]
        while self._takes("|"):
            parts.append(self._alternative())
        return _Part("|".join(part.text for part in parts), sum(part.states + 1 for part in parts))

    def _alternative(self) -> _Part:
        text, states = "", 0
        while self._offset < len(self._text) and self._text[self._offset] not in "|)*+?{":
            part = self._term()
            text += part.text
            states += part.states
            self._check_states(states)
        return _Part(text, states)

    def _term(self) -> _Part:
        for sign, text in _ASSERTIONS.items():
            if self._takes(sign):
                return _Part(text, 1)
        if self._text.startswith(("(?=", "(?!"), self._offset):
            return self._group()
        part = self._atom()
        while self._next() in _QUANTIFIERS:
            part = self._repeated(part)
        return part

    def _next(self) -> str:
        """Return the next character, "" at the end."""
        return self._text[self._offset : self._offset + 1]

    def _takes(self, text: str) -> bool:
        is_next = self._text.startswith(text, self._offset)
        self._offset += len(text) * is_next
        return is_next

    def _atom(self) -> _Part:
        start, char = self._offset, self._next()
        if char == "(":
            return self._group()
        self._offset += 1
        following = self._next()
        if char == ".":
            text = _ANY
        elif char == "[":
            text = self._class(start)
        elif char != "\\":
            text = re.escape(char)
        elif following in _QUOTED_CLASSES:
            self._offset += 1
            text = f"\\{following}"
        elif following.isdecimal() and following.isascii() and following != "0":
            text = self._reference(start)
        else:
            text = re.escape(self._escape(start))
        return _Part(text, 1)

    def _escape(self, start: int) -> str:
        r"""Return the character of an escape, no class (``\d``) nor reference; outside a class no assertion.

        Args:
            start: Offset of the backslash.
        """
        self._offset = start + 1
        # vendor: the control character \cA is the letter itself in GCC's library
        is_control = self._takes("c")
        char = self._next()
        if not char:
            fault = "the expression ends within an escape; write \\\\ for a backslash"
            self._refuse(start, self._offset, fault)
        self._offset += 1
        digits = 0 if is_control else _HEXADECIMAL.get(char, 0)
        if not digits:
            return char if is_control else _ESCAPED.get(char, char)
        end = self._offset + digits
        number = self._text[self._offset : end]
        # int() alone would take signs, spaces and underscores among the digits
        if len(number) < digits or not _HEXADECIMAL_DIGITS.fullmatch(number):
            self._refuse(start, end, f"\\{char} stands before {digits} hexadecimal digits")
        self._offset = end
        return chr(int(number, 16))

    def _reference(self, start: int) -> str:
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
        return f"(?P=g{number})"

    def _group(self) -> _Part:
        start = self._offset
        opening = self._text[start : start + 3]
        is_numbered = not opening.startswith("(?")
        if is_numbered:
            # named, not numbered: in \10 the name shows where the number of the group ends
            self._groups += 1
            self._open.append(self._groups)
            opening = f"(?P<g{self._groups}>"
        elif opening not in {"(?:", "(?=", "(?!"}:
            signs = (kind for sign, kind in _FOREIGN.items() if self._text.startswith(sign, start))
            message = f"ECMAScript has no {next(signs, 'flags')}; behind (? stands ':', '=' or '!'"
            self._refuse(start, start + 3, message)
        self._offset += 1 if is_numbered else len(opening)
        self._depth += 1
        if self._depth > _MOST_NESTED:
            self._refuse(start, start + 1, f"more than {_MOST_NESTED} brackets stand inside each other")
        part = self._expression()
        self._depth -= 1
        if not self._takes(")"):
            self._refuse_rest()
            self._refuse(start, start + 1, "the bracket is not closed")
        if is_numbered:
            self._open.pop()
        return _Part(f"{opening}{part.text})", part.states + 2)

    def _repeated(self, part: _Part) -> _Part:
        """Read one quantifier; a second one repeats what the first one has repeated."""
        text, copies = self._next(), 1
        if text == "{":
            text, copies = self._repetition()
        else:
            self._offset += 1
        self._takes("?")  # as little as possible: no matter where only a match or none is asked for
        # the library builds {n,m} by copying the automaton of the part, and refuses one that grows too large
        states = part.states * copies + 1
        self._check_states(states)
        # in brackets of its own: a quantifier behind a quantifier would be a possessive one to Python
        return _Part(f"(?:{part.text}){text}", states)

    def _repetition(self) -> tuple[str, int]:
        """Read ``{n,m}``; return its text, and how many copies of the repeated part the automaton holds."""
        match = _REPETITION.match(self._text, self._offset)
        assert match is not None, "the caller saw the bracket"
        start, self._offset = self._offset, match.end()
        least, most = match["least"], match["most"]
        if not least or not self._takes("}"):
            message = "a repetition is {n}, {n,} or {n,m}; write \\{ for the character"
            self._refuse(start, self._offset, message)
        if max(len(least.lstrip("0")), len(most.lstrip("0"))) > _LONGEST_NUMBER:
            self._refuse(start, self._offset, "the repetition number is too large")
        if most and int(most) < int(least):
            self._refuse(start, self._offset, f"the repetition runs backwards; write {{{most},{least}}}")
        text = f"{{{int(least)}{match['comma']}{int(most) if most else ''}}}"
        return text, max(int(least), int(most or 0)) + bool(match["comma"])

    def _class(self, opened: int) -> str:
        """Return Python's text of a class whose bracket has been read.

        A character is kept back until the next piece is read: a dash behind it makes it begin a range.

        Args:
            opened: Offset of the bracket.
        """
        is_negated = self._takes("^")
        members: list[str] = []
        last, is_behind_class = "", False  # a character that may begin a range, whether a class is before it
        kind, value = self._member(opened)
        kind = "character" if kind == "-" else kind  # a dash at the start is a character
        while kind != "]":
            if kind != "-":
                members += (_escaped(last), value if kind == "class" else "")
                last, is_behind_class = ("", True) if kind == "class" else (value, False)
                kind, value = self._member(opened)
                continue
            dash = self._offset - 1
            kind, value = self._member(opened)
            if kind != "]" and is_behind_class:
                self._refuse(dash, self._offset, "a range begins with one character; write \\- for a dash")
            if kind == "]" or not last:  # the dash is a character
                members.append(_escaped(last))
                last, is_behind_class = "-", False
                continue
            if kind not in {"character", "-"}:
                self._refuse(dash, self._offset, "a range ends with one character; write \\- for a dash")
            if last > value:
                message = f"the range {last}-{value} runs backwards; write {value}-{last}"
                self._refuse(dash - 1, self._offset, message)
            members.append(f"{_escaped(last)}-{_escaped(value)}")
            last = ""
            kind, value = self._member(opened)
        text = "".join((*members, _escaped(last)))
        return f"[{'^' * is_negated}{text}]" if text else _EMPTY[is_negated]

    def _member(self, opened: int) -> tuple[str, str]:
        """Read a piece of a class; return its kind and its content.

        Kinds are ``character``, ``symbol`` (``[.x.]``, which ends no range), ``class``, ``-``, and ``]``.
        """
        start, char = self._offset, self._next()
        if not char:
            self._refuse(opened, opened + 1, "the class of characters is not closed")
        following = self._text[start + 1 : start + 2]
        if char == "[" and following in _BRACKETS:
            return self._named(following)
        if char != "\\":
            self._offset += 1
            return char if char in "]-" else "character", char
        if following in _QUOTED_CLASSES:
            self._offset += 2
            return "class", f"\\{following}"
        if following == "B" or (following.isdecimal() and following != "0"):
            self._refuse(start, start + 2, f"\\{following} has no meaning in a class of characters")
        return "character", self._escape(start)

    def _named(self, kind: str) -> tuple[str, str]:
        """Read ``[:name:]``, ``[.name.]`` or ``[=name=]``; the same as ``_member``."""
        start = self._offset
        end = self._text.find(f"{kind}]", start + 2)
        if end < 0:
            message = f"the {_BRACKETS[kind]} [{kind} is not closed; write \\[ for the character"
            self._refuse(start, start + 2, message)
        self._offset = end + 2
        name = self._text[start + 2 : end]
        table = POSIX_CLASSES if kind == ":" else COLLATING
        key = name.lower() if kind == ":" else name  # vendor: [[:DIGIT:]] is [[:digit:]] to GCC's library
        if key not in table:
            message = f"no {_BRACKETS[kind]} [{kind}{name}{kind}]{did_you_mean(name, table)}"
            self._refuse(start, self._offset, message)
        value = table[key]
        if kind == "=":  # vendor: a letter is equivalent to itself in the other case
            value = "".join(map(_escaped, {value.lower(), value.upper()}))
        return "symbol" if kind == "." else "class", value

    def _check_states(self, states: int) -> None:
        if states > _MOST_STATES:
            message = (
                f"repetitions make it longer than {_MOST_STATES} characters; use smaller ones, or * and +"
            )
            self._refuse(0, self._offset, message)

    def _refuse_rest(self) -> None:
        """Refuse a character at which no alternative goes on."""
        char = self._next()
        if char == ")":
            message = "no bracket is open here; write \\) for the character"
            self._refuse(self._offset, self._offset + 1, message)
        if char:
            message = f"nothing stands here that {char!r} could repeat; write \\{char} for the character"
            self._refuse(self._offset, self._offset + 1, message)

    def _refuse(self, start: int, end: int, message: str) -> NoReturn:
        """Raise a GrammarError whose caret stands below ``text[start:end]``."""
        fault = TextFault(start, min(end, len(self._text)), f"not a regular expression: {message}")
        raise GrammarError(self._text, fault)


def _escaped(char: str) -> str:
    """Return a character as Python's escape, "" for none."""
    return f"\\U{ord(char):08x}" if char else ""
