"""The grammars of iteration and kernels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import GrammarError
from msdump.config.grammar import parse_iterations, parse_kernel
from msdump.config.source import caret

BIGGEST = 18446744073709551615


def _excerpts(error):
    return [caret(error.text, fault.start, fault.end) for fault in error.faults]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("all", None),
        (" all ", None),
        ("0", ((0, 0),)),
        ("01", ((1, 1),)),
        ("0|5-8|100-120", ((0, 0), (5, 8), (100, 120))),
        ("0 | 5-8 | 100-120", ((0, 0), (5, 8), (100, 120))),
        ("5 - 8", ((5, 8),)),
        ("3-3", ((3, 3),)),
        ("0|0|0-2", ((0, 2),)),
        ("7|2-4|3-5|6", ((2, 7),)),
        (str(BIGGEST), ((BIGGEST, BIGGEST),)),
        ("0" * 5000 + "4", ((4, 4),)),
    ],
)
def test_iterations_are_parsed(text, spans):
    """Numbers, inclusive ranges, spaces, leading zeros and overlaps give the union."""
    assert spans == parse_iterations(text).spans


EMPTY = "a segment is empty"
SHAPE = "is neither a number nor a range"


@pytest.mark.parametrize(
    ("text", "message", "excerpt"),
    [
        ("", EMPTY, "    \n    ^"),
        ("  ", EMPTY, "      \n    ^^"),
        ("|", EMPTY, "    |\n    ^"),
        ("0||2", EMPTY, "    0||2\n      ^"),
        ("0|2|", EMPTY, "    0|2|\n        ^"),
        ("1-", SHAPE, "    1-\n    ^^"),
        ("-1", SHAPE, "    -1\n    ^^"),
        ("0|0-1-2", SHAPE, "    0|0-1-2\n      ^^^^^"),
        ("5 6", SHAPE, "    5 6\n    ^^^"),
        ("0,2", SHAPE, "    0,2\n    ^^^"),
        ("+1", SHAPE, "    +1\n    ^^"),
        ("1.5", SHAPE, "    1.5\n    ^^^"),
        ("\u0661", SHAPE, "    \u0661\n    ^"),
        ("all|1", SHAPE, "    all|1\n    ^^^"),
        ("ALL", "write 'all' in lower case", "    ALL\n    ^^^"),
        ("0|8-5", "the range 8-5 begins above its end; write 5-8", "    0|8-5\n      ^^^"),
        (str(BIGGEST + 1), "does not fit into 64 bit", f"    {BIGGEST + 1}\n    {'^' * 20}"),
        ("1-" + "9" * 30, "does not fit into 64 bit", f"    1-{'9' * 30}\n    {'^' * 32}"),
    ],
)
def test_bad_segment_is_refused_with_a_caret(text, message, excerpt):
    """An empty, malformed, reversed or too big segment is a fault with a caret below it."""
    with pytest.raises(GrammarError) as caught:
        parse_iterations(text)

    assert message in caught.value.faults[0].message
    assert excerpt == _excerpts(caught.value)[0]


def test_every_bad_segment_is_reported():
    """Each bad segment of a text is a fault of its own, in the order of the text."""
    with pytest.raises(GrammarError) as caught:
        parse_iterations("x|1|3-2|")

    assert _excerpts(caught.value) == [
        "    x|1|3-2|\n    ^",
        "    x|1|3-2|\n        ^^^",
        "    x|1|3-2|\n            ^",
    ]


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(SPANS, st.sampled_from(["|", " | ", "| "]))
def test_membership_equals_brute_force(spans, separator):
    """A set contains exactly the numbers that one of its segments encloses."""
    iterations = parse_iterations(separator.join(f"{low}-{high}" for low, high in spans))

    for number in range(75):
        assert any(low <= number <= high for low, high in spans) == (number in iterations)


CONV = "Default/conv1-Conv2d/Conv2D-op0"
LONG = "repetitions make the expression longer than 100000 characters; use smaller counts, or * and +"


def test_empty_items_and_searches():
    """An item of spaces alone is no pattern; under O2 a regex matches anywhere in a name."""
    assert parse_kernel("", searches=False) is parse_kernel("   ", searches=False) is None
    assert parse_kernel("name-regex(Conv2D)", searches=True).matches(CONV)


@pytest.mark.parametrize(
    ("item", "message", "excerpt"),
    [
        (
            "name-regex(a[b)",
            "not a regular expression: the class of characters is not closed",
            "    name-regex(a[b)\n                ^",
        ),
        (
            "name-regex(a{99999999999999})",
            f"not a regular expression: {LONG}",
            f"    name-regex(a{{99999999999999}})\n{' ' * 16}{'^' * 16}",
        ),
        (
            "name-regex(Default/.+",
            "the bracket of name-regex( is not closed; write name-regex(expression)",
            f"    name-regex(Default/.+\n{' ' * 25}^",
        ),
    ],
)
def test_bad_regex_is_refused_with_a_caret(item, message, excerpt):
    """A regex that does not compile, or has no closing bracket, is a fault with a caret."""
    with pytest.raises(GrammarError) as caught:
        parse_kernel(item, searches=False)

    assert message == caught.value.faults[0].message
    assert [excerpt] == _excerpts(caught.value)
