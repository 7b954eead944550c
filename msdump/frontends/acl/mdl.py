"""``acl.mdl``: loads, describes and runs models, and configures their dump.

The functions return codes (0 for success) and never raise, as in pyACL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msdump import reading
from msdump.capture import PROCESS
from msdump.config.acl import AclCode, invalid, null_pointer, out_of_turn
from msdump.counters import ModelIdentity, RunCounter
from msdump.errors import AclError, GraphError
from msdump.frontends.acl import state
from msdump.frontends.acl.state import (
    AclState,
    DataBuffer,
    Dataset,
    LoadedModel,
    ModelDesc,
    TensorDesc,
    context,
    device_view,
    item_at,
    nbytes,
    text,
    write_result,
)
from msdump.graph import Graph, Value, loader
from msdump.session import Network

_IMAGE: Final = 4
_NCHW: Final = 0
_ND: Final = 2
_UNDEFINED_TYPE: Final = -1


create_dataset = state.creator(Dataset)
destroy_dataset = state.destroyer(Dataset)
"""Destroy a dataset; its buffers stay."""


def add_dataset_buffer(dataset: int, buffer: int) -> tuple[int, int]:
    """Add a data buffer to a dataset; return the dataset and a code."""
    return dataset, _add_dataset_buffer(dataset, buffer)


@state.code
def _add_dataset_buffer(dataset: int, buffer: int) -> None:
    handles = state.current().handles
    handles.get(buffer, DataBuffer)
    handles.get(dataset, Dataset).buffers.append(buffer)


get_dataset_num_buffers = state.fact(Dataset, lambda dataset: len(dataset.buffers))
"""Return how many buffers a dataset has."""


@state.value(0)
def get_dataset_buffer(dataset: int, index: int) -> int:
    """Return the handle of a buffer of a dataset, 0 for an unknown index."""
    return item_at(state.current().handles.get(dataset, Dataset).buffers, index)


def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> tuple[int, int]:
    """Set the shape of an input with dynamic dimensions; return the dataset and a code."""
    return dataset, _set_dataset_tensor_desc(dataset, tensor_desc, index)


@state.code
def _set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    handles = state.current().handles
    shape = handles.get(tensor_desc, TensorDesc).shape
    target = handles.get(dataset, Dataset)
    item_at(target.buffers, index)  # an index without a buffer is an error
    target.shapes[index] = shape


create_desc = state.creator(ModelDesc)
destroy_desc = state.destroyer(ModelDesc)


@state.code
def get_desc(model_desc: int, model_id: int) -> None:
    """Fill a model description from a loaded model; code 145003 for an unknown number."""
    acl = state.current()
    desc = acl.handles.get(model_desc, ModelDesc)
    desc.model_id = acl.model(model_id).model_id


get_num_inputs = state.fact(ModelDesc, lambda desc: len(_described(desc).inputs))
"""Return how many inputs a model has."""

get_num_outputs = state.fact(ModelDesc, lambda desc: len(_described(desc).outputs))
"""Return how many outputs a model has."""


@state.value_and_code(0)
def get_input_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of the input with a name."""
    return _index(_model(model_desc).inputs, name)


@state.value_and_code(0)
def get_output_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of the output with a name."""
    return _index(_model(model_desc).outputs, name)


Described = tuple[Value, tuple[int, ...]]
"""An input or output of a model, and its shape: -1 for an open dimension, -2 alone where all are open."""


def _input(model_desc: int, index: int) -> Described:
    value = item_at(_model(model_desc).inputs, index)
    return value, value.type.shown_shape


def _output(model_desc: int, index: int) -> Described:
    value = item_at(_model(model_desc).outputs, index)
    return value, value.type.shown_shape


def _current_output(model_desc: int, index: int) -> Described:
    """Return an output with its shape in the last run, or before the first run the model's shape."""
    model = _model(model_desc)
    value = item_at(model.outputs, index)
    return value, model.shapes[index] if model.shapes else value.type.shown_shape


def _size(value: Value, shape: tuple[int, ...]) -> int:
    return nbytes(value.type.dtype, shape)


