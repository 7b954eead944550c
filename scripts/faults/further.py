"""Networks of further kinds, sound ones alone: quantised, scattering, tiny."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Made = tuple[onnx.ModelProto, dict[str, np.ndarray]]
"""A model and its inputs."""


class Builder:
    """Builds a model operator by operator; weights are drawn by its name."""

    def __init__(self, name: str) -> None:
        """Begin without operators."""
        self.draw = np.random.default_rng(list(name.encode()))
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._feeds: dict[str, np.ndarray] = {}

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Append an operator; return the name of its output, or names of several."""
        number = len(self._nodes)
        names = [f"v{number}_{slot}" for slot in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, names, name=f"{op_type}_{number}", **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, array: Any) -> str:
        """Return the name of a weight."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """Return the name of a weight that is drawn."""
        return self.weight(self.draw.standard_normal(shape, np.float32) * np.float32(scale))

    def feed(self, name: str, array: np.ndarray) -> str:
        """Return the name of an input."""
        self._feeds[name] = array
        return name

    def norm(self, x: str, size: int) -> str:
        """Append a norm of the last dimension."""
        return self.add("LayerNormalization", x, self.weight(np.ones(size, np.float32)), axis=-1)

    def made(self, *outputs: str) -> Made:
        """Return the model."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self._feeds.items()
        ]
        shown = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self._nodes, self._name, inputs, shown, self._weights)
        versions = {"": 20} | {node.domain: 1 for node in self._nodes if node.domain}
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model), self._feeds


