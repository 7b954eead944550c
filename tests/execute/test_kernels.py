"""Operators of every awkward kind, next to the same network in one session."""

import logging
import resource
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, parser

import msdump
from msdump.errors import ExecutionError, UnsupportedOpError
from msdump.execute import WeightStore, cpu_runtime, kernels, values
from msdump.graph import compile_graph, loader
from msdump.graph.kernel import FLOAT16, Rounding
from msdump.session import Network
from tests.execute import whole
from tests.execute.whole import HEAD, model_of

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
W = np.random.default_rng(0).standard_normal((3, 400)).astype(np.float32)
ONE = np.array(1, np.float32)
YES, NO = np.array(True), np.array(False)


def map_model(node: onnx.NodeProto, kind: onnx.TypeProto) -> onnx.ModelProto:
    """Return a model that feeds a map to an operator of ai.onnx.ml, and a Relu behind it."""
    graph = helper.make_graph(
        [node, helper.make_node("Relu", node.output, ["z"])],
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def zip_map() -> onnx.ModelProto:
    """Return a classifier's end: a list of dicts."""
    model = model_of("""g (float[N,3] x) => (z) {
        y = Softmax(x)  z = ai.onnx.ml.ZipMap<classlabels_strings=["a","b","c"]>(y) }""")
    kind = helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, None))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(kind))
    return model


FLOATS_BY_TEXT = helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, None))
FLOATS_BY_NUMBER = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, None))

