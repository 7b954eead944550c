"""Primitives that move, pick, resize and pool elements: results against numpy or literal numbers."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from msdump import dtypes
from msdump.graph.graph import MINDSPORE_DOMAIN, ValueType
from msdump.graph.primitives import COMPUTED, OPERATORS, PLAIN, Call, function

_OPSET = 21
A = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def _type(array: np.ndarray) -> ValueType:
    return ValueType(dtypes.from_numpy(array.dtype), array.shape)


def results(
    primitive: str,
    operands: list[Any],
    expected: list[np.ndarray],
    attributes: dict[str, Any],
    computed: Any = (),
) -> list[np.ndarray]:
    """Run a primitive once: arrays are tensors, other operands constants, or computed if their slot is."""
    arrays = [None if each is None else np.asarray(each) for each in operands]
    names = ["" if array is None else f"x{slot}" for slot, array in enumerate(arrays)]
    values = [
        COMPUTED if isinstance(each, np.ndarray) or slot in computed else each
        for slot, each in enumerate(operands)
    ]
    types = [None if array is None else _type(array) for array in arrays]
    call = Call(primitive, names, values, types, [_type(each) for each in expected], attributes)
    outputs = [f"y{slot}" for slot in range(len(expected))]
    written = PLAIN[primitive](call) if primitive in PLAIN else None
    functions = []
    if written is not None:
        node = helper.make_node(written[0], names, outputs, **written[1])
    else:
        entry = OPERATORS[primitive]
        structure, computed_slots = call.keywords(entry)
        body = function(entry, len(names), structure, call.element(entry), _OPSET, computed_slots)
        functions = [body]
        outputs += [f"y{slot}" for slot in range(len(outputs), len(body.output))]
        node = helper.make_node(body.name, names, outputs, domain=MINDSPORE_DOMAIN, overload=body.overload)
        for name, value in structure.items():
            kind = onnx.AttributeProto.INTS if value == () else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    fed = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, _type(array).dtype.onnx, array.shape)
            for name, array in fed.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = helper.make_model(
        graph,
        ir_version=10,
        functions=functions,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(MINDSPORE_DOMAIN, 1)],
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, fed)[: len(expected)]


def _f(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


def _i(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


def _i32(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


MASK = np.array([[True, False, False, True]] * 3)
MASKS = (0, 0, 0, 0, 0)
WINDOW = {"kernel_size": (1, 1, 2, 2), "strides": (1, 1, 2, 2), "pad_mode": "VALID"}
CASES: list[tuple[str, list[Any], dict[str, Any], list[np.ndarray]]] = [
    ("ExpandDims", [A, -1], {}, [A[:, :, None]]),
    ("Squeeze", [A[None], (0,)], {}, [A]),
    ("Squeeze", [A[None]], {"axis": ()}, [A]),
    ("Flatten", [IMAGE], {}, [IMAGE.reshape(1, 16)]),
    ("BroadcastTo", [A, (2, -1, 4)], {}, [np.stack([A, A])]),
    ("Tile", [A, (2, 1, 1)], {}, [np.stack([A, A])]),
    ("ReverseV2", [A, (0,)], {}, [A[::-1]]),
    ("Stack", [A, A], {"axis": 1}, [np.stack([A, A], 1)]),
    ("Unstack", [A], {"axis": 0, "num": 3}, [A[0], A[1], A[2]]),
    ("SplitTensorView", [A, 3, 1], {}, [A[:, :3], A[:, 3:]]),
    ("TransposeExtView", [A, 0, 1], {}, [A.T]),
    ("Meshgrid", [_f(1, 2), _f(3, 4, 5), 0], {}, [*np.meshgrid(_f(1, 2), _f(3, 4, 5), indexing="ij")]),
    ("Meshgrid", [_f(1, 2), _f(3, 4, 5), 1], {}, [*np.meshgrid(_f(1, 2), _f(3, 4, 5))]),
    ("StridedSlice", [A, (0, 1), (3, 4), (1, 2), *MASKS], {}, [A[0:3, 1:4:2]]),
    ("StridedSlice", [A, (1,), (2,), (1,), 252, 252, 0, 0, 1], {}, [A[1]]),
    ("StridedSlice", [A, (0, -1), (0, 0), (1, 1), 1, 1, 0, 0, 2], {}, [A[:, -1]]),
    ("StridedSlice", [A, (0, 0, 1), (0, 0, 3), (1, 1, 1), 0, 0, 1, 2, 0], {}, [A[..., None, 1:3]]),
    ("StridedSlice", [A, (0, 3), (0, 0), (1, -1), 1, 3, 0, 0, 0], {}, [A[:, 3::-1]]),
    (
        "StridedSliceGrad",
        [_f(1, 2), (3, 2), (1,), (2,), (1,)],
        {"begin_mask": 252, "end_mask": 252, "shrink_axis_mask": 1},
        [_f([0, 0], [1, 2], [0, 0])],
    ),
    ("SpaceToBatchND", [IMAGE], {"block_shape": (2, 2), "paddings": ((0, 0), (0, 0))},
     [np.stack([IMAGE[0, :, a::2, b::2] for a in (0, 1) for b in (0, 1)])]),
    ("Pad", [A], {"paddings": ((1, 0), (0, 2))}, [np.pad(A, ((1, 0), (0, 2)))]),
    ("PadV3", [A, (1, 2), _f(7)[0]], {"mode": "constant"}, [np.pad(A, ((0, 0), (1, 2)), constant_values=7)]),
    ("PadV3", [A, (1, 2, 0, 1), None], {"mode": "reflect"}, [np.pad(A, ((0, 1), (1, 2)), mode="reflect")]),
    ("PadV3", [A, (1, 0, 2, 1), None], {"mode": "circular", "paddings_contiguous": False},
     [np.pad(A, ((0, 1), (1, 2)), mode="wrap")]),
    ("PadV3Grad", [np.ones((1, 5), np.float32), (1, 1)], {"mode": "reflect"}, [_f([1, 3, 1])]),
    ("MirrorPad", [A, _i([1, 0], [0, 2])], {"mode": "REFLECT"},
     [np.pad(A, ((1, 0), (0, 2)), mode="reflect")]),
    ("Tril", [A], {"diagonal": 1}, [np.tril(A, 1)]),
    ("Triu", [A, -1], {}, [np.triu(A, -1)]),
    ("Diag", [_f(1, 2)], {}, [_f([1, 0], [0, 2])]),
    ("Eye", [2, 3, 43], {}, [np.eye(2, 3, dtype=np.float32)]),
    ("Zeros", [(2, 3), 34], {}, [np.zeros((2, 3), np.int32)]),
    ("FillV2", [_i(2, 3), _f(4)[0]], {}, [np.full((2, 3), 4, np.float32)]),
    ("LinSpace", [_f(1)[0], _f(3)[0], 5], {}, [_f(1, 1.5, 2, 2.5, 3)]),
    ("Range", [_i(1)[0], _i(7)[0], _i(2)[0], 100], {}, [_i(1, 3, 5)]),
    ("TensorShape", [A], {}, [_i(3, 4)]),
    ("RealMakeTuple", [_i(2)[0], 3], {}, [_i(2, 3)]),
    ("RealTupleGetItem", [_i(5, 6), 1], {}, [_i(6)[0]]),
    ("AssignSub", [A, A[:1]], {}, [A - A[:1]]),
    ("GatherD", [A, 1, _i([3], [0], [1])], {}, [_f([3], [4], [9])]),
    ("GatherNd", [A, _i32([2, 1], [0, 3])], {}, [_f(9, 3)]),
    ("MaskedFill", [A, MASK, _f(5)[0]], {}, [np.where(MASK, 5, A).astype(np.float32)]),
    ("MaskedSelect", [A, MASK[0]], {}, [A[MASK]]),
    ("NonZero", [_i([0, 4], [3, 0])], {}, [_i([0, 1], [1, 0])]),
    ("OneHot", [_i32(1, -1, 2), 3, _f(1)[0], _f(0)[0], 0], {}, [_f([0, 0, 0], [1, 0, 0], [0, 0, 1])]),
    ("Scatter", [A[:1], 1, _i([0, 0]), _f([10, 20]), 1], {}, [_f([30, 1, 2, 3])]),
    ("TensorScatterElements", [A[:1], _i([3]), _f([9]), 1, 0], {}, [_f([0, 1, 2, 9])]),
    ("TensorScatterUpdate", [A[:2], _i32([1]), _f([9, 9, 9, 9])], {}, [_f([0, 1, 2, 3], [9, 9, 9, 9])]),
    ("TensorScatterAdd", [A[:1], _i([0, 1], [0, 1]), _f(1, 2)], {}, [_f([0, 4, 2, 3])]),
    ("ScatterNdUpdate", [A[0], _i([1]), _f(7)], {}, [_f(0, 7, 2, 3)]),
    ("ScatterNd", [_i32([1], [1], [3]), _f(1, 2, 4), (4,)], {}, [_f(0, 3, 0, 4)]),
    ("UnsortedSegmentSum", [A, _i32(1, 0, 1), 2], {}, [np.stack([A[1], A[0] + A[2]])]),
    ("SearchSorted", [_f(1, 3, 3, 5), _f(3, 6), None, 35, False], {}, [_i(1, 4)]),
    ("SearchSorted", [_f(1, 3, 3, 5), _f(3, 6), None, 34, True], {}, [_i32(3, 4)]),
    ("Sort", [_f([3, 1, 2])], {"axis": -1, "descending": False}, [_f([1, 2, 3]), _i32([1, 2, 0])]),
    ("TopK", [_f([3, 1, 2]), _i32(2)[0]], {"sorted": True}, [_f([3, 2]), _i32([0, 2])]),
    ("Unique", [_i32(5, 3, 5, 9)], {}, [_i32(5, 3, 9), _i32(0, 1, 0, 2)]),
    ("ReverseSequence", [A, _i(1, 2, 3)], {"seq_dim": 1, "batch_dim": 0},
     [_f([0, 1, 2, 3], [5, 4, 6, 7], [10, 9, 8, 11])]),
    ("NMSWithMask", [_f([0, 0, 2, 2, 0.5], [0, 0, 2, 1.9, 0.9], [5, 5, 6, 6, 0.7])], {"iou_threshold": 0.5},
     [_f([0, 0, 2, 1.9, 0.9], [5, 5, 6, 6, 0.7], [0, 0, 2, 2, 0.5]), _i32(1, 2, 0),
      np.array([True, True, False])]),
    ("AvgPool", [IMAGE, (2, 2), (2, 2), 2, 0], {}, [_f([[[2.5, 4.5], [10.5, 12.5]]])]),
    ("AvgPoolGrad", [IMAGE, _f([[[0]]]), _f([[[4, 8], [12, 16]]]), (2, 2), (2, 2), 2, 0], {},
     [np.kron(_f([1, 2], [3, 4]), np.ones((2, 2), np.float32))[None, None]]),
    ("MaxPoolWithArgmaxV2", [IMAGE], {**WINDOW, "pads": (1, 1, 0, 0), "dilation": (1, 1, 1, 1)},
     [_f([[[5, 7], [13, 15]]]), _i([[[5, 7], [13, 15]]])]),
    ("MaxPoolGradWithArgmaxV2", [IMAGE[..., :2, :2], _f([[[7]]]), _i([[[3]]])], {}, [_f([[[0, 0], [0, 7]]])]),
    ("MaxPoolGrad", [IMAGE[..., :2, :2], _f([[[3]]]), _f([[[7]]])], WINDOW, [_f([[[0, 0], [0, 7]]])]),
    ("AdaptiveAvgPool2D", [IMAGE[..., :3]], {}, [_f([[[2.5, 3.5], [10.5, 11.5]]])]),
    ("AdaptiveMaxPool2D", [IMAGE[..., :3], (2, 2)], {}, [_f([[[5, 6], [13, 14]]]), _i([[[4, 5], [10, 11]]])]),
    ("Conv2DBackpropInput", [_f([[[1]]]), _f([[[1, 2], [3, 4]]]), (1, 1, 3, 2)],
     {"stride": (2, 1), "pad_mode": "valid", "dilation": (1, 1, 1, 1), "group": 1},
     [_f([[[1, 2], [3, 4], [0, 0]]])]),
    ("Conv2DBackpropFilter", [_f([[[2]]]), IMAGE[..., :2, :2], (1, 1, 2, 2)],
     {"stride": (1, 1), "pad_mode": "valid", "dilation": (1, 1, 1, 1), "group": 1}, [IMAGE[..., :2, :2] * 2]),
    ("ResizeNearestNeighborV2", [IMAGE[..., :2, :2], (4, 2), False, False], {},
     [_f([[[0, 1], [0, 1], [4, 5], [4, 5]]])]),
    ("ResizeBilinearV2", [IMAGE[..., :2, :2], (2, 3), True, False], {}, [_f([[[0, 0.5, 1], [4, 4.5, 5]]])]),
    ("ResizeBilinearGrad", [_f([[[1, 1, 1]]]), _f([[[0, 0]]]), True, False], {}, [_f([[[1.5, 1.5]]])]),
    ("ResizeBicubic", [_f([[[4, 4, 4, 4]]]), (1, 8), False, True], {},
     [np.full((1, 1, 1, 8), 4, np.float32)]),
    ("GridSampler2D", [IMAGE, _f([[[-1, -1], [1, 0]]]), 1, 0, True], {}, [_f([[[0, 11]]])]),
    ("CropAndResize", [IMAGE.transpose(0, 2, 3, 1), _f([0, 0, 1, 1], [0, 0, 2, 0]), _i32(0, 0), (2, 1)],
     {"method": "bilinear", "extrapolation_value": 9.0}, [_f([[[1.5]], [[13.5]]], [[[0]], [[9]]])]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("primitive", "operands", "attributes", "expected"),
    CASES,
    ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)],
)
def test_result(
    primitive: str, operands: list[Any], attributes: dict[str, Any], expected: list[np.ndarray]
) -> None:
    """A primitive gives MindSpore's result, with its element type and shape."""
    found = results(primitive, operands, expected, attributes)
    for array, wanted in zip(found, expected, strict=True):
        assert array.dtype == wanted.dtype
        # sums of a few products of small numbers in float32
        np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-6)


