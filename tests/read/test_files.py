"""The small text files of a dump."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import msdump.read
from msdump.errors import DumpReadError
from msdump.read import read_execution_order, read_statistics
from msdump.store import ORDER_HEADER

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1)


@settings(max_examples=50, deadline=None)
@given(st.lists(NAMES))
def test_execution_order_is_read_back(tmp_path_factory, names):
    """Every list of names comes back in order, whatever the names."""
    path = tmp_path_factory.mktemp("order") / "order.csv"
    path.write_bytes("".join(f"{line}\n" for line in (ORDER_HEADER, *names)).encode())

    assert tuple(names) == read_execution_order(str(path))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["json", "execution_order", "iterations_run", "statistics"]))
def test_random_bytes_raise_nothing_else(tmp_path_factory, data, kind):
    """Whatever the bytes, reading succeeds or raises DumpReadError with the path."""
    path = tmp_path_factory.mktemp("any") / "any"
    path.write_bytes(data)

    try:
        found = getattr(msdump.read, f"read_{kind}")(str(path))
    except DumpReadError as error:
        found = error.path

    assert kind == "json" or isinstance(found, tuple) or str(path) == found


LONG = "7" * 5000
TOO_LONG = {
    "iterations": ("iterations_run", f"3\n{LONG}\n", "a number of 5,000 digits", 2),
    "json": ("json", f'{{"a": {LONG}}}', "not JSON that can be read", None),
    "cell": ("statistics", f"Op Type,Max Value\nAdd,{LONG}\n", "a number of 5,000 digits", 18),
    "field": ("statistics", f"Op Type,Max Value\n{'x' * 140_000},1\n", "field larger than field limit", 18),
}


@pytest.mark.parametrize(("kind", "text", "message", "offset"), TOO_LONG.values(), ids=TOO_LONG)
def test_too_long(tmp_path, kind, text, message, offset):
    """A number of thousands of digits or an endless cell is an error with file and byte."""
    path = tmp_path / "x"
    path.write_text(text)

    with pytest.raises(DumpReadError, match=message) as raised:
        getattr(msdump.read, f"read_{kind}")(str(path))

    assert (str(path), offset) == (raised.value.path, raised.value.offset)


ADD = {"Op Type": "Add", "Max Value": 6.5}
TORN = {
    "half a row": ("statistics", b"Op Type,Max Value\nAdd,6.5\nMu", [ADD]),
    "half a number": ("statistics", b"Op Type,Max Value\nAdd,6.5\nMul,1", [ADD]),
    "half a letter": ("statistics", "Op Type\nAdd\n\u00e9".encode()[:-1], [{"Op Type": "Add"}]),
    "half the titles": ("statistics", b"Op Ty", []),
    "half a number of an iteration": ("iterations_run", b"9\n1", [9]),
}


@pytest.mark.parametrize(("kind", "data", "expected"), TORN.values(), ids=TORN)
def test_what_a_kill_left_of_a_row_is_left_out(tmp_path, caplog, kind, data, expected):
    """A last row without a line feed is left out with one warning: its last number may lack digits."""
    path = tmp_path / "x"
    path.write_bytes(data)

    assert expected == list(getattr(msdump.read, f"read_{kind}")(str(path)))
    assert [
        f"{path}: the last row has no line feed and is left out: the program was killed"
    ] == caplog.messages


def test_cells_are_what_they_stand_for(tmp_path):
    """Counts are whole numbers, statistics numbers, digests and names text, and null is None."""
    path = tmp_path / "x.csv"
    path.write_text(
        "Op Type,Op Name,Slot,Max Value,Min Value,NaN Count,MD5,Avg Value\nAdd,1,0,6.5,-inf,2,12,null\n"
    )

    (row,) = read_statistics(str(path))

    assert ["Add", "1", 0, 6.5, float("-inf"), 2, "12", None] == list(row.values())
    assert isinstance(row["NaN Count"], int)
