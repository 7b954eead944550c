"""ECMAScript expressions in Python."""

import string

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import GrammarError
from msdump.config.regex import translate

# Recorded from regex_match of GCC 12's std::regex.
MATCHES = [
    # expression, whole texts that match, texts that do not
    ("[^]x", ["ax", "\nx", "^x"], ["x"]),
    ("[]a]", [], ["]a", "]", "a]", "a"]),
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
    (r"\[:alpha:\]", ["[:alpha:]"], ["a"]),
    ("(?:conv|fc)[0-9]{1,2}", ["conv1", "fc12"], ["fc"]),
    ("D++.*", ["D", "DDense"], ["Add"]),
    (".*{2}", ["", "ab"], ["\n"]),
    ("a**", ["", "aaa"], ["b"]),
    ("a++", ["a", "aaa"], [""]),
    ("a{2}*", ["", "aa", "aaaa"], ["a", "aaa"]),
    ("a{2}{2}", ["aaaa"], ["aa", "aaa"]),
    ("a{2}+?", ["aa", "aaaa"], ["", "aaa"]),
    ("a???", ["", "a"], ["aa"]),
    (r"(a|b)**\1", ["aa", "abb"], ["ab", ""]),
    ("(a|(b)){2}{2}", ["abab"], ["ab", "aba"]),
    ("[[.x.]]", ["x"], ["X", "."]),
    ("[[.hyphen.][.one.]]", ["-", "1"], ["h"]),
    ("[[.a.]-c]", ["a", "b", "c"], ["-", "A"]),
    ("[[.a.]-]", ["a", "-"], ["b"]),
    ("[^[.a.]]", ["b"], ["a"]),
    ("[[=x=]]", ["x", "X"], ["y", "="]),
    ("[[=one=]b]", ["1", "b"], ["o"]),
    ("[^[=a=]]", ["b"], ["a", "A"]),
]


@pytest.mark.parametrize(("expression", "matching", "missing"), MATCHES, ids=[row[0] for row in MATCHES])
def test_translation_matches_the_same_names(expression, matching, missing):
    """Every construct keeps ECMAScript's meaning."""
    compiled = regex.compile(translate(expression), regex.ASCII)

    assert matching == [text for text in matching if compiled.fullmatch(text)]
    assert [] == [text for text in missing if compiled.fullmatch(text)]


REPEATED = "there is nothing before"
FAULTS = [
    # expression, message, where the fault begins and ends
    *[
        (text, "ECMAScript has no such bracket; only ':', '=' or '!' may follow (?", (start, start + 2))
        for text, start in {"(?<=a)b": 0, "(?P<n>fc).*": 0, "a(?s).*": 1, "(?>D).*": 0, "(?": 0}.items()
    ],
    ("{", "a repetition is {n}, {n,} or {n,m}; write \\{ for the character", (0, 1)),
    *[
        (f"a{text}", "a repetition is {n}, {n,} or {n,m}; write \\{ for the character", (1, 2))
        for text in ("{1", "{,3}", "{}", "{x}", "{1,2,3}")
    ],
    *[
        (text, f"{REPEATED} '*' to repeat; write \\* for the character", (start, start + 1))
        for text, start in {"*a": 0, "a|*": 2, "(*)": 1, "^*": 1, r"\b*": 2}.items()
    ],
    ("^++", f"{REPEATED} '+' to repeat; write \\+ for the character", (1, 2)),
    ("a{2,1}", "min repeat greater than max repeat", (1, 6)),
    *[
        (
            text,
            "repetitions make the expression longer than 100000 characters; use smaller counts, or * and +",
            span,
        )
        for text, span in {
            "a{99999999999999}": (1, 17),
            "(a{1000}){200}": (9, 14),
            "a{1000}{200}": (7, 12),
            "a{0}((a{100}){100}b?){0,11}": (21, 27),
        }.items()
    ],
    ("(a", "the bracket is not closed", (0, 1)),
    ("b(?:a", "the bracket is not closed", (1, 2)),
    ("a)", "no bracket is open here; write \\) for the character", (1, 2)),
    ("[a", "the class of characters is not closed", (0, 1)),
    ("b[[:alpha:]", "the class of characters is not closed", (1, 2)),
    ("[a\\", "the class of characters is not closed", (0, 1)),
    ("[z-a]", "bad character range", (0, 5)),
    (r"[\B]", "\\B has no meaning in a class of characters; write the character", (1, 3)),
    ("a[[.x]]", "[. has no meaning in a class of characters; write the character", (2, 4)),
    ("[[=x]]", "[= has no meaning in a class of characters; write the character", (1, 3)),
    ("[a-[.c.]]", "a-[. has no meaning in a class of characters; write the character", (1, 5)),
    ("[[=a=]-c]", "[= has no meaning in a class of characters; write the character", (1, 3)),
    ("[[.tild.]]", "no character [.tild.] (did you mean 'tilde'?)", (1, 9)),
    ("[[=.=]]", "no character [=.=]", (1, 6)),
    ("[[:digits:]]", "no character class [:digits:] (did you mean 'digit'?)", (1, 11)),
    ("a\\", "the escape is not complete; write \\\\ for a backslash", (1, 2)),
    (r"\x4", "the escape is not complete; write \\\\ for a backslash", (0, 1)),
    (r"[\u12g4]", "the escape is not complete; write \\\\ for a backslash", (1, 2)),
    (r"(a)\2", "invalid group reference", (3, 5)),
    (101 * "(" + 101 * ")", "more than 100 brackets are nested", (100, 101)),
]


@pytest.mark.parametrize(("expression", "message", "span"), FAULTS, ids=[row[0][:20] for row in FAULTS])
def test_other_syntax_is_refused(expression, message, span):
    """Syntax of other languages, and incomplete syntax, is one fault at its place."""
    with pytest.raises(GrammarError) as caught:
        translate(expression)

    (fault,) = caught.value.faults
    assert f"not a regular expression: {message}" == fault.message
    assert span == (fault.start, fault.end)


PIECES = st.sampled_from(
    [
        *r"ab12-_/.^$|()[]{}*+?\,:=<>!",
        "[[:alpha:]]",
        "(?=",
        "(?:",
        r"\1",
        r"\b",
        "{1,2}",
        "[^",
        "[[.x.]]",
        "é",
    ]
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


@pytest.mark.parametrize(
    ("name", "members"),
    {
        "alnum": string.ascii_letters + string.digits,
        "alpha": string.ascii_letters,
        "blank": " \t",
        "cntrl": "".join(map(chr, (*range(32), 127))),
        "d": string.digits,
        "digit": string.digits,
        "graph": string.ascii_letters + string.digits + string.punctuation,
        "lower": string.ascii_lowercase,
        "print": string.ascii_letters + string.digits + string.punctuation + " ",
        "punct": string.punctuation,
        "s": string.whitespace,
        "space": string.whitespace,
        "upper": string.ascii_uppercase,
        "w": f"{string.ascii_letters}{string.digits}_",
        "xdigit": string.hexdigits,
    }.items(),
)
def test_posix_class_has_its_members(name, members):
    """Each POSIX class holds exactly the ASCII characters that C's classification gives it."""
    compiled = regex.compile(translate(f"[[:{name}:]]"), regex.ASCII)

    assert {*members} == {*compiled.findall("".join(map(chr, range(256))))}
