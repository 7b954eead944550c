"""ECMAScript expressions in Python."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import GrammarError
from msdump.config.regex import POSIX_CLASSES, translate

# What std::regex of GCC 12 says: its regex_match of these expressions and texts, nothing of it made up.
MATCHES = [
    # expression, whole texts that match, texts that do not
    ("[^]x", ["ax", "\nx", "^x"], ["x"]),
    ("[]a]", [], ["]a", "]", "a]", "a"]),
    ("[[.x.]]+", ["x", "xx"], [".", "X"]),
    ("[[.hyphen.]a]", ["-", "a"], ["h"]),
    ("[[.space.]-z]", ["a", "A"], ["~"]),
    ("[[.NUL.]]", ["\x00"], ["N"]),
    ("[[=x=]]", ["x", "X"], ["="]),
    ("[[:ALPHA:]_]+", ["ab_"], ["a1"]),
    ("[[a]", ["[", "a"], ["]"]),
    ("[a-c-e]", ["a", "b", "-", "e"], ["d"]),
    ("[--/]", ["-", ".", "/"], ["+"]),
    ("[+--]", ["+", ",", "-"], ["."]),
    ("[-a]", ["-", "a"], ["b"]),
    ("[a-]", ["a", "-"], ["b"]),
    (r"[\w-]", ["a", "-"], ["."]),
    (r"[\d\-]", ["1", "-"], ["a"]),
    (r"[\b]", ["\x08"], ["b"]),
    (r"[\]]", ["]"], ["\\"]),
    (r"[^\]a]", ["b"], ["]", "a"]),
    ("[a&&b]", ["&", "a", "b"], ["|"]),
    ("[a||b~~]", ["|", "~"], ["&"]),
    ("[.$^]", [".", "$", "^"], ["a"]),
    ("[^-]", ["a"], ["-"]),
    (r"[\x41-\x43]", ["A", "B", "C"], ["D"]),
    (r"[\0]", ["\x00"], ["0"]),
    ("a++a", ["aa", "aaa"], ["a"]),
    ("a*+", ["aa"], ["b"]),
    ("a?+a", ["a", "aa"], ["b"]),
    ("a**", ["aa", ""], ["b"]),
    ("a{2}{3}", ["aaaaaa"], ["aaaaa", "aa"]),
    ("a???", ["a", ""], ["aa"]),
    ("a+?", ["aa", "a"], ["b"]),
    ("a{2,}?", ["aa", "aaaa"], ["a"]),
    ("a{0}", [""], ["a"]),
    ("(?:a|b){2,3}", ["ab", "bab"], ["a", "abab"]),
    (r"\01", ["\x001"], ["\x01", "1"]),
    (r"\x41\u0042", ["AB"], ["x41"]),
    (r"\A", ["A"], ["a", ""]),
    (r"\Z", ["Z"], [""]),
    (r"\z", ["z"], ["Z"]),
    (r"\e\y", ["ey"], []),
    (r"\cA", ["A"], ["\x01"]),
    (r"a\/b", ["a/b"], ["ab"]),
    (r"\/\-\_", ["/-_"], []),
    (r"(a|b)\1", ["aa", "bb"], ["ab"]),
    (r"(?:(a)|b)*\1", ["aba", "aa"], ["ab"]),
    (r"(a)|b\1", ["a"], ["b", "ba"]),
    (r"(?!(a))\1b", [], ["b", "ab"]),
    (r"(a)(b)\2\1", ["abba"], ["abab"]),
    (".+", ["ab", "a\tb"], ["a\nb", "a\rb"]),
    ("^a$", ["a"], ["a\n"]),
    ("a^b|a$", ["a"], ["ab"]),
    (r"a$\n", [], ["a\n"]),
    (r"\bab\b", ["ab"], ["abc"]),
    (r"a\Bb", ["ab"], ["a-b"]),
    (r"\d+", ["12"], ["a"]),
    (r"\D\W\S", ["a-b"], ["1-b"]),
    (r"\s", ["\t", "\x0b"], ["a"]),
    ("(?=a).b", ["ab"], ["bb"]),
    ("(?!Grad).*", ["Add", ""], ["GradAdd"]),
    ("a(?=b)b|c", ["ab", "c"], ["a"]),
    ("a||b", ["a", "", "b"], ["ab"]),
    ("()", [""], ["a"]),
    ("(|a)b", ["b", "ab"], ["a"]),
    ("a]", ["a]"], ["a"]),
    ("a}", ["a}"], ["a"]),
    ("]", ["]"], ["["]),
    ("[:alpha:]+", ["apl:"], ["b"]),
    (r"a\/b", ["a/b"], ["ab"]),
    (r"\[:alpha:\]", ["[:alpha:]"], ["a"]),
    ("(?:conv|fc)[0-9]{1,2}", ["conv1", "fc12"], ["fc"]),
]


@pytest.mark.parametrize(("expression", "matching", "missing"), MATCHES, ids=[row[0] for row in MATCHES])
def test_translation_matches_the_same_names(expression, matching, missing):
    """Every construct keeps ECMAScript's meaning."""
    compiled = regex.compile(translate(expression), regex.ASCII)

    assert matching == [text for text in matching if compiled.fullmatch(text)]
    assert [] == [text for text in missing if compiled.fullmatch(text)]


