"""Initializers, external data and constants as arrays; a serialised model without its large weights."""

import contextlib

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from msdump.errors import GraphError
from msdump.graph import SMALL_BYTES, loader, weights
from msdump.wire import LENGTH, length_delimited, tag_of

FLOATS = np.arange(600, dtype=np.float32)


def external(location="w.bin", **fields):
    """Return a float32 initializer "w" of 600 elements that lies in a file."""
    tensor = TensorProto(name="w", data_type=1, dims=[600], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(tensor):
    """Return a model that adds an initializer to its input."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", tensor.name], ["y"], name="add")],
        "g",
        [helper.make_tensor_value_info("x", tensor.data_type, None)],
        [helper.make_empty_tensor_value_info("y")],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def loaded(folder, tensor):
    """Return the initializer of a model file."""
    (folder / "m.onnx").write_bytes(model_of(tensor).SerializeToString())
    return loader.load(folder / "m.onnx").weights[tensor.name]


FAULTS = {
    "missing": ({"location": "gone.bin"}, "external data file 'gone.bin' cannot be read: No such file"),
    "folder": ({"location": "sub"}, "external data file 'sub' cannot be read"),
    "outside": ({"location": "../w.bin"}, "external data '../w.bin' is outside the model's folder"),
    "absolute": ({"location": "/etc/hostname"}, "external data '/etc/hostname' is outside"),
    "link outside": ({"location": "link.bin"}, "external data 'link.bin' is outside the model's folder"),
    "unnamed": ({"location": ""}, "external data '' is outside"),
    "truncated": ({"offset": 4}, "'w.bin' has 2400 bytes, bytes 4 to 2404 are needed; is the file truncated"),
    "far": ({"offset": 10**12}, "'w.bin' has 2400 bytes, bytes 1000000000000 to"),
    "negative": ({"offset": -4}, "bytes -4 to"),
    "no number": ({"offset": "four"}, "offset 'four' must be a number"),
    "too few": ({"length": 2396}, r"of shape \(600,\) \(600 elements of type 1\) has 2396 bytes of data"),
}


@pytest.mark.parametrize(("fields", "message"), FAULTS.values(), ids=FAULTS)
def test_faulty_external_data(tmp_path, fields, message):
    """External data that cannot be used are refused with the model, the initializer and the file."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    FLOATS.tofile(folder / "w.bin")
    FLOATS.tofile(tmp_path / "w.bin")
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")

    with pytest.raises(GraphError, match=message) as caught:
        loaded(folder, external(**{"length": 2400, **fields}))

    assert str(caught.value).startswith(f"{folder / 'm.onnx'}: initializer 'w'")


def test_external_data_need_a_folder():
    """A model in memory with external data says that it must be loaded by its path."""
    with pytest.raises(GraphError, match="a model in memory has no folder; load the model by its path"):
        loader.load(model_of(external()))


def test_external_data_behind_two_gibibytes(tmp_path):
    """Weights far behind 2 GiB are mapped, not read: the file is sparse and stays so."""
    offset = 5 * 2**30
    with (tmp_path / "w.bin").open("wb") as file:
        file.seek(offset)
        file.write(FLOATS.tobytes())

    array = loaded(tmp_path, external(offset=offset, length=2400))

    np.testing.assert_array_equal(FLOATS, array)
    assert (tmp_path / "w.bin").stat().st_blocks * 512 < 2**20


@pytest.mark.parametrize("shift", range(4))
def test_unaligned_weights_are_read_right(tmp_path, shift):
    """Raw data at any byte of the file give the right values."""
    model = model_of(numpy_helper.from_array(FLOATS, "w"))
    model.producer_name = "p" * shift
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    array = loader.load(tmp_path / "m.onnx").weights["w"]

    np.testing.assert_array_equal(FLOATS, array)
    assert not array.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2000, dtype=np.int64).reshape(40, 50),
        np.arange(2000).astype(np.float16),
        np.arange(2001).astype(ml_dtypes.bfloat16),
        (np.arange(3001) % 15 - 8).astype(ml_dtypes.int4),
        (np.arange(9001) % 4).astype(ml_dtypes.uint2),
        np.zeros((0, 3), np.float32),
        np.array(2.5),
        np.array([["a", "é"], ["", "b"]], object),
    ],
    ids=["int64", "float16", "bfloat16", "int4", "uint2", "empty", "scalar", "strings"],
)
@pytest.mark.parametrize("is_external", [False, True], ids=["inside", "external"])
def test_every_kind_of_initializer(tmp_path, array, is_external):
    """An initializer of any type comes back as it was stored, from the model or from a side file."""
    tensor = numpy_helper.from_array(array, "w")
    if is_external and tensor.raw_data:
        (tmp_path / "w.bin").write_bytes(b"x" * 3 + tensor.raw_data)
        lies_in = external(offset=3, length=len(tensor.raw_data))
        lies_in.data_type = tensor.data_type
        lies_in.ClearField("dims")
        lies_in.dims.extend(tensor.dims)
        tensor = lies_in

    found = loaded(tmp_path, tensor)

    assert array.dtype == found.dtype
    np.testing.assert_array_equal(array, found)


