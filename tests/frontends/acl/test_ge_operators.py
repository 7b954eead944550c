"""GE's operators called alone, each against numpy."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from msdump import acl
from msdump.graph.ge.model import OPERATORS
from tests.frontends.acl.single_calls import attributes, call_several

NCHW, NHWC = 0, 1
RNG = np.random.default_rng(0)


def real(*shape):
    """Return numbers that float16 holds exactly, so that cube operators lose nothing in reading them."""
    return (RNG.integers(-64, 65, shape) / 16).astype(np.float32)


def whole(*numbers, dtype=np.int32):
    """Return integers."""
    return np.array(numbers, dtype)


A, B, POSITIVE = real(2, 3), real(2, 3) + np.float32(0.03125), np.abs(real(2, 3)) + np.float32(0.5)
CUBE, OTHER = real(2, 3, 4), real(2, 4, 3)
IMAGE, KERNEL = real(1, 4, 5, 6), real(8, 4, 3, 2)
INTS, DIVISORS = whole(-7, 7, -6, 5), whole(2, -2, 3, -3)
VECTOR, PARTED, SQUARE = real(3), real(2, 3, 2), real(2, 2)
SCALE = np.abs(real(4)) + np.float32(1)


def erf(x):
    """Return the error function."""
    return np.vectorize(math.erf)(x).astype(np.float32)


def sigmoid(x):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def softmax(x, axes):
    """Return the exponentials' parts of their sums."""
    grown = np.exp(x - x.max(axes, keepdims=True))
    return grown / grown.sum(axes, keepdims=True)


def reference(op_type, *inputs, pads=(), **attrs):
    """Return the result of ONNX's reference implementation; pads are begin and end of each place in turn."""
    node = onnx.helper.make_node(op_type, ["x", "w"][: len(inputs)], ["y"], **attrs)
    if pads:
        node.attribute.append(onnx.helper.make_attribute("pads", [*pads[::2], *pads[1::2]]))
    return ReferenceEvaluator(node).run(None, dict(zip("xw", inputs, strict=False)))[0]


def normalised(x, axes, epsilon):
    """Return normalised values with mean and variance."""
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, variance


def by_channel(x):
    """Return an element for each channel beside images of NCHW."""
    return x.reshape(-1, 1, 1)


def standard(image, mean, variance, epsilon=1e-5):
    """Return images of NCHW less their means, over their deviations."""
    return (image - by_channel(mean)) / np.sqrt(by_channel(variance) + epsilon)


NORMAL, MEAN, VARIANCE = normalised(CUBE, (1, 2), 1e-7)
GAMMA, BETA = real(3, 4), real(3, 4)
LAST, LAST_MEAN, LAST_VARIANCE = normalised(CUBE, (2,), 1e-5)
DEPTHWISE = real(2, 4, 3, 2)

