"""``acl.mdl``: models from files and memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msdump import reading
from msdump.capture.process import PROCESS
from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import null_pointer
from msdump.counters import ModelIdentity, RunCounter
from msdump.errors import AclError, GraphError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.arguments import path_text
from msdump.frontends.acl.dumps import context
from msdump.frontends.acl.loaded import LoadedModel
from msdump.frontends.acl.state import AclState
from msdump.graph import loader
from msdump.graph.graph import Graph
from msdump.session import Network


@answers.value_and_code(0)
def load_from_file(model_path: str | None) -> int:
    """Load an .onnx file; return the model's number, from 1.

    Codes: 145001 before ``acl.init``, 145002 for a file that is missing, empty or unreadable,
    100013 for one that is no model, 100000 for None.
    """
    if model_path is None:
        raise null_pointer("aclmdlLoadFromFile", "modelPath")
    path = Path(path_text(model_path, "modelPath"))
    try:
        with reading.open_file(path) as file:
            is_empty = os.fstat(file.fileno()).st_size == 0
    except OSError as error:
        raise AclError(AclCode.GE_EXEC_MODEL_PATH_INVALID, f"model {model_path}: {error.strerror}") from error
    # vendor: an empty file counts as a wrong path, one that cannot be parsed as a wrong model
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
        acl.models[model_id] = _loaded(acl, graph, file_name, model_id)
    return model_id


def _loaded(acl: AclState, graph: Graph, file_name: str, model_id: int) -> LoadedModel:
    device_id = acl.current_device
    # here, not at the run: a model keeps the configuration that it was loaded under
    dump = acl.dumps.current(device_id)
    if dump is None:
        return LoadedModel(model_id, Network(graph, None, PROCESS.beside(), context(device_id)))
    identity = ModelIdentity(file_name, model_id, dump.time, RunCounter())
    network = Network(graph, dump.plan, dump.process, model=identity)
    dump.usage.loaded(file_name, graph.name)
    return LoadedModel(model_id, network, dump.usage)
