"""``acl.mdl``: models and their dump."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from msdump import reading
from msdump.capture.compiled_dump import ModelIdentity
from msdump.capture.process import Process
from msdump.config.acl_codes import AclCode
from msdump.config.acl_faults import null_pointer, out_of_turn
from msdump.errors import AclError, GraphError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.dumps import context
from msdump.frontends.acl.loaded import LoadedModel, acl_format, acl_type, declared_shape, nbytes
from msdump.frontends.acl.objects import DataBuffer, Dataset, ModelDesc, Stream, TensorDesc
from msdump.frontends.acl.state import State
from msdump.graph import loader
from msdump.graph.graph import Graph, Value
from msdump.session import Network

T = TypeVar("T")

_REPEATED: Final = "This API cannot be called repeatedly"


@answers.code
def init_dump() -> None:
    """Begin with dumps (``aclmdlInitDump``).

    Codes: 100001 before ``acl.init``, 100002 where it has begun already.
    """
    now = state.current()
    state.require_init(now, "aclmdlInitDump")
    if now.dumps.is_initialised:
        raise out_of_turn("aclmdlInitDump", _REPEATED, AclCode.REPEAT_INITIALIZE)
    now.dumps.is_initialised = True


@answers.code
def set_dump(dump_cfg_path: str | None) -> None:
    """Dump as a configuration file says (``aclmdlSetDump``); models loaded from now on take it.

    Args:
        dump_cfg_path: Path of an acl.json.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``, 100000 for None, 100003, 100006
    and 100009 for a file that cannot be used, 500000 where it goes with no exception dump that the
    environment has turned on.
    """
    now = state.current()
    _require_dump(now, "aclmdlSetDump")
    if dump_cfg_path is None:
        raise null_pointer("aclmdlSetDump", "dumpCfgPath")
    now.dumps.configure(_text(dump_cfg_path, "dumpCfgPath"))


@answers.code
def finalize_dump() -> None:
    """End with dumps (``aclmdlFinalizeDump``): every loaded model stops at once.

    Codes: 100001 before ``acl.init``, 100045 before ``init_dump``.
    """
    now = state.current()
    _require_dump(now, "aclmdlFinalizeDump")
    now.dumps.is_initialised = False
    now.dumps.stop()


@answers.value_and_code(0)
def load_from_file(model_path: str | None) -> int:
    """Load an .onnx file; return the model's number, from 1.

    Codes: 145001 before ``acl.init``, 145002 for a file that is missing, empty or unreadable,
    100013 for one that is no model, 100000 for None.
    """
    if model_path is None:
        raise null_pointer("aclmdlLoadFromFile", "modelPath")
    path = Path(_text(model_path, "modelPath"))
    try:
        with reading.open_file(path) as file:
            is_empty = os.fstat(file.fileno()).st_size == 0
    except OSError as error:
        raise AclError(AclCode.GE_EXEC_MODEL_PATH_INVALID, f"model {model_path}: {error.strerror}") from error
    if is_empty:
        raise AclError(AclCode.GE_EXEC_MODEL_PATH_INVALID, f"model {model_path}: the file is empty")
    return _load(lambda: loader.load(path), path.stem)


@answers.value_and_code(0)
def load_from_mem(model: int, model_size: int) -> int:
    """Load a model from its bytes in memory; return its number, from 1.

    Codes: 145001 before ``acl.init``, 100000 for memory that is not there, 100013 for bytes that
    are no model.
    """
    data = bytes(state.current().memory.view(model, model_size))
    return _load(lambda: loader.load(data), "")


@answers.code
def unload(model_id: int) -> None:
    """Unload a model; 145003 for a number that no loaded model has."""
    now = state.current()
    model = now.model(model_id)
    with now.lock:
        del now.models[model.model_id]


@answers.value(0)
def create_desc() -> int:
    """Return the handle of a new description."""
    return state.current().handles.add(ModelDesc())


@answers.code
def get_desc(model_desc: int, model_id: int) -> None:
    """Fill a description with a model; 145003 for a number that no loaded model has."""
    now = state.current()
    desc = now.handles.get(model_desc, ModelDesc)
    desc.model_id = now.model(model_id).model_id


@answers.code
def destroy_desc(model_desc: int) -> None:
    """Forget a description."""
    state.current().handles.remove(model_desc, ModelDesc)


@answers.value(0)
def get_num_inputs(model_desc: int) -> int:
    """Return how many inputs a model has."""
    return len(_described(model_desc).inputs)


@answers.value(0)
def get_num_outputs(model_desc: int) -> int:
    """Return how many outputs a model has."""
    return len(_described(model_desc).outputs)


@answers.value(0)
def get_input_size_by_index(model_desc: int, index: int) -> int:
    """Return the bytes of an input, 0 where the model leaves its shape open."""
    value = _at(_described(model_desc).inputs, index)
    return nbytes(value.type.dtype, declared_shape(value))


@answers.value(0)
def get_output_size_by_index(model_desc: int, index: int) -> int:
    """Return the bytes of an output, 0 where the model leaves its shape open and has not run yet."""
    model = _described(model_desc)
    value = _at(model.outputs, index)
    return nbytes(value.type.dtype, model.output_shape(index))


@answers.value("")
def get_input_name_by_index(model_desc: int, index: int) -> str:
    """Return the name of an input."""
    return _at(_described(model_desc).inputs, index).name


@answers.value("")
def get_output_name_by_index(model_desc: int, index: int) -> str:
    """Return the name of an output."""
    return _at(_described(model_desc).outputs, index).name


@answers.value_and_code(0)
def get_input_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of an input by its name."""
    return _index(_described(model_desc).inputs, name)