ELEMENTWISE = {
    "Muls": ([A], {"value": 2.5}, [A * 2.5]),
    "Muls of integers": ([INTS], {"value": 3.0}, [INTS * 3]),
    "Adds": ([A], {"value": -1.5}, [A - 1.5]),
    "Square": ([A], {}, [A * A]),
    "Rsqrt": ([POSITIVE], {}, [1 / np.sqrt(POSITIVE)]),
    "Inv": ([POSITIVE], {}, [1 / POSITIVE]),
    "Maximum": ([A, B], {}, [np.maximum(A, B)]),
    "Minimum": ([A, B], {}, [np.minimum(A, B)]),
    "RealDiv": ([A, POSITIVE], {}, [A / POSITIVE]),
    "FloorDiv": ([A, POSITIVE], {}, [np.floor(A / POSITIVE)]),
    "FloorDiv of integers": ([INTS, DIVISORS], {}, [INTS // DIVISORS]),
    "FloorMod": ([A, POSITIVE], {}, [A - np.floor(A / POSITIVE) * POSITIVE]),
    "FloorMod of integers": ([INTS, DIVISORS], {}, [INTS % DIVISORS]),
    "SquaredDifference": ([A, B], {}, [(A - B) ** 2]),
    "Axpy": ([A, B], {"alpha": 0.5}, [A + 0.5 * B]),
    "AddN": ([A, B, POSITIVE], {"N": 3}, [A + B + POSITIVE]),
    "Power": ([POSITIVE], {"power": 3.0, "scale": 2.0, "shift": 1.0}, [(2 * POSITIVE + 1) ** 3]),
    "Exp": ([A], {}, [np.exp(A)]),
    "Exp of a base": ([A], {"base": 2.0, "scale": 0.5}, [2 ** (A / 2)]),
    "Log": ([POSITIVE], {"base": 2.0, "shift": 1.0}, [np.log2(POSITIVE + 1)]),
    "Relu6": ([A * 4], {}, [np.clip(A * 4, 0, 6)]),
    "LeakyRelu": ([A], {"negative_slope": 0.5}, [np.where(A > 0, A, A / 2)]),
    "PRelu": ([PARTED, VECTOR], {}, [np.where(PARTED > 0, PARTED, PARTED * VECTOR.reshape(3, 1))]),
    "Gelu": ([A], {}, [A / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (A + 0.044715 * A**3)))]),
    "GeluV2": ([A], {"approximate": "none"}, [A / 2 * (1 + erf(A / np.sqrt(2)))]),
    "FastGelu": ([A], {}, [A * sigmoid(1.702 * A)]),
    "Swish": ([A], {"scale": 2.0}, [A * sigmoid(2 * A)]),
    "BiasAdd": ([IMAGE, SCALE], {"data_format": "NCHW"}, [IMAGE + SCALE.reshape(4, 1, 1)]),
    "BiasAdd of the last axis": ([A, VECTOR], {}, [A + VECTOR]),
    "ClipByValue": ([A, np.float32(-1).reshape(()), np.float32(1).reshape(())], {}, [A.clip(-1, 1)]),
    "Equal": ([A, A], {}, [np.ones((2, 3), bool)]),
    "NotEqual": ([A, np.abs(A)], {}, [np.abs(A) != A]),
    "GreaterEqual": ([A, B], {}, [A >= B]),
    "LessEqual": ([A, B], {}, [A <= B]),
    "LogicalNot": ([A > 0], {}, [A <= 0]),
    "Cast": ([A], {"dst_type": 3}, [A.astype(np.int32)]),
    "Cast to bool": ([INTS], {"dst_type": 12}, [INTS != 0]),
    "ZerosLike": ([A], {}, [np.zeros_like(A)]),
    "OnesLike": ([INTS], {}, [np.ones_like(INTS)]),
}

