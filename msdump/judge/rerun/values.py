"""The values of the model in the examined side's dump, and the inputs of each operator.

Dumped inputs are compared with the outputs of their producers, and weights with the model's.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from msdump.dtypes import DType
from msdump.errors import DumpReadError, FormatError, MsdumpError
from msdump.graph import Graph, Node, reads
from msdump.graph.kernel import HALVES
from msdump.judge import errors
from msdump.judge.pair import INPUTS, canonical_type, is_commutative
from msdump.judge.rerun.arithmetic import (
    Arithmetic,
    in_declared_type,
    is_rounded,
    is_same,
    may_be_rounded,
    narrower,
    type_named,
)
from msdump.judge.rerun.own import is_near
from msdump.judge.rerun.sites import (
    CompiledModel,
    ModelOperator,
    Place,
    RerunOperator,
    folded_of,
    place_operators,
)
from msdump.read import Record
from msdump.record import IO
from msdump.store import sanitize


class NotDumpedError(MsdumpError):
    """No file of the dump holds a value that an operator reads."""


UNREADABLE: Final = (NotDumpedError, DumpReadError, FormatError)
"""Exceptions that mean an input is unreadable, so the operator cannot run again."""


class UnfitError(FormatError):
    """A tensor has another number of elements than the model declares."""

    def __init__(self, tensor: Record, message: str) -> None:
        """Keep the tensor beside the message."""
        super().__init__(message)
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class Holder:
    """A dumped tensor that holds a value."""

    tensor: Record
    operator: int  # position of its operator in the run
    node: Node | None  # the node that reads or writes it; None for a file of a graph input itself


_State = tuple[Graph, str, str]
"""A state of a loop: the graph around, its value before the first pass there, the one that a pass writes."""


def _states(graph: Graph) -> Iterator[tuple[tuple[int, str], _State]]:
    """Yield the states of the loops of a graph, by the body's index and the name of its input."""
    for node in graph.nodes:
        if node.op_type not in {"Loop", "Scan"}:
            continue
        (body,) = node.bodies.values()
        # a Loop also reads the number of passes and a condition, which its body writes again
        first, count = (2, len(node.inputs)) if node.op_type == "Loop" else (0, len(node.inputs))
        if node.op_type == "Scan":
            scanned: Any = node.attributes["num_scan_inputs"]
            count -= scanned
        for slot in range(first, count):
            written = body.outputs[slot - first + (first > 0)].name
            yield (body.index, body.inputs[slot].name), (graph, node.inputs[slot], written)