@answers.value_and_code(0)
def get_output_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of an output by its name."""
    return _index(_described(model_desc).outputs, name)


@answers.value_and_code(None)
def get_input_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an input, -1 for what the model leaves open."""
    value = _at(_described(model_desc).inputs, index)
    return _dims(value.name, declared_shape(value))


@answers.value_and_code(None)
def get_output_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an output, -1 for what the model leaves open."""
    value = _at(_described(model_desc).outputs, index)
    return _dims(value.name, declared_shape(value))


@answers.value_and_code(None)
def get_cur_output_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an output as the last run gave it."""
    model = _described(model_desc)
    return _dims(_at(model.outputs, index).name, model.output_shape(index))


@answers.value(-1)
def get_input_data_type(model_desc: int, index: int) -> int:
    """Return the aclDataType of an input."""
    return acl_type(_at(_described(model_desc).inputs, index).type.dtype)


@answers.value(-1)
def get_output_data_type(model_desc: int, index: int) -> int:
    """Return the aclDataType of an output."""
    return acl_type(_at(_described(model_desc).outputs, index).type.dtype)


@answers.value(-1)
def get_input_format(model_desc: int, index: int) -> int:
    """Return the aclFormat of an input."""
    return acl_format(declared_shape(_at(_described(model_desc).inputs, index)))


@answers.value(-1)
def get_output_format(model_desc: int, index: int) -> int:
    """Return the aclFormat of an output."""
    model = _described(model_desc)
    _at(model.outputs, index)
    return acl_format(model.output_shape(index))


@answers.value(0)
def create_dataset() -> int:
    """Return the handle of a new, empty dataset."""
    return state.current().handles.add(Dataset())


@answers.code
def destroy_dataset(dataset: int) -> None:
    """Forget a dataset; its buffers stay."""
    state.current().handles.remove(dataset, Dataset)


def add_dataset_buffer(dataset: int, buffer: int) -> tuple[int, int]:
    """Add a data buffer to a dataset; return the dataset and a code."""
    return dataset, _add_dataset_buffer(dataset, buffer)


@answers.code
def _add_dataset_buffer(dataset: int, buffer: int) -> None:
    handles = state.current().handles
    handles.get(buffer, DataBuffer)
    handles.get(dataset, Dataset).buffers.append(buffer)


@answers.value(0)
def get_dataset_num_buffers(dataset: int) -> int:
    """Return how many buffers a dataset has."""
    return len(state.current().handles.get(dataset, Dataset).buffers)


@answers.value(0)
def get_dataset_buffer(dataset: int, index: int) -> int:
    """Return the handle of a dataset's buffer, 0 for an index that it has not."""
    return _at(state.current().handles.get(dataset, Dataset).buffers, index)


def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> tuple[int, int]:
    """Say the shape of an input that the model leaves open; return the dataset and a code."""
    return dataset, _set_dataset_tensor_desc(dataset, tensor_desc, index)


@answers.code
def _set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    handles = state.current().handles
    shape = handles.get(tensor_desc, TensorDesc).shape
    found = handles.get(dataset, Dataset)
    _at(found.buffers, index)
    found.shapes[index] = shape


@answers.code
def execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    """Run a model; its outputs are in their buffers afterwards, its dump on disk.

    Codes: 145003 for a number that no loaded model has, 100000 for handles and memory that are not
    there, 100017 and 100018 for inputs and outputs that do not fit, 100004 for a dump that could not
    be written, 500002 for an operator that failed.
    """
    _execute(model_id, input_dataset, output_dataset)