# Name: model and the inputs of each run.
CASES = {
    "input as output": (model_of("g (float[2,3] x) => (float[2,3] x) { y = Relu(x) }"), [{"x": X}]),
    "output twice": (
        model_of("g (float[2,3] x) => (float[2,3] y, float[2,3] y) { y = Relu(x) }"),
        [{"x": X}],
    ),
    "weight as output": (
        model_of("g (float[2,3] x) => (float[3,400] w, float[2,400] y) { y = MatMul(x, w) }", w=W),
        [{"x": X}, {"x": X}],
    ),
    "constant as output": (
        model_of("g (float[3] x) => (float[2] c) { c = Constant<value_floats=[1.0, 2.0]>() y = Relu(x) }"),
        [{"x": X[0]}],
    ),
    "overridden weight": (
        model_of("g (float[2,3] x, float[3,400] w) => (float[2,400] y) { y = MatMul(x, w) }", w=W),
        [{"x": X}, {"x": X, "w": W + 1}, {"x": X}],
    ),
    "weight first": (
        model_of("g (float[400,2] x) => (float[3,2] y) { y = MatMul(w, x) }", w=W),
        [{"x": W.T[:, :2]}],
    ),
    "repeated input": (model_of("g (float[2,3] x) => (float[2,3] y) { y = Mul(x, x) }"), [{"x": X}]),
    "unsorted": (
        model_of("g (float[2,3] x) => (float[2,3] y) { y = Add(a, b)  b = Relu(a)  a = Neg(x) }"),
        [{"x": X}],
    ),
    "absent input": (
        model_of("g (float[2,3] x) => (float[2,3] y) { y = Clip(x, , one) }", one=ONE),
        [{"x": X}],
    ),
    "unused output": (
        model_of(
            "g (float[1,2,3] x) => (float[1,1,2] h) { , h = GRU<hidden_size=2>(x, w, r) }",
            w=W[:, :6].T.reshape(1, 6, 3),
            r=W[:2, 6:12].T.reshape(1, 6, 2),
        ),
        [{"x": X[None]}],
    ),
    "training": (
        model_of(
            """g (float[2,3] x) => (float[2,3] y, bool[2,3] m) {
            yes = Constant<value=bool {1}>()  y, m = Dropout(x, none, yes) }""",
            none=np.array(0, np.float32),
        ),
        [{"x": X}],
    ),
    "empty": (
        model_of("g (float[N,3] x) => (float[N,400] y, float[N,3] z) { y = MatMul(x, w)  z = Relu(x) }", w=W),
        [{"x": X[:0]}, {"x": X}],
    ),
    "scalar": (model_of("g (float x) => (float y, float z) { y = Relu(x)  z = ReduceSum(y) }"), [{"x": ONE}]),
    "empty sequence": (
        model_of(
            "g (seq(int64[N]) x) => (int64 y, seq(int64[N]) z) { y = SequenceLength(x)  z = Identity(x) }"
        ),
        [{"x": [np.array([1]), np.array([2, 3])]}, {"x": []}],
    ),
    "absent optional into If": (
        model_of(
            """g (optional(float[2,3]) x) => (float[2,3] y) { h = OptionalHasElement(x)
            y = If(h) <then_branch = t () => (float[2,3] z) { z = OptionalGetElement(x) },
                       else_branch = e () => (float[2,3] z) { z = Identity(w) }> }""",
            w=X + 5,
        ),
        [{"x": X}, {"x": None}, {"x": X + 1}],
    ),
    "absent optional first": (
        model_of("""g (optional(seq(float[2,3])) x) => (bool h, optional(seq(float[2,3])) y) {
            h = OptionalHasElement(x)  y = Identity(x) }"""),
        [{"x": None}, {"x": [X]}, {"x": []}, {"x": None}],
    ),
    "optional as output": (
        model_of("""g (bool c, float[2,3] x) => (optional(float[2,3]) y) {
            y = If(c) <then_branch = t () => (optional(float[2,3]) z) { z = Optional(x) },
                       else_branch = e () => (optional(float[2,3]) z)
                { z = Optional<type=float[2,3]>() }> }"""),
        [{"x": X, "c": YES}, {"x": X, "c": NO}],
    ),
    "strings": (
        model_of("g (string[N] x) => (string[N] y) { y = StringConcat(x, w) }", w=np.array(["é"], object)),
        [{"x": np.array(["a", ""], object)}, {"x": np.array([], object)}, {"x": np.array(["ab"])}],
    ),
    "string constants": (
        model_of(
            """g () => (string[2] y, string z) {
            y = Constant<value_strings=["a", "b"]>()  z = Constant<value_string="c">() }"""
        ),
        [{}],
    ),
    "bfloat16": (
        model_of("g (bfloat16[3] x) => (bfloat16[3] y, float[3] z) { y = Identity(x)  z = Cast<to=1>(x) }"),
        [{"x": np.array([1, 2.5, -3], ml_dtypes.bfloat16)}],
    ),
    "int4": (
        model_of(
            "g (int4[3] x) => (int4[3] x, float[3] z) { z = DequantizeLinear(x, one) }",
            HEAD.replace("20", "21"),
            one=ONE,
        ),
        [{"x": np.array([-8, 0, 7], ml_dtypes.int4)}],
    ),
    "maps as output": (zip_map(), [{"x": X}, {"x": X[:1]}]),
    "map by text": (
        map_model(
            helper.make_node(
                "DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"]
            ),
            FLOATS_BY_TEXT,
        ),
        [{"x": {"a": 1.0, "b": -2.0}}, {"x": {"b": 3.0}}],
    ),
    "map by number": (
        map_model(helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml"), FLOATS_BY_NUMBER),
        [{"x": {1: 1.0, 2: -2.0}}],
    ),
}


@pytest.mark.parametrize(("model", "runs"), CASES.values(), ids=CASES)
def test_the_values_of_one_session(model, runs, caplog):
    """Operator by operator, each run of each kind of network gives the bits of one session."""
    network = Network(loader.load(model))

    for feeds in runs:
        expected = whole.run(model, feeds)
        found = network.run(feeds)
        assert whole.same(expected, [found[value.name] for value in model.graph.output])

    assert [] == caplog.records  # the reference was not needed


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_maps_on_ascend(caplog, level):
    """A map becomes the runtime's rank-2 tensor under emulated precision, without ONNX's reference."""
    model, (feeds, _) = CASES["map by text"]

    network = msdump.load(model, context={"device_target": "Ascend", "jit_level": level})

    found = network.run(feeds)["z"]
    assert ([[1.0, 0.0]], np.float32) == (found.tolist(), found.dtype)
    assert [] == caplog.records