class DumpedValues:
    """The dumped tensors that hold the values of a model in one run of it."""

    def __init__(
        self,
        model: CompiledModel,
        operators: Sequence[RerunOperator],
        before: DumpedValues | None = None,
    ) -> None:
        """List the writers and readers of each value.

        ``before`` are the values of the run before, None where it was not dumped.
        """
        self._model = model
        self.is_of_other_form = model.is_other_form  # whether the dump is of another form of the model
        self._before = before
        # the operators of the run with the model's operators, in execution order
        self.operators = place_operators(model, operators)
        # by position of an operator: weights that it read as rounded by the device; running again uses the
        # dumped ones
        self.rounded: dict[int, set[str]] = {}
        self._keys: dict[tuple[int, str], tuple[int, str]] = {}
        self._written: dict[tuple[int, str], list[Holder]] = defaultdict(list)
        self._read: dict[tuple[int, str], list[Holder]] = defaultdict(list)
        self._inputs: dict[str, Holder] = {}
        self._strange: list[Holder] = []
        self._states = dict(_states(model.graph))
        self._passes: list[int] = []
        ran = Counter[tuple[int, str]]()
        for operator in self.operators:
            key = (-1, "") if operator.site is None else (operator.site.graph.index, operator.site.node.name)
            self._passes.append(ran[key])
            ran[key] += 1
        for position, operator in enumerate(self.operators):
            site = operator.site
            if site is not None:
                if not operator.replaces:  # a replacing operator may have its inputs in another order
                    node = site.node
                    for slot, name in enumerate(node.inputs):
                        tensor = operator.tensors.get((IO.INPUT, slot))
                        if name and tensor is not None:
                            after = node.inputs_after_run[slot]
                            # the file of an input written in place holds the new value
                            held = self._written if after != name else self._read
                            held[self._key(site.graph, after)].append(Holder(tensor, position, node))
                node = site.node
                # vendor: MindSpore's kernels leave outputs that they write in place as the memory was
                shown = {
                    output
                    for slot, output in node.update.new_values.items()
                    if (IO.INPUT, slot) in operator.tensors
                }
                for slot, name in enumerate(node.declared_outputs):
                    tensor = operator.tensors.get((IO.OUTPUT, slot))
                    if name and tensor is not None and slot not in shown:
                        self._written[self._key(site.graph, name)].append(Holder(tensor, position, node))
            elif operator.op_type in INPUTS and (IO.OUTPUT, 0) in operator.tensors:
                self._inputs[operator.name] = Holder(operator.tensors[IO.OUTPUT, 0], position, None)
            elif not operator.is_inserted:
                places = (place for place in operator.tensors if place[0] is IO.OUTPUT)
                self._strange += [Holder(operator.tensors[place], position, None) for place in places]
            for slot, value in operator.results:
                if (IO.OUTPUT, slot) in operator.tensors:
                    holder = Holder(operator.tensors[IO.OUTPUT, slot], position, None)
                    self._written[self._key(*value)].append(holder)

    @property
    def mean_size(self) -> float:
        """Mean number of elements of the run's tensors."""
        tensors = [tensor for operator in self.operators for tensor in operator.tensors.values()]
        return sum(math.prod(tensor.shape) for tensor in tensors) / max(len(tensors), 1)

    def is_folded(self, name: str) -> bool:
        """Return whether a constant was folded: computed from others by the compiler."""
        return any(folded_of(model, name) for model in self._model.models)

    def _key(self, graph: Graph, value: str) -> tuple[int, str]:
        """Return a key that is equal for a value and its inserted forms, such as casts of it."""
        key = self._keys.get((graph.index, value))
        if key is None:
            name = self._model.origin(graph, value)
            key = self._keys[graph.index, value] = self._model.owner(graph, name).index, name
        return key

    def site(self, position: int) -> ModelOperator:
        """Return the model's operator at a position that has one."""
        site = self.operators[position].site
        assert site is not None
        return site

    def written(self, graph: Graph, value: str, before: int) -> Holder | None:
        """Return the dumped output of the last write of a value before an operator (``before``), or None."""
        return _last(self._written.get(self._key(graph, value), ()), before)

    def carried(self, graph: Graph, value: str, position: int) -> Holder | None:
        """Return the dumped state of a loop at an operator: of the pass before, or before the loop."""
        state, number = self._states.get((graph.index, value)), self._passes[position]
        if state is None:
            return None
        around, start, following = state
        if not number:
            return self.written(around, start, position)
        found = self._written.get(self._key(graph, following), ())
        return found[number - 1] if number <= len(found) else None

    def all_written(self, before: int) -> Iterator[Holder]:
        """Yield every output that was written before an operator ran, the newest first."""
        held = (*self._written.values(), self._strange)
        holders = [holder for each in held for holder in each if holder.operator < before]
        yield from sorted(holders, key=lambda holder: -holder.operator)

    def holder(self, graph: Graph, value: str, before: int) -> Holder | None:
        """Return a tensor of other operators that holds a value when an operator runs; None without one."""
        index, name = key = self._key(graph, value)
        found = self.written(graph, value, before) or (None if index else self._inputs.get(sanitize(name)))
        if found is not None:
            return found
        readers = self._read.get(key, ())
        # a value of the main graph is written once, so later readers have the same contents
        return _last(readers, before) or (readers[0] if readers and not index else None)

    def given(self, position: int, *, as_written: bool = False) -> dict[str, np.ndarray]:
        """Return the inputs of an operator by value name, without weights that never change.

        If ``as_written``, outputs of producers are preferred to the operator's own files.

        Raises:
            NotDumpedError: No file holds one of the inputs.
            DumpReadError: A file cannot be read.
            FormatError: A memory format has no conversion.
        """
        site = self.site(position)
        graph, tensors = site.graph, {} if as_written else self.operators[position].tensors
        read = graph.changeable | self.rounded.get(position, set())
        needed = [name for name in reads(site.node) if name not in graph.weights or name in read]
        return {name: self._value(tensors, site, name, position) for name in needed}

    def _value(
        self, tensors: Mapping[Place, Record], site: ModelOperator, name: str, position: int
    ) -> np.ndarray:
        node, graph = site.node, site.graph
        for slot, value in enumerate(node.inputs):
            tensor = tensors.get((IO.INPUT, slot))
            if value == name and tensor is not None and node.inputs_after_run[slot] == name:
                return self.array(graph, name, Holder(tensor, position, node))
        if name in graph.weights:
            variable = self._variable(graph, name, self.operators[position])
            if variable is not None:
                return variable
        elif (holder := self.holder(graph, name, position)) is not None:
            return self.array(graph, name, holder)
        elif (weight := graph.weights.get(self._model.origin(graph, name))) is not None:
            return in_declared_type(np.asarray(weight), graph.type_of(name).dtype)
        raise NotDumpedError(f"no file holds {name!r}, which {node.operator.full_name} reads")

    def _variable(self, graph: Graph, name: str, operator: RerunOperator) -> np.ndarray | None:
        """Return the value of a variable at the start of the run; None if unknown.

        Dumped inputs may be rounded. So the previous run's output is preferred, then the model's initial
        value if the dumped input agrees with it, then the dumped input.
        """
        trained = self._before.trained(graph, name) if self._before is not None else None
        if trained is not None:
            return trained
        shown = [self.array(graph, name, each) for each in self._read.get(self._key(graph, name), ())[:1]]
        initial = np.asarray(graph.weights[name])
        if operator.iteration == 0 and all(may_be_rounded(array, initial) for array in shown):
            return initial
        return shown[0] if shown else None

    def trained(self, graph: Graph, name: str) -> np.ndarray | None:
        """Return the value that a variable has after the run; None if no file holds it."""
        main = self._model.graph
        holder = self.written(main, main.bindings.get(name, ""), len(self.operators))
        return None if holder is None else self.array(graph, name, holder)

    def array(self, graph: Graph, value: str, holder: Holder) -> np.ndarray:
        """Return a dumped tensor in the host's layout, in the shape and type that the model declares.

        Raises:
            DumpReadError: Its file cannot be read.
            UnfitError: It has not as many elements as the model declares.
            FormatError: Its memory format has no conversion, or its shape is not known.
        """
        tensor, operator, node = holder.tensor, self.operators[holder.operator], holder.node
        declared = graph.type_of(value)
        groups: Any = 1 if node is None else node.members[0].attributes.get("group", 1)
        shape = declared.shape if declared.is_settled else None
        array = tensor.on_host([size for size in shape or () if isinstance(size, int)], groups)
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
    tensor: Record,
    operator: RerunOperator,
    node: Node,
) -> bool:
    """Return whether a dumped input of a matrix product is the transpose of the model's input.

    MindSpore's products have arguments for transposition; in newer dumps these are inputs after the matrices.
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
    turning = any(attributes.get(name) for name in _TURNING[tensor.slot])
    return bool(argument.on_host().any()) != turning


_TURNING: Final = (("transA", "transpose_a"), ("transB", "transpose_b"))
"""Names of the attributes for transposed reading, by matrix: in ONNX, and in MindSpore's primitives."""


