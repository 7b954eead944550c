r"""Regular expressions of C++'s std::regex, translated for Python's package ``regex``.

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
from dataclasses import dataclass
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
_ESCAPED: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DIGITS: Final = {"x": 2, "u": 4}  # hexadecimal ones that follow an escape
_MOST_STATES: Final = 100_000  # of the automaton, as in GCC's library
_MOST_NESTED: Final = 100  # brackets in brackets: Python's stack is finite
_LONGEST_NUMBER: Final = 9  # digits of a repetition
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
_TOKEN: Final = re.compile(
    r"""(?P<assertion>\^|\$|\\[bB])
      | (?P<group>\((?:\?[:=!]?)?)
      | (?P<close>\))
      | (?P<bar>\|)
      | (?P<repetition>[*+?] | \{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*))
      | (?P<set>\[\^?)
      | (?P<reference>\\[1-9][0-9]*)
      | (?P<class>\\[dDsSwW])
      | (?P<any>\.)
      | (?P<escape>\\)
      | (?P<character>.)""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = re.compile(  # a part of [...]
    r"""(?P<end>\])
      | (?P<dash>-)
      | \[(?P<kind>[:.=])(?:(?P<name>.*?)(?P=kind)\])?
      | (?P<class>\\[dDsSwW])
      | (?P<refused>\\[B1-9])
      | (?P<escape>\\)
      | (?P<character>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<x>[0-9A-Fa-f]{2})|u(?P<u>[0-9A-Fa-f]{4})|c(?P<control>.)|(?P<plain>[^c]))", re.DOTALL
)


def translate(expression: str) -> str:
    r"""Return the expression of Python's ``regex`` that matches the same names.

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
    return _Translation(expression).text()


@dataclass(slots=True)
class _Group:
    """A group that is not closed yet, or the whole expression.

    Attributes:
        start: Offset of its bracket.
        first: Index of its first piece of output.
        number: Its number, 0: it has none.
        is_assertion: Nothing may repeat it.
        states: States of its automaton in GCC's library, one for the alternative among them.
    """

    start: int = 0
    first: int = 0
    number: int = 0
    is_assertion: bool = False
    states: int = 1


class _Member(NamedTuple):
    """A part of a set ``[...]``; its kind is a group of ``_MEMBER`` or "symbol" of ``[.x.]``."""

    kind: str
    text: str
    start: int
    end: int


class _Translation:
    """Reads one expression from left to right and translates it token by token."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._offset = 0
        self._output: list[str] = []
        self._open = [_Group()]
        self._groups = 0
        self._atom: int | None = None  # index of the output that a quantifier repeats
        self._atom_states = 0

    def text(self) -> str:
        while match := _TOKEN.match(self._expression, self._offset):
            self._offset = match.end()
            self._token(match, match.lastgroup or "")
        if len(self._open) > 1:
            start = self._open[-1].start
            self._refuse(start, start + 1, "the bracket is not closed")
        return "".join(self._output)

    def _token(self, match: re.Match[str], kind: str) -> None:
        token, start = match[0], match.start()
        if kind == "repetition":
            self._repeat(match)
        elif kind == "group":
            self._open_group(token, start)
        elif kind == "close":
            self._close_group(start)
        elif kind == "bar":
            self._open[-1].states += 1
            self._output.append(token)
            self._atom = None
        elif kind == "assertion":
            self._add(_ASSERTIONS[token], is_atom=False)
        elif kind == "set":
            self._add(self._set(start, is_negated=len(token) > 1))
        elif kind == "reference":
            self._add(self._reference(token, start))
        elif kind == "escape":
            self._add(re.escape(self._escape(start)))
        else:
            self._add({"any": _ANY, "class": token}.get(kind) or re.escape(token))

    def _add(self, text: str, *, is_atom: bool = True) -> None:
        self._atom = len(self._output) if is_atom else None
        self._output.append(text)
        self._atom_states = 1
        self._count(1)

    def _count(self, states: int) -> None:
        """Add states; GCC's library builds {n,m} by copies of an automaton, and refuses one too large."""
        self._open[-1].states += states
        if self._open[-1].states > _MOST_STATES:
            message = (
                f"repetitions make it longer than {_MOST_STATES} characters; use smaller ones, or * and +"
            )
            self._refuse(0, self._offset, message)

    def _open_group(self, bracket: str, start: int) -> None:
        number = 0
        if bracket == "(":
            # named, not numbered: in \10 the name shows where the number of the group ends
            number = self._groups = self._groups + 1
            bracket = f"(?P<g{number}>"
        elif bracket == "(?":
            signs = (kind for sign, kind in _FOREIGN.items() if self._expression.startswith(sign, start))
            message = f"ECMAScript has no {next(signs, 'flags')}; behind (? stands ':', '=' or '!'"
            self._refuse(start, start + 3, message)
        if len(self._open) > _MOST_NESTED:
            self._refuse(start, start + 1, f"more than {_MOST_NESTED} brackets stand inside each other")
        self._open.append(_Group(start, len(self._output), number, bracket in {"(?=", "(?!"}))
        self._output.append(bracket)
        self._atom = None

    def _close_group(self, start: int) -> None:
        if len(self._open) == 1:
            self._refuse(start, start + 1, "no bracket is open here; write \\) for the character")
        group = self._open.pop()
        self._output.append(")")
        self._atom = None if group.is_assertion else group.first
        self._atom_states = group.states + 2
        self._count(self._atom_states)

    def _repeat(self, match: re.Match[str]) -> None:
        """Apply a quantifier to the last atom; a second one repeats the repetition of the first."""
        char = match[0][0]
        if self._atom is None:
            message = f"nothing stands here that {char!r} could repeat; write \\{char} for the character"
            self._refuse(match.start(), match.start() + 1, message)
        text, copies = self._repetition(match) if char == "{" else (char, 1)
        # as little as possible, "?": it changes no answer whether a name matches
        self._offset += self._expression.startswith("?", self._offset)
        before = self._atom_states
        self._atom_states = before * copies + 1
        self._count(self._atom_states - before)
        # in brackets of its own: a quantifier behind a quantifier would be a possessive one to Python
        self._output[self._atom :] = [f"(?:{''.join(self._output[self._atom :])}){text}"]

    def _repetition(self, match: re.Match[str]) -> tuple[str, int]:
        """Return the text of ``{n,m}``, and the copies of the repeated part in the automaton."""
        least, most = match["least"], match["most"]
        refused = ""
        is_closed = bool(least) and self._expression.startswith("}", match.end())
        end = match.end() + is_closed
        if not is_closed:
            refused = "a repetition is {n}, {n,} or {n,m}; write \\{ for the character"
        elif max(len(least.lstrip("0")), len(most.lstrip("0"))) > _LONGEST_NUMBER:
            refused = "the repetition number is too large"
        elif most and int(most) < int(least):
            refused = f"the repetition runs backwards; write {{{most},{least}}}"
        if refused:
            self._refuse(match.start(), end, refused)
        self._offset = end
        text = f"{{{int(least)}{match['comma']}{int(most) if most else ''}}}"
        return text, max(int(least), int(most or 0)) + bool(match["comma"])

    def _reference(self, token: str, start: int) -> str:
        r"""Return a reference back to the text that a group has matched, ``\1``."""
        digits = token[1:]
        number = int(digits) if len(digits) <= _LONGEST_NUMBER else self._groups + 1
        if number > self._groups:
            message = f"{token} refers to no group before it; there are {self._groups}"
            self._refuse(start, self._offset, message)
        if any(number == group.number for group in self._open):
            self._refuse(start, self._offset, f"{token} stands inside the group that it refers to")
        return f"(?P=g{number})"

    def _escape(self, start: int) -> str:
        """Return the character of the escape at ``start``, and go behind it."""
        match = _ESCAPE.match(self._expression, start)
        if match is None:
            message = "the expression ends within an escape; write \\\\ for a backslash"
            self._refuse(start, len(self._expression), message)
        self._offset = match.end()
        if match["control"]:
            return match["control"]  # vendor: the control character \cA is the letter itself in GCC's library
        if match["plain"]:
            char = match["plain"]
            if char in _DIGITS:
                message = f"\\{char} stands before {_DIGITS[char]} hexadecimal digits"
                self._refuse(start, match.end() + _DIGITS[char], message)
            return _ESCAPED.get(char, char)
        return chr(int(match["x"] or match["u"], 16))

    def _set(self, opened: int, *, is_negated: bool) -> str:
        """Return Python's text of the set with its bracket at ``opened``."""
        members: list[_Member] = []
        while not members or members[-1].kind != "end":
            members.append(self._member(opened))
        members.pop()
        text, index = "", 0
        while index < len(members):
            low = members[index]
            dash, high = (*members[index + 1 : index + 3], None, None)[:2]
            if dash is None or high is None or dash.kind != "dash":
                text += low.text if low.kind == "class" else _escaped(low.text)
                index += 1
                continue
            refused = ""
            if low.kind == "class":
                refused = "a range begins with one character; write \\- for a dash"
            elif high.kind not in {"character", "dash"}:
                refused = "a range ends with one character; write \\- for a dash"
            if refused:
                self._refuse(dash.start, high.end, refused)
            if low.text > high.text:
                message = f"the range {low.text}-{high.text} runs backwards; write {high.text}-{low.text}"
                self._refuse(dash.start - 1, high.end, message)
            text += f"{_escaped(low.text)}-{_escaped(high.text)}"
            index += 3
        return f"[{'^' * is_negated}{text}]" if text else _EMPTY[is_negated]

    def _member(self, opened: int) -> _Member:
        match = _MEMBER.match(self._expression, self._offset)
        if match is None:
            self._refuse(opened, opened + 1, "the class of characters is not closed")
        start, self._offset = match.span()
        kind, text = match.lastgroup or "", match[0]
        if kind == "refused":
            self._refuse(start, self._offset, f"{text} has no meaning in a class of characters")
        if kind == "escape":
            kind, text = "character", self._escape(start)
        elif match["kind"]:
            kind, text = self._named(match)
        return _Member(kind, text, start, self._offset)

    def _named(self, match: re.Match[str]) -> tuple[str, str]:
        """Return kind and text of ``[:name:]``, ``[.name.]`` or ``[=name=]``."""
        kind, name = match["kind"], match["name"]
        if name is None:
            message = f"the {_BRACKETS[kind]} [{kind} is not closed; write \\[ for the character"
            self._refuse(*match.span(), message)
        table = POSIX_CLASSES if kind == ":" else COLLATING
        key = name.lower() if kind == ":" else name  # vendor: [[:DIGIT:]] is [[:digit:]] to GCC's library
        if key not in table:
            message = f"no {_BRACKETS[kind]} [{kind}{name}{kind}]{did_you_mean(name, table)}"
            self._refuse(*match.span(), message)
        value = table[key]
        if kind == "=":  # vendor: a letter is equivalent to itself in the other case
            value = "".join(map(_escaped, {value.lower(), value.upper()}))
        return "symbol" if kind == "." else "class", value

    def _refuse(self, start: int, end: int, message: str) -> NoReturn:
        """Raise a GrammarError with its caret below ``expression[start:end]``."""
        fault = TextFault(start, min(end, len(self._expression)), f"not a regular expression: {message}")
        raise GrammarError(self._expression, fault)


def _escaped(char: str) -> str:
    return f"\\U{ord(char):08x}"