OLD = {
    "Add": ("Add<broadcast=1, axis=1>(x, b)", lambda x, b: x + b[:, None]),
    "Mul": ("Mul<broadcast=1, axis=1>(x, b)", lambda x, b: x * b[:, None]),
    "Pow": ("Pow<broadcast=1>(x, c)", lambda x, b: x**2),  # noqa: ARG005 - one signature for all
    "Sub": ("Sub(x, x)", lambda x, b: x - x),  # noqa: ARG005 - the same
    "Less": ("Less<broadcast=1, axis=1>(x, b)", lambda x, b: x < b[:, None]),
    "Concat": ("Concat<axis=2>(x, x)", lambda x, b: np.concatenate([x, x], 2)),  # noqa: ARG005
    "Dropout": ("Dropout<is_test=1>(x)", lambda x, b: x),  # noqa: ARG005
    "BatchNormalization": (
        "BatchNormalization<is_test=1, epsilon=0.0>(x, b, b, b, b)",
        lambda x, b: (x - b[:, None]) / np.sqrt(b[:, None]) * b[:, None] + b[:, None],
    ),
}


@pytest.mark.parametrize(("operator", "expected"), OLD.values(), ids=OLD)
def test_operators_before_opset_7(operator, expected):
    """Operators of opset 6, of which onnxruntime has lost many kernels, run with their old attributes."""
    text = f"g (float[2,3,4] x) => (float[2,3,M] y) {{ y = {operator} }}"
    head = '<ir_version: 3, opset_import: ["" : 6]>'
    b, c = np.array([1, 2, 3], np.float32), np.array([2], np.float32)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    found = Network(loader.load(model_of(text, head, b=b, c=c))).run({"x": x})["y"]

    np.testing.assert_allclose(expected(x, b), found, rtol=1e-6)


def test_the_reference_helps_out(caplog):
    """Where onnxruntime has no kernel, ONNX's reference computes the operator and one warning says so."""
    network = Network(
        loader.load(model_of('g (int16[3] x) => (int16[3] y) { y = BitShift<direction="LEFT">(x, x) }'))
    )
    x = np.array([1, 2, 3], np.int16)

    results = [network(x) for _ in range(3)]

    assert [[2, 8, 24]] * 3 == [result.tolist() for result in results]
    (warning,) = caplog.records
    assert logging.WARNING == warning.levelno
    assert "Default/LeftShift-op0: onnxruntime cannot run BitShift (" in warning.getMessage()


def test_every_float16_operator_rounds():
    """A chain gives numpy's float16 after each operator; onnxruntime's session rounds once, at its end."""
    model = model_of("g (float16[5] x) => (float16[5] y) { a = Mul(x, x) b = Mul(a, x) y = Mul(b, x) }")
    x = np.array([1.1, 1.3, 1.7, 2.3, 3.1], np.float16)

    found = Network(loader.load(model))(x)

    assert (x * x * x * x).tolist() == found.tolist()
    (once,) = whole.run(model, {"x": x})
    assert (x.astype(np.float64) ** 4).astype(np.float16).tolist() == once.tolist() != found.tolist()


def test_half_types_are_computed_in_float32(caplog):
    """Where onnxruntime has no bfloat16 kernel, float32 on the same values gives the rounded result."""
    network = Network(loader.load(model_of("g (bfloat16[3] x) => (bfloat16[3] y) { y = Mul(x, x) }")))
    x = np.array([1.5, 3.140625, -1e30], ml_dtypes.bfloat16)

    result = network(x)

    wide = x.astype(np.float32)
    with np.errstate(over="ignore"):
        assert (wide * wide).astype(ml_dtypes.bfloat16).tolist() == result.tolist()
    assert [] == caplog.records


