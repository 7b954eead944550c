"""Contents of tensor files: element types, shapes, memory layouts; and tensors without a file."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import GRAPHS, O0

T = onnx.TensorProto

# Number of ONNX, type of the fed array, field of 2.7's CPU names, field of Ascend's, stored type.
TYPES = [
    (T.FLOAT, "f4", "Float32", "float32", "<f4"),
    (T.DOUBLE, "f8", "Float64", "float64", "<f8"),
    (T.FLOAT16, "f2", "Float16", "float16", "<f2"),
    (T.BFLOAT16, ml_dtypes.bfloat16, "BFloat16", "bfloat16", "<f4"),
    (T.INT8, "i1", "Int8", "int8", "|i1"),
    (T.INT16, "i2", "Int16", "int16", "<i2"),
    (T.INT32, "i4", "Int32", "int32", "<i4"),
    (T.INT64, "i8", "Int64", "int64", "<i8"),
    (T.UINT8, "u1", "UInt8", "uint8", "|u1"),
    (T.UINT16, "u2", "UInt16", "uint16", "<u2"),
    (T.UINT32, "u4", "UInt32", "uint32", "<u4"),
    (T.UINT64, "u8", "UInt64", "uint64", "<u8"),
    (T.BOOL, "?", "Bool", "bool", "|b1"),
    (T.INT4, ml_dtypes.int4, "Int4", "int4", "|i1"),
    (T.UINT4, ml_dtypes.uint4, "UInt4", "uint4", "|u1"),
    (T.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, "Float8E4M3FN", "float8_e4m3fn", "<f4"),
    (T.FLOAT8E5M2, ml_dtypes.float8_e5m2, "Float8E5M2", "float8_e5m2", "<f4"),
    (T.COMPLEX64, "c8", "Complex64", "complex64", "<c8"),
    (T.COMPLEX128, "c16", "Complex128", "complex128", "<c16"),
]
every_type = pytest.mark.parametrize(
    ("number", "fed", "title", "lower", "stored"), TYPES, ids=[row[3] for row in TYPES]
)


def identity(number, shape=("n",)):
    """Return a network of one operator that passes a tensor on."""
    nodes = [nets.node("Identity", "x", "y")]
    return nets.model(
        nodes, [nets.value("x", list(shape), number)], [nets.value("y", None, number)], opset=21
    )


@every_type
def test_element_types(door, number, fed, title, lower, stored):
    """Types that numpy lacks are stored in the next larger one; the name keeps the original."""
    array = np.array([0, 1, 1, 3]).astype(fed)

    door.dump(identity(number), {"x": array}, naming="2.7")
    door.load(identity(number), **O0).run({"x": array})

    for graph, expected in ((0, title), (1, lower)):
        files = trees.tensors(door.rank / "Net" / str(graph))
        assert {expected} == {match["dtype"] for match, _ in files}
        for _, path in files:
            found = np.load(path)
            assert (np.dtype(stored), [0, 1, array[2], array[3]]) == (found.dtype, found.tolist())


SHAPES = {"scalar": (), "one": (1,), "vector": (5,), "five dimensions": (1, 2, 1, 3, 2), "33 ones": (1,) * 33}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes(door, shape):
    """Files have the shape of the tensor."""
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)

    door.dump(identity(T.FLOAT, shape), {"x": array})

    assert all(trees.same_bits(array, np.load(path)) for _, path in trees.tensors(door.rank))
    assert len(trees.tensors(door.rank)) == 3


SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38]


def test_special_values(door):
    """NaN, infinities, negative zero and denormals are stored as they are."""
    array = np.array(SPECIAL, np.float32)

    door.dump(identity(T.FLOAT), {"x": array})

    assert all(array.tobytes() == path.read_bytes()[-array.nbytes :] for _, path in trees.tensors(door.rank))


LAYOUTS = {
    "transposed": lambda: np.arange(6, dtype=np.float32).reshape(3, 2).T,
    "Fortran order": lambda: np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "every second": lambda: np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
    "backwards": lambda: np.arange(6, dtype=np.float32).reshape(2, 3)[::-1],
    "repeated": lambda: np.broadcast_to(np.float32(7), (2, 3)),
    "big endian": lambda: np.arange(6, dtype=">f4").reshape(2, 3),
    "read only": lambda: np.frombuffer(bytes(24), np.float32).reshape(2, 3),
    "unaligned": lambda: np.frombuffer(b"x" + bytes(24), np.float32, offset=1).reshape(2, 3),
    "list": lambda: [[1, 2, 3], [4, 5, 6]],
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_memory_layouts(door, make):
    """However an input lies in memory, its values are computed with and stored in C order."""
    expected = np.array(make(), np.float32, order="C")
    door.configure()
    network = door.load(identity(T.FLOAT, (2, 3)))

    output = network(make())

    assert trees.same_bits(expected, output)
    assert all(trees.same_bits(expected, np.load(path)) for _, path in trees.tensors(door.rank))


def test_large_transposed_input(door):
    """A large input in another order is read while its copy is alive."""
    network = door.load(identity(T.FLOAT, ("n", "m")))

    wrong = [
        not np.array_equal(network(x), x) for x in (np.full((300, 200), n, np.float32).T for n in range(50))
    ]

    assert not any(wrong)


@pytest.mark.parametrize("has_operator", [True, False], ids=["beside an operator", "alone"])
def test_output_that_is_an_input(door, has_operator):
    """An output that is an input keeps its value when the caller's array is gone or changed."""
    x, y = nets.value("x", ["n"]), nets.value("y", ["n"])
    nodes = [nets.node("Relu", "x", "y")] if has_operator else []
    network = door.load(nets.model(nodes, [x], [x, y] if has_operator else [x]))
    given = np.full(60_000, 7, np.float32)

    output = network(given)
    given[:] = 0

    assert (output[0] if has_operator else output).min() == 7


