"""Operators that overflow (op_debug_mode 3) and operators that fail (op_debug_mode 4)."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

from msdump.look.overflow import analyse, find
from tests.dump import nets, o2, trees
from tests.texts import parsed
from tests.world import O0

ENABLE = pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
SATURATION = "SATURATION_MODE"
BOTH = pytest.mark.parametrize("mode", [None, SATURATION], ids=["INFNAN", "SATURATION"])
MODES = {"default": (None, np.inf), "INFNAN": ("INFNAN_MODE", np.inf), "SATURATION": (SATURATION, 65504.0)}


def overflow(door, mode):
    """Set the overflow mode by its variable."""
    if mode is not None:
        door.monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", mode)


def watched(door, model, feeds, **changes):
    """Dump overflowing operators, by default with all operators in float16; return the network."""
    changes = {"precision_mode": "force_fp16"} | changes
    return door.dump(model, feeds, context=O0, op_debug_mode=3, **changes)


def told(caplog):
    """Return the lines that name overflowing operators."""
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("overflow: ")]


def sum_and_product():
    """Return a sum that may overflow beside a product that does not."""
    return parsed(
        """graph (float[2] x, float[2] x2) => (a, b, c) {
            ["mul/Mul"] b = Mul(x, one)
            ["add/Add"] a = Add(x, x2)
            ["sub/Sub"] c = Sub(x, one)
        }""",
        one=one(),
    )


def one():
    """Return the number that changes nothing."""
    return np.array(1, np.float32)


LARGE = np.array([60000, 2], np.float32)


EDGES = {"largest": (65504, False), "rounds down": (65519, False), "rounds up": (65520, True)}


@BOTH
@pytest.mark.parametrize(("value", "expected"), EDGES.values(), ids=EDGES)
def test_edge_of_the_range(door, mode, value, expected):
    """A float32 sum overflows float16 from 65520 on; smaller values round to 65504."""
    overflow(door, mode)
    x = np.array([value - 65472], np.float32)
    model = parsed("graph (float[1] x) => (y) { y = Add(x, big) }", big=np.array([65472], np.float32))

    watched(door, model, {"x": x})

    assert expected == bool(trees.tensors(door.rank))


@BOTH
def test_nan(door, caplog, mode):
    """0 / 0 is NaN, and 0 where results saturate; both are seen."""
    overflow(door, mode)
    model = parsed("graph (float[1] x, float[1] y) => (z) { z = Div(x, y) }")
    zero = np.zeros(1, np.float32)

    network = watched(door, model, {"x": zero, "y": zero})

    value = network.run({"x": zero, "y": zero})["z"][0]
    assert np.isnan(value) if mode is None else value == 0
    assert len(told(caplog)) == 2
    assert ("nan (1)" if mode is None else "saturated") in told(caplog)[0]


def five():
    """Return five operators that all overflow."""
    nodes = [nets.node("Mul" if n % 2 else "Add", "x x", f"y{n}", f"n{n}/Op") for n in range(5)]
    return nets.model(nodes, [nets.value("x", [1])], [f"y{n}" for n in range(5)])


def test_overflow_number_over_networks(door):
    """Two networks of a process share the number."""
    door.configure(op_debug_mode=3, overflow_number=6, precision_mode="force_fp16")
    for _ in range(2):
        door.load(five(), **O0).run({"x": LARGE[:1]})

    per_graph = [len(trees.tensors(door.rank / "Net" / graph)) for graph in "01"]
    assert per_graph == [15, 3]


def test_bad_inputs_are_told(door, caplog):
    """The line distinguishes an operator that makes an overflow from one that only passes it on."""
    model = parsed('graph (float[2] x) => (b) { ["first/Add"] a = Add(x, x) ["second/Neg"] b = Neg(a) }')

    watched(door, model, {"x": LARGE})

    assert told(caplog) == [
        "overflow: Default/first/Add-op0 in step 0: output.0 inf (1); its inputs were finite",
        (
            "overflow: Default/second/Neg-op0 in step 0: output.0 -inf (1); its input.0 already held "
            "NaN or infinity"
        ),
    ]


CAUSES = {
    "float64": (
        [nets.node("Cast", "d", "y", "op/Op", to=nets.FLOAT)],
        [nets.value("d", [1], onnx.TensorProto.DOUBLE)],
        {"d": np.array([np.inf])},
        "op/Cast-op0 in step 0: output.0 inf (1); its input.0 already held NaN or infinity",
    ),
    "beyond float32": (
        [nets.node("Cast", "d", "y", "op/Op", to=nets.FLOAT)],
        [nets.value("d", [1], onnx.TensorProto.DOUBLE)],
        {"d": np.array([1e300])},
        "op/Cast-op0 in step 0: output.0 inf (1); its inputs were finite",
    ),
    "sequence": (
        [nets.node("ConcatFromSequence", "s", "y", "op/Op", axis=0)],
        [onnx.helper.make_tensor_sequence_value_info("s", nets.FLOAT, None)],
        {"s": [np.array([1, np.inf], np.float32), np.ones(1, np.float32)]},
        (
            "op/ConcatFromSequence-op0 in step 0: output.0 inf (1);"
            " its input.0 is not a tensor and was not checked"
        ),
    ),
    "absent": (
        [nets.node("Clip", "x - m", "y", "op/Op")],
        [nets.value("x", [1]), nets.value("m", [])],
        {"x": np.ones(1, np.float32), "m": np.array(-np.inf, np.float32)},
        "op/ClipByValue-op0 in step 0: output.0 -inf (1); its input.2 already held NaN or infinity",
    ),
    "none": (
        [helper.make_node("RandomNormal", [], ["y"], name="op/Op", shape=[1], mean=np.inf)],
        [nets.value("x", [1])],
        {"x": np.ones(1, np.float32)},
        "op/StandardNormal-op0 in step 0: output.0 inf (1); it has no inputs",
    ),
}


@ENABLE
@pytest.mark.parametrize(("nodes", "inputs", "feeds", "expected"), CAUSES.values(), ids=CAUSES)
def test_causes(door, caplog, enable, nodes, inputs, feeds, expected):
    """The line on the inputs is true for all types, for sequences and without inputs."""
    model = nets.model(nodes, inputs, [nets.value("y", None)])

    watched(door, model, feeds, enable=enable, precision_mode=None)

    assert told(caplog) == [f"overflow: Default/{expected}"]


def conv_weights(value):
    """Return a convolution of one element with a weight that float16 may not hold."""
    node = nets.node("Conv", "x w", "y", "op/Op")
    w = np.full((1, 1, 1, 1), value, np.float32)
    return nets.model([node], [nets.value("x", [1, 1, 1, 1])], ["y"], {"w": w})


def product_weights(value, size=1):
    """Return a matrix product with a weight that float16 may not hold."""
    node = nets.node("MatMul", "x w", "y", "op/Op")
    w = np.zeros((1, size), np.float32)
    w[0, -1] = value
    return nets.model([node], [nets.value("x", [1, 1])], ["y"], {"w": w})


def old_product(value):
    """Return a product of opset 6: its kernel has its shapes and weights pinned."""
    node = nets.node("Mul", "x w", "y", "op/Op", broadcast=1, axis=1)
    w = np.array([value], np.float32)
    return nets.model([node], [nets.value("x", [1, 1])], [nets.value("y", [1, 1])], {"w": w}, opset=6)


KERNELS = {
    "convolution": (conv_weights, (1, 1, 1, 1), 1, "op/Conv2D-op0"),
    "matrix product": (product_weights, (1, 1), 1, "op/MatMul-op0"),
    "large weights": (lambda value: product_weights(value, 5000), (1, 1), 1, "op/MatMul-op0"),
    "pinned shapes": (old_product, (1, 1), 1, "op/Mul-op0"),
}


@ENABLE
@pytest.mark.parametrize("value", [65519, 65520, -70000, np.nan], ids=str)
@pytest.mark.parametrize(("make", "shape", "x", "name"), KERNELS.values(), ids=KERNELS)
def test_saturated_weights(door, caplog, enable, value, make, shape, x, name):
    """A weight that float16 cannot hold raises the status of every kind of kernel."""
    overflow(door, SATURATION)
    feeds = {"x": np.full(shape, x, np.float32)}

    network = watched(door, make(value), feeds, enable=enable)

    held = {65519: 65504, 65520: 65504, -70000: -65504}.get(value, 0)
    assert network.run(feeds)["y"].reshape(-1)[-1] == held
    assert len(trees.tensors(door.rank)) == (0 if value == 65519 else 6)
    expected = (
        f"overflow: Default/{name} in step 0: output.0 saturated; its input.1 already held NaN or infinity"
    )
    assert told(caplog)[:1] == ([] if value == 65519 else [expected])


REFERENCE = {"fits": (30000, []), "saturates": (60000, ["pool/LpPool-op0"])}


@ENABLE
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(("value", "expected"), REFERENCE.values(), ids=REFERENCE)
def test_saturation_in_the_reference(door, caplog, enable, kind, value, expected):
    """Where ONNX's reference computes an operator, its results saturate and raise the status as well."""
    overflow(door, SATURATION)
    node = nets.node("LpPool", "x", "y", "pool/Pool", kernel_shape=[1, 1, 1, 2], p=1)
    shape, number = [1, 1, 1, 1, 1, 2], onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = nets.model([node], [nets.value("x", shape, number)], [nets.value("y", None, number)])
    feeds = {"x": np.full(shape, value, kind)}

    network = watched(door, model, feeds, enable=enable)

    found = network.run(feeds)["y"]
    assert (kind, min(2 * value, 65504)) == (found.dtype, found.item())
    assert [f"Default/{name}" for name in expected] == [
        text.removeprefix("overflow: ").partition(" in step 0")[0] for text in told(caplog)[:1]
    ]
    assert len(told(caplog)) == 2 * len(expected)


