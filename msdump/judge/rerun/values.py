"""The values of the model in the examined side's dump, and the inputs of each operator."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import rounded, rounding
from msdump.dtypes import DType
from msdump.errors import DumpReadError, FormatError, MsdumpError
from msdump.execute import SINGLE, Change, doubled
from msdump.graph import Graph, Node, reads
from msdump.graph.kernel import FLOAT32, HALVES, Rounding
from msdump.judge import DumpedOperand, TensorError, errors
from msdump.judge.pair import INPUTS, canonical_type
from msdump.judge.rerun.sites import (
    PRECISION_MODES,
    CompiledModel,
    ModelOperator,
    Place,
    RerunOperator,
    folded_of,
    place_operators,
)
from msdump.judge.verdict import OwnError
from msdump.observer import Array
from msdump.plan import Context, DeviceTarget, OverflowMode, PrecisionMode
from msdump.record import IO
from msdump.store import sanitize

UNITS: Final = {"float64": 2.0**-53, "float32": SINGLE, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative error of one rounding to a type: half the distance of its numbers around 1."""


FLOORS: Final = {"float64": 0.0, "float32": 2.0**-150, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Absolute error of one rounding to a type, however small the number: half its smallest subnormal number."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of operators.

    Attributes:
        precision: The precision mode of an Ascend; None: as the model says (CPU, GPU).
        overflow: Result of float16 beyond the range on an Ascend.
    """

    precision: PrecisionMode | None = None
    overflow: OverflowMode = OverflowMode.INFNAN

    @classmethod
    def of(cls, context: Context) -> Arithmetic:
        """Return the arithmetic of a device."""
        if context.device_target is not DeviceTarget.ASCEND:
            return cls()
        return cls(context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16, context.overflow_mode)

    def roundings(self, node: Node) -> tuple[Rounding, ...] | None:
        """Return the rounding of each part of a node; None: computed in the model's types."""
        if self.precision is None:
            return None
        if node.bodies:  # control flow does not round
            return (Rounding(),)
        if node.is_added:  # a Cast of the compiled graph only saturates
            return (rounding("", PrecisionMode.FORCE_FP32, self.overflow),)
        return tuple(rounding(part.operator.op_type, self.precision, self.overflow) for part in node.members)

    def read_type(self, node: Node, slot: int) -> DType:
        """Return the type to which an operator rounds a float32 input before it reads it."""
        name = node.inputs[slot]
        parts = zip(node.members, self.roundings(node) or (), strict=False)
        return next((each.reads for part, each in parts if name in part.inputs), FLOAT32)

    def written(self, node: Node, slot: int) -> Rounding | None:
        """Return the rounding of the part that writes an output of a node; None: in the model's type."""
        name = node.outputs[slot]
        parts = zip(node.members, self.roundings(node) or (), strict=False)
        return next((each for part, each in parts if name in part.outputs), None)

    def differs(self, node: Node, other: Arithmetic) -> bool:
        """Return whether a node reads or writes other types than in another arithmetic, overflows aside."""
        types = (
            [
                (each.reads, each.writes)
                for each in arithmetic.roundings(node) or (Rounding(),) * len(node.members)
            ]
            for arithmetic in (self, other)
        )
        return next(types) != next(types)

    def __str__(self) -> str:
        """Return it as ``--arithmetic`` takes it."""
        if self.precision is None:
            return "float32"
        saturates = self.overflow is OverflowMode.SATURATION
        return f"Ascend:{self.precision}{f':{self.overflow}' if saturates else ''}"


def candidates() -> Iterator[Arithmetic]:
    """Yield each arithmetic that a device may have, the likeliest first."""
    for mode in PRECISION_MODES:
        yield from (Arithmetic(mode, overflow) for overflow in OverflowMode)
    yield Arithmetic()


_FLOATS = (*HALVES, dtypes.from_name("float32"), dtypes.from_name("float64"))
"""Floating-point types from the narrowest to the widest; float16 and bfloat16 do not contain each other."""


def type_named(name: str, array: np.ndarray) -> DType:
    """Return the element type by its name in the dump; for an unknown name, the array's."""
    try:
        return dtypes.from_name(name.lower())
    except FormatError:
        return dtypes.from_numpy(array.dtype)


def in_type(array: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Return a floating-point tensor converted to a type, rounded if narrower; other tensors unchanged."""
    held = dtypes.from_numpy(array.dtype)
    if held is dtype or dtype not in _FLOATS or held not in _FLOATS:
        return array
    if held is _FLOATS[-1] and dtype in HALVES:
        array = array.astype(np.float32)
    with np.errstate(over="ignore"):
        return rounded(array, dtype, saturates=saturates)


def _rounded_forms(array: np.ndarray, dtype: DType) -> Iterator[np.ndarray]:
    """Yield a flat array rounded to a type, with infinities beyond float16's range or without."""
    yield in_type(array, dtype).reshape(-1)
    if dtype is HALVES[0]:
        yield in_type(array, dtype, saturates=True).reshape(-1)


def is_rounded(held: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Return whether a tensor has the elements of another one, rounded to a type."""
    held_type = dtypes.from_numpy(held.dtype)
    return held.size == other.size and any(
        _has_same_bits(held.reshape(-1), in_type(form, held_type)) for form in _rounded_forms(other, dtype)
    )


def is_same(one: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Return whether two tensors have the same elements once both are rounded to a type; NaN equals NaN."""
    pairs = zip(_rounded_forms(one, dtype), _rounded_forms(other, dtype), strict=True)
    return one.size == other.size and any(_has_same_bits(*pair) for pair in pairs)


def narrower(one: DType, other: DType) -> DType:
    """Return the narrower of two element types; the first where they cannot be compared."""
    if one in _FLOATS and other in _FLOATS:
        return min(one, other, key=lambda dtype: (dtype.numpy.itemsize, dtype is not one))
    return one


def _has_same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype:
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":  # devices may widen or narrow integers
            return bool(np.array_equal(a, b))
        return False
    if a.dtype == object or a.dtype.kind == "c":
        return bool(np.array_equal(a, b))
    if errors.are_same(a, b):
        return True
    kind = f"u{a.dtype.itemsize}"
    unlike = np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)
    x, y = a[unlike], b[unlike]
    return bool(np.all((x != x) & (y != y)))  # noqa: PLR0124 - NaN


class NotDumpedError(MsdumpError):
    """No file of the dump holds a value that an operator reads."""


class UnfitError(FormatError):
    """A tensor has another number of elements than the model declares."""

    def __init__(self, tensor: DumpedOperand, message: str) -> None:
        """Keep the tensor beside the message."""
        super().__init__(message)
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class Holder:
    """A dumped tensor that holds a value.

    Attributes:
        tensor: The tensor.
        operator: Position of its operator in the run.
        node: The node that reads or writes it; None for a file of a graph input itself.
    """

    tensor: DumpedOperand
    operator: int
    node: Node | None


class DumpedValues:
    """The dumped tensors that hold the values of a model in one run of it.

    Attributes:
        operators: The operators of the run with the model's operators, in execution order.
        rounded: By position of an operator: weights that it read as rounded by the device; running again
            uses the dumped ones.
    """

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
        self._before = before
        self.operators = place_operators(model, operators)
        self.rounded: dict[int, set[str]] = {}
        self._keys: dict[tuple[int, str], tuple[int, str]] = {}
        self._written: dict[tuple[int, str], list[Holder]] = defaultdict(list)
        self._read: dict[tuple[int, str], list[Holder]] = defaultdict(list)
        self._inputs: dict[str, Holder] = {}
        self._strange: list[Holder] = []
        for position, operator in enumerate(self.operators):
            site = operator.site
            if site is not None:
                if not operator.replaces:  # a replacing operator may have its inputs in another order
                    self._note_inputs(position, operator, site)
                self._note_outputs(position, operator, site)
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

    def _note_inputs(self, position: int, operator: RerunOperator, site: ModelOperator) -> None:
        node = site.node
        for slot, name in enumerate(node.inputs):
            tensor = operator.tensors.get((IO.INPUT, slot))
            if name and tensor is not None:
                after = node.inputs_after_run[slot]
                # the file of an input written in place holds the new value
                held = self._written if after != name else self._read
                held[self._key(site.graph, after)].append(Holder(tensor, position, node))

    def _note_outputs(self, position: int, operator: RerunOperator, site: ModelOperator) -> None:
        node = site.node
        # vendor: MindSpore's kernels leave outputs that they write in place as the memory was
        shown = {
            output for slot, output in node.update.new_values.items() if (IO.INPUT, slot) in operator.tensors
        }
        for slot, name in enumerate(node.declared_outputs):
            tensor = operator.tensors.get((IO.OUTPUT, slot))
            if name and tensor is not None and slot not in shown:
                self._written[self._key(site.graph, name)].append(Holder(tensor, position, node))

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

        Args:
            position: Its position in the run.
            as_written: Prefer the producers' outputs to the operator's own files.

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
        self, tensors: Mapping[Place, DumpedOperand], site: ModelOperator, name: str, position: int
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
        if operator.iteration == 0 and all(_may_be_rounded(array, initial) for array in shown):
            return initial
        return shown[0] if shown else None

    def trained(self, graph: Graph, name: str) -> np.ndarray | None:
        """Return the value that a variable has after the run; None if no file holds it."""
        main = self._model.graph
        holder = self.written(main, main.bindings.get(name, ""), len(self.operators))
        return None if holder is None else self.array(graph, name, holder)

    def array(self, graph: Graph, value: str, holder: Holder) -> np.ndarray:
        """Return a dumped tensor in the host's layout, in the shape and type that the model declares.

        Args:
            graph: The graph of the value.
            value: The value that the tensor holds.
            holder: The tensor.

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
    tensor: DumpedOperand,
    operator: RerunOperator,
    node: Node,
) -> bool:
    """Return whether a dumped input of a matrix product is the transpose of the model's input.

    MindSpore's products have arguments for transposition; in newer dumps these are inputs after the matrices.
    """
    is_product = tensor.io is IO.INPUT and tensor.index < len(_TURNING) and array.ndim > 1
    if not is_product or canonical_type(operator.op_type) != canonical_type("BatchMatMul"):
        return False
    *batch, rows, columns = array.shape
    if rows != columns:
        return declared is not None and (*declared,) == (*batch, columns, rows)
    argument = operator.tensors.get((IO.INPUT, tensor.index + len(_TURNING)))
    if argument is None or argument.dtype != "bool":
        return False
    attributes = node.members[0].attributes
    turning = any(attributes.get(name) for name in _TURNING[tensor.index])
    return bool(argument.on_host().any()) != turning


_TURNING: Final = (("transA", "transpose_a"), ("transB", "transpose_b"))
"""Names of the attributes for transposed reading, by matrix: in ONNX, and in MindSpore's primitives."""


def _may_be_rounded(array: np.ndarray, weight: np.ndarray) -> bool:
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


def _last(holders: Sequence[Holder], before: int) -> Holder | None:
    at = bisect_left(holders, before, key=lambda holder: holder.operator)
    return holders[at - 1] if at else None


Given = Mapping[str, np.ndarray]
"""Inputs of an operator by the names of values."""

UNREADABLE: Final = (NotDumpedError, DumpReadError, FormatError)
"""Exceptions that mean an input is unreadable, so the operator cannot run again."""


_FEW: Final = 4.0
"""Units of the last place by which kernels of one arithmetic may differ, at the tensor's own scale."""


@dataclass(frozen=True, slots=True)
class RerunOutput:
    """A dumped output of an operator that runs again.

    Attributes:
        slot: Number of the output.
        dumped: Its elements, in the model's type.
        dtype: Element type on the device.
        io: Output, or input if the dump has it as the input that the operator updates in place.
        place: Number of the output or input in the dump.
    """

    slot: int
    dumped: np.ndarray
    dtype: dtypes.DType
    io: IO
    place: int

    def near(self, error: TensorError, arithmetic: Arithmetic) -> OwnError:
        """Return an own error, marked as explained if it is a few units of the last place."""
        return OwnError(self.place, error, 0.0, is_near(error), str(arithmetic), io=self.io)

    def error(self, again: np.ndarray) -> TensorError:
        """Return the error of the dumped output from a new one, both rounded to the device's type."""
        held = in_type(again, self.dtype)
        dumped = in_type(self.dumped, self.dtype)
        if held.dtype != dumped.dtype:
            held, dumped = again, self.dumped
        return errors.measure(dumped, held, self.dtype.name)


def is_near(error: TensorError) -> bool:
    """Return whether an error is a few units of the last place."""
    if error.is_same:
        return True
    return not error.misplaced and not error.changed and error.ulps <= _FEW


_NEAR: Final = 2.0**-8
"""Difference of elements that agree, relative to the largest one: an overflow was held in float16."""

_SAME_SIZE: Final = 1 - 2.0**-8
"""Tolerance in comparing the magnitudes of overflowed and other elements."""

_FULL: Final = 65504.0
"""The largest number of float16."""

Run = Callable[[Change], tuple[Array, ...]]
"""Runs a kernel in float64 on what it read, and lets a function change the results of its parts."""


def overflowed_part(node: Node, run: Run, slot: int, dumped: np.ndarray) -> str:
    """Return the name of the kernel's part that explains wrong outputs if it overflowed; "" for none.

    Every wrong element must equal the result of later parts for an infinity, and belong to a larger number of
    this part than all correct elements. Parts with numbers beyond float16 are preferred. Parts count only if
    later ones do not move elements.

    Args:
        node: The kernel.
        run: Runs it.
        slot: Number of the output.
        dumped: The output, all of it finite.
    """
    output = doubled(dumped).reshape(-1)
    edges = {part.name: _edge(part.name, run, slot, output) for part in node.parts[:-1]}
    told = [part for part in node.parts[:-1] if edges[part.name]]
    part = next((part for part in told if edges[part.name] >= _FULL), next(iter(told), None))
    return "" if part is None else part.operator.full_name.rpartition("/")[2]


@dataclass(slots=True)
class _Infinite:
    """Replaces the results of one part by infinities of the same sign; keeps the original magnitudes."""

    part: str
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0))

    def sizes_at(self, output: np.ndarray) -> np.ndarray | None:
        """Return the part's magnitude for each element of an output; None if shapes do not correspond."""
        if self.sizes.size == output.size:
            return self.sizes.reshape(-1)
        try:
            return np.broadcast_to(self.sizes, output.shape).reshape(-1)
        except ValueError:
            return None

    def __call__(self, part: Node, results: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        if part.name != self.part:
            return results
        array = results[part.outputs[0]]
        self.sizes = np.abs(array)
        return {name: np.copysign(np.inf, array) for name, array in results.items()}


def _edge(part: str, run: Run, slot: int, output: np.ndarray) -> float:
    """Return the smallest overflowed magnitude of a part if overflow explains all wrong elements; else 0."""
    overflow = _Infinite(part)
    exact, infinite = run(lambda _, results: results)[slot], run(overflow)[slot]
    if exact is None or infinite is None or not output.size == exact.size == infinite.size:
        return 0.0
    sizes = overflow.sizes_at(exact)
    if sizes is None:
        return 0.0
    allowed = _NEAR * float(np.max(np.abs(exact), initial=0.0))
    is_off = np.abs(output - exact.reshape(-1)) > allowed
    is_infinite = np.abs(output - infinite.reshape(-1)) <= allowed
    if not is_off.any() or not is_infinite[is_off].all():
        return 0.0
    smallest = float(sizes[is_off].min())
    return smallest if smallest >= _SAME_SIZE * np.max(sizes[~is_infinite], initial=0.0) else 0.0
