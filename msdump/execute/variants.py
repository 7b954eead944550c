"""Variants of kernels: float64, with bounds of rounding errors, mixed precision, optimised sessions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.device import numpy_cast, rounded
from msdump.dtypes import DType
from msdump.errors import MsdumpError, UnsupportedOpError, is_final
from msdump.execute import values
from msdump.execute.float64 import (
    EXACT,
    KNOWN,
    LINEAR,
    OWN,
    RECURRENT,
    SMOOTH,
    Array,
    Call,
    Compute,
    doubled,
    one,
    width,
)
from msdump.execute.kernels import Kernel, KernelFactory
from msdump.execute.native import native
from msdump.execute.runner import OperatorRunner
from msdump.execute.runtime import OrtValue, short
from msdump.graph import Graph, Node, moves, reads
from msdump.graph.kernel import FLOAT16, FLOAT32, HALVES, Expansion, ReferenceNode, Rounding, expanded

SINGLE: Final = 2.0**-24
"""Half the distance of float32 numbers around 1."""

_ROUNDINGS: Final = 3
"""Of a term of a sum: both factors and their product."""

_APPROXIMATION: Final = 4
"""Units by which a kernel's exponential, error function or tangent may be off; libraries promise 1 to 4."""

_PARTIAL: Final = 0.25
"""Share of the square root of terms that a mean or a variance is off by: partial sums are in registers."""

_REDUCING: Final = frozenset({"add", "mul"})
"""Reductions of scattering operators that round, in any order of the updates."""

_MINUS_ONE: Final = frozenset({"Elu", "Selu", "Celu"})
"""Operators that subtract 1 from an exponential, with the rounding of a number of about 1."""

Change = Callable[[Node, Mapping[str, Array]], Mapping[str, Array]]
"""Takes an original operator and its results by name; returns the values that its readers get."""