HALF_FUNCTIONS = """
<ir_version: 10, opset_import: ["": 20, "mindspore.ops": 1]>
g ({dtype}[4] x, {dtype}[3] dy, int64[3] at) => ({dtype}[4] y) {{ y = mindspore.ops.Scattered(x, dy, at) }}
<domain: "mindspore.ops", opset_import: ["": 20]>
Scattered (x, dy, at) => (y) {{
  zero = Sub(x, x)
  y = ScatterElements<axis=0, reduction="add">(zero, at, dy)
}}
"""


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_mindspores_operators_in_half_types_are_computed_in_float32(caplog, name, dtype):
    """A function runs although the runtime lacks a part in a half type, found early or late."""
    model = parser.parse_model(HALF_FUNCTIONS.format(dtype=name))
    network = Network(loader.load(model))
    dy = np.array([1.5, 2.25, 4], dtype)

    results = [network(np.ones(4, dtype), dy, np.array([1, 1, 3])) for _ in range(2)]

    assert [[0, 3.75, 0, 4]] * 2 == [result.astype(float).tolist() for result in results]
    assert [np.dtype(dtype)] * 2 == [result.dtype for result in results]
    assert [] == caplog.records


def test_complex_numbers():
    """Complex tensors, which onnxruntime lacks altogether, pass through and are computed with."""
    network = Network(
        loader.load(model_of("g (complex64[2] x) => (complex64[2] x, complex64[2] y) { y = Mul(x, x) }"))
    )

    found = network.run({"x": np.array([1j, 2], np.complex64)})

    assert [1j, 2] == found["x"].tolist()
    assert [-1, 4] == found["y"].tolist()


def test_a_kernel_that_refuses_a_run_is_replaced_for_it(caplog):
    """A kernel that lacks a case when it runs is rescued by the reference; other runs are its own."""
    text = "g (bool[N,M] x) => (bool[N] y) { y = ReduceMax<keepdims=0>(x, one) }"
    network = Network(loader.load(model_of(text, one=np.array([1]))))

    filled = [network(np.ones((2, 3), np.bool_)) for _ in range(2)]
    empty = [network(np.ones((2, 0), np.bool_)) for _ in range(2)]
    again = network(np.zeros((1, 3), np.bool_))

    assert [[True, True]] * 2 + [[False, False]] * 2 + [[False]] == [
        a.tolist() for a in (*filled, *empty, again)
    ]
    assert 1 == len(caplog.records)


@pytest.mark.parametrize("level", [None, "O0", "O2"])
@pytest.mark.parametrize("operator", ["Conv", "ConvInteger"])
@pytest.mark.parametrize(("mode", "sides"), [("SAME_UPPER", (1, 2)), ("SAME_LOWER", (2, 1))])
@pytest.mark.parametrize("step", [1, 3])
def test_dilated_convolutions_with_automatic_padding(caplog, level, operator, mode, sides, step):
    """The runtime's kernel computes them with the padding in numbers, fused operators too; no warning."""
    kind = "float" if operator == "Conv" else "uint8"
    model = model_of(
        f"""g ({kind}[1,1,N,7] x) => (z) {{
        y = {operator}<auto_pad="{mode}", dilations=[3, 3], strides=[{step}, {step}]>(x, w) z = Relu(y) }}""",
        w=np.ones((1, 1, 2, 2), np.float32 if operator == "Conv" else np.uint8),
    )
    context = {"device_target": "Ascend", "jit_level": level} if level else None
    x = np.arange(49, dtype=kind + "32" * (kind == "float")).reshape(1, 1, 7, 7)

    found = msdump.load(model, context=context)(x)

    # windows of 4 places at a stride of 1 and 3: 3 more rows and columns in all
    padded = np.pad(x[0, 0].astype(np.int64), (sides, sides))
    sums = padded[:-3, :-3] + padded[3:, :-3] + padded[:-3, 3:] + padded[3:, 3:]
    assert sums[::step, ::step].tolist() == found[0, 0].tolist()
    assert [] == caplog.records


