"""Arrays, sequences, optionals, strings and maps as values of the runtime, and back."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump import dtypes
from msdump.errors import FormatError, InputError
from msdump.execute import values
from msdump.graph.kernel.onenode import type_text

shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
rows = st.sampled_from([row for row in dtypes.DTYPES if row.onnx])


@st.composite
def tensors(draw, row=rows):
    """Return any array of any element type: all bit patterns, all texts, any order in memory."""
    kind, shape = draw(row), draw(shapes)
    size = int(np.prod(shape))
    if kind is dtypes.STRING:
        texts = draw(st.lists(st.text(max_size=4), min_size=size, max_size=size))
        return np.array(texts, dtype=object).reshape(shape)
    if kind.name == "bool" or kind.per_byte > 1:
        codes = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
        bits = 1 if kind.name == "bool" else 8 // kind.per_byte
        codes = codes & ((1 << bits) - 1)
        # numpy keeps int4 and int2 sign-extended in their byte
        signed = np.where(codes >> (bits - 1), codes | (0xFF << bits) & 0xFF, codes).astype(np.uint8)
        array = (signed if kind.name in {"int4", "int2"} else codes).view(kind.numpy).reshape(shape)
    else:
        data = draw(st.binary(min_size=size * kind.numpy.itemsize, max_size=size * kind.numpy.itemsize))
        array = np.frombuffer(data, kind.numpy).reshape(shape)
    return draw(st.sampled_from([array, np.asfortranarray(array), array[..., ::-1] if array.ndim else array]))


def same(expected, found) -> bool:
    """Tell whether two arrays have one type, one shape and the same bits."""
    return (
        expected.dtype == found.dtype
        and expected.shape == found.shape
        and (
            expected.tolist() == found.tolist()
            if expected.dtype == object
            else _bits(expected) == _bits(found)
        )
    )


def _bits(array) -> bytes:
    data = np.ascontiguousarray(array).tobytes()
    row = dtypes.from_numpy(array.dtype)
    return data if row.per_byte == 1 else bytes(byte & ((1 << 8 // row.per_byte) - 1) for byte in data)


@given(tensors())
@settings(max_examples=200, deadline=None)
def test_tensors_round_trip(array):
    """An array of any type, shape and order in memory comes back with the same bits."""
    found = values.to_python(values.from_python(array))

    assert same(array, found)


@given(
    st.lists(tensors(st.sampled_from([row for row in dtypes.DTYPES if row.numpy.isbuiltin == 1])), max_size=4)
)
@settings(max_examples=50, deadline=None)
def test_sequences_round_trip(items):
    """A list of arrays of one type comes back as that list; of several types it is refused."""
    kinds = {item.dtype for item in items}
    if len(kinds) > 1 or any(kind.kind == "c" for kind in kinds):
        items = [item for item in items if item.dtype == np.float32]

    found = values.to_python(values.from_python(items, dtypes.DTYPES[0]))

    assert len(items) == len(found)
    assert all(map(same, items, found))


def test_types_that_onnx_lacks_are_refused():
    """An array of a type that ONNX does not have is no value."""
    with pytest.raises(FormatError, match=r"dtype uint1 has no ONNX counterpart"):
        values.from_array(np.zeros(3, dtypes.from_name("uint1").numpy))


@pytest.mark.parametrize(
    "row",
    [row for row in dtypes.DTYPES if row.onnx and "complex" not in row.name],
    ids=lambda r: r.name,
)
def test_kind_of(row):
    """Every value knows the runtime's name of its type."""
    array = np.zeros((2, 3), row.numpy) if row is not dtypes.STRING else np.array(["a"], object)

    assert type_text(row) == values.kind_of(values.from_python(array))
    assert type_text(row) == values.kind_of(values.owned(array))


def test_an_empty_list_has_the_declared_type():
    """An empty sequence takes its element type from the network's input."""
    value = values.from_python([], dtypes.from_name("int64"))

    assert "seq(tensor(int64))" == values.kind_of(value)
    assert [] == values.to_python(value)


def test_sequences_of_several_types_are_refused():
    """A list of tensors of two types names them."""
    with pytest.raises(InputError, match="tensors of one dtype, got float32, int64"):
        values.from_python([np.zeros(1, np.float32), np.zeros(1, np.int64)])


@pytest.mark.parametrize(
    "item", [None, {"a": 1.0}, {1: "x"}, [{1: 2.0}, {1: 3.0}]], ids=["none", "texts", "numbers", "list"]
)
def test_absent_values_and_maps_stay_what_they_are(item):
    """None and maps pass through unchanged."""
    assert item == values.to_python(values.from_python(item))


def test_texts_of_every_numpy_kind():
    """Unicode arrays, byte strings and objects are the same string tensor."""
    expected = ["a", "éb"]

    for array in (np.array(expected), np.array(expected, object), np.array([t.encode() for t in expected])):
        assert expected == values.to_python(values.from_python(array)).tolist()


def test_foreign_byte_order():
    """A big-endian array is the same numbers in native order."""
    array = np.arange(5, dtype=">f4")

    found = values.to_python(values.from_python(array))

    assert same(np.arange(5, dtype="=f4"), found)


def test_views_keep_their_memory():
    """The array of a value lives on after the value, the session that made it and other allocations."""
    views = [values.to_array(values.owned(np.full(1000, number, np.float32))) for number in range(50)]
    gc.collect()
    garbage = [np.full(1000, -1, np.float32) for _ in range(100)]

    assert [float(number) for number in range(50)] == [float(view.max()) for view in views]
    assert all(view.min() == view.max() for view in views)
    assert garbage


def test_copies_outlive_arrays_out_of_order():
    """A value of an array in another order than C keeps a copy of its own."""
    kept = [values.from_array(np.full((50, 20), number, np.float32).T[::2]) for number in range(50)]
    garbage = [np.full(500, -1, np.float32) for _ in range(200)]

    assert [float(number) for number in range(50)] == [float(values.to_array(v).max()) for v in kept]
    assert all(values.to_array(value).min() >= 0 for value in kept)
    assert garbage