@answers.code
def execute_async(model_id: int, input_dataset: int, output_dataset: int, stream: int) -> None:
    """Run a model on a stream; ``synchronize_stream`` tells whether it failed.

    Arguments are checked at once, as for ``execute``.
    """
    now = state.current()
    now.model(model_id)
    for dataset in (input_dataset, output_dataset):
        now.handles.get(dataset, Dataset)
    on_stream(now.stream(stream), lambda: _execute(model_id, input_dataset, output_dataset))


def on_stream(stream: Stream, call: Callable[[], None]) -> None:
    """Do a stream's work at once; what goes wrong is told when the stream is synchronised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the stream tells it
        found = answers.code_of(error)
        stream.failure = stream.failure or found


def _execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    now = state.current()
    model = now.model(model_id)
    inputs = now.handles.get(input_dataset, Dataset)
    outputs = now.handles.get(output_dataset, Dataset)
    if len(outputs.buffers) != len(model.outputs):
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"model {model_id} has {len(model.outputs)} outputs, the dataset has {len(outputs.buffers)}",
        )
    with now.lock:
        views = [device_view(now, handle) for handle in inputs.buffers]
        for handle in outputs.buffers:
            device_view(now, handle, writes=True)
        results = model.execute(views, inputs.shapes)
        for handle, array in zip(outputs.buffers, results, strict=True):
            write_result(now, handle, array)


def device_view(now: State, handle: int, *, writes: bool = False) -> memoryview:
    """Return the device memory of a data buffer.

    Args:
        now: The process.
        handle: Of the data buffer.
        writes: Whether it will be changed; a buffer without memory is reserved then.

    Raises:
        AclError: There is no such memory, or it is the host's.
    """
    buffer = now.handles.get(handle, DataBuffer)
    if writes and not buffer.address:
        return memoryview(b"")
    if buffer.address and not now.memory.is_device(buffer.address):
        raise AclError(
            AclCode.INVALID_PARAM,
            f"{buffer.address:#x} is no memory of the device; copy the tensor there with acl.rt.memcpy",
        )
    return now.memory.view(buffer.address, buffer.size, writes=writes)


def write_result(now: State, handle: int, array: np.ndarray) -> None:
    """Copy an output into its data buffer; one without memory gets it now.

    Raises:
        AclError: 100018: the buffer is too small.
    """
    buffer = now.handles.get(handle, DataBuffer)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not buffer.address and data.size:
        buffer.address, buffer.size = now.memory.malloc(data.size), data.size
    if data.size > buffer.size:
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"an output of {data.size} bytes does not fit into a buffer of {buffer.size}",
        )
    if data.size:
        now.memory.view(buffer.address, data.size, writes=True)[:] = data.data


def _load(read: Callable[[], Graph], file_name: str) -> int:
    now = state.current()
    now.require_initialised("load")
    try:
        graph = read()
    except GraphError as error:
        raise AclError(AclCode.PARSE_MODEL, str(error)) from error
    with now.lock:
        model_id = next(now.model_numbers)
        now.models[model_id] = _loaded(now, graph, file_name, model_id)
    return model_id


def _loaded(now: State, graph: Graph, file_name: str, model_id: int) -> LoadedModel:
    device_id = now.current_device
    dump = now.dumps.current(device_id)
    if dump is None:
        process = Process()
        return LoadedModel(model_id, Network(graph, None, process, context(device_id)), process)
    identity = ModelIdentity(file_name, model_id, dump.time)
    network = Network(graph, dump.plan, dump.process, model=identity)
    return LoadedModel(model_id, network, dump.process)


def _described(model_desc: int) -> LoadedModel:
    now = state.current()
    return now.model(now.handles.get(model_desc, ModelDesc).model_id)


def _require_dump(now: State, function: str) -> None:
    state.require_init(now, function)
    if not now.dumps.is_initialised:
        reason = f"aclmdlInitDump must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.DUMP_NOT_RUN)


def _at(items: Sequence[T], index: Any) -> T:
    if not isinstance(index, int) or not 0 <= index < len(items):
        raise AclError(AclCode.INVALID_PARAM, f"index {index!r}: there are {len(items)}, counted from 0")
    return items[index]


def _index(values: Sequence[Value], name: str) -> int:
    for index, value in enumerate(values):
        if value.name == name:
            return index
    known = ", ".join(value.name for value in values)
    raise AclError(AclCode.INVALID_PARAM, f"no input or output is named {name!r}; there are {known}")


def _dims(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "dims": list(shape), "dimCount": len(shape)}


def _text(value: object, parameter: str) -> str:
    if not isinstance(value, str):
        raise AclError(AclCode.INVALID_PARAM, f"{parameter} = {value!r}: a path is expected")
    return value
