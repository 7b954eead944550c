"""Variants of kernels: float64, with simulated rounding errors, mixed precision, optimised sessions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast, rounded
from msdump.dtypes import DType
from msdump.errors import MsdumpError, UnsupportedOpError, is_final
from msdump.execute import values
from msdump.execute.float64 import OWN, RULES, Array, Call, Compute, Kind, RoundingRule, doubled
from msdump.execute.kernels import Kernel, KernelFactory
from msdump.execute.native import native
from msdump.execute.recurrent import RECURRENT
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


@dataclass(frozen=True, slots=True)
class Noise:
    """Adds errors of the size of rounding errors to results (Monte Carlo arithmetic).

    The errors of one operator are bounded by numerical analysis (Higham, Accuracy and Stability of Numerical
    Algorithms, chapters 3 and 4; for sums by the square root of the number of terms, since errors have both
    signs). They are added with random signs, so that their effect on later operators of a function or fused
    kernel can be measured.

    Attributes:
        unit: Relative error of one rounding of a result: half the distance of its type's numbers around 1.
        inner: Relative error of one rounding in the arithmetic between inputs and result.
        floor: Absolute error of one rounding of a result, however small it is: half the type's smallest
            subnormal number.
        seed: Seed of the random signs.
    """

    unit: float = SINGLE
    inner: float = SINGLE
    floor: float = 0.0
    seed: int = 0
    _generator: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Begin with the first sign."""
        object.__setattr__(self, "_generator", np.random.default_rng(self.seed))

    def added(
        self, rule: RoundingRule, compute: Compute, call: Call, results: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """Return exact results with errors that a correct kernel might have.

        Args:
            rule: The effect of rounding on the operator.
            compute: Computes the operator in float64.
            call: The operator's inputs and attributes.
            results: The operator's exact results.
        """
        match rule.kind:
            case Kind.EXACT:
                return results
            case Kind.ROUNDED:
                sizes = [self._rounding(array) for array in results]
            case Kind.LINEAR:
                magnitudes = compute(replace(call, inputs=[_magnitude(array) for array in call.inputs]))
                share = self.inner * (_ROUNDINGS + np.sqrt(rule.terms(call)))
                sizes = [
                    share * np.abs(size) + self._rounding(array)
                    for array, size in zip(results, magnitudes, strict=True)
                ]
            case Kind.SMOOTH:
                own, between = _APPROXIMATION * self.inner, rule.between(call)
                sizes = [own * (np.abs(array) + between) + self._rounding(array) for array in results]
                results = compute(replace(call, inputs=self._moved_inputs(rule, call)))
        return tuple(self._disturbed(array, size) for array, size in zip(results, sizes, strict=True))

    def _moved_inputs(self, rule: RoundingRule, call: Call) -> list[Array | None]:
        share = self.inner * (1 + _PARTIAL * np.sqrt(rule.terms(call)))
        data = call.inputs[: rule.disturbed]
        moved = (None if array is None else self._disturbed(array, share * np.abs(array)) for array in data)
        return [*moved, *call.inputs[len(data) :]]

    def _rounding(self, result: Array) -> Array:
        return np.asarray(self.unit * np.abs(result) + self.floor)

    def _disturbed(self, array: Array, size: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        signs = self._generator.integers(0, 2, array.shape, dtype=np.int8) * 2 - 1
        return np.asarray(array + signs * size)


def _magnitude(array: Array | None) -> Array | None:
    return np.abs(array) if array is not None and array.dtype.kind == "f" else array


_CHOICES: Final = frozenset({"ArgMax", "ArgMin", "TopK", "IsInf", "Hardmax", "Mod", "NonMaxSuppression"})
"""Operators without a rule that choose among their inputs, as the ones that move elements do."""

_REDUCING: Final = frozenset({"add", "mul"})
"""Reductions of scattering operators that round, in any order of the updates."""

Change = Callable[[Node, Mapping[str, Array]], Mapping[str, Array]]
"""Takes an original operator and its results by name; returns what those that read it get."""


class Float64Runner:
    """Runs operators of one graph in float64 on arrays of any floating point type.

    Standard operators use own definitions or ONNX's reference, as onnxruntime lacks float64 kernels
    (convolutions, Erf, poolings, ...) and should not judge itself; other operators run on onnxruntime.
    """

    def __init__(self, graph: Graph) -> None:
        """Compile nothing yet.

        Args:
            graph: The graph, or a body in it.
        """
        self._graph = graph
        self._expansions: dict[str, Expansion] = {}

    def run(
        self,
        node: Node,
        given: Mapping[str, Array],
        roundings: Sequence[Rounding] | None = None,
        noise: Noise | None = None,
        change: Change | None = None,
    ) -> tuple[Array | None, ...]:
        """Run an operator once.

        Args:
            node: An operator of the graph, fused ones included.
            given: Inputs by the names of values; weights that are not given are the graph's.
            roundings: The device's arithmetic: inputs and results of each original operator are rounded to
                its types. None: no rounding.
            noise: Adds errors that a correct kernel may have to every result; None: no errors.
            change: Replaces results of each original operator; None: no change.

        Returns:
            An array for each output of the node, None for an unused one.

        Raises:
            MsdumpError: Nothing can run it in float64.
        """
        weights = self._graph.weights
        names = (name for name in reads(node) if name in given or name in weights)
        known = {name: doubled(given[name] if name in given else weights[name]) for name in names}
        with np.errstate(all="ignore"):
            for part, rounding in zip(node.members, roundings or (None,) * len(node.members), strict=True):
                results = self._member(part, known, rounding, noise)
                known |= results if change is None else change(part, results)
        return tuple(known.get(name) for name in node.outputs)

    def _member(
        self, part: Node, known: Mapping[str, Array], rounding: Rounding | None, noise: Noise | None
    ) -> dict[str, Array]:
        expansion = self._expansions.get(part.name)
        if expansion is None:
            expansion = self._expansions[part.name] = expanded(self._graph, part)
        values = {name: doubled(array) for name, array in expansion.constants.items()}
        values |= {name: self._read(name, known[name], rounding) for name in reads(part) if name in known}
        for step in expansion.nodes:
            values |= self._step(step, values, expansion, noise)
        is_moved = moves(part.op_type) and not part.domain
        return {
            name: values[name] if is_moved else self._written(name, values[name], rounding)
            for name in part.outputs
            if name and name in values
        }

    def _read(self, name: str, array: Array, rounding: Rounding | None) -> Array:
        if rounding is None or rounding.reads is FLOAT32 or not self._is_float32(name, array):
            return array
        return _in_type(array, rounding.reads, rounding)

    def _written(self, name: str, array: Array, rounding: Rounding | None) -> Array:
        if rounding is None or rounding.writes is FLOAT32 or not self._is_float32(name, array):
            return array
        return _in_type(array, rounding.writes, rounding)

    def _is_float32(self, name: str, array: Array) -> bool:
        # None: values inside a fused operator are mostly not declared
        return array.dtype == np.float64 and self._graph.type_of(name).dtype in {FLOAT32, None}

    def _step(
        self, step: Node, values: Mapping[str, Array], expansion: Expansion, noise: Noise | None
    ) -> dict[str, Array]:
        call = Call(
            [values[name] if name else None for name in step.inputs],
            step.attributes,
            expansion.opsets.get("", 1),
            max((slot + 1 for slot, name in enumerate(step.outputs) if name), default=0),
        )
        rule = self._rule(step)
        for compute in self._ways(step, expansion):
            try:
                results = compute(call)
            except (NotImplementedError, MsdumpError):
                continue
            if noise is not None:
                results = noise.added(rule, compute, call, results)
            return {name: array for name, array in zip(step.outputs, results, strict=False) if name}
        raise UnsupportedOpError(f"{step.operator.full_name}: {step.op_type} cannot run in float64")

    @staticmethod
    def _rule(step: Node) -> RoundingRule:
        if step.op_type in RULES and not step.domain:
            return RULES[step.op_type]
        if step.attributes.get("reduction") in _REDUCING:
            return RoundingRule(Kind.LINEAR, _updates)
        is_exact = moves(step.op_type) or step.op_type in _CHOICES
        return RoundingRule(Kind.EXACT if is_exact else Kind.SMOOTH, _width, disturbed=1)

    def _ways(self, step: Node, expansion: Expansion) -> Iterator[Compute]:
        """Yield functions that compute an operator in float64, most trusted first."""
        is_known = step.op_type in RULES and not step.domain
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


def _updates(call: Call) -> float:
    """Return the largest number of terms of an element: its value and an update per index."""
    return 1.0 + call[1].size


def _width(call: Call) -> float:
    return float(
        max((array.shape[-1] for array in call.inputs if array is not None and array.ndim), default=1)
    )


def _in_type(array: Array, dtype: Any, rounding: Rounding) -> Array:
    saturates = rounding.saturates and dtype is FLOAT16
    single = numpy_cast(array, FLOAT32)
    return rounded(single, dtype, saturates=saturates).astype(np.float64)


_FLOAT32: Final = dtypes.from_name("float32")
_NARROW: Final = (_FLOAT32, *HALVES)


def mixed_kernels(is_wide: Callable[[Node], bool]) -> type[KernelFactory]:
    """Return a kernel factory class for mixed precision: all values are float64, some operators are not.

    Inputs of operators that are not wide are rounded to the types that the model declares, and their outputs
    widened to float64.

    Args:
        is_wide: Returns whether an operator, also one in a body, computes in float64.
    """

    class MixedKernels(Float64Kernels):
        """Makes float64 kernels of wide operators, and the model's kernels of others."""

        def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
            """Return the kernel of an operator; see ``Float64Kernels``."""
            if is_wide(node):
                return super().make(node, fed)
            kernel = KernelFactory.make(self, node, self._narrowed(fed))
            names = dict(kernel.feeds)

            def run(given: Mapping[str, OrtValue | None], results: list[str], options: None) -> Any:
                narrow = {inner: self._narrow(names[inner], value) for inner, value in given.items()}
                return _widened(kernel.run(narrow, results, options))

            return replace(kernel, run=run)

        def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
            """Find another way to run an operator that is not wide."""
            if is_wide(node):
                return super().rescue(node, fed, reason)
            return _widened(KernelFactory.rescue(self, node, self._narrowed(fed), reason))

        def _narrowed(self, fed: Mapping[str, OrtValue | None]) -> dict[str, OrtValue | None]:
            return {name: self._narrow(name, value) for name, value in fed.items()}

        def _narrow(self, name: str, value: OrtValue | None) -> OrtValue | None:
            array = values.to_python(value)
            dtype = self._graph.type_of(name).dtype or _FLOAT32
            if not isinstance(array, np.ndarray) or array.dtype != np.float64:
                return value
            return values.owned(narrowed(array, dtype))

    return MixedKernels


def narrowed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Cast a float64 array to the type that the model declares for it; other arrays are unchanged."""
    if array.dtype != np.float64 or dtype not in _NARROW:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # overflow to infinity is correct
        return array.astype(dtype.numpy)


def _widened(results: Any) -> list[OrtValue | None]:
    return [_wide(value) for value in results]


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
    """Optimise a model by onnxruntime for the CPU and save it; return the path of the file.

    Args:
        path: The model.
        level: A name of ``LEVELS``.
        folder: Directory for the model's file and a file of large weights.

    Raises:
        UnsupportedOpError: onnxruntime cannot load the model.
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

    Inputs and weights are widened without rounding; sequences and optionals keep their types.
    """

    joins = False

    def __init__(self, graph: Graph, *arguments: Any, **options: Any) -> None:
        """Set the graph; see ``KernelFactory``."""
        super().__init__(graph, *arguments, **options)
        self._wide = Float64Runner(graph)

    def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
        """Return the kernel of an operator.

        Args:
            node: The operator.
            fed: Its inputs without weights that no run changes.
        """
        types = [self._graph.type_of(name).kind for name in node.outputs]
        arrays = [values.to_python(value) for value in fed.values()]
        if not (all(isinstance(array, np.ndarray) for array in arrays) and _TENSORS.issuperset(types)):
            return super().make(node, fed)
        outputs = tuple((name, slot) for slot, name in enumerate(node.outputs) if name)

        def run(given: Mapping[str, OrtValue | None], _names: list[str], _options: None) -> Any:
            arrays = {name: values.to_python(value) for name, value in given.items()}
            results = self._wide.run(node, arrays)
            written = (results[slot] for _, slot in outputs)
            return [None if array is None else values.owned(array) for array in written]

        return Kernel(run, tuple((name, name) for name in reads(node) if name in fed), outputs)

    def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
        """Fail: there is no other way in float64.

        Raises:
            Exception: The reason.
        """
        del node, fed
        raise reason
