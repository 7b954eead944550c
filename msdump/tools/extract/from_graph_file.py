"""A dumped operator as the graph file of its dump tells it: type, arguments, and what gives its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError, UntoldOperatorError
from msdump.graph.cutting.primitives import primitive_model
from msdump.graph.cutting.region import RegionModel, ValueShape
from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.store.names import PARAMETER
from msdump.store.read.graphs import arguments
from msdump.store.read.graphs.operator_graph import SourceKind, ValueForm, ValueSource
from msdump.store.read.records import Record
from msdump.tools.extract.dumped_operator import OperatorRun, sibling
from msdump.tools.extract.tensors import host_array
from msdump.tools.matching.sides import part_types

_TENSOR: Final = "Tensor("
"""Begins a constant that is a tensor, of which the file may not show all elements."""


class FromGraphFile:
    """An operator of a graph file, with the tensors of one of its runs."""

    def __init__(self, run: OperatorRun) -> None:
        """Find the operator in the graph file.

        Raises:
            UntoldOperatorError: The dump has no graph file, or that has no such operator, or tells a part of
                it alone.
            InputError: The operator writes inputs in place.
            DumpReadError: The graph file cannot be read.
        """
        node = run.first.operator.node
        if node is None:
            raise UntoldOperatorError(
                f"{run.directory.path}: no graph file of the dump tells how {run.name} computes; give the"
                " model with --model"
            )
        parts = part_types(node)
        if len(parts) > 1 and "".join(parts) != node.op_type:
            raise UntoldOperatorError(
                f"{run.directory.path}: {run.name} is one kernel of {', '.join(parts)}, and the graph file"
                f" tells {node.op_type} alone; give the model with --model"
            )
        if written_inputs(node.op_type):
            raise InputError(
                f"{run.directory.path}: {run.name} writes inputs in place, which needs the model: --model"
            )
        self._run, self._operator = run, node

    def inputs(self) -> dict[str, np.ndarray]:
        """Return what the operator read that is no constant: ``input_0``, ``input_1``, ...

        Raises:
            InputError: An input was not dumped, nor the output that it is.
            DumpReadError: A file cannot be read.
        """
        graph = self._run.directory.operator_graph
        arrays = {}
        for slot, record in self._records().items():
            form = ValueForm() if graph is None else graph.form_of(self._operator.inputs[slot])
            arrays[_input(slot)] = self._array(record, form)
        return arrays

    def outputs(self) -> dict[str, np.ndarray]:
        """Return its first output.

        Raises:
            DumpReadError: A file cannot be read.
        """
        record = self._run.of(IO.OUTPUT).get(0)
        forms = self._operator.outputs or (ValueForm(),)
        return {} if record is None else {"output_0": self._array(record, forms[0])}

    def model(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> RegionModel:
        """Return its model.

        Args:
            inputs: What it is fed.
            outputs: What it is to give.

        Raises:
            UnsupportedOpError: The primitive is not known, or the file does not tell an argument.
        """
        operator = self._operator
        tensors: list[tuple[str, ValueShape, np.ndarray] | None] = []
        constants: dict[int, Any] = {}
        for slot, source in enumerate(operator.inputs):
            array = inputs.get(_input(slot))
            form = None if array is None else ValueShape(dtypes.from_numpy(array.dtype), array.shape)
            tensors.append(None if array is None or form is None else (_input(slot), form, array))
            if array is None and source.kind is SourceKind.CONSTANT:
                constants[slot] = arguments.value(source.name)
        while tensors and tensors[-1] is None:
            tensors.pop()
        attributes = arguments.attributes(operator.attributes)
        dtype = dtypes.from_name(operator.outputs[0].dtype) if operator.outputs else None
        return primitive_model(operator.op_type, attributes, tensors, constants, (outputs[0], dtype))

    def _records(self) -> dict[int, Record]:
        """Return the tensors of the inputs by slot: dumped as inputs, or as what gives them."""
        dumped, records = self._run.of(IO.INPUT), {}
        for slot, source in enumerate(self._operator.inputs):
            # of an argument the file tells the value; MindSpore dumps some as tensors, too
            is_argument = source.kind is SourceKind.CONSTANT and not source.name.startswith(_TENSOR)
            record = None if is_argument else dumped.get(slot) or self._giver(source)
            if record is not None:
                records[slot] = record
            elif source.kind not in {SourceKind.CONSTANT, SourceKind.ABSENT}:
                raise InputError(
                    f"{self._run.directory.path}: neither input {slot} of {self._run.name} was dumped nor"
                    f" {source.name}, which gives it"
                )
        return records

    def _giver(self, source: ValueSource) -> Record | None:
        if source.kind is SourceKind.OPERATOR:
            run = sibling(self._run, source.name)
            return None if run is None else run.of(IO.OUTPUT).get(source.slot)
        records = (record for record in self._run.directory.records if record.op_type == PARAMETER)
        named = {SourceKind.WEIGHT, SourceKind.INPUT}
        return next(
            (record for record in records if source.kind in named and source.name in _names(record)), None
        )

    def _array(self, record: Record, form: ValueForm) -> np.ndarray:
        """Return the elements of a tensor.

        Raises:
            UntoldOperatorError: The graph file tells of another one: it is that of another graph, or numbers
                its operators otherwise.
            DumpReadError: The file cannot be read.
        """
        shape = _settled(form.shape)
        array = host_array(record, shape)
        told, dumped = (form.dtype, shape), (record.dtype, array.shape)
        if (form.dtype and form.dtype != record.dtype) or (shape is not None and shape != array.shape):
            raise UntoldOperatorError(
                f"{record.path}: the graph file of the dump has {told[0]}{list(told[1] or ())} here, and the"
                f" file {dumped[0]}{list(dumped[1])}: it numbers its operators otherwise; give the model with"
                " --model"
            )
        return array


def _names(record: Record) -> set[str | None]:
    return {record.full_name, record.op_name}


def _input(slot: int) -> str:
    return f"input_{slot}"


def _settled(shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if shape is None or any(size < 0 for size in shape) else shape
