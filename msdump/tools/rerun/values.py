"""The values of the model as the examined side's dump holds them, and what each operator read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError, MsdumpError
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import HALVES
from msdump.graph.order import reads
from msdump.record import IO
from msdump.store import names
from msdump.tools.matching.sides import canonical_type
from msdump.tools.rerun.compiled_model import CompiledModel, ModelOperator
from msdump.tools.rerun.dumped import INPUTS, RerunOperator, RerunTensor
from msdump.tools.rerun.elements import in_type, is_rounded, is_same
from msdump.tools.rerun.sites import Sites


class NotDumpedError(MsdumpError):
    """A value that an operator reads, and that no file of the dump holds."""


class UnfitError(FormatError):
    """A tensor that has not as many elements as the model declares of the value that it should hold.

    Attributes:
        tensor: The tensor.
    """

    def __init__(self, tensor: RerunTensor, message: str) -> None:
        """Say what was found and what the model declares."""
        super().__init__(message)
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class Holder:
    """A dumped tensor that holds a value.

    Attributes:
        tensor: The tensor.
        operator: Position of its operator in the run.
        node: The node whose input or output it is; None for a graph input's own file.
    """

    tensor: RerunTensor
    operator: int
    node: Node | None


class DumpedValues:
    """Finds the tensors that hold the values of a model in one run of it.

    Attributes:
        operators: The operators of the run, in the order in which they ran.
        sites: The operator of the model that each of them is, None where it has none.
        replaced: Positions of those that stand in the place of another operator.
    """

    def __init__(
        self,
        model: CompiledModel,
        operators: Sequence[RerunOperator],
        sites: Sites,
        before: DumpedValues | None = None,
    ) -> None:
        """List who wrote and who read each value.

        Args:
            model: The model.
            operators: The operators of the run, in the order in which they ran.
            sites: The operators of the model that they are.
            before: The values of the run before, None where it was not dumped.
        """
        self._model = model
        self._before = before
        self.operators = operators
        self.sites = sites.found
        self.replaced = sites.replaced.keys()
        self._replacing = frozenset(
            operator.name
            for position, (operator, site) in enumerate(zip(operators, sites.found, strict=True))
            if position in self.replaced or (site is None and operator.replaces)
        )
        self._written: dict[tuple[int, str], list[Holder]] = {}
        self._read: dict[tuple[int, str], list[Holder]] = {}
        self._inputs: dict[str, Holder] = {}
        for position, (operator, site) in enumerate(zip(operators, sites.found, strict=True)):
            if site is not None:
                if position not in sites.replaced:  # what another operator reads may come in another order
                    self._note_inputs(position, operator, site)
                self._note_outputs(position, operator, site)
            elif operator.op_type in INPUTS and (IO.OUTPUT, 0) in operator.tensors:
                self._inputs[operator.name] = Holder(operator.tensors[IO.OUTPUT, 0], position, None)

    @property
    def mean_size(self) -> float:
        """How many elements the tensors of the run have on average."""
        sizes = [tensor.size for operator in self.operators for tensor in operator.tensors.values()]
        return sum(sizes) / max(len(sizes), 1)

    def _note_inputs(self, position: int, operator: RerunOperator, site: ModelOperator) -> None:
        node = site.node
        for slot, name in enumerate(node.inputs):
            tensor = operator.tensors.get((IO.INPUT, slot))
            if name and tensor is not None:
                after = node.inputs_after_run[slot]
                # an input that the operator writes in place shows the new value
                held = self._written if after != name else self._read
                held.setdefault(self._key(site.graph, after), []).append(Holder(tensor, position, node))

    def _note_outputs(self, position: int, operator: RerunOperator, site: ModelOperator) -> None:
        node = site.node
        # vendor: MindSpore's kernels leave the outputs of what they write in place as the memory was
        shown = {
            output for slot, output in node.update.new_values.items() if (IO.INPUT, slot) in operator.tensors
        }
        for slot, name in enumerate(node.declared_outputs):
            tensor = operator.tensors.get((IO.OUTPUT, slot))
            if name and tensor is not None and slot not in shown:
                self._written.setdefault(self._key(site.graph, name), []).append(
                    Holder(tensor, position, node)
                )

    def is_replacement(self, name: str) -> bool:
        """Tell whether an operator stands in another one's place, or is none of the model's and behind such.

        Of a kernel that the model has and the dump has not, several operators may do the parts.
        """
        reached: set[str] = set()
        left = [name]
        while left:
            each = left.pop()
            if each in self._replacing:
                return True
            position = self._positions.get(each)
            if (
                position is not None
                and each not in reached
                and self._is_no_models(position, may_be_inserted=each != name)
            ):
                reached.add(each)
                left += [source for source, _ in self.operators[position].sources.values()]
        return False

    def _is_no_models(self, position: int, *, may_be_inserted: bool) -> bool:
        """Tell whether the model lacks an operator, or the device inserted it."""
        operator = self.operators[position]
        if operator.is_inserted:
            return may_be_inserted
        return self.sites[position] is None and operator.op_type not in INPUTS

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {operator.name: position for position, operator in enumerate(self.operators)}

    def _key(self, graph: Graph, value: str) -> tuple[int, str]:
        return self._model.owner(graph, value).index, value

    def written(self, graph: Graph, value: str, before: int) -> Holder | None:
        """Return the tensor in which its producer wrote a value last before an operator ran."""
        return _last(self._written.get(self._key(graph, value), ()), before)

    def all_written(self, before: int) -> Iterator[Holder]:
        """Yield every tensor that operators wrote before one ran, the newest first."""
        holders = [holder for each in self._written.values() for holder in each if holder.operator < before]
        yield from sorted(holders, key=lambda holder: -holder.operator)

    def holder(self, graph: Graph, value: str, before: int) -> Holder | None:
        """Return a tensor that holds a value when an operator runs, other than that operator's input."""
        found = self.written(graph, value, before)
        if found is not None:
            return found
        readers = self._read.get(self._key(graph, value), ())
        owner = self._model.owner(graph, value)
        # a value of the main graph is made once, so what reads it later read the same
        found = _last(readers, before) or (readers[0] if readers and owner.index == 0 else None)
        if found is not None:
            return found
        return self._inputs.get(names.sanitize(value)) if owner.index == 0 else None

    def given(self, position: int, *, as_written: bool = False) -> dict[str, np.ndarray]:
        """Return what an operator read, by the names of values; weights that never change are left out.

        Args:
            position: Its position in the run.
            as_written: Take what the producers wrote before what the operator's own files hold.

        Raises:
            NotDumpedError: No file holds one of them.
            DumpReadError: A file cannot be read.
            FormatError: A memory format has no conversion.
        """
        operator, site = self.operators[position], self.sites[position]
        assert site is not None
        graph = site.graph
        needed = [name for name in reads(site.node) if name not in graph.weights or name in graph.changeable]
        if as_written:
            operator = replace(operator, tensors={})
        return {name: self._value(operator, site, name, position) for name in needed}

    def held(self, graph: Graph, node: Node) -> dict[str, np.ndarray]:
        """Return what an operator read that was not dumped itself, as ``given`` does.

        Raises:
            NotDumpedError: No file holds one of the values.
            DumpReadError: A file cannot be read.
            FormatError: A memory format has no conversion.
        """
        arrays = {}
        for name in reads(node):
            if name in graph.weights:
                continue
            holder = self.holder(graph, name, len(self.operators))
            if holder is None:
                raise NotDumpedError(f"no file holds {name!r}, which {node.operator.full_name} reads")
            arrays[name] = self._held(graph, name, holder)
        return arrays

    def _value(self, operator: RerunOperator, site: ModelOperator, name: str, position: int) -> np.ndarray:
        node, graph = site.node, site.graph
        for slot, value in enumerate(node.inputs):
            tensor = operator.tensors.get((IO.INPUT, slot))
            if value == name and tensor is not None and node.inputs_after_run[slot] == name:
                return self.array(graph, name, tensor, operator, node)
        if name in graph.weights:
            variable = self._variable(graph, name, operator)
            if variable is not None:
                return variable
        holder = None if name in graph.weights else self.holder(graph, name, position)
        if holder is not None:
            return self._held(graph, name, holder)
        raise NotDumpedError(f"no file holds {name!r}, which {node.operator.full_name} reads")

    def _variable(self, graph: Graph, name: str, operator: RerunOperator) -> np.ndarray | None:
        """Return the value with which a run began of what training changes; None where it is not known.

        Its readers may show it rounded. So what the run before wrote counts first, then what the model begins
        with, unless a reader shows something else.
        """
        trained = self._before.trained(graph, name) if self._before is not None else None
        if trained is not None:
            return trained
        shown = [self._held(graph, name, each) for each in self._read.get(self._key(graph, name), ())[:1]]
        initial = np.asarray(graph.weights[name])
        if operator.iteration == 0 and all(_may_be_rounded(array, initial) for array in shown):
            return initial
        return shown[0] if shown else None

    def _held(self, graph: Graph, name: str, holder: Holder) -> np.ndarray:
        return self.array(graph, name, holder.tensor, self.operators[holder.operator], holder.node)

    def trained(self, graph: Graph, name: str) -> np.ndarray | None:
        """Return the value that a variable has after the run, None where no file holds it."""
        main = self._model.graph
        holder = self.written(main, main.bindings.get(name, ""), len(self.operators))
        return None if holder is None else self._held(graph, name, holder)

    def array(
        self,
        graph: Graph,
        value: str,
        tensor: RerunTensor,
        operator: RerunOperator,
        node: Node | None = None,
    ) -> np.ndarray:
        """Return a dumped tensor in the host's layout, in the shape and type that the model declares.

        Args:
            graph: The graph of the value.
            value: The value that the tensor holds.
            tensor: The tensor.
            operator: The operator whose tensor it is.
            node: Its node.

        Raises:
            DumpReadError: Its file cannot be read.
            UnfitError: It has not as many elements as the model declares.
            FormatError: Its memory format has no conversion, or its shape is not known.
        """
        declared = graph.type_of(value)
        groups: Any = 1 if node is None else node.members[0].attributes.get("group", 1)
        array = tensor.load(_host_shape(graph, value, tensor, operator), groups)
        if node is not None and _is_turned(array, declared.shape, tensor, operator, node):
            array = array.swapaxes(-1, -2)
        if declared.shape != array.shape and declared.is_settled and declared.shape is not None:
            if int(np.prod(declared.shape)) != array.size:  # type: ignore[arg-type]  # settled
                raise UnfitError(tensor, f"{value!r} has shape {array.shape}, by the model {declared.shape}")
            array = array.reshape(declared.shape)  # type: ignore[arg-type]
        return in_declared_type(array, declared.dtype)


