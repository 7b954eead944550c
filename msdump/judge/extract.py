"""One operator of a dump as a folder that reproduces it: its run and tensors, its model, and a script.

The model is that of the user, or is rebuilt from the graph file of the dump.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.errors import FormatError, InputError, UntoldOperatorError, name_hint
from msdump.graph import Graph, Node, ValueType, external_values, with_model_types, written_inputs
from msdump.graph.cutting import RegionModel, ValueShape, primitive_model, region_model
from msdump.judge import inputs, reports
from msdump.judge.pair import part_types
from msdump.judge.rerun import fitting, in_type
from msdump.read import (
    Dump,
    Iteration,
    OperatorRecord,
    Record,
    SourceKind,
    ValueForm,
    ValueSource,
    add_onnx_names,
    describe_miss,
    find_operators,
    parse_attributes,
    parse_value,
)
from msdump.record import DEFAULT_FORMAT, IO
from msdump.selector import IterationSet
from msdump.store import PARAMETER, sanitize


@dataclass(frozen=True)
class OperatorRun:
    """One run of an operator in a dump, with its tensors."""

    directory: Iteration
    records: tuple[Record, ...] = field(repr=False)
    passes: int = 1  # number of runs of the operator in this iteration

    @property
    def first(self) -> Record:
        """One of its tensors."""
        return self.records[0]

    @property
    def name(self) -> str:
        """Full name of the operator, or its name in files if the dump does not tell the full one."""
        return self.first.full_name or self.first.op_name

    @property
    def place(self) -> str:
        """Which run of the operator it is, in words."""
        passes = f", pass {self.first.pass_number}" if self.passes > 1 else ""
        return f"iteration {self.first.iteration}, rank {self.first.rank}{passes}"

    def of(self, io: IO) -> dict[int, Record]:
        """Return its inputs or outputs by slot."""
        return {record.slot: record for record in self.records if record.io is io}


def find_run(
    dump: Dump,
    operator: str,
    *,
    iteration: int | None = None,
    rank: int | None = None,
    pass_number: int | None = None,
) -> OperatorRun:
    """Return a run of an operator: without numbers its first pass in the last iteration of the first rank.

    ``operator`` is its full name, name in files, last component, or the name of its node in the model.

    Raises:
        InputError: The dump has no such operator, or several that the name may mean; or it has none of the
            iteration, rank or pass.
    """
    folders = [
        folder
        for folder in dump.iterations
        if rank in {None, folder.rank} and iteration in {None, folder.key.iteration}
    ]
    if not folders:
        ranks = {folder.rank for folder in dump.iterations}
        numbers = {folder.key.iteration or 0 for folder in dump.iterations}
        missing = f"iteration {iteration}, but {_ranges(numbers)}"
        if rank is not None and rank not in ranks:
            missing = f"rank {rank}, but {_ranges(ranks)}"
        raise InputError(f"{dump.path}: the dump has no {missing}")
    # the tensors of operators by name, but for tensors of which only statistics were saved
    known: dict[str, dict[str, list[Record]]] = {folder.path: {} for folder in folders}
    for folder in folders:
        for record in folder.records:
            if not record.is_parameter and record.path:
                known[folder.path].setdefault(record.full_name or record.op_name, []).append(record)
    names: dict[str, set[str]] = {name: set() for listed in known.values() for name in listed}
    for folder in folders:
        add_onnx_names(names, folder.operator_graph)
    if not names:
        raise InputError(f"the dump has no tensors of an operator {operator!r}")
    found = find_operators(operator, names)
    if len(found) != 1:
        raise InputError(describe_miss(operator, names, found))
    (name,) = found
    having = [folder for folder in folders if name in known[folder.path]]
    # the last iteration of the first rank
    directory = max(having, key=lambda each: (-each.rank, each.key.iteration or 0))
    passes = _by_pass(known[directory.path][name])
    number = min(passes) if pass_number is None else pass_number
    if number not in passes:
        raise InputError(f"{directory.path}: {name} has no pass {number}, but {_ranges(passes)}")
    return OperatorRun(directory, tuple(passes[number]), len(passes))


def _run_in(folder: Iteration, name: str, number: int) -> OperatorRun | None:
    """Return an operator's or parameter's run by its pass in an iteration; None if it was not dumped."""
    spelled = sanitize(name)
    passes = _by_pass(
        record
        for record in folder.records
        if record.path and (record.full_name == name or sanitize(record.op_name) == spelled)
    )
    if not passes:
        return None
    # without this pass the last one: an operator outside of a loop has only one
    return OperatorRun(folder, tuple(passes.get(number) or passes[max(passes)]), len(passes))


def _by_pass(records: Iterable[Record]) -> dict[int, list[Record]]:
    passes: dict[int, list[Record]] = {}
    for record in records:
        passes.setdefault(record.pass_number, []).append(record)
    return passes


def _ranges(numbers: Iterable[int]) -> str:
    return str(IterationSet.of_numbers(numbers)) or "none"


_ON_HOST: Final = frozenset({DEFAULT_FORMAT, "NCHW", "ND", ""})
"""Memory formats with the host's order of elements."""