def _last(holders: Sequence[Holder], before: int) -> Holder | None:
    at = bisect_left(holders, before, key=lambda holder: holder.operator)
    return holders[at - 1] if at else None


SWAPPED: Final = "are swapped"
"""End of a sentence on swapped inputs, which are no fault if the results agree."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A dumped input of an operator."""

    value: str  # the value of the model that it holds
    tensor: Record
    holder: Holder | None  # the dumped output of its producer; None without one
    read_type: DType  # the type to which the operator rounds the input


class DumpedInputs:
    """The dumped inputs of an operator, compared with the outputs of their producers."""

    def __init__(self, values: DumpedValues, position: int, arithmetic: Arithmetic) -> None:
        """List the dumped inputs that the operator does not overwrite.

        ``arithmetic`` is the examined side's: inputs may be dumped as rounded in it.
        """
        self._values, self._position, self._site = values, position, values.site(position)
        tensors, node = values.operators[position].tensors, self._site.node
        self._reads = [
            _Read(
                name,
                tensors[IO.INPUT, slot],
                values.written(self._site.graph, name, position)
                or values.carried(self._site.graph, name, position),
                arithmetic.read_type(node, slot),
            )
            for slot, name in enumerate(node.inputs)
            if (IO.INPUT, slot) in tensors and name and node.inputs_after_run[slot] == name
        ]

    def fault(self) -> str:
        """Return a sentence on an input that differs from its producer's output, "" for none.

        Inputs of a producer without a dumped output are not judged.
        """
        for one, other in itertools.combinations(self._unlike, 2):
            if self._is_of(one, other) and self._is_of(other, one):
                return f"inputs {one.tensor.slot} and {other.tensor.slot} {SWAPPED}"
        texts = []
        for read in self._unlike:
            assert read.holder is not None, "an input without a holder is never unlike"
            expected, writer = self._named(read.holder), self._writer(read)
            texts.append(f"input {read.tensor.slot} is not {expected}, its source in the model")
            if writer is not None:
                texts[-1] = f"input {read.tensor.slot} is {self._named(writer)}, in the model {expected}"
        return "; ".join(texts)

    def strangers(self) -> Iterator[tuple[int, str]]:
        """Yield the producers of wrong inputs that the model lacks: position in the run, and a sentence."""
        name = self._values.operators[self._position].name
        for read in self._unlike:
            writer = self._writer(read)
            if writer is None or read.holder is None:
                continue
            if self._values.operators[writer.operator].site is None:
                yield writer.operator, f"{name} reads it in place of {self._named(read.holder)}"

    @cached_property
    def _unlike(self) -> Sequence[_Read]:
        unlike = [read for read in self._reads if self._is_of(read, read) is False]
        if is_commutative(canonical_type(self._site.node.operator.op_type)):
            # only the inputs with producers that no input matches, in any order of the inputs
            free, left = (
                [each for each in self._reads if each.holder is None or each in unlike],
                list[_Read](),
            )
            for expected in unlike:
                found = next((read for read in free if self._is_of(read, expected)), None)
                if found is None:
                    left.append(expected)
                else:
                    free.remove(found)
            return left
        return unlike

    def _is_of(self, read: _Read, expected: _Read) -> bool | None:
        """Return whether an input equals the output of the producer of ``expected``; None: unknown."""
        if expected.holder is None or self._values.operators[expected.holder.operator].replaces:
            return None
        return self._holds(read, expected.value, expected.holder)

    def _holds(self, read: _Read, value: str, holder: Holder) -> bool | None:
        """Return whether an input equals an operator's output up to rounding; None if one is unreadable."""
        try:
            written = self._values.array(self._site.graph, value, holder)
            array = self._array(read, value)
        except UnfitError as unfit:
            return False if unfit.tensor is read.tensor else None
        except UNREADABLE:  # said where the tensors themselves are compared
            return None
        dtype = narrower(
            type_named(read.tensor.dtype, array),
            type_named(holder.tensor.dtype, written),
        )
        if is_same(array, written, dtype):
            return True
        return _is_read_as(array, written, read.read_type, self._values.operators[self._position])

    def _array(self, read: _Read, value: str) -> np.ndarray:
        """Return an input in the shape and type that the model declares."""
        holder = Holder(read.tensor, self._position, self._site.node)
        return self._values.array(self._site.graph, value, holder)

    def _writer(self, unlike: _Read) -> Holder | None:
        """Return an earlier output that equals an input; None without one, or for a constant input."""
        try:
            flat = self._array(unlike, unlike.value).reshape(-1)
        except UnfitError:
            return None
        if flat.size <= 1 or not np.any(flat != flat[0]):
            return None
        written = self._values.all_written(self._position)
        return next((holder for holder in written if self._holds(unlike, unlike.value, holder)), None)

    def _named(self, holder: Holder) -> str:
        return f"{holder.tensor.io} {holder.tensor.slot} of {self._values.operators[holder.operator].name}"


