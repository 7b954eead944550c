"""Writes networks as MindIR files, as MindSpore 2.10 exports them: primitives, types, scopes, weights."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from msdump.graph.mindir.file import ELEMENTS, Kind, message_class

_GRAPH: Final = "1_1_Net_construct_1:"
_MONAD: Final = object()
_CLASS: Final = re.compile(r"(?<=/)(\w+): (\w+)")

Shape = Sequence[int]


def written(model: onnx.ModelProto) -> bytes:
    """Return the MindIR file of a network of fixed sizes with operators of ``_LAYERS``."""
    writer = _Writer(shape_inference.infer_shapes(model, data_prop=True).graph)
    for node in model.graph.node:
        writer.layer(node)
    return writer.finish(model.graph.output[0].name)


class _Writer:
    """The file while it is written.

    Attributes:
        values: Names in the file by ONNX's names.
        shapes: Shapes by ONNX's names.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Begin with the inputs."""
        header = {"ir_version": "1.1", "producer_name": "MindSpore", "model_version": "2.10.0"}
        self._model = message_class("ModelProto")(**header, little_endian=True, mind_ir_version=3)
        self._graph = self._model.graph
        self._graph.name = _GRAPH.rstrip(":")
        self._weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self._primitives: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._numbers = Counter[str]()
        self._loads: list[str] = []
        self._scope = "Default"
        self.values: dict[str, str] = {}
        self._biases = dict(_biases(graph))
        infos = (*graph.input, *graph.value_info, *graph.output)
        self.shapes = {each.name: _shape(each) for each in infos}
        for info in graph.input:
            element = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)).name
            value = self.values[info.name] = f"{_GRAPH}{info.name}"
            _fill_tensor(self._graph.input.add(name=value).tensor.add(), _shape(info), element)

    def layer(self, node: onnx.NodeProto) -> None:
        """Write the primitives of an operator."""
        space = next(each.value for each in node.metadata_props if each.key == "namespace")
        self._scope = re.sub(r"^: \w+", "Default", _CLASS.sub(r"\1-\2", space))
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        shapes = [self.shapes[name] for name in node.output]
        results = _LAYERS[node.op_type](self, node, attributes, shapes)
        self.values.update(zip(node.output, [results] if isinstance(results, str) else results, strict=True))

    def array(self, name: str) -> np.ndarray | None:
        """Return the array of a weight, None for a computed value."""
        return self._weights.get(name)

    def bias_of(self, node: onnx.NodeProto) -> str | None:
        """Return the weight that the operator behind a product with a weight adds."""
        return self._biases.get(node.output[0])

    def is_bias(self, node: onnx.NodeProto) -> bool:
        """Return whether an operator adds the bias of a product."""
        return node.input[0] in self._biases

    def read(self, name: str) -> Any:
        """Return an operand: a value, the loaded weight, a constant of one element."""
        array = self._weights.get(name)
        if array is None:
            return self.values[name]
        return self.weight(name, array) if array.size > 1 else array

    def weight(self, name: str, array: np.ndarray) -> str:
        """Return a weight, as the node that loads it."""
        tensor = self._graph.parameter.add(name=f"{_GRAPH}{name}", ref_key=name, raw_data=array.tobytes())
        _fill_tensor(tensor, array.shape, array.dtype.name)
        load = self.add("Load", [tensor.name, _MONAD], array.shape)
        self._loads.append(load)
        return load

    def add(
        self,
        op_type: str,
        operands: Sequence[Any],
        *shapes: Shape,
        element: str = "float32",
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a node with operands, names or constants; return its value, a tuple for several shapes."""
        names = [item if isinstance(item, str) else self.constant(item) for item in operands]
        title, path = self._primitive(op_type, attributes or {}), f"{self._scope}/{op_type}-op"
        value = f"{_GRAPH}CNode_{len(self._graph.node)}"
        full_name = f"{path}{self._numbers[path]}"
        node = self._graph.node.add(
            name=value, input=names, output=[value], op_type=f"REF::{title}", domain=full_name
        )
        self._numbers[path] += 1
        abstract = node.attribute.add(name="shape", type=Kind.TENSORS if shapes else Kind.UMONAD)
        if len(shapes) > 1:
            abstract.type = Kind.TUPLE
        for shape in shapes:
            whole = abstract if len(shapes) == 1 else abstract.values.add(type=Kind.TENSORS)
            _fill_tensor(whole.tensors.add(), shape, element)
        return value

    def items(self, op_type: str, operands: Sequence[Any], shapes: Sequence[Shape]) -> list[str]:
        """Add a node with several outputs; return them."""
        whole = self.add(op_type, operands, *shapes)
        return [self.add("TupleGetItem", [whole, place], shape) for place, shape in enumerate(shapes)]

    def finish(self, result: str) -> bytes:
        """Return the file: its results depend on all that was loaded."""
        self._scope = "Default"
        group = self.add("MakeTuple", self._loads)
        shape = self.shapes[result]
        returned = self.add("Depend", [self.values[result], self.add("UpdateState", [_MONAD, group])], shape)
        _fill_tensor(self._graph.output.add(name=returned).tensor.add(), shape, "float32")
        return bytes(self._model.SerializeToString())

    def constant(self, value: Any) -> str:
        """Return a constant; equal numbers share a node."""
        key = repr(value)
        if key not in self._constants or isinstance(value, np.ndarray):
            name = self._constants[key] = f"ValueNode_{len(self._graph.node)}"
            node = self._graph.node.add(name=name, output=[name], op_type="Constant")
            _fill(node.attribute.add(name="value"), value)
        return self._constants[key]

    def _primitive(self, op_type: str, attributes: Mapping[str, Any]) -> str:
        key = f"{op_type} {attributes}"
        if key not in self._primitives:
            name = self._primitives[key] = f"{op_type}:{len(self._primitives)}"
            primitive = self._model.primitives.add(name=name, op_type=op_type, prim_type=1)
            for title, value in attributes.items():
                _fill(primitive.attribute.add(name=title), value)
        return self._primitives[key]


def _biases(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield the products with weights to which the next operator adds a weight, and that weight."""
    weights = {each.name for each in graph.initializer}
    for product, node in pairwise(graph.node):
        if (
            product.op_type == "MatMul"
            and node.op_type == "Add"
            and {product.input[1], node.input[1]} <= weights
        ):
            yield product.output[0], node.input[1]


_KINDS: Final = {
    bool: (Kind.BOOL, "i"),
    int: (Kind.INT64, "i"),
    float: (Kind.FLOAT, "f"),
    bytes: (Kind.STRING, "s"),
}
"""By type of a number or text: its kind and its field."""


def _fill(attribute: Any, value: Any) -> None:
    """Write a constant."""
    if value is _MONAD:
        attribute.type = Kind.UMONAD
    elif isinstance(value, (tuple, list)):
        attribute.type = Kind.TUPLE
        for item in value:
            attribute.values.add(type=Kind.INT64, ints=[item])
    elif isinstance(value, np.ndarray):
        attribute.type = Kind.TENSORS
        _fill_tensor(attribute.tensors.add(raw_data=value.tobytes()), value.shape, value.dtype.name)
    else:
        attribute.type, field = _KINDS[type(value)]
        setattr(attribute, field, int(value) if isinstance(value, bool) else value)


def _fill_tensor(tensor: Any, shape: Shape, element: str) -> None:
    tensor.dims.extend(shape)
    tensor.data_type = ELEMENTS.index(element)


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(each.dim_value for each in info.type.tensor_type.shape.dim)


_Layer = Callable[[_Writer, onnx.NodeProto, Mapping[str, Any], Sequence[Shape]], "str | list[str]"]
"""Writes the primitives of an operator, given its attributes and the shapes of its outputs."""


def _same(op_type: str, *constants: Any, element: str = "float32") -> _Layer:
    """The operator's inputs, then constants."""
    return lambda w, node, _, shapes: w.add(
        op_type, [*map(w.read, node.input), *constants], *shapes, element=element
    )


def _convolution(w: _Writer, node: onnx.NodeProto, given: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    (top, left, bottom, right), weight = given["pads"], w.array(node.input[1])
    assert weight is not None, node.name
    attributes = {
        "mode": 1,
        "out_channel": weight.shape[0],
        "kernel_size": weight.shape[2:],
        "group": given["group"],
        "pad_mode": b"pad",
        "pad": (top, bottom, left, right),
        "format": b"NCHW",
        "stride": (1, 1, *given["strides"]),
        "dilation": (1, 1, 1, 1),
    }
    return w.add("Conv2D", [*map(w.read, node.input)], *shapes, attributes=attributes)


def _max_pool(w: _Writer, node: onnx.NodeProto, given: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    top, left, bottom, right = given["pads"]
    attributes = {
        "kernel_size": (1, 1, *given["kernel_shape"]),
        "strides": (1, 1, *given["strides"]),
        "pad_mode": b"pad",
        "pad_list": (top, bottom, left, right),
        "format": b"NCHW",
    }
    return w.add("MaxPool", [w.read(node.input[0])], *shapes, attributes=attributes)


def _batch_norm(w: _Writer, node: onnx.NodeProto, given: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    operands = [*map(w.read, node.input), False, given.get("epsilon", 1e-5), 0.1, 0]
    statistics = [w.shapes[node.input[0]][1:2]] * 4
    return w.items("BatchNorm", operands, [*shapes, *statistics])[0]


def _layer_norm(w: _Writer, node: onnx.NodeProto, given: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    operands = [*map(w.read, node.input), -1, -1, given["epsilon"]]
    statistics = [(*shapes[0][:-1], 1)] * 2
    return w.items("LayerNorm", operands, [*shapes, *statistics])[0]


def _product(w: _Writer, node: onnx.NodeProto, _: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    """A dense layer's weight has a row for each result; its matrix has a row for each vector."""
    weight, first = w.array(node.input[1]), w.read(node.input[0])
    if weight is None:
        return w.add("BatchMatMul", [first, w.read(node.input[1]), False, False], *shapes)
    size_in, size_out = weight.shape
    rows = math.prod(shapes[0][:-1])
    is_flat = len(shapes[0]) == 2
    flat = first if is_flat else w.add("Reshape", [first, (-1, size_in)], (rows, size_in))
    loaded = w.weight(node.input[1], np.ascontiguousarray(weight.T))
    product = w.add("MatMul", [flat, loaded, False, True], (rows, size_out))
    bias = w.bias_of(node)
    if bias is not None:
        product = w.add("BiasAdd", [product, w.read(bias), 0], (rows, size_out))
    return product if is_flat else w.add("Reshape", [product, tuple(shapes[0])], *shapes)


def _add(w: _Writer, node: onnx.NodeProto, _: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    return w.values[node.input[0]] if w.is_bias(node) else w.add("Add", [*map(w.read, node.input)], *shapes)


def _gather(w: _Writer, node: onnx.NodeProto, _: Mapping[str, Any], shapes: Sequence[Shape]) -> str:
    """An embedding's ids are one list."""
    count, size = math.prod(shapes[0][:-1]), shapes[0][-1]
    ids = w.add("Reshape", [w.read(node.input[1]), (-1,)], (count,), element="int64")
    rows = w.add("Gather", [w.read(node.input[0]), ids, 0, 0], (count, size))
    return w.add("Reshape", [rows, tuple(shapes[0])], *shapes)


def _moved(op_type: str, numbers: Callable[[Mapping[str, Any], Sequence[Shape]], Any]) -> _Layer:
    """The first input and a list of numbers."""
    return lambda w, node, given, shapes: w.add(
        op_type, [w.read(node.input[0]), tuple(numbers(given, shapes))], *shapes
    )


_LAYERS: Final[dict[str, _Layer]] = {
    "Conv": _convolution,
    "BatchNormalization": _batch_norm,
    "Relu": _same("ReLU"),
    "MaxPool": _max_pool,
    "ReduceMean": lambda w, node, given, shapes: w.add(
        "ReduceMean", [w.read(node.input[0]), (2, 3), bool(given["keepdims"])], *shapes
    ),
    "Flatten": _same("Flatten"),
    "MatMul": _product,
    "Add": _add,
    "Mul": _same("Mul"),
    "Div": _same("Div"),
    "Gather": _gather,
    "LayerNormalization": _layer_norm,
    "Gelu": _same("GeLU"),
    "Softmax": _moved("Softmax", lambda given, _: [given["axis"]]),
    "Transpose": _moved("Transpose", lambda given, _: given["perm"]),
    "Reshape": _moved("Reshape", lambda _, shapes: shapes[0]),
    "Split": lambda w, node, given, shapes: w.items(
        "Split", [w.read(node.input[0]), given["axis"], given["num_outputs"]], shapes
    ),
    "Where": lambda w, node, _, shapes: w.add("Select", [*map(w.read, node.input)], *shapes),
    "Constant": lambda w, _, given, __: w.constant(numpy_helper.to_array(given["value"])),
    "Cast": lambda w, node, _, shapes: w.add("Cast", [w.read(node.input[0]), 30], *shapes, element="bool"),
}