def _size(array: Array | None) -> Array | None:
    return np.abs(array) if array is not None and array.dtype.kind == "f" else array


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How far rounding may move the results of operators that run one after the other in a kernel.

    Of sums of products: the unit of each rounding times the products' magnitudes and the square root of their
    number, since errors have both signs (Higham, Accuracy and Stability of Numerical Algorithms, chapters 3
    and 4). Of others: a few units of the result, and its change if inputs move by a unit. Bounds of inputs
    are handed on as the change of a result if the inputs move by them, with signs that are drawn once.
    """

    # relative error of one rounding of a result: half the distance of its type's numbers around 1
    unit: float
    # absolute error of one rounding of a result, however small it is: half the type's smallest subnormal
    # number
    floor: float
    # bound of each value so far, by element; of integers and truth values whether they may differ
    by_name: dict[str, Array] = field(default_factory=dict)

    def add(self, step: Node, compute: Compute, call: Call, results: Sequence[Array]) -> None:
        """Find the bounds of the results of an operator."""
        inner, inputs = min(self.unit, SINGLE), [*map(self.by_name.get, step.inputs)]
        own = [self.unit * np.abs(each) + self.floor if each.dtype.kind == "f" else each for each in results]
        if step.op_type in LINEAR or step.attributes.get("reduction") in _REDUCING:
            terms = LINEAR.get(step.op_type, _updates)(call)
            sizes = [*compute(replace(call, inputs=[*map(_size, call.inputs)]))]
            share = inner * (_ROUNDINGS + np.sqrt(terms))
            own = [each + share * np.abs(size) for each, size in zip(own, sizes, strict=True)]
        elif moves(step.op_type) or step.op_type in EXACT:
            own = [np.zeros(())] * len(results)
        else:
            around = (call[0] < 0) if step.op_type in _MINUS_ONE else 0.0
            sizes = [np.abs(array) + around for array in results]
            own = [each + _APPROXIMATION * inner * size for each, size in zip(own, sizes, strict=True)]
            count = SMOOTH.get(step.op_type, width)
            # further inputs, such as a scale or the weights of gates, are parameters
            data = len(inputs) if count is one else 1
            share = inner * (1 + _PARTIAL * np.sqrt(count(call)))
            for slot, array in enumerate(call.inputs[:data]):
                if array is not None and array.dtype.kind == "f":
                    known = inputs[slot]
                    inputs[slot] = share * np.abs(array) + (0.0 if known is None else known)
        moved = [
            self._moved(compute, call, inputs, sign)
            for sign in (1, -1)
            if any(bound is not None and np.any(bound) for bound in inputs)
        ]
        for place, (name, result) in enumerate(zip(step.outputs, results, strict=False)):
            others = [each[place] for each in moved if each[place].shape == result.shape]
            if result.dtype.kind == "f":
                apart = (np.abs(each - result) for each in others)
                self.by_name[name] = functools.reduce(np.maximum, apart, np.zeros(())) + np.abs(own[place])
            else:
                self.by_name[name] = np.any([each != result for each in others], axis=0)

    @staticmethod
    def _moved(compute: Compute, call: Call, bounds: Sequence[Array | None], sign: int) -> Sequence[Array]:
        """Return the results for inputs that are off by bounds."""
        draw = np.random.default_rng(0)
        inputs = [*call.inputs]
        for slot, (array, bound) in enumerate(zip(inputs, bounds, strict=True)):
            if array is None or bound is None:
                continue
            if array.dtype.kind == "f":
                signs = draw.integers(0, 2, array.shape, dtype=np.int8) * 2 - 1
                inputs[slot] = array + sign * signs * bound
            elif bound.shape == array.shape:
                inputs[slot] = array ^ bound if array.dtype.kind == "b" else array + bound.astype(array.dtype)
        return compute(replace(call, inputs=inputs))


def _updates(call: Call) -> float:
    return 1.0 + call[1].size


class Float64Runner:
    """Runs operators of one graph in float64 on arrays of any floating point type.

    Standard operators use own definitions or ONNX's reference, as onnxruntime lacks float64 kernels
    (convolutions, Erf, poolings, ...) and should not judge itself; other operators run on onnxruntime.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._expansions: dict[str, Expansion] = {}

    def run(
        self,
        node: Node,
        given: Mapping[str, Array],
        roundings: Sequence[Rounding] | None = None,
        change: Change | None = None,
    ) -> tuple[Array | None, ...]:
        """Run an operator once.

        Args:
            node: An operator of the graph, fused ones included.
            given: Inputs by the names of values; weights that are not given are the graph's.
            roundings: The device's arithmetic: inputs and results of each original operator are rounded to
                its types. None: no rounding.
            change: Replaces results of each original operator; None: no change.

        Returns:
            An array for each output of the node, None for an unused one.

        Raises:
            MsdumpError: Nothing can run it in float64.
        """
        known = self._run(node, given, roundings, change=change)
        return tuple(known.get(name) for name in node.outputs)

    def bounded(
        self,
        node: Node,
        given: Mapping[str, Array],
        roundings: Sequence[Rounding] | None,
        unit: float,
        floor: float,
    ) -> list[tuple[Array, Array] | None]:
        """Run an operator once; return each output with the bound of the error that rounding may cause.

        Arguments and errors as of ``run``; ``unit`` and ``floor`` are the relative and the absolute error of
        one rounding of a result.
        """
        bounds = _Bounds(unit, floor)
        known = self._run(node, given, roundings, bounds)
        found = ((known.get(name), bounds.by_name.get(name)) for name in node.outputs)
        return [
            None if array is None or bound is None else (array, np.broadcast_to(bound, array.shape))
            for array, bound in found
        ]

    def _run(
        self,
        node: Node,
        given: Mapping[str, Array],
        roundings: Sequence[Rounding] | None,
        bounds: _Bounds | None = None,
        change: Change | None = None,
    ) -> dict[str, Array]:
        weights = self._graph.weights
        names = (name for name in reads(node) if name in given or name in weights)
        known = {name: doubled(given[name] if name in given else weights[name]) for name in names}
        with np.errstate(all="ignore"):
            for part, rounding in zip(node.members, roundings or (None,) * len(node.members), strict=True):
                expansion = self._expansions.get(part.name)
                if expansion is None:
                    expansion = self._expansions[part.name] = expanded(self._graph, part)
                values = {name: doubled(array) for name, array in expansion.constants.items()}
                values |= {
                    name: self._in_type(name, known[name], rounding, "reads")
                    for name in reads(part)
                    if name in known
                }
                for step in expansion.nodes:
                    values |= self._step(step, values, expansion, bounds)
                is_moved = moves(part.op_type) and not part.domain
                results = {
                    name: values[name] if is_moved else self._in_type(name, values[name], rounding, "writes")
                    for name in part.outputs
                    if name and name in values
                }
                known |= results if change is None else change(part, results)
        return known

    def _in_type(self, name: str, array: Array, rounding: Rounding | None, moment: str) -> Array:
        """Return a float32 value rounded to the type that a device reads or writes."""
        dtype = FLOAT32 if rounding is None else getattr(rounding, moment)
        # None: values inside a fused operator are mostly not declared
        is_float32 = array.dtype == np.float64 and self._graph.type_of(name).dtype in {FLOAT32, None}
        if rounding is None or dtype is FLOAT32 or not is_float32:
            return array
        saturates = rounding.saturates and dtype is FLOAT16
        return rounded(numpy_cast(array, FLOAT32), dtype, saturates=saturates).astype(np.float64)

    def _step(
        self, step: Node, values: Mapping[str, Array], expansion: Expansion, bounds: _Bounds | None
    ) -> dict[str, Array]:
        call = Call(
            [values[name] if name else None for name in step.inputs],
            step.attributes,
            expansion.opsets.get("", 1),
            max((slot + 1 for slot, name in enumerate(step.outputs) if name), default=0),
        )
        for compute in self._ways(step, expansion):
            try:
                results = compute(call)
            except (NotImplementedError, MsdumpError):
                continue
            if bounds is not None:
                bounds.add(step, compute, call, results)
            return {name: array for name, array in zip(step.outputs, results, strict=False) if name}
        raise UnsupportedOpError(f"{step.operator.full_name}: {step.op_type} cannot run in float64")

    def _ways(self, step: Node, expansion: Expansion) -> Iterator[Compute]:
        """Yield functions that compute an operator in float64, most trusted first."""
        is_known = step.op_type in KNOWN and not step.domain
        own = OWN.get(step.op_type) or RECURRENT.get(step.op_type) if is_known else None
        if own is not None:
            yield own
        graph = replace(self._graph, weights={}, types={}, opsets=expansion.opsets)
        names = tuple(filter(None, step.inputs))

        def given(call: Call) -> dict[str, Array | None]:
            return {name: array for name, array in zip(step.inputs, call.inputs, strict=True) if name}

        if is_known:
            reference = functools.cache(lambda: ReferenceNode(graph, step, names))
            used = [slot for slot, name in enumerate(step.outputs) if name]

            def by_reference(call: Call) -> tuple[Array, ...]:
                try:
                    results = dict(zip(used, reference().run(given(call)), strict=True))
                except Exception as error:
                    if is_final(error):
                        raise
                    raise NotImplementedError(str(error)) from error
                return tuple(doubled(np.asarray(results.get(slot, 0.0))) for slot in range(len(step.outputs)))

            yield by_reference

        def by_runtime(call: Call) -> tuple[Array, ...]:
            results = OperatorRunner(graph, is_quiet=True).run(step, given(call))
            return tuple(np.zeros(0) if array is None else doubled(array) for array in results)

        yield by_runtime