def _is_turned(
    array: np.ndarray,
    declared: Sequence[object] | None,
    tensor: RerunTensor,
    operator: RerunOperator,
    node: Node,
) -> bool:
    """Tell whether a dumped matrix is the transposed one of what the model's operator reads.

    MindSpore's products have arguments that say so, which newer dumps hold as inputs behind the matrices.
    """
    is_product = tensor.io is IO.INPUT and tensor.slot < len(_TURNING) and array.ndim > 1
    if not is_product or canonical_type(operator.op_type) != canonical_type("BatchMatMul"):
        return False
    *batch, rows, columns = array.shape
    if rows != columns:
        return declared is not None and (*declared,) == (*batch, columns, rows)
    argument = operator.tensors.get((IO.INPUT, tensor.slot + len(_TURNING)))
    if argument is None or argument.dtype != "bool":
        return False
    attributes = node.members[0].attributes
    return bool(argument.load((), 1).any()) != any(attributes.get(name) for name in _TURNING[tensor.slot])


_TURNING: Final = (("transA", "transpose_a"), ("transB", "transpose_b"))
"""Arguments of ONNX, and of MindSpore's operators as functions, that read a matrix transposed."""


def _may_be_rounded(array: np.ndarray, weight: np.ndarray) -> bool:
    """Tell whether a tensor holds a weight, as it is or rounded to one of the smaller types."""
    held = dtypes.from_numpy(array.dtype)
    return is_same(array, weight, held) or any(is_rounded(array, weight, half) for half in HALVES)