ARRAYS = {
    "ConcatD": ([A, B], {"concat_dim": 1, "N": 2}, [np.concatenate([A, B], 1)]),
    "Concat by an attribute": ([A, B], {"concat_dim": 1}, [np.concatenate([A, B], 1)]),
    "Concat": ([whole(0), A, B], {"N": 2}, [np.concatenate([A, B])]),
    "ConcatV2": ([A, B, whole(-1)], {"N": 2}, [np.concatenate([A, B], 1)]),
    "SplitD": ([CUBE], {"split_dim": 2, "num_split": 2}, np.split(CUBE, 2, 2)),
    "Split": ([whole(1), A], {"num_split": 3}, np.split(A, 3, 1)),
    "SplitVD": (
        [CUBE],
        {"size_splits": [1, 3], "split_dim": 2, "num_split": 2},
        [CUBE[..., :1], CUBE[..., 1:]],
    ),
    "SplitV": ([CUBE, whole(1, 2), whole(1)], {"num_split": 2}, [CUBE[:, :1], CUBE[:, 1:]]),
    "TransposeD": ([CUBE], {"perm": [2, 0, 1]}, [CUBE.transpose(2, 0, 1)]),
    "Transpose": ([CUBE, whole(1, 2, 0)], {}, [CUBE.transpose(1, 2, 0)]),
    "Transpose as in ONNX": ([CUBE], {"perm": [2, 0, 1]}, [CUBE.transpose(2, 0, 1)]),
    "PadD": ([A], {"paddings": [[1, 0], [0, 2]]}, [np.pad(A, ((1, 0), (0, 2)))]),
    "Pad": ([A, whole(1, 0, 0, 2, dtype=np.int64).reshape(2, 2)], {}, [np.pad(A, ((1, 0), (0, 2)))]),
    "TileD": ([A], {"multiples": [2, 1]}, [np.tile(A, (2, 1))]),
    "Tile": ([A, whole(1, 3)], {}, [np.tile(A, (1, 3))]),
    "ExpandDims": ([A, whole(1)], {}, [A[:, None]]),
    "Squeeze": ([A[:, None]], {"axis": [1]}, [A]),
    "Squeeze of every axis": ([A[:, None, :, None]], {}, [A]),
    "Unsqueeze": ([A], {"axes": [0, 3]}, [A[None, ..., None]]),
    "Reshape": ([A, whole(3, 2)], {}, [A.reshape(3, 2)]),
    "BroadcastToD": ([VECTOR], {"shape": [2, 3]}, [np.broadcast_to(VECTOR, (2, 3))]),
    "BroadcastTo": ([VECTOR, whole(4, 3)], {}, [np.broadcast_to(VECTOR, (4, 3))]),
    "GatherV2D": ([CUBE, whole(2, 0)], {"axis": 1}, [CUBE[:, [2, 0]]]),
    "GatherV2": ([CUBE, whole(3, 1), whole(2)], {}, [CUBE[..., [3, 1]]]),
    "Gather": ([CUBE, whole(1)], {}, [CUBE[[1]]]),
    "Gather as in ONNX": ([CUBE, whole(1)], {"axis": 2}, [CUBE[:, :, [1]]]),
    "GatherNd": ([CUBE, whole(0, 1, 1, 2).reshape(2, 2)], {}, [CUBE[[0, 1], [1, 2]]]),
    "Select": ([A > 0, A, B], {}, [np.where(A > 0, A, B)]),
    "SelectV2": ([A > 0, INTS[:3], -INTS[:3]], {}, [np.where(A > 0, INTS[:3], -INTS[:3])]),
    "TopK": (
        [A, whole(2)],
        {},
        [-np.sort(-A, 1)[:, :2], np.argsort(-A, 1, kind="stable")[:, :2].astype(np.int32)],
    ),
    "TopKV2": (
        [A, whole(1)],
        {"dim": 0, "largest": False},
        [np.sort(A, 0)[:1], np.argsort(A, 0, kind="stable")[:1].astype(np.int32)],
    ),
    "SliceD": ([CUBE], {"offsets": [0, 1, 1], "size": [1, -1, 2]}, [CUBE[:1, 1:, 1:3]]),
    "Slice": ([CUBE, whole(1, 0, 2), whole(1, 2, 2)], {}, [CUBE[1:, :2, 2:]]),
    "Pack": ([A, B], {"axis": 1, "N": 2}, [np.stack([A, B], 1)]),
    "Unpack": ([A], {"num": 2, "axis": 0}, [A[0], A[1]]),
    "ReverseV2D": ([CUBE], {"axis": [1, 2]}, [CUBE[:, ::-1, ::-1]]),
    "ReverseV2": ([CUBE, whole(0)], {}, [CUBE[::-1]]),
}

