"""Arrays, sequences, optionals, strings and maps as values of the runtime, and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump import dtypes
from msdump.errors import FormatError
from msdump.execute import values
from msdump.graph.kernel import type_text

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
    "row", [row for row in dtypes.DTYPES if row.onnx and "complex" not in row.name], ids=lambda r: r.name
)
def test_kind_of(row):
    """Every value has the runtime's name of its type."""
    array = np.zeros((2, 3), row.numpy) if row is not dtypes.STRING else np.array(["a"], object)

    assert type_text(row) == values.kind_of(values.from_python(array))
    assert type_text(row) == values.kind_of(values.owned(array))


def test_texts_of_every_numpy_kind():
    """Unicode arrays, byte strings and objects are the same string tensor."""
    expected = ["a", "éb"]

    for array in (np.array(expected), np.array(expected, object), np.array([t.encode() for t in expected])):
        assert expected == values.to_python(values.from_python(array)).tolist()
