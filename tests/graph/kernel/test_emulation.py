"""The casts around an operator, run by onnxruntime next to numpy's roundings."""

from types import MappingProxyType

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from msdump import dtypes
from msdump.graph.kernel import FLOAT16, FLOAT32, Rounding
from msdump.graph.kernel.emulation import STATUS, rounded_operators

HALF = Rounding(FLOAT16, FLOAT16)
CUBE = Rounding(FLOAT16, FLOAT32)
SATURATING = Rounding(FLOAT16, FLOAT16, saturates=True, reports=True)
X = np.array([[0.1, -3.3, 40000], [1 / 3, 1e-8, 5000]], np.float32)
Y = np.array([[0.7, 2.2, 40000], [7.7, 1, 1]], np.float32)


def f16(array):
    """Round to float16 and widen."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def node(op_type, inputs="x y", outputs="z", **attributes):
    """Return a node."""
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def run(nodes, roundings, feeds, *, types=None, opset=20, outputs=("z",), kept=MappingProxyType({})):
    """Return the outputs of the emulated operators, and the status or None."""
    known = {name: dtypes.from_numpy(array.dtype) for name, array in feeds.items()}
    known |= dict.fromkeys((name for each in nodes for name in each.output), FLOAT32) | (types or {})
    protos, constants, has_status = rounded_operators(nodes, known, roundings, opset, kept)
    names = [*outputs, *[STATUS] * has_status]
    graph = helper.make_graph(
        protos,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in names],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, feeds)
    return results[: len(outputs)], bool(results[-1]) if has_status else None


def test_nothing_to_round():
    """An operator that keeps float32 stays as it is."""
    protos, constants, has_status = rounded_operators(
        [node("Add")], {"x": FLOAT32, "y": FLOAT32}, [Rounding()], 20
    )

    assert ([node("Add")], [], False) == (protos, constants, has_status)


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@pytest.mark.parametrize("opset", [7, 13, 20])
@pytest.mark.parametrize(("name", "function"), ARITHMETIC.items())
def test_forced_float16(name, function, opset):
    """float32's result of rounded inputs is rounded again."""
    (z,), status = run([node(name)], [HALF], {"x": X, "y": Y}, opset=opset)

    np.testing.assert_array_equal(f16(function(f16(X), f16(Y))), z)
    assert status is None


def test_inputs_that_are_rounded_already():
    """An input that was rounded before is not rounded again."""
    (z,), _ = run([node("Mul")], [CUBE], {"x": X, "y": Y}, kept={"y": False})

    np.testing.assert_array_equal(f16(X) * Y, z)


@pytest.mark.parametrize("beyond", [False, True])
def test_inputs_that_were_beyond_the_range_when_rounded(beyond):
    """An input that saturated when it was rounded before raises the status in every run."""
    small = {"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)}

    (z,), status = run([node("Mul")], [SATURATING], small, kept={"y": beyond})

    assert [1, 1] == z.tolist()
    assert status == beyond


def test_float16_of_the_model():
    """float16 tensors stay float16 outside, with float32 arithmetic inside, in every mode."""
    x, y = X.astype(np.float16), Y.astype(np.float16)

    for rounding in (Rounding(), CUBE, HALF):
        (z,), _ = run([node("Mul")], [rounding], {"x": x, "y": y}, types={"z": FLOAT16})

        with np.errstate(over="ignore"):
            expected = (x.astype(np.float32) * y.astype(np.float32)).astype(np.float16)
        assert expected.dtype == z.dtype
        np.testing.assert_array_equal(expected, z)


@pytest.mark.parametrize("name", ["Identity", "Transpose"])
def test_moves_keep_values(name):
    """Operators that only move elements keep them, of every type."""
    for dtype in (np.float16, np.float64, np.int64, np.bool_):
        x = X.astype(np.float32 if dtype != np.int64 else np.int64).clip(0, 1).astype(dtype)
        attributes = {"perm": [0, 1]} if name == "Transpose" else {}
        (z,), _ = run(
            [node(name, "x", **attributes)], [HALF], {"x": x}, types={"z": dtypes.from_numpy(x.dtype)}
        )

        assert x.dtype == z.dtype
        np.testing.assert_array_equal(x, z)


SUMS = {
    "within": (1000, 2000, False),
    "largest": (65472, 47, False),
    "beyond": (65472, 48, True),
    "below": (-65504, -65504, True),
    "nan": (np.nan, 1, True),
}


@pytest.mark.parametrize("opset", [9, 13, 20])
@pytest.mark.parametrize(("a", "b", "expected"), SUMS.values(), ids=SUMS)
def test_status(a, b, expected, opset):
    """The status is raised if an element left float16's range; the result stays inside."""
    feeds = {"x": np.array([1, a], np.float32), "y": np.array([1, b], np.float32)}
    rounding = Rounding(FLOAT32, FLOAT16, saturates=True, reports=True)

    (z,), status = run([node("Add")], [rounding], feeds, opset=opset)

    assert expected is status
    total = 0 if np.isnan(a) else float(f16(np.clip(np.float32(a) + np.float32(b), -65504, 65504)))
    assert [2, total] == z.tolist()


def test_saturated_inputs_raise_the_status():
    """An input that is clipped when it is read counts like an infinity."""
    feeds = {"x": np.array([1e9], np.float32), "y": np.array([0.5], np.float32)}

    (z,), status = run([node("Mul")], [SATURATING], feeds)

    assert ([32752.0], True) == (z.tolist(), status)


def test_chain():
    """A chain rounds after each of its operators and joins their statuses."""
    nodes = [node("Add", "x x", "s"), node("Mul", "s h", "z")]
    feeds = {"x": np.array([60000], np.float32), "h": np.array([0.5], np.float32)}

    (z,), status = run(nodes, [SATURATING] * 2, feeds)

    assert ([32752.0], True) == (z.tolist(), status)


def test_cast_of_the_model():
    """A Cast of the model to float16 saturates where the mode says so."""
    x = np.array([70000, 1], np.float32)
    cast = node("Cast", "x", to=onnx.TensorProto.FLOAT16)

    (z,), status = run([cast], [SATURATING], {"x": x}, types={"z": FLOAT16})
    (free,), _ = run([cast], [HALF], {"x": x}, types={"z": FLOAT16})

    assert ([65504.0, 1.0], True) == (z.tolist(), status)
    assert [np.inf, 1.0] == free.tolist()


def test_integers():
    """Integers are computed as they are."""
    x = np.array([2**20 + 1], np.int64)

    (z,), _ = run([node("Add", "x x")], [HALF], {"x": x}, types={"z": dtypes.from_name("int64")})

    assert [2**21 + 2] == z.tolist()