REDUCTIONS = {
    "ReduceSumD": ([CUBE], {"axes": [0, 2], "keep_dims": True}, [CUBE.sum((0, 2), keepdims=True)]),
    "ReduceMeanD": ([CUBE], {"axes": [1], "keep_dims": False}, [CUBE.mean(1)]),
    "ReduceMaxD": ([CUBE], {"axes": [-1]}, [CUBE.max(-1)]),
    "ReduceMinD": ([CUBE], {"axes": [0]}, [CUBE.min(0)]),
    "ReduceProdD": ([CUBE], {"axes": [0]}, [CUBE.prod(0)]),
    "ReduceSum": ([CUBE, whole(0, 1)], {}, [CUBE.sum((0, 1))]),
    "ReduceMean by an attribute": ([CUBE], {"axes": [1], "keep_dims": False}, [CUBE.mean(1)]),
    "Softmax": ([CUBE], {"axes": [1]}, [softmax(CUBE, (1,))]),
    "Softmax as in ONNX": ([CUBE], {"axis": 0}, [softmax(CUBE, (0,))]),
    "LogSoftmax": ([CUBE], {}, [np.log(softmax(CUBE, (2,)))]),
    "ReduceSum as in ONNX": ([A, whole(1, dtype=np.int64)], {"keepdims": 1}, [A.sum(1, keepdims=True)]),
    "ReduceAllD": ([A > -2], {"axes": [1]}, [(A > -2).all(1)]),
    "ReduceAny": ([A > 2, whole(0)], {"keep_dims": True}, [(A > 2).any(0, keepdims=True)]),
    "ArgMaxD": ([A], {"dimension": 1, "dtype": 3}, [A.argmax(1).astype(np.int32)]),
    "ArgMinD": ([A], {"dimension": 0}, [A.argmin(0).astype(np.int64)]),
    "ArgMaxV2": ([A, whole(1)], {}, [A.argmax(1).astype(np.int64)]),
    "CumsumD": ([A], {"axis": 1, "reverse": True}, [A[:, ::-1].cumsum(1)[:, ::-1]]),
    "Cumsum": ([A, whole(0)], {}, [A.cumsum(0)]),
    "SoftmaxV2": ([CUBE], {"axes": [1, 2]}, [softmax(CUBE, (1, 2))]),
    "SoftmaxV2 of the last axis": ([CUBE], {}, [softmax(CUBE, (2,))]),
    "LogSoftmaxV2": ([CUBE], {"axes": [0, 1]}, [np.log(softmax(CUBE, (0, 1)))]),
    "LayerNorm": (
        [CUBE, GAMMA, BETA],
        {"begin_norm_axis": 1, "begin_params_axis": 1},
        [NORMAL * GAMMA + BETA, MEAN, VARIANCE],
    ),
    "LayerNormV3": (
        [CUBE, GAMMA[0], BETA[0]],
        {"begin_norm_axis": -1, "begin_params_axis": -1},
        [LAST * GAMMA[0] + BETA[0], LAST_MEAN, 1 / np.sqrt(LAST_VARIANCE + 1e-5)],
    ),
    "LayerNorm of one output": ([CUBE, GAMMA, BETA], {"begin_norm_axis": 1}, [NORMAL * GAMMA + BETA]),
    "RmsNorm": ([A, VECTOR], {}, [A / np.sqrt((A * A).mean(1, keepdims=True) + 1e-6) * VECTOR]),
    "BNInfer": (
        [IMAGE, SCALE, SCALE[::-1], SCALE * 2, SCALE * 3],
        {"epsilon": 1e-3},
        [
            (IMAGE - (SCALE * 2).reshape(4, 1, 1))
            / np.sqrt((SCALE * 3).reshape(4, 1, 1) + 1e-3)
            * SCALE.reshape(4, 1, 1)
            + SCALE[::-1].reshape(4, 1, 1)
        ],
    ),
}

WINDOW = {"ksize": [1, 1, 3, 2], "strides": [1, 1, 2, 2]}
LAST_WINDOW = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "data_format": "NHWC"}
CONV = {"strides": [1, 1, 2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1, 1, 2]}
CONVOLVED = reference("Conv", IMAGE, KERNEL, strides=(2, 1), pads=(1, 0, 1, 1), dilations=(1, 2))
POOL = {"kernel_shape": (3, 2), "strides": (2, 2)}

