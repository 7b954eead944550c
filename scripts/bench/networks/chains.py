"""Graphs of many short operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

_OPSET: Final = 20
_IR_VERSION: Final = 10
_TYPES: Final = ("Relu", "Neg", "Abs", "Neg", "Tanh")
_BINARY: Final = ("Add", "Sub", "Mul")


def loop(passes: int = 1000, size: int = 16) -> onnx.ModelProto:
    """Return a Loop over five small operators."""
    return parser.parse_model(
        f"""<ir_version: {_IR_VERSION}, opset_import: ["" : {_OPSET}]>
        loop (float[{size}] x, float[{size}] w) => (float[{size}] y)
        {{
            trips = Constant <value = int64[1] {{{passes}}}> ()
            go = Constant <value = bool[1] {{1}}> ()
            y = Loop (trips, go, x) <body = pass
                (int64[1] number, bool[1] going, float[{size}] before)
                => (bool[1] again, float[{size}] after)
                {{
                    again = Identity (going)
                    scaled = Mul (before, w)
                    moved = Add (scaled, x)
                    bent = Tanh (moved)
                    turned = Neg (bent)
                    after = Sub (x, turned)
                }}>
        }}"""
    )


def unary(count: int, shape: Sequence[int], kinds: Sequence[str] = _TYPES) -> onnx.ModelProto:
    """Return a chain of operators with one input, the kinds in turn, on float32 of a shape."""
    nodes = [
        helper.make_node(kind, [f"v{number}"], [f"v{number + 1}"], name=f"/layer{number}/op")
        for number, kind in enumerate(islice(cycle(kinds), count))
    ]
    return _model(nodes, shape, ())


def binary(count: int, size: int) -> onnx.ModelProto:
    """Return a chain of operators, every second one with a weight of its own."""
    kinds = cycle(_BINARY)
    weights, nodes = [], []
    for number in range(count):
        kind, inputs = "Tanh", [f"v{number}"]
        if not number % 2:
            array = np.full(size, 1 + number * 1e-6, np.float32)
            weights.append(numpy_helper.from_array(array, f"w{number}"))
            kind, inputs = next(kinds), [*inputs, f"w{number}"]
        nodes.append(helper.make_node(kind, inputs, [f"v{number + 1}"], name=f"n{number}"))
    return _model(nodes, [size], weights)


def _model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], weights: Sequence[TensorProto]
) -> onnx.ModelProto:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("v0", f"v{len(nodes)}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
