"""Splitting a serialised model into its message and its large weights."""

import contextlib

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.errors import GraphError
from msdump.graph import SMALL_BYTES, weights
from msdump.wire import LENGTH, length_delimited, tag_of

FAULTS = {
    "field zero": (b"\x02\x00", "no protobuf message: field number 0 at byte 0"),
    "wire type": (b"\x0b", "no protobuf message: wire type 3 at byte 0"),
    "cut number": (b"\x3a\x80", "truncated: the file ends inside a number at byte 2"),
    "long number": (b"\x08" + b"\xff" * 11, "no protobuf message: a number of more than ten bytes"),
    "cut field": (b"\x3a\x05\x00", "truncated: the field at byte 0 lacks 4 bytes at its end"),
    "cut fixed": (b"\x3d\x00\x00", "truncated: the field at byte 0 lacks 2 bytes at its end"),
    "cut weight": (b"\x3a\x04\x2a\x08\x4a\x00", "truncated: the field at byte 2 lacks 6 bytes at its end"),
}

tensors = st.builds(
    lambda name, raw, doc: onnx.TensorProto(
        name=name, data_type=onnx.TensorProto.UINT8, dims=[len(raw)], raw_data=raw, doc_string=doc
    ),
    st.text(max_size=3),
    st.sampled_from((0, 1, SMALL_BYTES - 40, SMALL_BYTES, SMALL_BYTES + 1, 5000)).map(
        lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    ),
    st.text(max_size=3),
)
models = st.builds(
    lambda version, tensors, producer: onnx.ModelProto(
        ir_version=version,
        producer_name=producer,
        graph=onnx.GraphProto(name="g", initializer=tensors),
        opset_import=[onnx.OperatorSetIdProto(version=version)],
    ),
    st.integers(0, 2**40),
    st.lists(tensors, max_size=4),
    st.text(max_size=3),
)


def joined(data):
    """Return the model that a split model stands for."""
    split = weights.split(memoryview(data))
    model = onnx.ModelProto.FromString(split.message)
    for position, (start, end) in split.raw_data.items():
        model.graph.initializer[position].raw_data = data[start:end]
    return model


@given(models)
@settings(max_examples=50, deadline=None)
def test_split_loses_nothing(model):
    """A model's message and its split-off weights are together the model."""
    data = model.SerializeToString()

    assert model == joined(data)


@given(models, models)
@settings(max_examples=30, deadline=None)
def test_split_merges_graphs(first, second):
    """Two graph fields in one message count as one graph, as protobuf merges them."""
    data = first.SerializeToString() + second.SerializeToString()

    assert onnx.ModelProto.FromString(data) == joined(data)


def test_last_raw_data_counts():
    """Of two raw data fields of one weight the last is its data, as protobuf reads it."""
    large, small = bytes(2000), b"small"
    for first, last in ((large, small), (small, large)):
        tensor = (onnx.TensorProto(raw_data=item).SerializeToString() for item in (first, last))
        graph = b"".join(tensor)
        graph = length_delimited(tag_of(5, LENGTH), graph)
        data = length_delimited(tag_of(7, LENGTH), graph)

        assert last == joined(data).graph.initializer[0].raw_data


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_split_or_are_refused(data):
    """Random bytes either split into no more than themselves or raise GraphError, nothing else."""
    size = 0
    with contextlib.suppress(GraphError):
        size = len(weights.split(memoryview(data)).message)

    assert size <= len(data) + 10


@pytest.mark.parametrize(("data", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_told_with_their_place(data, message):
    """A faulty message is refused at its byte."""
    with pytest.raises(GraphError, match=message):
        weights.split(memoryview(data))


def test_large_weights_stay_where_they_lie():
    """Only raw data above the limit is split off; its place is its place in the buffer."""
    large, small = bytes(range(256)) * 8, b"abc"
    graph = onnx.GraphProto(initializer=[onnx.TensorProto(raw_data=raw) for raw in (small, large)])
    data = onnx.ModelProto(graph=graph).SerializeToString()

    split = weights.split(memoryview(data))

    ((position, (start, end)),) = split.raw_data.items()
    assert (1, large) == (position, data[start:end])
    assert len(split.message) < SMALL_BYTES
