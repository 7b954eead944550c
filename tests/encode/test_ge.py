"""GE's graph files."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.encode import Symbol, ge
from tests.encode.ge_oracle import parsed


def value_of(message):
    """Return the value of the only attribute of a graph in a text."""
    return parsed(b"".join(ge.text([("graph", [("attr", message)])]))).graph[0].attr[0].value


def attribute(*fields):
    """Return a graph's attribute."""
    return [("key", "k"), ("value", list(fields))]


def test_text():
    """Fields stand on lines of their own, messages in braces, two spaces deeper; symbols have no quotes."""
    message = [
        ("name", "m"),
        ("graph", [("op", [("id", 3), ("output_desc", [("dtype", Symbol("DT_FLOAT"))])])]),
    ]

    assert (
        b'name: "m"\ngraph {\n  op {\n    id: 3\n    output_desc {\n      dtype: DT_FLOAT\n    }\n  }\n}\n'
    ) == b"".join(ge.text(message))


@settings(max_examples=100)
@given(st.text(st.characters(codec="utf-8")))
def test_texts_come_back(name):
    """Whatever a name holds, protobuf reads it back."""
    assert name == parsed(b"".join(ge.text([("name", name)]))).name


@settings(max_examples=100)
@given(st.floats(width=32, allow_nan=False))
def test_floats_come_back(number):
    """A float32 keeps every bit."""
    assert number == value_of(attribute(("f", number))).f


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_bytes_come_back(data):
    """The elements of a tensor keep every bit."""
    message = attribute(("t", [("data", np.frombuffer(data, np.uint8))]))

    assert data == value_of(message).t.data


def test_large_tensors_come_in_pieces():
    """A large tensor is not made a text as a whole."""
    array = np.zeros(3 << 20, np.uint8)

    pieces = list(ge.text([("graph", [("data", array)])]))

    assert 4 << 20 >= max(map(len, pieces))
    assert 12 << 20 < sum(map(len, pieces))


def test_json():
    """Repeated fields are lists, even of one; so are the fields of a list; types of lists are numbers."""
    texts = [("list", [("s", "a"), ("val_type", Symbol("VT_LIST_STRING"))])]
    message = [
        ("name", "m"),
        ("graph", [("op", [("name", "c"), ("input", "x:0"), ("attr", [("key", "k"), ("value", texts)])])]),
    ]
    operator = {
        "name": "c",
        "input": ["x:0"],
        "attr": [{"key": "k", "value": {"list": {"s": ["a"], "val_type": 1}}}],
    }

    assert {"name": "m", "graph": [{"op": [operator]}]} == json.loads(ge.json_text(message))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan], ids=str)
def test_json_has_no_bare_infinity(number):
    """Infinities and NaN are texts in JSON."""
    shown = json.loads(ge.json_text([("f", number)]), parse_constant=pytest.fail)

    assert {"f": repr(number)} == shown
