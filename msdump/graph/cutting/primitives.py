"""Models of single operators from MindSpore's graph files, which hold type, arguments and inputs.

Arguments stand among the attributes of an operator or, in files of newer versions, among its inputs as
constants; both places are searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import helper

from msdump.dtypes import DType
from msdump.errors import UnsupportedOpError
from msdump.graph.cutting.splice import RegionModel, ValueShape, host_type
from msdump.graph.graph import ValueType
from msdump.graph.primitives import COMPUTED, OPERATORS, PLAIN, SLOTS, Call, written_on

_OPSET: Final = 21
_IR: Final = 10

_ALIKE: Final = {"Conv1D": "Conv2D", "MaxPool1D": "MaxPool", "AvgPool1D": "AvgPool"}
"""Operators on signals of one dimension, which run as the ones on images of one row."""

_OTHER_NAMES: Final = {"perm": "order", "multiples": "sizes", "shape": "sizes"}
"""Attributes of graph files that MindSpore's newer versions call otherwise."""

_DEFAULTS: Final = {
    "transpose_a": False,
    "transpose_b": False,
    "keep_dims": False,
    "begin_norm_axis": -1,
    "axis": -1,
}
_AXES: Final = {"Gather": 0, **{f"Reduce{name}": () for name in ("Sum", "Mean", "Max", "Min", "Prod")}}
"""Arguments that older graph files leave out; the axis of some operators."""


def primitive_model(  # noqa: PLR0915, PLR0917 - one row for each
    op_type: str,
    attributes: Mapping[str, Any],
    tensors: Sequence[tuple[str, ValueShape, np.ndarray] | None],
    constants: Mapping[int, Any],
    output: str,
    types: Sequence[ValueType | None],
) -> RegionModel:
    """Return the model of an operator of MindSpore; it gives the operator's first output.

    Name, type and elements of inputs that are tensors are by slot, and so are other inputs (``constants``).

    Raises:
        UnsupportedOpError: The primitive is not known, or the file does not tell an argument.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    floats = {form.dtype.name for _, form, array in given if array.dtype.kind == "f"}
    if len(floats) > 1:
        raise UnsupportedOpError(
            f"{op_type}: its inputs are of {' and '.join(sorted(floats))}: the device casts between them;"
            " give the model with --model"
        )
    name = _ALIKE.get(op_type, op_type)
    if (name not in OPERATORS and name not in PLAIN) or not given:
        raise UnsupportedOpError(
            f"{op_type}: the graph file alone does not tell how to compute it (it does for the operators of"
            " docs/reference/primitives.md); give the model with --model"
        )
    if name == "BiasAdd" and len(given) > 1 and (given[1][2].size,) != given[0][2].shape[1:2]:
        name = "Add"  # an Add of a model: its channels are the last axis
    dtype = given[0][1].dtype
    slots = SLOTS.get(name, ()) if name not in {"Shape", "TensorShape"} else ()
    known = {_OTHER_NAMES.get(key, key): value for key, value in attributes.items()} | dict(attributes)
    known = {**_DEFAULTS, "axis": _AXES.get(name, -1), **known}
    if slots and slots[0].is_repeated and not constants:  # arguments follow the tensors
        named = [slot.name for slot in slots[1:] if slot.name in known]
        constants = {len(tensors) + place: known[each] for place, each in enumerate(named)}
    values: list[Any] = []
    read: list[Any] = []
    kinds: list[ValueType | None] = []
    for place in range(max(len(tensors), *(slot + 1 for slot in constants), 0)):
        tensor = tensors[place] if place < len(tensors) else None
        slot = slots[place] if place < len(slots) and not slots[0].is_repeated else None
        is_argument = slot is not None and (bool(slot.kind) or not slot.is_read)
        if tensor is not None and not is_argument:
            values.append(COMPUTED)
            read.append(tensor[0])
            kinds.append(ValueType(tensor[1].dtype, tensor[1].shape))
            continue
        value = constants.get(place) if tensor is None else tensor[2].tolist()
        values.append(tuple(value) if isinstance(value, list) else value)
        array = None
        if value is not None and not isinstance(value, str):
            is_slot = slot is not None and is_argument
            array = np.asarray(slot.converted(value) if is_slot else np.array(value, dtype.numpy))  # type: ignore[union-attr]
        read.append(array)
        kinds.append(None if array is None else ValueType(dtype, array.shape))
    call = Call(name, ["" if item is None else "x" for item in read], values, kinds, types, known)
    try:
        nodes, result = written_on(call, read, _OPSET)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise UnsupportedOpError(
            f"{op_type}: the graph file does not tell how to compute it: {error}; give the model with --model"
        ) from error
    declared = types[0].dtype if types and types[0] is not None else None
    if name == "Cast" and (wide := host_type(declared)) is not declared and wide is not None:
        nodes.append(helper.make_node("Cast", [result], [output], to=wide.onnx))
    else:
        nodes.append(helper.make_node("Identity", [result], [output]))
    used = {value for node in nodes for value in node.input}
    inputs = {value: form for value, form, _ in given if value in used}
    infos = [
        helper.make_tensor_value_info(value, form.dtype.onnx, form.shape) for value, form in inputs.items()
    ]
    graph = helper.make_graph(nodes, op_type, infos, [helper.make_empty_tensor_value_info(output)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    forms: dict[str, DType] = {value: form.dtype for value, form in inputs.items()}
    return RegionModel(model.SerializeToString(), forms, {output: None})