COMPUTED_CASES: list[tuple[str, list[Any], np.ndarray]] = [
    ("Reshape", [A, (4, 3)], A.reshape(4, 3)),
    ("BroadcastTo", [A, (2, 3, 4)], np.stack([A, A])),
    ("ScatterNd", [_i([1]), _f(5), (3,)], _f(0, 5, 0)),
]


@pytest.mark.parametrize(
    ("primitive", "operands", "expected"), COMPUTED_CASES, ids=[c[0] for c in COMPUTED_CASES]
)
def test_argument_computed_in_a_run(primitive: str, operands: list[Any], expected: np.ndarray) -> None:
    """A body reads the input of an argument that a run computes."""
    found = results(primitive, operands, [expected], {}, computed=(len(operands) - 1,))
    np.testing.assert_array_equal(found[0], expected)


def test_begin_of_a_slice_computed_in_a_run() -> None:
    """A slice without masks takes begin and end from its inputs."""
    found = results("StridedSlice", [A, (1, 0), (3, 2), (1, 1), *MASKS], [A[1:3, :2]], {}, computed=(1, 2))
    np.testing.assert_array_equal(found[0], A[1:3, :2])


def _lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return outputs, last output and last memory of two hidden units, gates in the order i, f, g, o."""
    hidden, width = h.shape[-1], x.shape[-1]
    of_input, of_state, bias = np.split(w.reshape(-1), np.cumsum([4 * hidden * width, 4 * hidden * hidden]))
    outs = []
    h, c = h[0], c[0]
    for row in x:
        sums = row @ of_input.reshape(-1, width).T + h @ of_state.reshape(-1, hidden).T + bias
        i, f, g, o = np.split(sums, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-each)) for each in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outs.append(h)
    return np.stack(outs), h[None], c[None]


def test_lstm_and_its_gradient() -> None:
    """An LSTM gives numpy's outputs, and its gradient agrees with differences of them."""
    rng = np.random.default_rng(0)
    x, h, c = rng.normal(size=(3, 2, 3)), rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2, 2))
    w = rng.normal(size=(4 * 2 * (3 + 2 + 1), 1, 1)) / 2
    inputs = [x, h, c, w]
    attributes = {"hidden_size": 2, "input_size": 3, "has_bias": True, "num_layers": 1}
    single = [each.astype(np.float32) for each in inputs]
    outs = [each.astype(np.float32) for each in _lstm(*inputs)]
    found = results("LSTM", single, outs, attributes)
    for array, wanted in zip(found, outs, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)  # float32
    weights = [rng.normal(size=each.shape) for each in outs]
    changes = [each.astype(np.float32) for each in weights]
    space = np.zeros((1, 1), np.float32)
    gradients = results("LSTMGrad", [*single, *outs, *changes, space], single, attributes)

    def loss(*values: np.ndarray) -> float:
        return float(sum((out * weight).sum() for out, weight in zip(_lstm(*values), weights, strict=True)))

    for slot, gradient in enumerate(gradients):
        direction = rng.normal(size=inputs[slot].shape)
        ends = [
            loss(*(each + step * direction if place == slot else each for place, each in enumerate(inputs)))
            for step in (1e-4, -1e-4)
        ]
        # differences in float64, the gradient in float32
        np.testing.assert_allclose(
            (gradient * direction).sum(), (ends[0] - ends[1]) / 2e-4, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("primitive", "operands", "attributes", "message"),
    [
        ("MirrorPad", [A, _i([1, 0], [0, 2])], {"mode": "SYMMETRIC"}, "the mode SYMMETRIC"),
        ("LSTM", [A, A, A, A], {"num_layers": 2, "hidden_size": 1, "input_size": 1}, "the num_layers 2"),
        ("AvgPool3D", [IMAGE], {"divisor_override": 3}, "divisor_override"),
    ],
)
def test_refused(primitive: str, operands: list[Any], attributes: dict[str, Any], message: str) -> None:
    """Arguments that no operator of ONNX's computes are refused."""
    with pytest.raises(ValueError, match=message):
        results(primitive, operands, [A], attributes)
