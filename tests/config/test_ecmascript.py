"""ECMAScript expressions in Python."""

from __future__ import annotations

import re
import warnings

import pytest

from msdump.config.ecmascript import POSIX_CLASSES, translate


@pytest.mark.parametrize(
    ("expression", "matching", "missing"),
    [
        ("[[:alpha:]_]+", ["ab_"], ["a1"]),
        ("[^[:digit:]]", ["a"], ["1"]),
        ("[[:xdigit:][:space:]]+", ["af 0"], ["g"]),
        (r"[[:alnum:]\]]+", ["a]"], ["["]),
        ("[[]", ["["], ["]"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a&&b]", ["&", "a", "b"], ["|"]),
        ("[a||b~~]", ["|", "~"], ["&"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[a-]", ["-", "a"], ["b"]),
        ("[+--]", ["+", ",", "-"], ["."]),
        ("[--/]", ["-", ".", "/"], ["+"]),
        (r"a\/b", ["a/b"], ["ab"]),
        (r"\[:alpha:\]", ["[:alpha:]"], ["a"]),
        ("(?:conv|fc)[0-9]{1,2}", ["conv1", "fc12"], ["fc"]),
        ("(?!Grad).*", ["Add"], ["GradAdd"]),
    ],
)
def test_translation_matches_the_same_names(expression, matching, missing):
    """Classes and escapes of ECMAScript keep their meaning, and Python has no doubts about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = re.compile(translate(expression))

    assert all(compiled.fullmatch(name) for name in matching)
    assert not any(compiled.fullmatch(name) for name in missing)


@pytest.mark.parametrize("name", POSIX_CLASSES)
def test_posix_class_has_its_members(name):
    """Each POSIX class holds exactly the ASCII characters that C's classification gives it."""
    members = {
        "alnum": str.isalnum,
        "alpha": str.isalpha,
        "blank": " \t".__contains__,
        "cntrl": lambda char: ord(char) < 32 or ord(char) == 127,
        "d": str.isdigit,
        "digit": str.isdigit,
        "graph": lambda char: 32 < ord(char) < 127,
        "lower": str.islower,
        "print": lambda char: 32 <= ord(char) < 127,
        "punct": lambda char: 32 < ord(char) < 127 and not char.isalnum(),
        "s": " \t\n\r\f\v".__contains__,
        "space": " \t\n\r\f\v".__contains__,
        "upper": str.isupper,
        "w": lambda char: char.isalnum() or char == "_",
        "xdigit": "0123456789abcdefABCDEF".__contains__,
    }[name]

    compiled = re.compile(translate(f"[[:{name}:]]"), re.ASCII)

    ascii_characters = [chr(code) for code in range(128)]
    assert [bool(members(char)) for char in ascii_characters] == [
        bool(compiled.fullmatch(char)) for char in ascii_characters
    ]