NEITHER = "behind (? stands ':', '=' or '!'"
REPEATED = "nothing stands here that"
FAULTS = [
    # expression, what is wrong, where it begins and ends; std::regex refuses every one but the last
    ("(?<=a)b", f"ECMAScript has no lookbehind; {NEITHER}", (0, 3)),
    ("(?<!a)b", f"ECMAScript has no lookbehind; {NEITHER}", (0, 3)),
    ("(?P<n>fc).*", f"ECMAScript has no names of groups; {NEITHER}", (0, 3)),
    ("(?<n>fc)", f"ECMAScript has no names of groups; {NEITHER}", (0, 3)),
    ("(?i)a", f"ECMAScript has no flags; {NEITHER}", (0, 3)),
    ("a(?s).*", f"ECMAScript has no flags; {NEITHER}", (1, 4)),
    ("(?#c).*", f"ECMAScript has no comments; {NEITHER}", (0, 3)),
    ("(?>D).*", f"ECMAScript has no atomic groups; {NEITHER}", (0, 3)),
    ("(a)?(?(1)b)", f"ECMAScript has no conditions; {NEITHER}", (4, 7)),
    ("(?", f"ECMAScript has no flags; {NEITHER}", (0, 2)),
    ("{", f"{REPEATED} '{{' could repeat; write \\{{ for the character", (0, 1)),
    ("*a", f"{REPEATED} '*' could repeat; write \\* for the character", (0, 1)),
    ("a|*", f"{REPEATED} '*' could repeat; write \\* for the character", (2, 3)),
    ("(+)", f"{REPEATED} '+' could repeat; write \\+ for the character", (1, 2)),
    ("^*", f"{REPEATED} '*' could repeat; write \\* for the character", (1, 2)),
    ("(?=a)?", f"{REPEATED} '?' could repeat; write \\? for the character", (5, 6)),
    (r"\b+", f"{REPEATED} '+' could repeat; write \\+ for the character", (2, 3)),
    *[
        (f"a{text}", "a repetition is {n}, {n,} or {n,m}; write \\{ for the character", (1, 1 + end))
        for text, end in {"{1": 2, "{,3}": 3, "{}": 1, "{1,2": 4, "{x}": 1, "{1,2,3}": 4}.items()
    ],
    ("a{2,1}", "the repetition runs backwards; write {1,2}", (1, 6)),
    ("a{99999999999999}", "the repetition number is too large", (1, 17)),
    (
        "(a{1000}){200}",
        "repetitions make it longer than 100000 characters; use smaller ones, or * and +",
        (0, 14),
    ),
    ("(a", "the bracket is not closed", (0, 1)),
    ("b(?:a", "the bracket is not closed", (1, 2)),
    ("a)", "no bracket is open here; write \\) for the character", (1, 2)),
    ("())", "no bracket is open here; write \\) for the character", (2, 3)),
    ("[a", "the class of characters is not closed", (0, 1)),
    ("b[[:alpha:]", "the class of characters is not closed", (1, 2)),
    ("[z-a]", "the range z-a runs backwards; write a-z", (1, 4)),
    (r"[\w-a]", "a range begins with one character; write \\- for a dash", (3, 5)),
    ("[[=a=]-z]", "a range begins with one character; write \\- for a dash", (6, 8)),
    (r"[a-\w]", "a range ends with one character; write \\- for a dash", (2, 5)),
    ("[a-[.z.]]", "a range ends with one character; write \\- for a dash", (2, 8)),
    (r"[\B]", "\\B has no meaning in a class of characters", (1, 3)),
    (r"[\1]", "\\1 has no meaning in a class of characters", (1, 3)),
    ("[[:digits:]]", "no character class [:digits:] (did you mean 'digit'?)", (1, 11)),
    ("[[:alpha:", "the character class [: is not closed; write \\[ for the character", (1, 3)),
    ("[[.x", "the collating element [. is not closed; write \\[ for the character", (1, 3)),
    ("[[.hyphe.]]", "no collating element [.hyphe.] (did you mean 'hyphen'?)", (1, 10)),
    ("[[=xyz=]]", "no equivalence class [=xyz=]", (1, 8)),
    ("a\\", "the expression ends within an escape; write \\\\ for a backslash", (1, 2)),
    ("[a\\", "the expression ends within an escape; write \\\\ for a backslash", (2, 3)),
    (r"\c", "the expression ends within an escape; write \\\\ for a backslash", (0, 2)),
    (r"\x4", "\\x stands before 2 hexadecimal digits", (0, 3)),
    (r"[\u12g4]", "\\u stands before 4 hexadecimal digits", (1, 7)),
    (r"\1", "\\1 refers to no group before it; there are 0", (0, 2)),
    (r"(a)\2", "\\2 refers to no group before it; there are 1", (3, 5)),
    (r"\1(a)", "\\1 refers to no group before it; there are 0", (0, 2)),
    (r"\99999999999", "\\99999999999 refers to no group before it; there are 0", (0, 12)),
    (r"(a\1)", "\\1 stands inside the group that it refers to", (2, 4)),
    (101 * "(" + 101 * ")", "more than 100 brackets stand inside each other", (100, 101)),
]