NETWORKS = {
    "MatMulV2": ([A, B], {"transpose_x1": False, "transpose_x2": True}, [A @ B.T]),
    "MatMulV2 of the first": ([A, B], {"transpose_x1": True, "transpose_x2": False}, [A.T @ B]),
    "MatMulV2 with a bias": ([A, B, VECTOR], {"transpose_x1": True}, [A.T @ B + VECTOR]),
    "MatMul": ([A.T.copy(), B.T.copy()], {"transpose_x2": True}, [A.T @ B]),
    "BatchMatMulV2": ([CUBE, CUBE], {"adj_x1": False, "adj_x2": True}, [CUBE @ CUBE.transpose(0, 2, 1)]),
    "BatchMatMul": ([CUBE, CUBE], {"adj_x1": True}, [CUBE.transpose(0, 2, 1) @ CUBE]),
    "BatchMatMul plain": ([CUBE, OTHER], {}, [CUBE @ OTHER]),
    "GEMM": (
        [A, B, SQUARE, np.float32([0.5]), np.float32([2])],
        {"transpose_b": True},
        [0.5 * (A @ B.T) + 2 * SQUARE],
    ),
    "Conv2D": ([IMAGE, KERNEL], CONV | {"data_format": "NCHW"}, [CONVOLVED]),
    "Conv2D of groups": (
        [IMAGE, KERNEL[:, :2]],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "groups": 2},
        [reference("Conv", IMAGE, KERNEL[:, :2], group=2)],
    ),
    "Conv2D with a bias": (
        [IMAGE, KERNEL, np.arange(8, dtype=np.float32)],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0]},
        [reference("Conv", IMAGE, KERNEL) + np.arange(8, dtype=np.float32).reshape(8, 1, 1)],
    ),
    "Conv2D of NHWC": (
        [IMAGE.transpose(0, 2, 3, 1), KERNEL.transpose(2, 3, 1, 0)],
        {"strides": [1, 2, 1, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1, 2, 1], "data_format": "NHWC"},
        [CONVOLVED.transpose(0, 2, 3, 1)],
    ),
    "DepthwiseConv2D": (
        [IMAGE, DEPTHWISE],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0]},
        [reference("Conv", IMAGE, DEPTHWISE.transpose(1, 0, 2, 3).reshape(8, 1, 3, 2), group=4)],
    ),
    "MaxPool": ([IMAGE], WINDOW | {"padding": "VALID"}, [reference("MaxPool", IMAGE, **POOL)]),
    "MaxPool of NHWC": (
        [IMAGE.transpose(0, 2, 3, 1)],
        LAST_WINDOW,
        [reference("MaxPool", IMAGE, **POOL).transpose(0, 2, 3, 1)],
    ),
    "AvgPool": ([IMAGE], WINDOW | {"padding": "VALID"}, [reference("AveragePool", IMAGE, **POOL)]),
    "MaxPoolV3": (
        [IMAGE],
        WINDOW | {"pads": [1, 0, 0, 0]},
        [reference("MaxPool", IMAGE, **POOL, pads=(1, 0, 0, 0))],
    ),
    "AvgPoolV2": (
        [IMAGE],
        WINDOW | {"pads": [1, 0, 0, 0], "exclusive": False},
        [reference("AveragePool", IMAGE, **POOL, pads=(1, 0, 0, 0), count_include_pad=1)],
    ),
    "AvgPoolV2 of all": ([IMAGE], WINDOW | {"global_pooling": True}, [IMAGE.mean((2, 3), keepdims=True)]),
}
CASES = ELEMENTWISE | ARRAYS | REDUCTIONS | NETWORKS


def run(case, inputs, attrs, expected, formats=()):
    """Call an operator that a case begins with; return its codes and outputs."""
    outputs = [(item.dtype, item.shape) for item in expected]
    arrays = [np.ascontiguousarray(item) if item.ndim else item for item in inputs]
    return call_several(case.partition(" ")[0], arrays, outputs, attributes(**attrs), formats=formats)


@pytest.mark.parametrize("case", CASES)
def test_operators_of_ge_compute(started, case):
    """Every operator gives numpy's result, in the type that GE infers."""
    inputs, attrs, expected = CASES[case]
    expected = [np.asarray(item, np.float32) if item.dtype == np.float64 else item for item in expected]

    ret, failure, results = run(case, inputs, attrs, expected)

    assert (0, 0) == (ret, failure), acl.get_recent_err_msg()
    for wanted, result in zip(expected, results, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=2e-3)


def test_every_operator_has_a_case_or_is_ones_of_its_name():
    """The table's operators are tried here, but for ONNX's own and twins of others."""
    twins = {"FastGeluV2", "ConcatV2D", "MatMulV3", "BatchMatMulV3", "ReLU6", "ArgMax", "ArgMin", "ArgMinV2"}
    twins |= {"ReduceAll", "ReduceAnyD", "ReduceMax", "ReduceMin", "ReduceProd", "Div", "Pow", "Add", "Sub"}
    twins |= {"Mul", "Greater", "Less", "LogicalAnd", "LogicalOr", "IsNan", "Rint"}

    plain = {name for name, operator in OPERATORS.items() if not operator.attributes and not operator.kind}
    tried = {case.partition(" ")[0] for case in CASES}
    assert set() == OPERATORS.keys() - tried - twins - plain


