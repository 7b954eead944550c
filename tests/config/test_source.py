"""JSON text, its values and where they stand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import read
from msdump.config.source import parse, show
from msdump.errors import ConfigSyntaxError

SYNTAX_ERRORS = [
    (
        "missing-comma",
        b'{\n  "a": 1\n  "b": 2\n}',
        "s.json:3: invalid JSON at column 3: expecting ',' delimiter\n      \"b\": 2\n      ^",
    ),
    (
        "missing-colon",
        b'{"a" 1}',
        "s.json:1: invalid JSON at column 6: expecting ':' delimiter\n    {\"a\" 1}\n         ^",
    ),
    (
        "windows-lines",
        b'{\r\n\t"a" 1\r\n}',
        "s.json:2: invalid JSON at column 6: expecting ':' delimiter\n     \"a\" 1\n         ^",
    ),
    (
        "nan",
        b'{"NaN": [0, NaN]}',
        (
            "s.json:1: invalid JSON at column 13: NaN is no JSON number\n"
            '    {"NaN": [0, NaN]}\n'
            "                ^"
        ),
    ),
    (
        "minus-infinity",
        b"[-Infinity]",
        "s.json:1: invalid JSON at column 2: -Infinity is no JSON number\n    [-Infinity]\n     ^",
    ),
    ("empty", b"", "s.json: the file is empty; it must hold one JSON object"),
    ("only-bom", b"\xef\xbb\xbf \n", "s.json: the file is empty; it must hold one JSON object"),
    ("latin-1", b'{"a": "\xe4"}', "s.json: not UTF-8 text: byte 0xe4 at offset 7"),
    ("utf-16", "{}".encode("utf-16"), "s.json: not UTF-8 text: byte 0xff at offset 0"),
    ("deep", b"[" * 200_000, "s.json: not readable: brackets are nested too deeply"),
]


@pytest.mark.parametrize(("data", "expected"), [pytest.param(*row[1:], id=row[0]) for row in SYNTAX_ERRORS])
def test_syntax_error_shows_line_column_and_caret(data, expected):
    """A file that is not JSON gives one error with place, reason, line and caret."""
    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    assert expected == str(caught.value)


HALF = "s.json:1: invalid JSON at column 2: this text holds half of a pair of surrogates"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": [NaN\0]}', "s.json:1: invalid JSON at column 8: NaN\\x00 is no JSON number\n"),
        (b"[NaNNaN]", "s.json:1: invalid JSON at column 2: NaNNaN is no JSON number\n"),
        (b"[-" + 4301 * b"1" + b"]", f"s.json:1: invalid JSON at column 2: -{19 * '1'} is no JSON number\n"),
        (
            rb'["a\ud800"]',
            HALF,
        ),
        (
            rb'{"\uDFFF": 1}',
            HALF,
        ),
    ],
    ids=["constant", "constants", "digits", "half", "half key"],
)
def test_what_python_reads_and_json_has_not_is_refused(data, message):
    """Constants, numbers of too many digits and halves of characters are errors with their place."""
    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"{'a': 1}", "(strings stand in double quotes)"),
        (b'{"a": 1, // one\n}', "(JSON has no comments)"),
        (b'{"a": # one\n}', "(JSON has no comments)"),
        (b'{"a": True}', "(JSON writes true, false and null)"),
        (b'{"a": 1,\n}', "(remove the comma before the closing bracket)"),
        (b"[1, ]", "(remove the comma before the closing bracket)"),
    ],
)
def test_frequent_syntax_error_has_a_hint(data, hint):
    """A frequent mistake is explained beside the parser's words."""
    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    assert hint in str(caught.value)


def test_excerpt_of_a_long_line_is_cut():
    """Of a long line only the part around the fault is shown, with the caret below it."""
    data = b"[" + b"1," * 200 + b"x" + b",1" * 200 + b"]"

    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    line, below = caught.value.problems[0].excerpt.split("\n")
    assert line[below.index("^")] == "x"
    assert len(line) < 120