_NARROW: Final = (FLOAT32, *HALVES)


def narrowed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Cast a float64 array to the type that the model declares for it; other arrays are unchanged."""
    if array.dtype != np.float64 or dtype not in _NARROW:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # overflow to infinity is correct
        return array.astype(dtype.numpy)


def _wide(value: OrtValue | None) -> OrtValue | None:
    array = values.to_python(value)
    if not isinstance(array, np.ndarray):
        return value
    wide = doubled(array)
    return value if wide is array else values.owned(wide)


LEVELS: Final = {
    "none": native.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": native.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": native.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": native.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""How far onnxruntime optimises, by name."""

_FILE: Final = "optimised.onnx"
_WEIGHTS: Final = "optimised.data"
_EXTERNAL_FROM: Final = 1 << 20  # bytes of a weight
_FATAL_ONLY: Final = 4


def optimise(path: str, level: str, folder: str) -> str:
    """Optimise a model by onnxruntime for the CPU and save it in a folder; return the path of the file.

    ``level`` is a name of ``LEVELS``. A model that onnxruntime cannot load is an UnsupportedOpError.
    """
    options = native.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    written = str(Path(folder) / _FILE)
    options.optimized_model_filepath = written
    options.log_severity_level = _FATAL_ONLY
    entries = {
        "session.optimized_model_external_initializers_file_name": _WEIGHTS,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_EXTERNAL_FROM),
    }
    for key, text in entries.items():
        options.add_session_config_entry(key, text)
    try:
        session = native.InferenceSession(options, path, True, True)
        session.initialize_session(["CPUExecutionProvider"], [{}], set())
    except Exception as error:
        if is_final(error):
            raise
        raise UnsupportedOpError(f"{path}: onnxruntime cannot load it as a whole: {short(error)}") from error
    return written


