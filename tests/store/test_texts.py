"""The small text files of a dump."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.errors import DumpReadError
from msdump.store import texts

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1)


@settings(max_examples=50, deadline=None)
@given(st.lists(NAMES))
def test_execution_order_is_read_back(tmp_path_factory, names):
    """Every list of names comes back in order, whatever the names."""
    path = tmp_path_factory.mktemp("order") / "order.csv"
    path.write_bytes("".join(f"{line}\n" for line in (texts.ORDER_HEADER, *names)).encode())

    assert tuple(names) == texts.read_execution_order(str(path))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["json", "execution_order", "iterations_run", "statistics"]))
def test_random_bytes_raise_nothing_else(tmp_path_factory, data, kind):
    """Whatever the bytes, reading succeeds or raises DumpReadError with the path."""
    path = tmp_path_factory.mktemp("any") / "any"
    path.write_bytes(data)

    try:
        found = getattr(texts, f"read_{kind}")(str(path))
    except DumpReadError as error:
        found = error.path

    assert kind == "json" or isinstance(found, tuple) or str(path) == found


@pytest.mark.parametrize("text", ["", "\n"], ids=["empty", "blank"])
def test_empty_lists(tmp_path, text):
    """A file without lines has no iterations and no rows, and is no execution order."""
    path = tmp_path / "x.csv"
    path.write_text(text)

    assert texts.read_iterations_run(str(path)) == ()
    assert texts.read_statistics(str(path)) == ()
    with pytest.raises(DumpReadError, match="the first line is ''"):
        texts.read_execution_order(str(path))