def attention(build: Builder, x: str, dense: Callable[[str, int, int], str], size: int = 32) -> str:
    """Append attention of four heads."""
    heads = build.weight(np.array([0, 0, 4, size // 4]))
    query, key, value = (
        build.add("Transpose", build.add("Reshape", dense(x, size, size), heads), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    scores = build.add("MatMul", query, build.add("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = build.add("Mul", scores, build.weight(np.float32((size / 4) ** -0.5)))
    context = build.add("MatMul", build.add("Softmax", scaled, axis=-1), value)
    turned = build.add("Transpose", context, perm=[0, 2, 1, 3])
    return dense(build.add("Reshape", turned, shape(build, 0, 0, size)), size, size)


def shape(build: Builder, *sizes: int) -> str:
    """Return the name of a weight that holds sizes or axes."""
    return build.weight(np.array(sizes, np.int64))


def _encoder(build: Builder, dense: Callable[[str, int, int], str]) -> Made:
    """Return two layers of a transformer's encoder."""
    x = build.feed("x", build.draw.standard_normal((2, 8, 32), np.float32))
    for _ in range(2):
        x = build.add("Add", x, attention(build, build.norm(x, 32), dense))
        inner = build.add("Gelu", dense(build.norm(x, 32), 32, 64))
        x = build.add("Add", x, dense(inner, 64, 32))
    return build.made(build.norm(x, 32))


def _dynamic() -> Made:
    """Return an encoder with dynamically quantised products."""
    build = Builder("dynamic")

    def dense(x: str, size: int, to: int) -> str:
        integers, scale, zero = build.add("DynamicQuantizeLinear", x, outputs=3)
        # their sums stay within the range of float16
        weight = build.weight(build.draw.integers(-20, 20, (size, to)).astype(np.int8))
        product = build.add("MatMulInteger", integers, weight, zero)
        factor = build.add("Mul", scale, build.weight(np.float32(0.1 * size**-0.5)))
        real = build.add("Mul", build.add("Cast", product, to=TensorProto.FLOAT), factor)
        return build.add("Add", real, build.normal(to, scale=0.1))

    return _encoder(build, dense)


def _quantised() -> Made:
    """Return an encoder that is quantised by QuantizeLinear and DequantizeLinear."""
    build = Builder("quantised")

    def rounded(x: str, step: float) -> str:
        how = build.weight(np.float32(step)), build.weight(np.int8(3))
        return build.add("DequantizeLinear", build.add("QuantizeLinear", x, *how), *how)

    def dense(x: str, size: int, to: int) -> str:
        integers = build.weight(build.draw.integers(-100, 100, (size, to)).astype(np.int8))
        steps = build.weight(((build.draw.random(to) * 0.01 + 0.01) * size**-0.5).astype(np.float32))
        weight = build.add("DequantizeLinear", integers, steps, build.weight(np.zeros(to, np.int8)), axis=1)
        product = build.add("MatMul", rounded(x, 0.04), weight)
        return rounded(build.add("Add", product, build.normal(to, scale=0.1)), 0.05)

    return _encoder(build, dense)


def _messages() -> Made:
    """Return a graph network that adds the messages of edges where they arrive."""
    build, nodes, edges, size = Builder("messages"), 12, 40, 16
    x = build.feed("x", build.draw.standard_normal((nodes, size), np.float32))
    begins = build.feed("begins", build.draw.integers(0, nodes, edges))
    ends = build.feed("ends", build.draw.integers(0, nodes, edges))
    column = build.add("Unsqueeze", ends, shape(build, 1))
    for number in range(2):
        edge = build.add("Gather", x, begins, axis=0)
        message = build.add("Relu", build.add("MatMul", edge, build.normal(size, size, scale=0.25)))
        if number:
            kept = build.add("Mul", x, build.weight(np.float32(0.1)))
            arrived = build.add("ScatterND", kept, column, message, reduction="add")
        else:
            places = build.add("Expand", column, shape(build, edges, size))
            none = build.weight(np.zeros((nodes, size), np.float32))
            arrived = build.add("ScatterElements", none, places, message, axis=0, reduction="add")
        update = build.add("MatMul", arrived, build.normal(size, size, scale=0.25))
        x = build.norm(build.add("Add", x, update), size)
    return build.made(build.add("MatMul", x, build.normal(size, 4, scale=0.25)))


def _tiny() -> Made:
    """Return convolutions of images of the scale 1e-8, most of which float16 does not hold."""
    build = Builder("tiny")
    x = build.feed("x", build.draw.standard_normal((2, 3, 12, 12), np.float32) * np.float32(1e-8))
    x = build.add("Conv", x, build.normal(8, 3, 3, 3, scale=0.2), pads=[1] * 4)
    x = build.add("Conv", build.add("LeakyRelu", x, alpha=0.1), build.normal(8, 8, 3, 3, scale=0.12))
    x = build.add("AveragePool", build.add("Elu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = build.add("Reshape", x, shape(build, 2, -1))
    x = build.add("Selu", build.add("MatMul", x, build.normal(200, 16, scale=0.07)))
    half = build.add("Mul", build.add("MatMul", x, build.normal(16, 4)), build.weight(np.float32(0.5)))
    return build.made(build.add("Sub", build.add("MatMul", x, build.normal(16, 4)), half))


def _integers() -> Made:
    """Return convolutions of integers with scales of their own."""
    build, size = Builder("integers"), 3
    x = build.feed("x", build.draw.standard_normal((1, 3, 16, 16), np.float32))
    how = build.weight(np.float32(0.03)), build.weight(np.uint8(128))
    q = build.add("QuantizeLinear", x, *how)
    for to, stride in ((8, 1), (8, 1), (16, 2)):
        weight = build.weight(build.draw.integers(-100, 100, (to, size, 3, 3)).astype(np.int8))
        steps = ((build.draw.random(to) * 0.01 + 0.01) * (size * 9) ** -0.5).astype(np.float32)
        of_weight = build.weight(steps), build.weight(np.zeros(to, np.int8))
        after = build.weight(np.float32(0.03)), build.weight(np.uint8(100))
        bias = build.weight(build.draw.integers(-50, 50, to).astype(np.int32))
        q = build.add(
            "QLinearConv", q, *how, weight, *of_weight, *after, bias, pads=[1] * 4, strides=[stride] * 2
        )
        how, size = after, to
    q = build.add("MaxPool", q, kernel_shape=[2, 2], strides=[2, 2])
    return build.made(build.add("DequantizeLinear", q, *how))


FURTHER: dict[str, Callable[[], Made]] = {
    "dynamic": _dynamic,
    "quantised": _quantised,
    "messages": _messages,
    "tiny": _tiny,
    "integers": _integers,
}
"""Functions that make the networks; trials of faults are drawn on others."""
