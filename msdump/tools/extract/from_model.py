"""A dumped operator as its model has it, compiled in the way in which the dump names operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from msdump import dtypes
from msdump.errors import InputError, name_hint
from msdump.execute.compilation import emulated
from msdump.graph.compile.forms import with_model_types
from msdump.graph.cutting.region import RegionModel, ValueShape, external_values, region_model
from msdump.graph.graph import Graph, Node
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.record import IO
from msdump.store import names
from msdump.store.read.reader import Dump
from msdump.store.read.records import Record
from msdump.tools.extract.dumped_operator import OperatorRun, before, sibling
from msdump.tools.extract.tensors import host_array


class FromModel:
    """An operator of a model, with the tensors of one of its runs."""

    def __init__(self, run: OperatorRun, dump: Dump, model: Graph) -> None:
        """Find the operator in the model.

        Raises:
            InputError: The model has no such operator.
        """
        self._run, self._dump = run, dump
        self._graph, self._node = _find(run.name, model)

    def inputs(self) -> dict[str, np.ndarray]:
        """Return what the operator read, by the names of values; weights that were not dumped are left out.

        Raises:
            InputError: An input was not dumped, nor the output that it is.
            DumpReadError: A file cannot be read.
        """
        return dict(self._read())

    def outputs(self) -> dict[str, np.ndarray]:
        """Return what it wrote, by the names of values.

        Raises:
            DumpReadError: A file cannot be read.
        """
        dumped = self._run.of(IO.OUTPUT)
        written = enumerate(self._node.declared_outputs)
        return {name: self._array(name, dumped[slot]) for slot, name in written if name and slot in dumped}

    def model(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> RegionModel:
        """Return its model.

        Args:
            inputs: What it is fed.
            outputs: What it is to give.
        """
        forms = {name: ValueShape(self._dtype(name, array), array.shape) for name, array in inputs.items()}
        return region_model(self._graph, [self._node], forms, outputs)

    def _dtype(self, name: str, array: np.ndarray) -> dtypes.DType:
        return self._graph.type_of(name).dtype or dtypes.from_numpy(array.dtype)

    def _array(self, name: str, record: Record) -> np.ndarray:
        declared = self._graph.type_of(name)
        shape = tuple(size for size in declared.shape or () if isinstance(size, int))
        groups = self._node.attributes.get("group", 1)
        return host_array(
            record, shape if declared.is_settled else None, groups if isinstance(groups, int) else 1
        )

    def _read(self) -> Iterator[tuple[str, np.ndarray]]:
        dumped, node = self._run.of(IO.INPUT), self._node
        for name in external_values([node]):
            slots = [slot for slot, value in enumerate(node.inputs) if value == name]
            written = [slot for slot in slots if slot in node.update.new_values]
            if written:
                yield name, self._before(name, written[0])
                continue
            record = next((dumped[slot] for slot in slots if slot in dumped), None) or self._given(name)
            if record is not None:
                yield name, self._array(name, record)
            elif name not in self._graph.weights:
                raise InputError(
                    f"{self._run.directory.path}: neither input {name!r} of {self._run.name} was dumped nor"
                    " the output that it is"
                )

    def _before(self, name: str, slot: int) -> np.ndarray:
        """Return an input that the operator writes as it was before: dumps show it as it was afterwards."""
        earlier = before(self._run, self._dump)
        record = None if earlier is None else earlier.of(IO.INPUT).get(slot)
        if record is not None:
            return self._array(name, record)
        if name in self._graph.weights and not self._run.first.iteration:
            return np.array(self._graph.weights[name])
        raise InputError(
            f"{self._run.directory.path}: {self._run.name} writes its input {slot} ({name}) in place, and"
            " nothing tells what that was before: the iteration before was not dumped"
        )

    def _given(self, name: str) -> Record | None:
        """Return the output of another operator that an input is."""
        for node in self._graph.nodes:
            if name in node.outputs:
                producer = sibling(self._run, node.operator.full_name)
                return None if producer is None else producer.of(IO.OUTPUT).get(node.outputs.index(name))
        return None


def _find(name: str, model: Graph) -> tuple[Graph, Node]:
    """Return an operator by the name that a dump has, and the graph or body that holds it.

    Raises:
        InputError: None is called so.
    """
    spelled, known = names.sanitize(name), set()
    for form in _forms(model):
        for graph in form.walk():
            for node in graph.operators:
                known.add(node.operator.full_name)
                if names.sanitize(node.operator.full_name) == spelled:
                    # an added Cast is what it is between two forms of one value
                    return graph if node.is_added else with_model_types(graph), node
    raise InputError(f"{model.source}: the model has no operator {name}{name_hint(name, known)}")


def _forms(model: Graph) -> Iterator[Graph]:
    """Yield a model as every device and level runs it, and its training step."""
    for graph in (model, *([] if model.step is model else [model.step])):
        yield graph
        for level in (JitLevel.O1, JitLevel.O2):
            for keeps_node_names in (False, True) if level is JitLevel.O2 else (False,):
                context = Context(
                    device_target=DeviceTarget.ASCEND, jit_level=level, keeps_node_names=keeps_node_names
                )
                device = emulated(graph, None, context)
                assert device is not None
                yield device.graph