def test_number_beyond_pythons_digits_is_refused():
    """A number that Python does not convert is a syntax error at its place."""
    with pytest.raises(ConfigSyntaxError, match=r"column 4: 99999999999999999999 is no JSON number"):
        parse(b"[1," + b"9" * 5000 + b"]", "s.json")


def test_byte_order_mark_is_skipped():
    """A UTF-8 byte order mark neither hurts nor shifts columns."""
    document = parse(b'\xef\xbb\xbf{"a": 1}', "s.json")

    assert document.value == {"a": 1}
    assert document.position(("a",)) == (1, 7)


def test_long_value_is_cut():
    """A value of a message has at most 80 characters."""
    assert len(show("x" * 1000)) == 80


def test_positions_count_lines_and_columns_from_one():
    """Keys and values have a line and a column; a missing value stands where its owner stands."""
    document = parse(b'{\n  "a": {\n    "b": [10,\n  20]}}', "s.json")

    assert document.position(()) == (1, 1)
    assert document.position(("a",), of_key=True) == (2, 3)
    assert document.position(("a",)) == (2, 8)
    assert document.position(("a", "b"), of_key=True) == (3, 5)
    assert document.position(("a", "b", 1)) == (4, 3)
    assert document.position(("a", "none")) == (2, 8)


def test_last_of_repeated_keys_counts():
    """A repeated key is noted; value and position are those of the last one."""
    document = parse(b'{"a": {"x": 1}, "b": {"c": 1, "c": 2},\n "a": {"y": 3}}', "s.json")

    assert document.value == {"a": {"y": 3}, "b": {"c": 2}}
    assert document.duplicates == (("b", "c"), ("a",))
    assert document.position(("a", "y")) == (2, 13)
    assert document.position(("a", "x")) == (2, 7)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _: None, "no such file"),
        (lambda path: path.mkdir(), "is a directory"),
    ],
    ids=["missing", "directory"],
)
def test_unusable_file_is_refused(make, expected, tmp_path):
    """A missing file and a directory are one error each, with the remedy."""
    path = tmp_path / "c.json"
    make(path)

    with pytest.raises(ConfigSyntaxError) as caught:
        read(str(path), "--config")

    assert f"{path}: {expected}; --config must be the path of a readable .json file" == str(caught.value)


@pytest.mark.parametrize("name", ["c.txt", "c", "c.JSON", "json"])
def test_other_suffix_is_refused(name, tmp_path):
    """Only a name that ends in .json is a configuration file."""
    (tmp_path / name).write_text("{}")

    with pytest.raises(ConfigSyntaxError, match=r"the name does not end in \.json; V must be"):
        read(str(tmp_path / name), "V")


def test_unreadable_file_is_refused(tmp_path, monkeypatch):
    """A file that the system refuses to open is an error with the system's reason."""
    path = tmp_path / "c.json"
    path.write_text("{}")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("msdump.reading.read_bytes", refuse)

    with pytest.raises(ConfigSyntaxError, match=r"cannot be read \(Permission denied\); V must be"):
        read(str(path), "V")


def test_path_with_a_null_character_is_refused():
    """A path that no system accepts is an error of the configuration."""
    with pytest.raises(ConfigSyntaxError, match=r"V must be the path of a readable \.json file"):
        read("a\0.json", "V")


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(max_examples=100, deadline=None)
@given(JSON_VALUES, st.sampled_from([None, 0, 2]), st.booleans())
def test_scanner_agrees_with_json(value, indent, is_ascii):
    """At the position of every value the standard library decodes that value, and no other path has one."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)

    document = parse(text.encode("utf-8", "surrogatepass") if _encodable(text) else b"0", "s.json")

    lines = document.text.split("\n")
    for path, expected in _walk(document.value, ()):
        line, column = document.position(path)
        offset = sum(len(earlier) + 1 for earlier in lines[: line - 1]) + column - 1
        assert expected == json.JSONDecoder().raw_decode(document.text, offset)[0]
    assert {path for path, _ in _walk(document.value, ())} == set(_marked(document.mark, ()))


def _encodable(text):
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _walk(value, path):
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, (*path, index))


def _marked(mark, path):
    yield path
    for step, inner in mark.children.items():
        yield from _marked(inner, (*path, step))
