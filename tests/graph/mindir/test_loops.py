"""Calls of functions in .mindir files that cannot run."""

from pathlib import Path

import pytest

from msdump.errors import UnsupportedOpError
from msdump.graph import loader

DATA = Path(__file__).parent / "data" / "while_tensor.mindir"
BODY = "25_4_↻cell_Net_construct_23"
HEADER = "24_3_↵cell_Net_construct_18"


def changed(old, new):
    """Return the file with the last place of a text replaced by another one of its length."""
    before, found, after = DATA.read_bytes().rpartition(old.encode())
    assert found
    assert len(old) == len(new)
    return before + new.encode() + after


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"{BODY}:CNode_42:29", f"{BODY}:CNode_37:21", "but not as its last step: recursion cannot run"),
        (f"REF::{HEADER}:CNode_27:7", f"REF::{HEADER}:CNode_22:2", "the function of a call is computed"),
    ],
    ids=["recursion", "computed"],
)
def test_other_calls_are_refused(old, new, message):
    """Recursion that is no loop, and a computed function, are refused by name."""
    with pytest.raises(UnsupportedOpError, match=message):
        loader.load(changed(old, new))