def _is_read_as(array: np.ndarray, value: np.ndarray, read_type: DType, operator: RerunOperator) -> bool:
    """Return whether an input equals a value rounded to a 16-bit type in which the operator may read it."""
    halves = (half for half in HALVES if half is read_type or half.name in operator.held)
    return any(is_rounded(array, value, half) for half in halves)


def wrong_weights(values: DumpedValues, position: int, arithmetic: Arithmetic) -> dict[int, str]:
    """Return the names of weights and constants that differ from the model's, by the operator's input.

    They are compared by bits. Rounded ones are not wrong: the operator runs again on the dumped ones. Trained
    weights are compared in the first iteration only.
    """
    operator, site = values.operators[position], values.site(position)
    wrong: dict[int, str] = {}
    graph = site.graph
    for slot, name in enumerate(site.node.inputs):
        tensor = operator.tensors.get((IO.INPUT, slot))
        if tensor is None or site.node.inputs_after_run[slot] != name:
            continue
        if name not in graph.weights or (name in graph.changeable and operator.iteration != 0):
            continue
        try:
            array = values.array(graph, name, Holder(tensor, position, site.node))
        except UnfitError:  # another number of elements
            wrong |= {} if values.is_of_other_form else {tensor.slot: name}
            continue
        except UNREADABLE:
            continue
        weight = np.asarray(graph.weights[name])
        dtype = narrower(type_named(tensor.dtype, array), type_named("", weight))
        if is_same(array, weight, dtype):
            continue
        if values.is_folded(name) and is_near(errors.measure(array, weight, dtype.name)):
            continue  # a constant folded in the device's arithmetic
        if _is_read_as(array, weight, arithmetic.read_type(site.node, slot), operator):
            continue
        # the examined model's weight is rounded, or files alone judge the weights of another form of it
        if values.is_of_other_form or any(is_rounded(array, weight, half) for half in HALVES):
            values.rounded.setdefault(position, set()).add(name)
        else:
            wrong[tensor.slot] = name
    return wrong