FAILING = {
    "index": ("y = Gather(x, i)", {"i": np.array([9])}, "out of data bounds"),
    "shapes": ("y = Add(x, i)", {"i": np.ones((5, 7), np.float32)}, r"float32\[2, 3\], float32\[5, 7\]"),
    "reshape": ("y = Reshape(x, i)", {"i": np.array([5, 5])}, "input tensor cannot be reshaped"),
}


@pytest.mark.parametrize(("body", "initializers", "message"), FAILING.values(), ids=FAILING)
def test_what_the_reference_refuses_too_fails(body, initializers, message):
    """An operator that nothing can compute fails with its full name, the runtime's reason and its inputs."""
    network = Network(loader.load(model_of(f"g (float[2,3] x) => (y) {{ {body} }}", **initializers)))

    with pytest.raises(ExecutionError, match=message) as caught:
        network(X)

    assert network.graph.nodes[0].operator.full_name == caught.value.operator


def test_out_of_memory_is_not_tried_again():
    """A tensor that no memory holds is an error at once; the next one reserves about its own size."""
    network = Network(loader.load(model_of("g (int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }")))

    with pytest.raises(ExecutionError, match=r"Available memory|bad_alloc|bad allocation|Integer overflow"):
        network(np.array([2**45]))

    pages = Path("/proc/self/statm")
    before = int(pages.read_text().split()[0])
    network(np.array([2**26]))
    assert (int(pages.read_text().split()[0]) - before) * resource.getpagesize() < 2**30


UNSUPPORTED = {
    "operator": (
        "y = Nonsense(x)",
        r"node 'n': neither onnxruntime nor ONNX's reference can run ai.onnx.Nonsense \(opset 20\): ",
    ),
    "domain": (
        "y = somewhere.Relu(x)",
        r"node 'n': neither onnxruntime nor ONNX's reference can run somewhere.Relu \(opset 1\): ",
    ),
    "too new": (
        "y = LinearAttention(x, x, x)",
        r"node 'n': neither onnxruntime nor ONNX's reference can run ai.onnx.LinearAttention \(opset 20\): ",
    ),
}


@pytest.mark.parametrize(("body", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported_operators(tmp_path, body, message):
    """The error of an unknown operator names the file, its node, domain and opset."""
    head = HEAD.replace('"own"', '"somewhere"')
    model = model_of(f"g (float[2,3] x) => (float[2,3] y) {{ {body} }}", head)
    model.graph.node[0].name = "n"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())

    with pytest.raises(UnsupportedOpError, match=message) as caught:
        Network(loader.load(path))(X)

    assert str(caught.value).startswith(f"{path}: ")


BOUND = {
    "of the convolution": ("d = Conv(x, w) y = Relu(d)", (1, 2, 2, 2), {"w": (2, 2, 2, 2)}, ["x"]),
    "of the product": ("d = MatMul(x, w) y = Add(d, b)", (2, 2), {"w": (2, 2), "b": (2,)}, ["b", "x"]),
    "that two parts read": (
        "d = Conv(x, w, b) y = PRelu(d, b)",
        (1, 2, 2, 1),
        {"w": (1, 2, 1, 1), "b": (1,)},
        ["b", "x"],
    ),
}


@pytest.mark.parametrize(("code", "shape", "weights", "fed"), BOUND.values(), ids=BOUND)
def test_weights_of_fused_operators(code, shape, weights, fed):
    """Weights that one part alone reads are rounded once, as when it runs alone; others are fed."""
    arrays = {name: np.ones(size, np.float32) for name, size in weights.items()}
    text = f"g (float[{','.join(map(str, shape))}] x) => (y) {{ {code} }}"
    graph = compile_graph(loader.load(model_of(text, **arrays)))
    (node,) = graph.nodes
    halves = [Rounding(FLOAT16), *[Rounding()] * (len(node.parts) - 1)]

    factory = kernels.KernelFactory(graph, WeightStore(graph.weights), cpu_runtime(), lambda _: halves)
    kernel = factory.make(node, {"x": values.from_array(np.ones(shape, np.float32))})

    assert fed == sorted(name for _, name in kernel.feeds)