def in_declared_type(array: np.ndarray, declared: dtypes.DType | None) -> np.ndarray:
    """Return an array in the type that the model declares, which may be wider than the device's."""
    if declared is None or array.dtype == declared.numpy:
        return array
    converted = in_type(array, declared)
    if converted.dtype == declared.numpy:
        return converted
    if array.dtype.kind in "iub" and declared.numpy.kind in "iub":
        return array.astype(declared.numpy)
    raise FormatError(f"{array.dtype} where the model has {declared.name}")


def _host_shape(graph: Graph, value: str, tensor: RerunTensor, operator: RerunOperator) -> tuple[int, ...]:
    if tensor.host_shape:
        return tensor.host_shape
    declared = graph.type_of(value)
    if declared.is_settled and declared.shape is not None:
        return tuple(size for size in declared.shape if isinstance(size, int))
    golden = operator.golden.get((tensor.io, tensor.slot))
    return golden.host_shape if golden is not None else ()


def _last(holders: Sequence[Holder], before: int) -> Holder | None:
    at = bisect_left(holders, before, key=lambda holder: holder.operator)
    return holders[at - 1] if at else None


Given = Mapping[str, np.ndarray]
"""What an operator reads, by the names of values."""

UNREADABLE: Final = (NotDumpedError, DumpReadError, FormatError)
"""Why an operator cannot run again."""
