"""Quantises networks to int8 with QuantizeLinear and DequantizeLinear around their products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from scripts.faults.networks import Net

STEPS = 255


@dataclass(frozen=True)
class Quantised:
    """A quantised network, and the names of both nodes that quantise each tensor."""

    model: onnx.ModelProto
    tensors: Mapping[str, frozenset[str]]

    def changed(self, tensor: str, factor: float, offset: int) -> onnx.ModelProto:
        """Return the model with another scale and another zero point of one tensor."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for each in model.graph.initializer:
            array = numpy_helper.to_array(each)
            if each.name == f"{tensor}_scale":
                each.CopyFrom(numpy_helper.from_array(array * np.float32(factor), each.name))
            if each.name == f"{tensor}_zero":
                moved = np.clip(array.astype(np.int64) + offset, 0, STEPS).astype(np.uint8)
                each.CopyFrom(numpy_helper.from_array(moved, each.name))
        return model


def quantised(net: Net, values: Mapping[str, list[np.ndarray]]) -> Quantised | None:
    """Return a network with quantised products, None where it has none.

    ``values`` are the results of its operators, which determine the scales.
    """
    version = next(each.version for each in net.model.opset_import if each.domain in {"", "ai.onnx"})
    if version < 13:  # no scale of each channel
        return None
    model = onnx.ModelProto()
    model.CopyFrom(net.model)
    graph = model.graph
    weights = {each.name: each for each in graph.initializer}
    tensors: dict[str, frozenset[str]] = {}
    nodes: list[onnx.NodeProto] = []
    made: dict[str, str] = {}
    for node in graph.node:
        weight = weights.get(node.input[1]) if node.op_type in {"Conv", "MatMul", "Gemm"} else None
        value = node.input[0] if node.input else ""
        arrays = [*values.get(value, []), *([net.feeds[value]] if value in net.feeds else [])]
        fits = weight is not None and weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) > 1
        if fits and arrays and arrays[0].dtype == np.float32:
            if value not in made:
                _scales(graph, value, arrays)
                how = [f"{value}_scale", f"{value}_zero"]
                names = [f"{value}_QuantizeLinear", f"{value}_DequantizeLinear"]
                nodes.append(
                    helper.make_node("QuantizeLinear", [value, *how], [f"{value}_integers"], names[0])
                )
                nodes.append(
                    helper.make_node(
                        "DequantizeLinear", [f"{value}_integers", *how], [f"{value}_real"], names[1]
                    )
                )
                tensors[value], made[value] = frozenset(names), f"{value}_real"
            if weight.name not in made:
                nodes.append(_weight(graph, weight, 0 if node.op_type == "Conv" or _is_turned(node) else -1))
                made[weight.name] = f"{weight.name}_real"
            node.input[0], node.input[1] = made[value], made[weight.name]
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return Quantised(model, tensors) if tensors else None


def _is_turned(node: onnx.NodeProto) -> bool:
    return any(each.name == "transB" and each.i for each in node.attribute)


def _scales(graph: onnx.GraphProto, value: str, arrays: list[np.ndarray]) -> None:
    low, high = min(0.0, *(float(a.min()) for a in arrays)), max(0.0, *(float(a.max()) for a in arrays))
    scale = np.float32((high - low) / STEPS or 1.0)
    zero = np.uint8(np.clip(round(-low / float(scale)), 0, STEPS))
    graph.initializer.append(numpy_helper.from_array(np.asarray(scale), f"{value}_scale"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(zero), f"{value}_zero"))


def _weight(graph: onnx.GraphProto, tensor: onnx.TensorProto, axis: int) -> onnx.NodeProto:
    """Append the integers of a weight; return the node that brings them back."""
    array, name = numpy_helper.to_array(tensor), tensor.name
    axis %= array.ndim
    others = tuple(each for each in range(array.ndim) if each != axis)
    scale = (np.abs(array).max(others, keepdims=True) / 127).astype(np.float32)
    scale[scale == 0] = 1
    integers = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
    steps = scale.reshape(-1)
    graph.initializer.append(numpy_helper.from_array(integers, f"{name}_integers"))
    graph.initializer.append(numpy_helper.from_array(steps, f"{name}_steps"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(steps.shape, np.int8), f"{name}_zeros"))
    inputs = [f"{name}_integers", f"{name}_steps", f"{name}_zeros"]
    return helper.make_node(
        "DequantizeLinear", inputs, [f"{name}_real"], f"{name}_DequantizeLinear", axis=axis
    )