@BOTH
def test_cube_operator_with_inputs_beyond_the_range(door, caplog, mode):
    """A matrix product that cannot read its float32 inputs as float16 overflows in both modes."""
    overflow(door, mode)
    model = parsed("graph (float[1,1] x, float[1,1] w) => (y) { y = MatMul(x, w) }")

    watched(
        door,
        model,
        {"x": np.array([[70000]], np.float32), "w": np.ones((1, 1), np.float32)},
        precision_mode=None,
    )

    assert len(trees.tensors(door.rank)) == 3
    assert told(caplog)[0].endswith("; its input.0 already held NaN or infinity")


def test_clean_in_bfloat16(door):
    """The matrix product that overflows in float16 is clean in bfloat16."""
    model = parsed("graph (float[1,1] x) => (y) { y = MatMul(x, w) }", w=one()[None, None])
    counts = {}
    for mode in ("allow_fp32_to_fp16", "allow_fp32_to_bf16"):
        door.again()
        door.configure(op_debug_mode=3, precision_mode=mode, net_name=mode)
        door.load(model, **O0).run({"x": np.array([[70000]], np.float32)})
        counts[mode] = len(trees.tensors(door.rank / mode))

    assert counts == {"allow_fp32_to_fp16": 3, "allow_fp32_to_bf16": 0}