_TENSORS: Final = frozenset({"tensor", ""})
"""Kinds of values that are tensors, as far as that is known."""


class Float64Kernels(KernelFactory):
    """Kernel factory for ``Program`` with every floating point tensor in float64.

    Inputs and weights of wide operators are widened without rounding. Inputs of others are rounded to the
    types that the model declares, and their outputs widened. Sequences and optionals keep their types.
    """

    joins = False

    @staticmethod
    def is_wide(_: Node) -> bool:
        """Return whether an operator, also one in a body, computes in float64."""
        return True

    def __init__(self, graph: Graph, *arguments: Any, **options: Any) -> None:
        """Set the graph; see ``KernelFactory``."""
        super().__init__(graph, *arguments, **options)
        self._wide = Float64Runner(graph)

    def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Return the kernel of an operator; ``fed``: its inputs without weights that no run changes."""
        if not self.is_wide(node):
            kernel = super().make(node, self._narrowed(fed))
            names = dict(kernel.feeds)

            def run_narrow(given: Mapping[str, OrtValue | None], results: list[str], options: None) -> Any:
                narrow = {inner: self._narrow(names[inner], value) for inner, value in given.items()}
                return [*map(_wide, kernel.run(narrow, results, options))]

            return replace(kernel, run=run_narrow)
        kinds = [self._graph.type_of(name).kind for name in node.outputs]
        arrays = [values.to_python(value) for value in fed.values()]
        if not (all(isinstance(array, np.ndarray) for array in arrays) and _TENSORS.issuperset(kinds)):
            return super().make(node, fed)
        outputs = tuple((name, slot) for slot, name in enumerate(node.outputs) if name)

        def run(given: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> Any:
            results = self._wide.run(node, {name: values.to_python(value) for name, value in given.items()})
            written = (results[slot] for _, slot in outputs)
            return [None if array is None else values.owned(array) for array in written]

        return Kernel(run, tuple((name, name) for name in reads(node) if name in fed), outputs)

    def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
        """Raise the error: there is no other way to run an operator in float64."""
        if self.is_wide(node):
            raise reason
        return [*map(_wide, super().rescue(node, self._narrowed(fed), reason))]

    def _narrowed(self, fed: Mapping[str, OrtValue | None]) -> dict[str, OrtValue | None]:
        return {name: self._narrow(name, value) for name, value in fed.items()}

    def _narrow(self, name: str, value: OrtValue | None) -> OrtValue | None:
        array = values.to_python(value)
        dtype = self._graph.type_of(name).dtype or FLOAT32
        if not isinstance(array, np.ndarray) or array.dtype != np.float64:
            return value
        return values.owned(narrowed(array, dtype))


def mixed_kernels(is_wide: Callable[[Node], bool]) -> type[KernelFactory]:
    """Return a class of kernel factories in which some operators compute in float64, the others do not."""
    return type("MixedKernels", (Float64Kernels,), {"is_wide": staticmethod(is_wide)})