def _name(value: Value, _: tuple[int, ...]) -> str:
    return value.name


def _type(value: Value, _: tuple[int, ...]) -> int:
    dtype = value.type.dtype
    return _UNDEFINED_TYPE if dtype is None or dtype.acl is None else dtype.acl


def _format(_: Value, shape: tuple[int, ...]) -> int:
    return _NCHW if len(shape) == _IMAGE else _ND


def _dims(value: Value, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": value.name, "dims": list(shape), "dimCount": len(shape)}


def _getter(
    decorate: Callable[..., Any], find: Callable[[int, int], Described], fact: Callable[..., Any]
) -> Any:
    """Return a function of pyACL for a fact of an input or output: ``function(model_desc, index)``."""

    @decorate
    def get(model_desc: int, index: int) -> Any:
        return fact(*find(model_desc, index))

    return get


# sizes are 0 and types -1 where the model leaves them open
get_input_size_by_index = _getter(state.value(0), _input, _size)
get_output_size_by_index = _getter(state.value(0), _current_output, _size)
get_input_name_by_index = _getter(state.value(""), _input, _name)
get_output_name_by_index = _getter(state.value(""), _output, _name)
get_input_data_type = _getter(state.value(-1), _input, _type)
get_output_data_type = _getter(state.value(-1), _output, _type)
get_input_format = _getter(state.value(-1), _input, _format)
get_output_format = _getter(state.value(-1), _current_output, _format)
get_input_dims = _getter(state.value_and_code(None), _input, _dims)
get_output_dims = _getter(state.value_and_code(None), _output, _dims)
get_cur_output_dims = _getter(state.value_and_code(None), _current_output, _dims)


def _described(desc: ModelDesc) -> LoadedModel:
    return state.current().model(desc.model_id)


def _model(model_desc: int) -> LoadedModel:
    return _described(state.current().handles.get(model_desc, ModelDesc))


def _index(values: Sequence[Value], name: str) -> int:
    """Return the index of the input or output of a name."""
    for index, value in enumerate(values):
        if value.name == name:
            return index
    names = ", ".join(value.name for value in values)
    raise invalid(f"no input or output has the name {name!r}; there are {names}")


_REPEATED: Final = "This API cannot be called repeatedly"


@state.code
def init_dump() -> None:
    """Allow dumps to be configured (``aclmdlInitDump``).

    Codes: 100001 before ``acl.init``, 100002 for a second call.
    """
    acl = state.current()
    state.require_init(acl, "aclmdlInitDump")
    if acl.dumps.is_initialised:
        raise out_of_turn("aclmdlInitDump", _REPEATED, AclCode.REPEAT_INITIALIZE)
    acl.dumps.is_initialised = True


@state.code
def set_dump(dump_cfg_path: str | None) -> None:
    """Configure the dump of models that are loaded later (``aclmdlSetDump``).

    Args:
        dump_cfg_path: Path of an acl.json.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``, 100000 for None, 100003, 100006
    and 100009 for an invalid file, 500000 if an exception dump of the environment excludes this dump.
    """
    acl = state.current()
    _require_dump(acl, "aclmdlSetDump")
    if dump_cfg_path is None:
        raise null_pointer("aclmdlSetDump", "dumpCfgPath")
    acl.dumps.configure(text(dump_cfg_path, "dumpCfgPath", "a path"))


@state.code
def finalize_dump() -> None:
    """End every dump (``aclmdlFinalizeDump``); loaded models stop dumping at once.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``.
    """
    acl = state.current()
    _require_dump(acl, "aclmdlFinalizeDump")
    acl.dumps.is_initialised = False
    acl.dumps.stop()


def _require_dump(acl: AclState, function: str) -> None:
    state.require_init(acl, function)
    if not acl.dumps.is_initialised:
        reason = f"aclmdlInitDump must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.DUMP_NOT_RUN)


@state.value_and_code(0)
def load_from_file(model_path: str | None) -> int:
    """Load an .onnx file; return the model's number, from 1.

    Codes: 145001 before ``acl.init``, 145002 for a missing, empty or unreadable file, 100013 for a file
    without a model, 100000 for None.
    """
    if model_path is None:
        raise null_pointer("aclmdlLoadFromFile", "modelPath")
    path = Path(text(model_path, "modelPath", "a path"))
    try:
        with reading.open_file(path) as file:
            is_empty = os.fstat(file.fileno()).st_size == 0
    except OSError as error:
        raise AclError(AclCode.GE_EXEC_MODEL_PATH_INVALID, f"model {model_path}: {error.strerror}") from error
    # vendor: an empty file counts as a wrong path, one that cannot be parsed as a wrong model
    if is_empty:
        raise AclError(AclCode.GE_EXEC_MODEL_PATH_INVALID, f"model {model_path}: the file is empty")
    return _load(lambda: loader.load(path), path.stem)


@state.value_and_code(0)
def load_from_mem(model: int, model_size: int) -> int:
    """Load a model from bytes in memory; return the model's number, from 1.

    Codes: 145001 before ``acl.init``, 100000 for an invalid address, 100013 for bytes without a model.
    """
    data = bytes(state.current().memory.view(model, model_size))
    return _load(lambda: loader.load(data), "")


@state.code
def unload(model_id: int) -> None:
    """Unload a model; code 145003 for an unknown number."""
    acl = state.current()
    model = acl.model(model_id)
    with acl.lock:
        del acl.models[model.model_id]


def _load(read: Callable[[], Graph], file_name: str) -> int:
    acl = state.current()
    acl.require_initialised("load")
    try:
        graph = read()
    except GraphError as error:
        raise AclError(AclCode.PARSE_MODEL, str(error)) from error
    with acl.lock:
        model_id = next(acl.counters.model_ids)
        device_id = acl.current_device
        # here, not at the run: a model keeps the configuration that it was loaded under
        dump = acl.dumps.current()
        if dump is None:
            acl.models[model_id] = LoadedModel(
                model_id, Network(graph, None, PROCESS.beside(), context(device_id))
            )
        else:
            identity = ModelIdentity(file_name, model_id, dump.time, RunCounter())
            network = Network(graph, acl.dumps.plan_of(dump, device_id), dump.process, model=identity)
            dump.names |= dict.fromkeys(filter(None, (file_name, graph.name)))
            acl.models[model_id] = LoadedModel(model_id, network, dump)
    return model_id


@state.code
def execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    """Run a model, fill the buffers of the outputs, and write the dump.

    Codes: 145003 for an unknown number, 100000 for an invalid handle or address, 100017 and 100018 for inputs
    and outputs of a wrong size, 100004 for a dump that cannot be written, 500002 for a failed operator.
    """
    _execute(model_id, input_dataset, output_dataset)


@state.code
def execute_async(model_id: int, input_dataset: int, output_dataset: int, stream: int) -> None:
    """Run a model on a stream; ``synchronize_stream`` returns the failure of the run.

    Arguments are checked at once, as in ``execute``.
    """
    acl = state.current()
    acl.model(model_id)
    for dataset in (input_dataset, output_dataset):
        acl.handles.get(dataset, Dataset)
    state.on_stream(acl.stream(stream), lambda: _execute(model_id, input_dataset, output_dataset))


def _execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    acl = state.current()
    model = acl.model(model_id)
    inputs = acl.handles.get(input_dataset, Dataset)
    outputs = acl.handles.get(output_dataset, Dataset)
    if len(outputs.buffers) != len(model.outputs):
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"model {model_id} has {len(model.outputs)} outputs, the dataset has {len(outputs.buffers)}",
        )
    with acl.lock:  # one call at a time: another one may write the buffers that this one reads
        views = [device_view(acl, handle) for handle in inputs.buffers]
        for handle in outputs.buffers:  # refused before the model runs and dumps
            device_view(acl, handle, writes=True)
        results = model.execute(views, inputs.shapes)
        for handle, array in zip(outputs.buffers, results, strict=True):
            write_result(acl, handle, array)