def _host_array(record: Record, shape: tuple[int, ...] | None, groups: int = 1) -> np.ndarray:
    """Return the elements of a tensor in the host's layout, in a shape (None: not known)."""
    is_formatted = not isinstance(record, OperatorRecord) and record.format not in _ON_HOST
    if is_formatted and shape is None:
        raise InputError(
            f"{record.path}: it lies in {record.format}, and its shape on the host is not known; give the"
            " model with --model"
        )
    try:
        array = record.host
        if is_formatted and shape is not None:
            array = formats.decode(record.format, array, shape, groups)
    except FormatError as error:
        raise InputError(f"{record.path}: {error}; give the model with --model") from error
    if array.dtype.kind in "OUS":
        raise InputError(
            f"{record.path}: {record} holds text, and an .npz file of plain arrays cannot hold text"
        )
    if array.dtype.isbuiltin != 1:  # a type that numpy lacks; all of them are exact in float32
        array = array.astype(np.float32)
    if shape is None or array.size != math.prod(shape):
        return np.ascontiguousarray(array)
    return array.reshape(shape)


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor that an operator read or wrote."""

    name: str  # input_0, output_0 or the like
    io: IO
    dtype: str  # its element type on the device
    array: np.ndarray
    layout: str  # memory format of the elements; "" for the host's row-major order


def tensors_of(run: OperatorRun) -> tuple[KeptTensor, ...]:
    """Return the tensors of a run of an operator, inputs first.

    Raises:
        InputError: No input or no output of it was dumped, or a tensor holds text.
    """
    kept = []
    for io in IO:
        if not run.of(io):
            raise InputError(
                f"{run.directory.path}: no {io} of {run.name} was dumped, and its value is unknown"
            )
        for slot, record in sorted(run.of(io).items()):
            try:
                array, layout = _host_array(record, None), ""
            except InputError:  # the layout cannot be undone without the shape on the host
                array, layout = record.array, record.format
                if array.dtype.kind in "OUS":
                    raise
                array = array if array.dtype.isbuiltin == 1 else array.astype(np.float32)
            kept.append(KeptTensor(f"{io}_{slot}", io, record.dtype, array, layout))
    return tuple(kept)


_TENSOR: Final = "Tensor("
"""Prefix of a constant tensor in graph files, which may not show all elements."""


_Parts = tuple[RegionModel, dict[str, np.ndarray], dict[str, np.ndarray]]
"""The model of an operator, and its inputs and outputs by name."""


def _by_graph_file(run: OperatorRun) -> _Parts:
    """Rebuild an operator from a graph file; its inputs are ``input_0``, ..., its output ``output_0``."""
    directory, operator = run.directory, run.first.operator.node
    if operator is None:
        raise UntoldOperatorError(
            f"{directory.path}: no graph file of the dump describes {run.name}; give the model with --model"
        )
    parts = part_types(operator)
    if len(parts) > 1 and "".join(parts) != operator.op_type:
        raise UntoldOperatorError(
            f"{directory.path}: {run.name} is one kernel of {', '.join(parts)}, but the graph file"
            f" describes only {operator.op_type}; give the model with --model"
        )
    if written_inputs(operator.op_type):
        raise InputError(f"{directory.path}: {run.name} writes inputs in place; give the model with --model")
    forms = operator.outputs or (ValueForm(),)
    written = run.of(IO.OUTPUT).get(0)
    if written is None:
        raise _without_outputs(run)
    outputs = {"output_0": _array_of_form(written, forms[0])}
    graph, dumped, inputs = directory.operator_graph, run.of(IO.INPUT), dict[str, np.ndarray]()
    tensors: list[tuple[str, ValueShape, np.ndarray] | None] = []
    constants: dict[int, Any] = {}
    for slot, source in enumerate(operator.inputs):
        # arguments are in the graph file, and become attributes; MindSpore dumps some as tensors, too
        is_argument = source.kind is SourceKind.CONSTANT and not source.name.startswith(_TENSOR)
        record = None if is_argument else dumped.get(slot) or _producer_output(run, source)
        if record is not None:
            form = ValueForm() if graph is None else graph.form_of(source)
            name, array = f"input_{slot}", _array_of_form(record, form)
            inputs[name] = array
            tensors.append((name, ValueShape(dtypes.from_numpy(array.dtype), array.shape), array))
            continue
        if source.kind not in {SourceKind.CONSTANT, SourceKind.ABSENT}:
            raise InputError(
                f"{directory.path}: neither input {slot} of {run.name} nor its source {source.name} was"
                " dumped"
            )
        tensors.append(None)
        if source.kind is SourceKind.CONSTANT:
            constants[slot] = parse_value(source.name)
    while tensors and tensors[-1] is None:
        tensors.pop()
    attributes = parse_attributes(operator.attributes)
    types = [
        ValueType(dtypes.from_name(form.dtype), form.shape) if form.dtype else None
        for form in operator.outputs
    ]
    model = primitive_model(operator.op_type, attributes, tensors, constants, "output_0", types)
    return model, inputs, outputs


def _without_outputs(run: OperatorRun) -> InputError:
    return InputError(
        f"{run.directory.path}: no output of {run.name} was dumped, so there is nothing to compare"
    )


def _producer_output(run: OperatorRun, source: ValueSource) -> Record | None:
    """Return the tensor of an input by its producer: an operator's output, or a parameter."""
    directory = run.directory
    if source.kind is SourceKind.OPERATOR:
        producer = _run_in(directory, source.name, run.first.pass_number)
        return None if producer is None else producer.of(IO.OUTPUT).get(source.slot)
    if source.kind not in {SourceKind.WEIGHT, SourceKind.INPUT}:
        return None
    parameters = (record for record in directory.records if record.op_type == PARAMETER)
    return next((each for each in parameters if source.name in {each.full_name, each.op_name}), None)