@ENABLE
@pytest.mark.parametrize("saved_data", ["statistic", "full"])
def test_statistics_of_the_overflowing(door, enable, saved_data):
    """Statistics under op_debug_mode 3 have rows of overflowing operators only."""
    watched(
        door,
        sum_and_product(),
        {"x": LARGE, "x2": LARGE},
        enable=enable,
        saved_data=saved_data,
        statistic_category=["max", "min", "positive inf count"],
    )

    rows = (door.rank / "Net" / "0" / "0" / "statistic.csv").read_text().splitlines()[1:]
    assert [row.rpartition('"')[2] for row in rows] == [",60000,2,0", ",60000,2,0", ",inf,4,1"]
    assert len(trees.tensors(door.rank)) == (3 if saved_data == "full" else 0)


def test_args_of_the_overflowing(door):
    """Arguments are written for the overflowing operators only."""
    watched(door, sum_and_product(), {"x": LARGE, "x2": LARGE}, save_kernel_args=True)

    (path,) = (door.rank / "Net" / "0" / "0").glob("*.json")
    assert path.name == "Add.Default_add_Add-op0.json"
    assert isinstance(json.loads(path.read_text()), dict)


def doubling():
    """Return a loop that adds a float16 tensor to itself."""
    return parsed("""graph (float16[2] x, int64 n) => (float16[2] y) {
        y = Loop<body = body (int64 step, bool go, float16[2] v) => (bool on, float16[2] w) {
            on = Identity(go) w = Add(v, v) }>(n, , x) }""")


@pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)
def test_loop_over_float16(door, mode, expected):
    """An operator in a loop over a float16 tensor of the model saturates and is dumped as any other."""
    overflow(door, mode)
    feeds = {"x": np.array([30000, 1], np.float16), "n": np.array(2)}

    network = watched(door, doubling(), feeds, precision_mode=None)

    assert [expected, 4] == network.run(feeds)["y"].tolist()
    files = [np.load(path).tolist() for m, path in trees.tensors(door.rank) if m["type"] == "Add"]
    assert [[60000, 2], [60000, 2], [expected, 4]] == files[:3]


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_passes_of_a_loop_under_o2(door, tmp_path, file_format):
    """Each pass that overflows leaves a record and files, which the tool joins and numbers."""
    feeds = {"x": np.array([60000, 1], np.float16), "n": np.array(3)}

    o2.dump(door, doubling(), feeds, op_debug_mode=3, file_format=file_format)

    blocks = analyse(find(str(door.path)), str(tmp_path / "out")).blocks
    adds = [block for block in blocks if "[Add]" in block]
    sums = [block.splitlines()[-1].partition("[Min: ")[2].partition("]")[0] for block in adds]
    heads = [block.splitlines()[1] for block in adds]
    assert ["pass 0", "pass 1", "pass 2"] == [head.rpartition(", ")[2] for head in heads]
    assert ["2.0", "4.0", "8.0"] == sums