CONSTANTS = {
    "value": (numpy_helper.from_array(FLOATS[:3]), FLOATS[:3]),
    "value_float": (1.5, np.array(1.5, np.float32)),
    "value_floats": ([1.5, 2.0], np.array([1.5, 2], np.float32)),
    "value_int": (3, np.array(3)),
    "value_ints": ([3, 4], np.array([3, 4])),
    "value_string": ("é", np.array("é", object)),
    "value_strings": (["a", ""], np.array(["a", ""], object)),
    "sparse_value": (
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array([5, 6], np.int32), "s"),
            numpy_helper.from_array(np.array([[0, 1], [1, 2]])),
            [2, 3],
        ),
        np.array([[0, 5, 0], [0, 0, 6]], np.int32),
    ),
}


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [(k, *v) for k, v in CONSTANTS.items()], ids=CONSTANTS
)
def test_every_kind_of_constant(kind, value, expected):
    """A Constant node is a weight, whatever attribute holds its value."""
    node = helper.make_node("Constant", [], ["c"], name="c", **{kind: value})
    outputs = [helper.make_empty_tensor_value_info("c")]
    graph = loader.load(helper.make_model(helper.make_graph([node], "g", [], outputs)))

    assert () == graph.nodes
    assert ("c",) == graph.constants
    assert expected.dtype == graph.weights["c"].dtype
    assert expected.tolist() == graph.weights["c"].tolist()


@pytest.mark.parametrize(
    ("indices", "expected"),
    [(np.array([1, 5]), [[0, 7, 0], [0, 0, 8]]), (np.array([[1, 0], [0, 2]]), [[0, 0, 8], [7, 0, 0]])],
    ids=["linear", "coordinates"],
)
def test_sparse_initializers(indices, expected):
    """A sparse initializer becomes a dense array, from linear and from coordinate indices."""
    values = numpy_helper.from_array(np.array([7, 8], np.int64), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices), [2, 3])

    assert expected == weights.sparse_to_array(sparse, weights.SideFiles(None)).tolist()


def test_sparse_indices_outside_are_refused():
    """Places outside the shape are an error that names the initializer."""
    values = numpy_helper.from_array(np.array([7], np.int64), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([6])), [2, 3])

    with pytest.raises(GraphError, match="sparse initializer 'w': index 6 is out of bounds"):
        weights.sparse_to_array(sparse, weights.SideFiles(None))


def test_external_data_inside_nodes(tmp_path):
    """Constants and subgraphs may keep their tensors in side files, too."""
    FLOATS.tofile(tmp_path / "w.bin")
    inner = external(offset=4, length=2400 - 4)
    inner.dims[0] = 599
    branch = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["b"])],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("b")],
        [inner],
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=external()),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
    ]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("c", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", [flag], outputs))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    graph = loader.load(tmp_path / "m.onnx")

    np.testing.assert_array_equal(FLOATS, graph.weights["c"])
    held = graph.nodes[0].proto.attribute[0].g.initializer[0]
    np.testing.assert_array_equal(FLOATS[1:], numpy_helper.to_array(held))


def test_forgotten_pages_are_read_again(tmp_path):
    """A mapped weight still has its values after its memory was released; other arrays are left alone."""
    large = np.arange(10_000, dtype=np.float32)
    array = loaded(tmp_path, numpy_helper.from_array(large, "w"))

    weights.forget_pages(array)
    weights.forget_pages(large)

    np.testing.assert_array_equal(np.arange(10_000), array)
    np.testing.assert_array_equal(np.arange(10_000), large)


DAMAGES = {
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


@pytest.mark.parametrize(("data", "message"), DAMAGES.values(), ids=DAMAGES)
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
