r"""Regular expressions of C++'s std::regex, translated for Python's package ``regex``.

MindSpore's ``name-regex(...)`` takes ECMAScript as std::regex reads it:

    expression  = alternative {"|" alternative}
    alternative = {assertion | atom {quantifier}}
    assertion   = "^" | "$" | "\b" | "\B" | ("(?=" | "(?!") expression ")"
    atom        = character | "." | escape | class | ("(" | "(?:") expression ")" | "\" number
    quantifier  = ("*" | "+" | "?" | "{" n ["," [m]] "}") ["?"]

Python's syntax has more (possessive quantifiers, lookbehind, flags, names of groups, octal numbers, ``\A``),
which is refused, escaped or has brackets added here: ``a**`` is ``(a*)*``.
"""

from __future__ import annotations

import re
import string
from itertools import accumulate
from typing import Final

from msdump.config.source import GrammarError, TextFault, did_you_mean

_POSIX: Final = {"d": r"\d", "s": r"\s", "w": r"\w"} | {
    name: f"[:{name}:]"
    for name in (
        *("alnum", "alpha", "blank", "cntrl", "digit", "graph"),
        *("lower", "print", "punct", "space", "upper", "xdigit"),
    )
}
"""Members of ``[...]`` in Python by the names in ``[:name:]``."""

_NAMES: Final = f"""
NUL SOH STX ETX EOT ENQ ACK alert backspace tab newline vertical-tab form-feed carriage-return SO SI
DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC IS4 IS3 IS2 IS1
space exclamation-mark quotation-mark number-sign dollar-sign percent-sign ampersand apostrophe
left-parenthesis right-parenthesis asterisk plus-sign comma hyphen period slash
zero one two three four five six seven eight nine
colon semicolon less-than-sign equals-sign greater-than-sign question-mark commercial-at
{" ".join(string.ascii_uppercase)}
left-square-bracket backslash right-square-bracket circumflex underscore grave-accent
{" ".join(string.ascii_lowercase)}
left-curly-bracket vertical-line right-curly-bracket tilde DEL
"""
_COLLATING: Final = {name: chr(code) for code, name in enumerate(_NAMES.split())}
"""Characters by the names in ``[.name.]`` and ``[=name=]`` of GCC's library."""

