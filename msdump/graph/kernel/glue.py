"""Tiny models that turn Python values into the runtime's sequences, optionals and strings, and back."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.dtypes import DType
from msdump.graph.kernel.onenode import type_proto

_OPSET = 17  # older runtimes read it, too, and all operators here are in it
_IR = 8


def strings(array: np.ndarray) -> bytes:
    """Return a model without inputs whose output "y" is a string tensor."""
    encoded = np.array([_bytes(item) for item in array.reshape(-1)], dtype=object).reshape(array.shape)
    tensor = numpy_helper.from_array(encoded, "x")
    return _model(helper.make_node("Identity", ["x"], ["y"]), [], [tensor])


def _bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


@functools.cache
def empty_sequence(element: DType) -> bytes:
    """Return a model without inputs whose output "y" is an empty sequence of tensors."""
    return _model(helper.make_node("SequenceEmpty", [], ["y"], dtype=element.onnx), [], [])


def sequence(element_type: str, count: int) -> bytes:
    """Return a model that joins inputs "x0".. of one tensor type into the sequence "y"."""
    names = [f"x{position}" for position in range(count)]
    node = helper.make_node("SequenceConstruct", names, ["y"])
    return _model(node, [(name, element_type) for name in names], [])


@functools.cache
def sequence_length(type_text: str) -> bytes:
    """Return a model that gives the length "y" of the sequence "x"."""
    return _model(helper.make_node("SequenceLength", ["x"], ["y"]), [("x", type_text)], [])


@functools.cache
def sequence_at(type_text: str) -> bytes:
    """Return a model that gives element "i" of the sequence "x" as "y"."""
    node = helper.make_node("SequenceAt", ["x", "i"], ["y"])
    return _model(node, [("x", type_text), ("i", "tensor(int64)")], [])


@functools.cache
def element(type_text: str) -> bytes:
    """Return a model that takes the element "y" out of the optional "x"."""
    return _model(helper.make_node("OptionalGetElement", ["x"], ["y"]), [("x", type_text)], [])


def passage(type_text: str) -> bytes:
    """Return a model without operators whose output is its input "x"; running it gives Python objects."""
    info = helper.make_value_info("x", type_proto(type_text))
    return _serialised(helper.make_graph([], "glue", [info], [info]))


def transpose(type_text: str, order: tuple[int, ...]) -> bytes:
    """Return a model that permutes the axes of the tensor "x" into "y"."""
    return _model(helper.make_node("Transpose", ["x"], ["y"], perm=order), [("x", type_text)], [])


def cast(type_text: str, target: DType) -> bytes:
    """Return a model that converts the tensor "x" into "y" of another element type."""
    return _model(helper.make_node("Cast", ["x"], ["y"], to=target.onnx), [("x", type_text)], [])


def _model(
    node: onnx.NodeProto, inputs: list[tuple[str, str]], initializers: list[onnx.TensorProto]
) -> bytes:
    graph = helper.make_graph(
        [node],
        "glue",
        [helper.make_value_info(name, type_proto(text)) for name, text in inputs],
        [helper.make_empty_tensor_value_info("y")],
        initializers,
    )
    return _serialised(graph)


def _serialised(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return bytes(model.SerializeToString())