HALVES = {"Muls": [A], "MatMulV2": [A, B], "SoftmaxV2": [A], "FastGelu": [A], "GatherV2D": [A, whole(1, 0)]}
HALF_ATTRIBUTES = {"Muls": {"value": 2.0}, "MatMulV2": {"transpose_x2": True}, "GatherV2D": {"axis": 0}}
HALF_ATTRIBUTES |= {"SoftmaxV2": {"axes": [0, 1]}, "FastGelu": {}}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("op_type", HALVES)
def test_types_follow_the_first_input(started, op_type, dtype):
    """Operators of float16, bfloat16 and float64 tensors give the same type."""
    inputs = [item.astype(dtype) if item.dtype.kind == "f" else item for item in HALVES[op_type]]
    attrs = HALF_ATTRIBUTES[op_type]
    a, b = (item.astype(dtype).astype(np.float64) for item in (A, B))
    expected = {
        "Muls": a * 2,
        "MatMulV2": a @ b.T,
        "SoftmaxV2": softmax(a, (0, 1)),
        "FastGelu": a * sigmoid(1.702 * a),
        "GatherV2D": a[[1, 0]],
    }[op_type]

    ret, failure, (result,) = run(op_type, inputs, attrs, [expected.astype(dtype)])

    assert (0, 0) == (ret, failure), acl.get_recent_err_msg()
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=1e-2, atol=1e-2)


WRONG = {
    "rank": ("Conv2D", [CUBE, KERNEL], CONV, "input 0 of shape (2, 3, 4): must have 4 dimensions"),
    "layout": (
        "Conv2D",
        [IMAGE, KERNEL],
        CONV | {"data_format": "NDHWC"},
        "'data_format' = 'NDHWC': must be NCHW or NHWC",
    ),
}


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_told(started, op_type, inputs, attrs, message):
    """Impossible sizes, ranks and layouts are refused with the possible ones."""
    ret, _, _ = run(op_type, inputs, attrs, [IMAGE])

    assert 0 != ret
    assert message in acl.get_recent_err_msg()


LAYOUTS = {
    "BNInfer": (
        [SCALE, SCALE[::-1], SCALE * 2, SCALE * 3],
        {"epsilon": 1e-5},
        standard(IMAGE, SCALE * 2, SCALE * 3) * by_channel(SCALE) + by_channel(SCALE[::-1]),
    ),
    "Conv2D": (
        [KERNEL.transpose(2, 3, 1, 0)],
        {"strides": [1, 2, 1, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1, 2, 1]},
        CONVOLVED,
    ),
}


@pytest.mark.parametrize("op_type", LAYOUTS)
def test_layout_of_images_is_that_of_their_description(started, op_type):
    """Without data_format the description of the image says where its channels are."""
    others, attrs, expected = LAYOUTS[op_type]
    expected = expected.transpose(0, 2, 3, 1)

    ret, failure, (result,) = run(op_type, [IMAGE.transpose(0, 2, 3, 1), *others], attrs, [expected], [NHWC])

    assert (0, 0) == (ret, failure)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("MatMulV2", [A, B], {"transpose_x2": True}),
        ("Muls", [A], {"value": 2.0}),
        ("GatherV2", [CUBE, whole(1), whole(2)], {}),
    ],
)
def test_dump_has_the_operators_own_inputs(script, op_type, inputs, attrs):
    """A dump holds the caller's tensors, under GE's name, and no tensors that attributes became."""
    script.begin({"dump_op_switch": "on", "dump_mode": "all", "dump_level": "op"})
    expected = {"MatMulV2": A @ B.T, "Muls": A * 2, "GatherV2": CUBE[..., [1]]}[op_type]

    assert (0, 0) == run(op_type, inputs, attrs, [expected])[:2]

    header, tensors = script.read(f"{op_type}.{op_type}.*")
    assert op_type == header.op_name
    assert {("output", 0), *(("input", slot) for slot in range(len(inputs)))} == tensors.keys()
    for slot, item in enumerate(inputs):
        assert item.shape == tensors["input", slot].shape or op_type == "MatMulV2"


def test_axis_that_changes_between_calls(started):
    """An axis that is an input is read in every call."""
    for axis in (0, 1, 2):
        expected = np.take(CUBE, [1, 0], axis)
        ret, failure, (result,) = run("GatherV2", [CUBE, whole(1, 0), whole(axis)], {}, [expected])
        assert (0, 0) == (ret, failure)
        assert np.array_equal(expected, result)