_PYTHON: Final = {"^": r"\A", "$": r"\Z", ".": r"[^\n\r]"}  # \b and \B are the same in both
_CONTROLS: Final = {"0": "\0", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MOST_NESTED: Final = 100  # brackets in brackets: Python's stack is finite
_MOST_ATOMS: Final = 100_000  # states of GCC's automaton

_ESCAPE: Final = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c.|[^cux])"
_TOKEN: Final = re.compile(
    rf"""(?P<assertion>[\^$]|\\[bB])
      | (?P<foreign>\(\?(?![:=!]))
      | (?P<open>\((?:\?[:=!])?)
      | (?P<close>\))
      | (?P<bar>\|)
      | (?P<quantifier>(?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??)
      | \[(?P<negation>\^?)(?P<set>(?:\[(?P<kind>[:.=]).*?(?P=kind)\]|\\.|[^\]\\])*+)\]
      | \\(?P<reference>[1-9][0-9]*)
      | (?P<class>\\[dDsSwW])
      | (?P<any>\.)
      | (?P<character>{_ESCAPE}|[^\\\[{{])
      | (?P<refused>.)""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = re.compile(  # a part of [...]
    rf"""\[:(?P<posix>.*?):\]
      | \[=(?P<equivalents>.*?)=\](?!-.)
      | (?P<class>\\[dDsSwW])
      | (?P<refused>\\[B1-9]|(?:{_ESCAPE}|[^\\])-\[[:.=]|\[=|\[\.(?!.*?\.\]))
      | (?P<low>\[\.(?P<element>.*?)\.\](?!-\[[:.=])|{_ESCAPE}|[^\\])
        (?:-(?P<high>(?!\\[dDsSwW]){_ESCAPE}|[^\\]))?
      | (?P<incomplete>.)""",
    re.VERBOSE | re.DOTALL,
)
_INCOMPLETE: Final = "the escape is not complete; write \\\\ for a backslash"
_REFUSED: Final = {
    "{": "a repetition is {n}, {n,} or {n,m}; write \\{ for the character",
    "[": "the class of characters is not closed",
    "\\": _INCOMPLETE,
    "(?": "ECMAScript has no such bracket; only ':', '=' or '!' may follow (?",
}


def translate(expression: str) -> str:
    r"""Return the expression of Python's ``regex`` that matches the same names.

    >>> translate("Default/.+op[0-9]$")
    'Default/[^\\n\\r]+op[\\U00000030-\\U00000039]\\Z'

    Raises:
        GrammarError: It is not ECMAScript; the fault is the first place that breaks the grammar.
    """
    import regex  # not above: few configurations have an expression

    tokens = [*_TOKEN.finditer(expression)]
    _check(expression, tokens)
    _check_size(expression, tokens)
    pieces = [_translated(expression, token) for token in tokens]
    _group_repeated(tokens, pieces)
    try:
        regex.compile("".join(pieces), regex.ASCII)
    except regex.error as error:
        ends = accumulate(map(len, pieces))
        hits = (token for token, end in zip(tokens, ends, strict=True) if error.pos < end)
        token = next(hits, tokens[-1])
        raise _fault(expression, *token.span(), error.msg) from None
    return "".join(pieces)


def _group_repeated(tokens: list[re.Match[str]], pieces: list[str]) -> None:
    """Put brackets around an atom and its quantifier where another quantifier follows."""
    opened: list[int] = []
    atom = 0
    for place, token in enumerate(tokens):
        if token.lastgroup == "open":
            opened.append(place)
        elif token.lastgroup != "quantifier":
            atom = opened.pop() if token.lastgroup == "close" else place
        elif tokens[place - 1].lastgroup == "quantifier":
            pieces[atom] = f"(?:{pieces[atom]}"
            pieces[place] = f"){pieces[place]}"


def _check(expression: str, tokens: list[re.Match[str]]) -> None:
    """Refuse tokens in a wrong place: brackets without a counterpart, quantifiers without an atom."""
    opened: list[int] = []
    is_atom = False
    for token in tokens:
        kind, text, message = token.lastgroup, token[0], ""
        if kind == "open":
            opened.append(token.start())
            if len(opened) > _MOST_NESTED:
                message = f"more than {_MOST_NESTED} brackets are nested"
        elif kind == "close" and opened:
            opened.pop()
        elif kind == "close":
            message = "no bracket is open here; write \\) for the character"
        elif kind == "quantifier" and not is_atom:
            message = f"there is nothing before {text[0]!r} to repeat; write \\{text[0]} for the character"
        elif kind in {"refused", "foreign"}:
            message = _REFUSED[text]
        if message:
            raise _fault(expression, *token.span(), message)
        is_atom = kind not in {"assertion", "open", "bar"}
    if opened:
        raise _fault(expression, opened[-1], opened[-1] + 1, "the bracket is not closed")


def _check_size(expression: str, tokens: list[re.Match[str]]) -> None:
    """Refuse repetitions of so many atoms that GCC's library refuses them; the regex package would hang."""
    atoms, last = [0], 0  # a count for the expression and each open bracket; the last atom's
    for token in tokens:
        if token.lastgroup == "open":
            atoms.append(0)
        elif token.lastgroup == "close":
            last = atoms.pop()
            atoms[-1] += last
        elif token.lastgroup == "quantifier":
            numbers = (number.lstrip("0")[:10] for number in re.findall("[0-9]+", token[0]))
            added = last * max((int(number or 0) - 1 for number in numbers), default=0)
            atoms[-1] += added
            last += added
        else:
            last = 1
            atoms[-1] += last
        if atoms[-1] > _MOST_ATOMS:
            message = (
                f"repetitions make the expression longer than {_MOST_ATOMS} characters; "
                "use smaller counts, or * and +"
            )
            raise _fault(expression, *token.span(), message)


def _translated(expression: str, token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "set":
        offset, negation = token.start("set"), token["negation"]
        members = "".join(_member(expression, offset, each) for each in _MEMBER.finditer(token["set"]))
        # [] matches nothing, [^] everything; Python has neither
        empty = r"[\s\S]" if negation else "(?!)"
        return f"[{negation}{members}]" if members else empty
    if kind == "character":
        return re.escape(_character(text))
    if kind == "reference":
        return rf"\g<{text[1:]}>"
    return _PYTHON.get(text, text)


def _member(expression: str, start: int, member: re.Match[str]) -> str:
    """Return Python's text of a part of a set; characters become escapes, so that none has a meaning."""
    message = ""
    if member["posix"] is not None:
        name = member["posix"].lower()  # vendor: [[:DIGIT:]] is [[:digit:]] to GCC's library
        if name in _POSIX:
            return _POSIX[name]
        message = f"no character class {member[0]}{did_you_mean(name, _POSIX)}"
    elif member["equivalents"] is not None:
        name = member["equivalents"]
        if name in _COLLATING:  # vendor: equal but for their case
            return "".join(
                f"\\U{ord(char):08x}" for char in {_COLLATING[name].lower(), _COLLATING[name].upper()}
            )
        message = f"no character {member[0]}{did_you_mean(name, _COLLATING)}"
    elif member["element"] is not None and member["element"] not in _COLLATING:
        message = f"no character {member['low']}{did_you_mean(member['element'], _COLLATING)}"
    elif member["refused"]:
        message = f"{member[0]} has no meaning in a class of characters; write the character"
    elif member["incomplete"]:
        message = _INCOMPLETE
    if message:
        raise _fault(expression, start + member.start(), start + member.end(), message)
    ends = (_character(text) for text in (member["low"], member["high"]) if text)
    return member["class"] or "-".join(f"\\U{ord(char):08x}" for char in ends)


def _character(text: str) -> str:
    """Return the character that a text of one character, an escape or a name in ``[.name.]`` stands for."""
    if len(text) > 1 and text.startswith("[."):
        return _COLLATING[text[2:-2]]
    if not text.startswith("\\"):
        return text
    if text[1] in {"x", "u"}:
        return chr(int.from_bytes(bytes.fromhex(text[2:])))
    return _CONTROLS.get(text[1:], text[-1])  # vendor: \cA is the letter A in GCC's library


def _fault(expression: str, start: int, end: int, message: str) -> GrammarError:
    """Return the error of a text with its caret below ``expression[start:end]``."""
    return GrammarError(expression, TextFault(start, end, f"not a regular expression: {message}"))
