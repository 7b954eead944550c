"""Names of the tensors that torch.compile captures, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.record import IO
from msdump.store.captured_names import CapturedTensorName, parse

TIME = "20240112093000000042"

DOCUMENTED = {
    "mm-aten.mm.default.OUTPUT.0": CapturedTensorName("mm", "aten.mm.default", IO.OUTPUT, (0,)),
    f"mm-aten.mm.default.INPUT.1.{TIME}.npy": (
        CapturedTensorName("mm", "aten.mm.default", IO.INPUT, (1,), TIME)
    ),
    f"cat_2-aten.cat.default.INPUT.0.11.{TIME}.npy": (
        CapturedTensorName("cat_2", "aten.cat.default", IO.INPUT, (0, 11), TIME)
    ),
    "getitem-getitem.OUTPUT.0": CapturedTensorName("getitem", "getitem", IO.OUTPUT, (0,)),
}


@pytest.mark.parametrize(("text", "name"), DOCUMENTED.items(), ids=DOCUMENTED)
def test_documented_names(text, name):
    """Every documented name gives its fields, and the fields give the name."""
    assert name == parse(text)
    assert text == str(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mm.OUTPUT.0",
        "mm-aten.mm.default.output.0",
        "mm-aten.mm.default.OUTPUT",
        "mm-aten.mm.default.OUTPUT.0.npy",
        f"Conv2D.conv1.0.0.{TIME[:16]}.output.0.DefaultFormat.npy",
    ],
)
def test_other_names_are_not_parsed(text):
    """A name that no captured tensor has gives None."""
    assert parse(text) is None


TARGETS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)
NAMES = st.builds(
    CapturedTensorName,
    node=st.text(st.characters(exclude_characters="-/", exclude_categories=["Cs"]), min_size=1),
    target=TARGETS,
    io=st.sampled_from(IO),
    place=st.lists(st.integers(0, 10**6), min_size=1, max_size=3).map(tuple),
    time=st.none() | st.from_regex(r"[0-9]{20}", fullmatch=True),
)


@settings(max_examples=200, deadline=None)
@given(NAMES)
def test_parse_inverts_format(name):
    """Every name gives back its fields, whatever a node calls."""
    assert name == parse(str(name))
