"""Graphs of many short operators."""

from __future__ import annotations

from collections.abc import Iterable
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


def unary(count: int, size: int) -> onnx.ModelProto:
    """Return a chain of operators with one input, each with an output of ``size`` float32."""
    nodes = [
        helper.make_node(kind, [f"v{number}"], [f"v{number + 1}"], name=f"n{number}")
        for number, kind in enumerate(islice(cycle(_TYPES), count))
    ]
    return _model(nodes, count, size, ())


def binary(count: int, size: int) -> onnx.ModelProto:
    """Return a chain of operators, every second one with a weight of its own."""
    weights = [
        numpy_helper.from_array(np.full(size, 1 + number * 1e-6, np.float32), f"w{number}")
        for number in range(0, count, 2)
    ]
    nodes = []
    kinds = cycle(_BINARY)
    for number in range(count):
        names = ([f"v{number}"], [f"v{number + 1}"])
        if number % 2:
            nodes.append(helper.make_node("Tanh", *names, name=f"n{number}"))
        else:
            nodes.append(
                helper.make_node(next(kinds), [f"v{number}", f"w{number}"], names[1], name=f"n{number}")
            )
    return _model(nodes, count, size, weights)


def _model(
    nodes: Iterable[onnx.NodeProto], count: int, size: int, weights: Iterable[TensorProto]
) -> onnx.ModelProto:
    first, last = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("v0", f"v{count}")
    )
    graph = helper.make_graph(list(nodes), "chain", [first], [last], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