def test_tensors_without_elements(door):
    """A tensor without elements has no file and is counted."""
    network = door.dump(nets.zero_size(), {"x": np.zeros((0, 3), np.float32)})

    assert trees.tensors(door.rank) == []
    assert network.summary.skipped == {"no elements": 8}  # three inputs, four outputs, the graph input
    assert not (door.rank / "Net").exists()
    assert (door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv").read_text() == "0\n"


def test_text(door, caplog):
    """Text tensors are skipped with one warning for each operator; the other tensors are there."""
    network = door.dump(GRAPHS / "strings.onnx", {"words": np.array(["a", "B", "c"], object)}, steps=2)

    assert trees.slots(door.rank) == ["Equal-op0 output 0"] * 2
    warned = [record.getMessage().partition(":")[0] for record in caplog.records]
    operators = [operator.full_name for operator in network.operators]
    assert [*operators, "suffix", "words"] == warned
    assert network.summary.skipped["text"] > len(warned)


def test_absent_values(door):
    """Absent optional inputs and unused outputs have no file; slots keep their numbers."""
    clip = nets.node("Clip", "x - high", "clipped")
    top = nets.node("TopK", "clipped one", "- where", axis=-1)
    initializers = {"high": np.float32(5), "one": np.array([1])}
    outputs = [nets.value("where", None, T.INT64)]

    door.dump(nets.model([clip, top], [nets.value("x", [3])], outputs, initializers), {"x": [9.0, 1.0, 2.0]})

    found = [slot for slot in trees.slots(door.rank) if "-op" in slot]
    first, second = found[0].split()[0], found[-1].split()[0]
    assert [
        *(f"{first} input 0", f"{first} input 2", f"{first} output 0"),
        *(f"{second} input 0", f"{second} input 1", f"{second} output 1"),
    ] == found


def test_sequences(door):
    """Of operators on sequences the tensors are dumped."""
    feeds = {name: np.ones((2, 3), np.float32) for name in ("a", "b")}

    door.dump(GRAPHS / "sequences.onnx", feeds)

    found = {slot for slot in trees.slots(door.rank) if "Sequence" in slot}
    assert {
        *("SequenceConstruct-op0 input 0", "SequenceConstruct-op0 input 1"),
        *("ConcatFromSequence-op0 output 0", "SequenceAt-op0 input 1", "SequenceAt-op0 output 0"),
    } == found


def test_packed_weight(door):
    """A weight of packed four-bit integers is stored one to a byte, as input and as parameter."""
    network = door.dump(GRAPHS / "int4.onnx", {"x": np.ones((2, 4), np.float32)}, naming="2.7")

    weight = network.graph.weights["packed"].astype(np.int8)
    files = [path for match, path in trees.tensors(door.rank) if match["dtype"] == "Int4"]
    assert len(files) == 2
    assert all(trees.same_bits(weight, np.load(path)) for path in files)


CONTEXTS = {"CPU": {}, **{level: {"device_target": "Ascend", "jit_level": level} for level in ("O0", "O2")}}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize(
    ("changes", "count"),
    [({}, 2), ({"input_output": 1}, 1), ({"dump_mode": 1, "kernels": ["ConcatFromSequence"]}, 1)],
    ids=["all", "inputs", "kernels"],
)
def test_values_that_are_no_tensors_are_counted(door, context, changes, count):
    """Sequences and maps get no file; the summary counts each, and the reader of one."""
    model = parsed("""graph (float[2,2] x) => (float[2,2] y) {
        parts = SplitToSequence(x)
        y = ConcatFromSequence<axis = 0>(parts)
    }""")

    network = door.dump(model, {"x": np.ones((2, 2), np.float32)}, context=context, **changes)

    assert {"sequences and maps": count} == network.summary.skipped
