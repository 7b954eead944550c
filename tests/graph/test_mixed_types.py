"""Operators with inputs of different types where ONNX has one type: onnxruntime refuses their models."""

import numpy as np
import onnxruntime
import pytest

from msdump.graph import loader, mixed_types
from tests.texts import parsed
from tests.world import GRAPHS

MODELS = sorted(GRAPHS.glob("*.onnx"))
HALF = np.ones((2, 2), np.float16)

MIXED = {
    "Add": ("float[2,2] x, float16[2,2] z", "y = Add(x, z)", {}, [("T", "x float32, z float16")]),
    "Where": (
        "bool[2] c, double[2] x, float[2] z",
        "y = Where(c, x, z)",
        {},
        [("T", "x float64, z float32")],
    ),
    "Conv": ("float[1,1,4,4] x, float16[1,1,2,2] k", "y = Conv(x, k)", {}, [("T", "x float32, k float16")]),
    "a weight": (
        "float[2,2] x",
        "a = Relu(x) y = MatMul(a, w)",
        {"w": HALF},
        [("T", "a float32, w float16")],
    ),
    "the last of many": ("float[2] x, float16[2] z", "y = Sum(x, x, z)", {}, [("T", "x float32, z float16")]),
    "inside a branch": (
        "bool c, float[2,2] x",
        "y = If (c) <then_branch = a () => (p) { p = Mul(x, w) }, else_branch = b () => (q) { q = Abs(x) }>",
        {"w": HALF},
        [("T", "x float32, w float16")],
    ),
    "two type variables": ("float[2,2] x, int64[1] i", "y = Gather(x, i)", {}, []),
    "one type": ("float16[2] x, float16[2] z", "y = Add(x, z)", {}, []),
    "any types": ("float[2] x, int64 n", "y = Expand(x, s)", {"s": np.array([2], np.int64)}, []),
}


@pytest.mark.parametrize(("takes", "nodes", "weights", "expected"), MIXED.values(), ids=MIXED)
def test_mixed_types(takes, nodes, weights, expected):
    """Type variable and inputs of each mixed operator are named; onnxruntime refuses just these models."""
    model = parsed(f"graph ({takes}) => (y) {{ {nodes} }}", **weights)

    found = [
        (each.variable, ", ".join(map(" ".join, each.inputs.items())))
        for each in mixed_types(loader.load(model))
    ]
    assert expected == found
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        refusal = ""
    except Exception as error:  # noqa: BLE001 - onnxruntime raises errors of many kinds
        refusal = str(error)
    assert bool(expected) == ("bound to different types" in refusal), refusal


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_sound_models(path):
    """No operator of a model that onnxruntime takes is named."""
    assert [] == [*mixed_types(loader.load(path))]
