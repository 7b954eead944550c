"""Templates: one text, written and parsed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store.templates import NUMBER, PART, TEXT, Template, padded

FIELDS = {"kind": TEXT, "number": NUMBER, "name": PART, "index": padded(4)}
TEMPLATE = Template("{kind}.{number}[/{name}]_{index}.npy", FIELDS)

FITTING = {
    "all fields": ("conv.12/a.b_0003.npy", {"kind": "conv", "number": 12, "name": "a.b", "index": 3}),
    "no part in brackets": ("conv.12_0003.npy", {"kind": "conv", "number": 12, "index": 3}),
    "more digits than padded": ("conv.0_12345.npy", {"kind": "conv", "number": 0, "index": 12345}),
}


@pytest.mark.parametrize(("name", "fields"), FITTING.values(), ids=FITTING)
def test_a_name_gives_its_fields(name, fields):
    """A name that the template fits gives its fields, and the fields give the name."""
    assert fields == TEMPLATE.parse(name)
    assert name == TEMPLATE.format(SimpleNamespace(**({"name": None} | fields)))


OTHERS = {
    "leading zero": "conv.012_0003.npy",
    "too few digits": "conv.12_003.npy",
    "padding too long": "conv.12_00003.npy",
    "slash": "co/nv.12_0003.npy",
    "literal text is no pattern": "conv.12_0003xnpy",
    "something before": ".conv.12_0003.npy",
    "something behind": "conv.12_0003.npy\n",
    "other digits": "conv.\u0661_0003.npy",
}


@pytest.mark.parametrize("name", OTHERS.values(), ids=OTHERS)
def test_other_names_give_none(name):
    """A name that the template does not fit gives None."""
    assert TEMPLATE.parse(name) is None


def test_a_required_field_is_written_whatever_it_holds():
    """Only parts in brackets are left out where a field has no value."""
    assert "None.1_0000.npy" == TEMPLATE.format(SimpleNamespace(kind=None, number=1, name=None, index=0))


TEXTS = st.text(st.characters(exclude_characters="./", exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(0), st.none() | TEXTS, st.integers(0))
def test_parse_inverts_format(kind, number, name, index):
    """Every name gives back the fields that were written."""
    text = TEMPLATE.format(SimpleNamespace(kind=kind, number=number, name=name, index=index))

    there = {} if name is None else {"name": name}
    assert {"kind": kind, "number": number, "index": index} | there == TEMPLATE.parse(text)
