"""Types of values by ONNX's shape inference, extended to collectives and the overflow status."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

import onnx
from onnx import defs, shape_inference

from msdump import dtypes
from msdump.errors import passing_over
from msdump.graph.collectives import COUNTS, HCOM_NAMES, NAMES, Collective
from msdump.graph.domains import CLEAR_FLOAT_STATUS, GE_DOMAIN, GET_FLOAT_STATUS, MINDSPORE_DOMAIN

Context = shape_inference.InferenceContext


def settle(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Replace named dimensions by their sizes in the types that a graph declares, in place."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in sizes:
                dimension.dim_value = sizes[dimension.dim_param]


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types of its values, inside branches and loops as well."""
    _register_schemas()
    with passing_over(Exception):  # inference is a convenience: a model runs without it
        return shape_inference.infer_shapes(model, data_prop=True)
    return model


@functools.cache
def _register_schemas() -> None:
    collectives = {**NAMES, GE_DOMAIN: HCOM_NAMES}
    operators = [
        (domain, name, _INFER[kind]) for domain, kinds in collectives.items() for name, kind in kinds.items()
    ]
    operators += [(MINDSPORE_DOMAIN, name, _infer_same) for name in (CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS)]
    schema, many = defs.OpSchema, defs.OpSchema.FormalParameterOption.Variadic
    for domain, name, infer in operators:
        inputs, outputs = (
            schema.FormalParameter(side, "T", param_option=many, is_homogeneous=False, min_arity=0)
            for side in ("inputs", "outputs")
        )
        types = [("T", ["tensor(float)"], "")]  # inference checks no types
        operator = schema(name, domain, 1, inputs=[inputs], outputs=[outputs], type_constraints=types)
        operator.set_type_and_shape_inference_function(infer)
        defs.register_schema(operator)


def _infer_same(context: Context) -> None:
    for slot in range(min(context.get_num_inputs(), context.get_num_outputs())):
        context.set_output_type(slot, context.get_input_type(slot))


def _infer_received(context: Context) -> None:
    dtype = _attribute(context, "dtype")
    name, number = dtype.s.decode(), dtype.i or onnx.TensorProto.FLOAT
    element = dtypes.from_name(name).onnx if name else number
    context.set_output_type(0, onnx.helper.make_tensor_type_proto(element, _attribute(context, "shape").ints))


def _infer_gathered(context: Context) -> None:
    kind = context.get_input_type(0)
    _resize(kind, _attribute(context, "axis").i, lambda size, count: size * count, context)
    context.set_output_type(0, kind)


def _infer_scattered(context: Context) -> None:
    kind = context.get_input_type(0)
    _resize(kind, 0, lambda size, count: -(-size // count), context)
    context.set_output_type(0, kind)


def _infer_exchanged(context: Context) -> None:
    kind = context.get_input_type(0)
    _resize(kind, _attribute(context, "split_dim").i, lambda size, count: -(-size // count), context)
    _resize(kind, _attribute(context, "concat_dim").i, lambda size, count: size * count, context)
    context.set_output_type(0, kind)


def _resize(kind: onnx.TypeProto, axis: int, size: Callable[[int, int], int], context: Context) -> None:
    """Change the size of an axis of a type; unknown without a number of ranks."""
    dimensions = kind.tensor_type.shape.dim
    if not -len(dimensions) <= axis < len(dimensions):
        kind.tensor_type.ClearField("shape")
        return
    dimension, count = dimensions[axis], _attribute(context, *COUNTS).i
    if count and dimension.HasField("dim_value"):
        dimension.dim_value = size(dimension.dim_value, count)
    else:
        dimension.Clear()


def _attribute(context: Context, *names: str) -> onnx.AttributeProto:
    """Return the first of some attributes that an operator has, an empty one if it has none of them."""
    return next(filter(None, map(context.get_attribute, names)), onnx.AttributeProto())


_INFER: Final[Mapping[Collective, Callable[[Context], None]]] = {
    Collective.ALL_REDUCE: _infer_same,
    Collective.BROADCAST: _infer_same,
    Collective.SEND: _infer_same,
    Collective.ALL_GATHER: _infer_gathered,
    Collective.REDUCE_SCATTER: _infer_scattered,
    Collective.ALL_TO_ALL: _infer_exchanged,
    Collective.RECEIVE: _infer_received,
}