@pytest.mark.parametrize(("expression", "message", "span"), FAULTS, ids=[row[0][:20] for row in FAULTS])
def test_what_ecmascript_does_not_know_is_refused(expression, message, span):
    """Syntax of other languages, and incomplete syntax, is one fault at its place."""
    with pytest.raises(GrammarError) as caught:
        translate(expression)

    (fault,) = caught.value.faults
    assert f"not a regular expression: {message}" == fault.message
    assert span == (fault.start, fault.end)


PIECES = st.sampled_from(
    [*r"ab12-_/.^$|()[]{}*+?\,:=<>!", "[[:alpha:]]", "(?=", "(?:", r"\1", r"\b", "{1,2}", "[^", "[.x.]", "é"]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=12))
def test_any_text_is_translated_or_refused(text):
    """The engine takes every translation; a refusal has its fault inside the text."""
    faults = ()
    try:
        translated = translate(text)
    except GrammarError as error:
        faults = error.faults
    else:
        regex.compile(translated, regex.ASCII).fullmatch("ab_1")

    assert all(0 <= fault.start < fault.end <= len(text) for fault in faults)


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

    compiled = regex.compile(translate(f"[[:{name}:]]"), regex.ASCII)

    ascii_characters = [chr(code) for code in range(128)]
    assert [bool(members(char)) for char in ascii_characters] == [
        bool(compiled.fullmatch(char)) for char in ascii_characters
    ]