def _array_of_form(record: Record, form: ValueForm) -> np.ndarray:
    """Return a tensor; UntoldOperatorError if its type or shape contradicts the graph file."""
    is_settled = form.shape is not None and min(form.shape, default=0) >= 0
    shape = form.shape if is_settled else None
    array = _host_array(record, shape)
    if (form.dtype and form.dtype != record.dtype) or (shape is not None and shape != array.shape):
        raise UntoldOperatorError(
            f"{record.path}: the graph file of the dump has {form.dtype}{list(shape or ())} here, but the"
            f" file has {record.dtype}{list(array.shape)}: the numbers of the operators differ; give the"
            " model with --model"
        )
    return array


def _by_model(run: OperatorRun, dump: Dump, whole: Graph) -> _Parts:
    """Cut an operator out of a model; weights that were not dumped are no inputs, but in its model."""
    graph, node = _find_node(run, whole)
    groups = node.attributes.get("group", 1)
    number = run.first.pass_number

    def array(name: str, record: Record) -> np.ndarray:
        declared = graph.type_of(name)
        shape = tuple(size for size in declared.shape or () if isinstance(size, int))
        shape_known = shape if declared.is_settled else None
        return _host_array(record, shape_known, groups if isinstance(groups, int) else 1)

    dumped = run.of(IO.OUTPUT)
    written = enumerate(node.declared_outputs)
    outputs = {name: array(name, dumped[slot]) for slot, name in written if name and slot in dumped}
    if not outputs:
        raise _without_outputs(run)
    read, inputs = run.of(IO.INPUT), dict[str, np.ndarray]()
    for name in external_values([node]):
        slots = [slot for slot, value in enumerate(node.inputs) if value == name]
        slot = next((slot for slot in slots if slot in node.update.new_values), None)
        record = next((read[each] for each in slots if each in read), None)
        if slot is not None:  # overwritten: its own file has the new value, the iteration before the old one
            key = run.directory.key
            wanted = replace(key, iteration=(key.iteration or 0) - 1)
            folder = next((folder for folder in dump.iterations if folder.key == wanted), None)
            earlier = None if folder is None else _run_in(folder, run.name, number)
            record = None if earlier is None else earlier.of(IO.INPUT).get(slot)
        elif record is None:
            writer = next((each for each in graph.nodes if name in each.outputs), None)
            if writer is not None:
                producer = _run_in(run.directory, writer.operator.full_name, number)
                at = writer.outputs.index(name)
                record = None if producer is None else producer.of(IO.OUTPUT).get(at)
        if record is not None:
            inputs[name] = array(name, record)
        elif slot is not None and name in graph.weights and not run.first.iteration:
            inputs[name] = np.array(graph.weights[name])
        elif slot is not None:
            raise InputError(
                f"{run.directory.path}: {run.name} writes its input {slot} ({name}) in place, and"
                " its value before that is unknown: the iteration before was not dumped"
            )
        elif name not in graph.weights:
            raise InputError(
                f"{run.directory.path}: neither input {name!r} of {run.name} nor its source was dumped"
            )
    forms = {
        name: ValueShape(graph.type_of(name).dtype or dtypes.from_numpy(each.dtype), each.shape)
        for name, each in inputs.items()
    }
    return region_model(graph, [node], forms, tuple(outputs)), inputs, outputs


