"""JSON text, its values and where they stand."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import read
from msdump.config.source import parse, show
from msdump.errors import ConfigSyntaxError

NAN = (
    's.json:1: invalid JSON at column 13: NaN is not a JSON number\n    {"NaN": [0, NaN]}\n                ^'
)
HALF = "s.json:1: invalid JSON at column 2: this text contains half of a surrogate pair"
SYNTAX_ERRORS = [
    # bytes, beginning of the message, its hint
    (
        b'{"a" 1}',
        "s.json:1: invalid JSON at column 6: expecting ':' delimiter\n    {\"a\" 1}\n         ^",
        "",
    ),
    (
        b'{\n  "a": 1\n  "b": 2\n}',
        "s.json:3: invalid JSON at column 3: expecting ',' delimiter\n      \"b\"",
        "",
    ),
    (b'{\r\n\t"a" 1\r\n}', "s.json:2: invalid JSON at column 6: expecting ':' delimiter\n     \"a\" 1\n", ""),
    (b'{"NaN": [0, NaN]}', NAN, ""),
    (
        b"[-Infinity]",
        "s.json:1: invalid JSON at column 2: -Infinity is not a JSON number\n    [-Infinity]\n     ^",
        "",
    ),
    (b'{"a": [NaN\0]}', "s.json:1: invalid JSON at column 8: NaN\\x00 is not a JSON number\n", ""),
    (b"[NaNNaN]", "s.json:1: invalid JSON at column 2: NaNNaN is not a JSON number\n", ""),
    (
        b"[-" + 4301 * b"1" + b"]",
        f"s.json:1: invalid JSON at column 2: -{19 * '1'} is not a JSON number\n",
        "",
    ),
    (b"[1," + b"9" * 5000 + b"]", f"s.json:1: invalid JSON at column 4: {20 * '9'} is not a JSON number", ""),
    (rb'["a\ud800"]', HALF, ""),
    (rb'{"\uDFFF": 1}', HALF, ""),
    (b"", "s.json: the file is empty; it must hold one JSON object", ""),
    (b"\xef\xbb\xbf \n", "s.json: the file is empty; it must hold one JSON object", ""),
    (b'{"a": "\xe4"}', "s.json: not UTF-8 text: byte 0xe4 at offset 7", ""),
    ("{}".encode("utf-16"), "s.json: not UTF-8 text: byte 0xff at offset 0", ""),
    (b"[" * 200_000, "s.json: not readable: brackets are nested too deeply", ""),
    (b"{'a': 1}", "s.json:1: ", "(write texts in double quotes)"),
    (b'{"a": 1, // one\n}', "s.json:1: ", "(JSON has no comments)"),
    (b'{"a": # one\n}', "s.json:1: ", "(JSON has no comments)"),
    (b'{"a": True}', "s.json:1: ", "(write true, false and null in lower case)"),
    (b'{"a": 1,\n}', "s.json:", "(remove the comma before the closing bracket)"),
    (b"[1, ]", "s.json:1: ", "(remove the comma before the closing bracket)"),
]


@pytest.mark.parametrize(("data", "message", "hint"), SYNTAX_ERRORS, ids=range(len(SYNTAX_ERRORS)))
def test_syntax_error_shows_line_column_and_caret(data, message, hint):
    """Anything but JSON, also Python's own constants and numbers, is one error with place, caret and hint."""
    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    assert str(caught.value).startswith(message)
    assert hint in str(caught.value)


def test_excerpt_of_a_long_line_is_cut():
    """Of a long line only the part around the fault is shown, with the caret below it."""
    data = b"[" + b"1," * 200 + b"x" + b",1" * 200 + b"]"

    with pytest.raises(ConfigSyntaxError) as caught:
        parse(data, "s.json")

    line, below = caught.value.problems[0].excerpt.split("\n")
    assert line[below.index("^")] == "x"
    assert len(line) < 120


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
    """A repeated key is noted; value and position are the last ones."""
    document = parse(b'{"a": {"x": 1}, "b": {"c": 1, "c": 2},\n "a": {"y": 3}}', "s.json")

    assert document.value == {"a": {"y": 3}, "b": {"c": 2}}
    assert document.duplicates == (("b", "c"), ("a",))
    assert document.position(("a", "y")) == (2, 13)
    assert document.position(("a", "x")) == (2, 7)


UNUSABLE = {
    "none.json": "no such file; V must be the path of a readable .json file",
    "a\0.json": "V must be the path of a readable .json file",
    "folder.json": "is a directory; V must be the path of a readable .json file",
    **dict.fromkeys(["c.txt", "c", "c.JSON", "json"], "the name does not end in .json; V must be"),
}


@pytest.mark.parametrize(("name", "message"), UNUSABLE.items())
def test_unusable_file_is_refused(name, message, tmp_path):
    """A missing file, a directory and a name without .json are one error each, with the remedy."""
    (tmp_path / "folder.json").mkdir()
    if not name.endswith(".json"):
        (tmp_path / name).write_text("{}")

    with pytest.raises(ConfigSyntaxError) as caught:
        read(str(tmp_path / name), "V")

    assert message in str(caught.value)


def test_unreadable_file_is_refused(tmp_path, monkeypatch):
    """A file that the system refuses to open is an error with the system's reason."""
    path = tmp_path / "c.json"
    path.write_text("{}")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("msdump.reading.read_bytes", refuse)

    with pytest.raises(ConfigSyntaxError, match=r"cannot be read \(Permission denied\); V must be"):
        read(str(path), "V")


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
