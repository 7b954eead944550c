"""``acl.op``: single operators, and descriptions of their tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.capture import PROCESS
from msdump.capture.compiled import SingleOperator
from msdump.config.acl import AclCode, invalid
from msdump.dtypes import DTYPES, STRING
from msdump.errors import AclError, GraphError, InputError, UnsupportedOpError
from msdump.frontends.acl import state
from msdump.frontends.acl.state import (
    AclState,
    OperatorAttributes,
    TensorDesc,
    context,
    device_view,
    dimensions,
    handles,
    nbytes,
    text,
    to_array,
    write_result,
)
from msdump.graph import Graph, loader
from msdump.graph.ge import CallOperand, InputCountError, needed_values, single_operator
from msdump.selector import IterationSet
from msdump.session import Network

_MOST_KEPT: Final = 256  # operators that are ready to be called again
_FORMATS: Final = {0: "NCHW", 1: "NHWC", 16: "HWCN"}
"""Formats of images and their weights by their numbers in aclFormat."""
_TYPES: Final = {row.acl: row for row in DTYPES if row.acl is not None}


@state.code
def set_model_dir(model_dir: Any) -> None:
    """Check the directory of compiled operators; no file in it is used, as each call builds its operator.

    Codes: 100003 for a missing directory.
    """
    if not isinstance(model_dir, str) or not os.path.isdir(model_dir):
        raise AclError(AclCode.INVALID_FILE, f"set_model_dir: {model_dir!r} is not a directory")


@state.value(0)
def create_tensor_desc(data_type: Any, dims: Sequence[Any], tensor_format: int) -> int:
    """Return the handle of a new description of a tensor, 0 for an invalid type or shape.

    Args:
        data_type: Number in aclDataType, 0 for float32.
        dims: Shape.
        tensor_format: Number in aclFormat, 2 for ND.
    """
    if not isinstance(data_type, int) or _TYPES.get(data_type, STRING) is STRING:
        raise AclError(AclCode.UNSUPPORTED_DATA_TYPE, f"aclDataType {data_type!r} is not supported")
    shape = dimensions(dims)
    if not isinstance(tensor_format, int):
        raise invalid(f"aclFormat {tensor_format!r}: must be a number")
    return state.current().handles.add(TensorDesc(data_type, shape, tensor_format))


get_tensor_desc_size = state.fact(TensorDesc, lambda desc: nbytes(_TYPES[desc.dtype], desc.shape))
"""Return the bytes of a described tensor."""

destroy_tensor_desc = state.destroyer(TensorDesc)
create_attr = state.creator(OperatorAttributes)
destroy_attr = state.destroyer(OperatorAttributes)


def _setter(convert: Callable[[Any], Any]) -> Callable[[int, str, Any], int]:
    """Return a pyACL function (``set_attr_int``, ...) that converts a value and sets an attribute to it."""

    @state.code
    def set_attr(attr: int, name: Any, value: Any) -> None:
        attributes = state.current().handles.get(attr, OperatorAttributes)
        try:
            attributes.values[text(name, "attr_name")] = convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise invalid(f"attribute {name!r} = {value!r}: {error}") from error

    return set_attr


set_attr_bool = set_attr_int = set_attr_data_type = _setter(int)
set_attr_float = _setter(float)
set_attr_string = _setter(str)
set_attr_list_bool = set_attr_list_int = _setter(lambda items: [int(item) for item in items])
set_attr_list_float = _setter(lambda items: [float(item) for item in items])
set_attr_list_string = _setter(lambda items: [str(item) for item in items])
set_attr_list_list_int = _setter(lambda lists: [[int(item) for item in items] for items in lists])


@state.code
def execute_v2(  # noqa: PLR0917 - pyACL's signature
    op_type: str,
    input_desc: Sequence[int],
    inputs: Sequence[int],
    output_desc: Sequence[int],
    outputs: Sequence[int],
    attr: Any,
    stream: int,
) -> None:
    """Run one operator on a stream; ``synchronize_stream`` returns the failure of the run.

    Args:
        op_type: Operator type in GE, MindSpore or ONNX.
        input_desc: Descriptions of the inputs.
        inputs: Data buffers of the inputs.
        output_desc: Descriptions of the outputs.
        outputs: Data buffers of the outputs.
        attr: Handle of the attributes, 0 for none.
        stream: The stream, 0 for the default one.

    Codes: 145001 before ``acl.init``, 100000 for an invalid handle or address, 100024 for an unknown
    operator, 100023 for a missing or wrong attribute, 100021 for wrong inputs. Unknown attributes are logged.
    """
    acl = state.current()
    acl.require_initialised("acl.op.execute_v2")
    target_stream = acl.stream(stream)
    name = text(op_type, "op_type")
    has_none = isinstance(attr, int) and attr == 0
    attributes = {} if has_none else acl.handles.get(attr, OperatorAttributes).values
    described = [acl.handles.get(handle, TensorDesc) for handle in handles(input_desc, "input_desc")]
    expected = [acl.handles.get(handle, TensorDesc) for handle in handles(output_desc, "output_desc")]
    inputs, outputs = handles(inputs, "inputs"), handles(outputs, "outputs")
    _check_counts(inputs, described, AclCode.OP_INPUT_NOT_MATCH, "inputs")
    _check_counts(outputs, expected, AclCode.OP_OUTPUT_NOT_MATCH, "outputs")
    arrays = [
        to_array(
            device_view(acl, handle),
            _TYPES[desc.dtype],
            desc.shape,
            f"input {index}",
            AclCode.OP_INPUT_NOT_MATCH,
        )
        for index, (handle, desc) in enumerate(zip(inputs, described, strict=True))
    ]
    # elements that decide the graph (shapes, axes) are built into it
    needed = needed_values(name, len(arrays), attributes)
    operands = [
        _operand(desc, array if slot in needed else None)
        for slot, (desc, array) in enumerate(zip(described, arrays, strict=True))
    ]
    network, single = _network(acl, name, operands, expected, attributes)

    def run() -> None:
        with acl.lock:
            single.begin(target_stream.number, target_stream.tasks)
            target_stream.tasks += len(network.graph.nodes)
            results = network.run({f"x{index}": array for index, array in enumerate(arrays)})
            for handle, desc, array in zip(outputs, expected, results.values(), strict=True):
                write_result(acl, handle, _result(array, desc))

    state.on_stream(target_stream, run)


def _operand(desc: TensorDesc, value: np.ndarray | None = None) -> CallOperand:
    return CallOperand(_TYPES[desc.dtype], desc.shape, _FORMATS.get(desc.format, "ND"), value)


def _network(
    acl: AclState,
    op_type: str,
    inputs: Sequence[CallOperand],
    expected: Sequence[TensorDesc],
    attributes: Mapping[str, Any],
) -> tuple[Network, SingleOperator]:
    """Return the network of one operator; equal calls under one configuration share it."""
    device_id = acl.current_device
    dump = acl.dumps.current()
    plan = None if dump is None else acl.dumps.plan_of(dump, device_id)
    # everything that a network is built from: another shape, value of a constant input or dump is another one
    key = (
        op_type,
        tuple(
            (item.dtype, item.shape, item.format, None if item.value is None else item.value.tobytes())
            for item in inputs
        ),
        tuple(expected),
        repr(sorted(attributes.items())),
        device_id,
        plan,
    )
    with acl.lock:
        if key not in acl.operators:
            while len(acl.operators) >= _MOST_KEPT:  # the oldest goes first
                del acl.operators[next(iter(acl.operators))]
            graph = _graph(op_type, inputs, expected, attributes)
            single = SingleOperator(op_type, "" if dump is None else dump.time)
            if dump is None or plan is None:
                network = Network(graph, None, PROCESS.beside(), context(device_id))
            else:  # dump_step does not apply: single calls are no steps
                every = replace(plan, when=replace(plan.when, iterations=IterationSet()))
                network = Network(graph, every, dump.process, model=single)
            acl.operators[key] = network, single
        return acl.operators[key]


def _graph(
    op_type: str, inputs: Sequence[CallOperand], expected: Sequence[TensorDesc], attributes: Mapping[str, Any]
) -> Graph:
    try:
        return loader.load(
            single_operator(op_type, inputs, [_operand(desc) for desc in expected], attributes)
        )
    except UnsupportedOpError as error:
        raise AclError(AclCode.OP_NOT_FOUND, str(error)) from error
    except InputCountError as error:
        raise AclError(AclCode.OP_INPUT_NOT_MATCH, str(error)) from error
    except (InputError, GraphError) as error:
        raise AclError(AclCode.OP_ATTR_NOT_MATCH, str(error)) from error


def _result(array: Any, desc: TensorDesc) -> np.ndarray:
    """Return a result in the type that its description says."""
    wanted = _TYPES[desc.dtype]
    if not isinstance(array, np.ndarray) or array.shape != desc.shape:
        shape = getattr(array, "shape", None)
        raise AclError(
            AclCode.OP_OUTPUT_NOT_MATCH, f"the result has shape {shape}, its description {desc.shape}"
        )
    # ONNX's indices are int64 where GE's are int32
    are_integers = array.dtype.kind in "iu" and wanted.numpy.kind in "iu"
    if dtypes.from_numpy(array.dtype) is not wanted and not are_integers:
        raise AclError(
            AclCode.OP_OUTPUT_NOT_MATCH, f"the result is {array.dtype}, its description says {wanted.name}"
        )
    return array.astype(wanted.numpy, copy=False)


def _check_counts(buffers: Sequence[int], described: Sequence[TensorDesc], code: AclCode, what: str) -> None:
    if len(buffers) != len(described):
        raise AclError(code, f"{len(described)} {what} are described, {len(buffers)} buffers are given")