def _find_node(run: OperatorRun, model: Graph) -> tuple[Graph, Node]:
    """Return an operator of a dump, and the graph or body that holds it, in the form that the device ran."""
    dumped = {record.op_name: "" for record in run.directory.records if not record.is_parameter}
    models = [model] if model.step is model else [model, model.step]
    compiled = fitting(models, dumped)
    for graph in compiled.graph.walk():
        for node in graph.operators:
            if sanitize(node.operator.full_name) == sanitize(run.name):
                # an inserted Cast keeps device types: the model has one type for its input and output
                return graph if node.is_added else with_model_types(graph), node
    known = {node.operator.full_name for graph in compiled.graph.walk() for node in graph.operators}
    raise InputError(f"{model.source}: the model has no operator {run.name}{name_hint(run.name, known)}")


@dataclass(frozen=True, slots=True)
class Repro:
    """Model and tensors that reproduce one run of an operator."""

    model: bytes  # the operator's model, serialised
    inputs: Mapping[str, np.ndarray]  # inputs of the model, by name
    outputs: Mapping[str, np.ndarray]  # its dumped outputs, by name in the model


def reproduce(run: OperatorRun, dump: Dump, graph: Graph | None) -> Repro:
    """Return the model and tensors that reproduce a run of an operator, by its model or the graph file.

    Raises:
        InputError: The model has no such operator, or the dump lacks its inputs or outputs.
        UntoldOperatorError: No graph file has the operator, or only a part of it.
        UnsupportedOpError: The graph file does not tell how the operator computes.
    """
    model, inputs, outputs = _by_graph_file(run) if graph is None else _by_model(run, dump, graph)
    arrays = {name: in_type(inputs[name], dtype) for name, dtype in model.inputs.items()}
    return Repro(model.data, arrays, outputs)


MODEL: Final = "model.onnx"
INPUTS: Final = "inputs.npz"
OUTPUTS: Final = "outputs.npz"
DESCRIPTION: Final = "operator.json"


def write_tensors(run: OperatorRun, tensors: Sequence[KeptTensor], reason: str, folder: str) -> list[str]:
    """Write the tensors of an operator and the reason why it has no model; return the paths of the files."""
    arrays = [{each.name: each.array for each in tensors if each.io is io} for io in IO]
    paths = _write_arrays(folder, *arrays)
    description = {
        "operator": run.name,
        "type": run.first.op_type,
        "run": run.place,
        "source": run.first.source,
        "model": None,
        "reason": reason,
        "tensors": {
            each.name: {"shape": each.array.shape, "dtype": each.dtype, "layout": each.layout or "host"}
            for each in tensors
        },
    }
    paths.append(reports.write(folder, DESCRIPTION, [json.dumps(description, indent=2), "\n"]))
    return paths


def _write_arrays(
    folder: str, read: Mapping[str, np.ndarray], written: Mapping[str, np.ndarray]
) -> list[str]:
    files = {INPUTS: read, OUTPUTS: written}
    return [inputs.write_arrays(Path(folder, name).resolve(), arrays) for name, arrays in files.items()]


def write_folder(run: OperatorRun, repro: Repro, folder: str) -> list[str]:
    """Write model, tensors and script into a folder, which is made; return the paths of the files."""
    paths = [reports.write_bytes(folder, MODEL, [repro.model])]
    paths += _write_arrays(folder, repro.inputs, repro.outputs)
    what = f"{run.name} ({run.first.op_type}; {run.place}), and its dumped outputs"
    return [*paths, reports.write_script(folder, what, INPUTS, (OUTPUTS, MODEL), [*repro.outputs])]
