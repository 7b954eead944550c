"""Bisection of a model: the smallest part of it that still shows a difference."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import InputError, MsdumpError
from msdump.execute import (
    Float64Kernels,
    Initializers,
    KernelFactory,
    Program,
    RoundingsOf,
    WeightCopies,
    WeightStore,
    as_the_model_says,
    cpu_runtime,
    mixed_kernels,
    narrowed,
    values,
)
from msdump.graph import Graph, Node, Value, external_values
from msdump.graph.cutting import (
    CAST,
    EmulatingRuntime,
    Spliced,
    ValueShape,
    exchangeable,
    forms,
    is_taken,
    region_model,
    splice,
)
from msdump.graph.kernel import Rounding
from msdump.judge import errors, inputs, reports
from msdump.judge.diff import Engine, ModelPairs, Side, as_real, golden_inputs, output_names


@dataclass(frozen=True, slots=True)
class OperatorArithmetic:
    """Arithmetic of the operators of a model."""

    roundings: RoundingsOf = as_the_model_says  # the emulated device's casts
    kernels: type[KernelFactory] = KernelFactory

    @property
    def is_wide(self) -> bool:
        """Whether the operators compute in float64."""
        return self.kernels is Float64Kernels


AS_THE_MODEL_SAYS: Final = OperatorArithmetic()

ArithmeticPair = tuple[OperatorArithmetic, OperatorArithmetic]
"""Arithmetic of the examined model, and of golden."""


def of_side(side: Side) -> tuple[Graph, OperatorArithmetic]:
    """Return the graph of a side with operators that run one by one, and their arithmetic.

    Compiled graphs (O1, O2) give the bits of their models, operator by operator; onnxruntime's optimiser
    makes a model of its own.
    """
    if side.variant.engine is Engine.OPTIMISED:
        return side.graph, AS_THE_MODEL_SAYS
    is_wide = side.variant.engine is Engine.FLOAT64
    return side.model, OperatorArithmetic(side.arithmetic, Float64Kernels if is_wide else KernelFactory)


def mixed(computed_in: ArithmeticPair) -> OperatorArithmetic:
    """Return the arithmetic of golden with operators of the examined model in it."""
    mine, golden = computed_in

    def roundings(node: Node) -> Sequence[Rounding] | None:
        if node.name.startswith(CAST):
            return None
        return (mine if is_taken(node) else golden).roundings(node)

    if mine.is_wide is golden.is_wide:
        return OperatorArithmetic(roundings, mine.kernels)

    def is_wide(node: Node) -> bool:
        # casts at the part's edge stay wide: the readers round the value themselves
        return node.name.startswith(CAST) or (mine if is_taken(node) else golden).is_wide

    return OperatorArithmetic(roundings, mixed_kernels(is_wide))


_Item = TypeVar("_Item")


def minimise(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Return a part of a list for which a test holds, but no longer without any one of the items (ddmin).

    >>> minimise(range(100), lambda part: {7, 42} <= set(part))
    [7, 42]
    """

    @functools.cache
    def test(part: tuple[int, ...]) -> bool:
        return bool(part) and holds([items[index] for index in part])

    left, count = tuple(range(len(items))), 2
    while len(left) > 1:
        size = -(-len(left) // count)
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        rests = [tuple(index for index in left if index not in part) for part in parts]
        if (smaller := next(filter(test, parts), None)) is not None:
            left, count = smaller, 2
        elif (smaller := next(filter(test, rests), None)) is not None:
            left, count = smaller, max(count - 1, 2)
        elif count < len(left):
            count = min(2 * count, len(left))
        else:
            break
    return [items[index] for index in left]


MINE: Final = "mine.onnx"
GOLDEN: Final = "golden.onnx"
INPUTS: Final = "inputs.npz"


def write_exchange(part: ExchangedPart, mine: Graph, golden: Graph, folder: str) -> list[str]:
    """Write a part that explains a difference; return the paths of its files.

    Args:
        part: The part.
        mine: The model that has the part.
        golden: The model that has the part's counterpart.
        folder: The folder; made if missing. Older files of these names are replaced.

    Raises:
        ToolError: A file cannot be written.
        DumpWriteError: The .npz file cannot be written.
    """
    spliced, outputs = part.spliced, common_outputs(part)
    sides = (MINE, spliced.graph, spliced.taken), (GOLDEN, golden, spliced.given)
    all_edges: dict[str, np.ndarray] = {}
    paths, run = [], []
    for (file, graph, nodes), arithmetic in zip(sides, part.computed_in, strict=True):
        # the inputs of the side's operators without weights, in the element types that dump files have
        known = (name for name in external_values(nodes) if name in part.edges)
        fed = {
            name: _held(part.edges[name], graph.type_of(name).dtype)
            for name in known
            if name not in graph.weights
        }
        declared = {
            name: graph.type_of(name).dtype or dtypes.from_numpy(array.dtype) for name, array in fed.items()
        }
        # a value that a loop carries may change its shape
        has_bodies = any(node.bodies for node in nodes)
        forms = {
            name: ValueShape(declared[name], None if has_bodies else array.shape)
            for name, array in fed.items()
        }
        is_plain = arithmetic.roundings is as_the_model_says
        device = None if is_plain or has_bodies else _emulating_runtime(graph, arithmetic.roundings)
        model = region_model(graph, nodes, forms, outputs, device)
        paths.append(reports.write_bytes(folder, file, [model.data]))
        run.append(file)
        if device is None and (not is_plain or arithmetic.is_wide):
            # the model lacks the arithmetic of the operators: their results, computed in it, stand beside it
            alone = replace(
                graph,
                nodes=tuple(nodes),
                inputs=tuple(Value(name, graph.type_of(name)) for name in fed),
                outputs=tuple(Value(name, graph.type_of(name)) for name in outputs),
            )
            program = Program(alone, arithmetic.roundings, kernels=arithmetic.kernels)
            given = {name: values.owned(array.astype(declared[name].numpy)) for name, array in fed.items()}
            made = zip(outputs, program.run(given), strict=True)
            run[-1] = str(Path(file).with_suffix(reports.RESULTS))
            results = {name: _held(array, None) for name, array in made}
            paths.append(inputs.write_arrays(Path(folder, run[-1]).resolve(), results))
        all_edges |= {name: fed[name] for name in model.inputs}
    paths.append(inputs.write_arrays(Path(folder, INPUTS).resolve(), all_edges))
    what = f"a part of {mine.source} and its counterpart of {golden.source}"
    return [*paths, reports.write_script(folder, what, INPUTS, (run[0], run[1]), outputs)]


def _emulating_runtime(graph: Graph, roundings: RoundingsOf) -> EmulatingRuntime:
    """Return a device of the roundings, with the weights that it rounds."""
    initializers = Initializers(WeightStore(graph.weights), graph.changeable, frozenset())

    def rounded(node: Node) -> dict[str, np.ndarray]:
        bound = initializers.of(node, roundings(node))
        return {name: bound.arrays[name] for name in bound.rounded}

    return EmulatingRuntime(roundings, rounded, cpu_runtime().limits)


def _held(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Return a value in the element type that dump files have for its declared type (None: for its own)."""
    array = array if dtype is None else narrowed(array, dtype)
    return dtypes.widen(array, dtypes.from_numpy(array.dtype))


def common_outputs(part: ExchangedPart) -> list[str]:
    """Return the values that part and counterpart both write: the ones not read in the part, else all."""
    taken, given = (
        dict.fromkeys(name for node in nodes for name in node.outputs if name)
        for nodes in (part.spliced.taken, part.spliced.given)
    )
    inside = {name for node in part.spliced.taken for name in node.inputs}
    both = [name for name in taken if name in given]
    return [name for name in both if name not in inside] or both


EXPLAINED: Final = 0.5
"""Share of the whole difference that the exchange of a part must cause to explain it."""


@dataclass(frozen=True, slots=True)
class ExchangedPart:
    """A part of the examined model in the place of its counterpart in golden.

    Attributes:
        spliced: Golden with the part in it, and the operators that were exchanged.
        difference: Relative distance of its outputs from the network's without the part.
        whole: The same of the two models.
        edges: Golden's values at the edges of the part, by name.
        computed_in: Arithmetic of the part, and of its counterpart.
    """

    spliced: Spliced
    difference: float
    whole: float
    edges: Mapping[str, np.ndarray] = field(repr=False)
    computed_in: ArithmeticPair = (AS_THE_MODEL_SAYS, AS_THE_MODEL_SAYS)

    @property
    def names(self) -> list[str]:
        """Full names of its operators, without the casts at its edges."""
        return [node.operator.full_name for node in self.spliced.taken if is_taken(node)]

    @property
    def golden_names(self) -> list[str]:
        """Full names of the operators that they replace."""
        return [node.operator.full_name for node in self.spliced.given]


class Bisection:
    """Search for the smallest part of a model that makes its results differ."""

    def __init__(
        self,
        mine: Graph,
        golden: Graph,
        pairing: ModelPairs,
        inputs: Mapping[str, Any],
        probed: Callable[[], None] = lambda: None,
        *,
        computed_in: ArithmeticPair = (AS_THE_MODEL_SAYS, AS_THE_MODEL_SAYS),
    ) -> None:
        """Prepare the search, and run golden.

        Args:
            mine: The model that has the part.
            golden: The model that parts are put into.
            pairing: Pairs of the two models, before onnxruntime has optimised one of them.
            inputs: Inputs of the examined model.
            probed: Called after each network that was run.
            computed_in: Arithmetic of the two; each operator keeps its own.

        Raises:
            MsdumpError: Golden cannot run.
        """
        self.probes = 0  # how many networks were run
        self._mine, self._golden, self._probed = mine, golden, probed
        self._computed_in, self._mixed = computed_in, mixed(computed_in)
        self._scales = pairing.golden_quantised.get(golden.index, {}), pairing.quantised.get(mine.index, {})
        self._results = output_names(mine, golden, pairing.graphs[mine.index].values)
        # Values where the two may be spliced, by golden's counterpart. A value that only that model
        # computes, such as a quantised weight, is exchanged with its readers.
        computed = {name for node in golden.nodes for name in node.outputs}
        known = computed | {value.name for value in golden.inputs} | {*golden.weights}
        own = {name for node in mine.nodes for name in node.outputs}
        exchanged = {
            name: common
            for name, common in pairing.graphs[mine.index].values.items()
            if common in known and (common in computed or name not in own)
        }
        self._values = {**exchanged, **self._results}
        self._inputs = inputs
        self._fed = golden_inputs(mine, golden, inputs)
        self._copies = WeightCopies()
        self._outputs = self._results_of(golden)

    def find(self) -> ExchangedPart:
        """Return the smallest part that brings about at least half of the difference when exchanged.

        Raises:
            InputError: The two agree, or the difference lies in operators without counterpart.
            MsdumpError: The examined model cannot run.
        """
        # outputs of the examined model in golden's order; None where it has no counterpart
        run = self._run(self._computed_in[0], self._mine, self._inputs)
        own = as_real([value.name for value in self._mine.outputs], run, self._scales[1])
        names = (self._results.get(value.name) for value in self._mine.outputs)
        by_common = dict(zip(names, own, strict=True))
        whole = self._distance([by_common.get(value.name) for value in self._golden.outputs])
        if not whole:
            raise InputError("both models give the same outputs")
        # the values of golden that can be computed by the other model, operator by operator
        last, units = forms(self._mine, self._values), []
        for node in self._mine.nodes:
            common = {name: self._values[name] for name in node.outputs if name in self._values}
            made = frozenset(value for name, value in common.items() if last[value] == name)
            if made and exchangeable(self._golden, self._mine, node):
                units.append(made)
        if not self._explains(units, whole):
            raise InputError(
                "the exchange of all operators with a counterpart does not explain the difference:"
                " it comes from operators without a counterpart"
            )
        smallest = minimise(units, lambda part: self._explains(part, whole))
        spliced, difference = self._spliced(smallest), self._difference(smallest)
        edge_names = {*external_values(spliced.taken), *external_values(spliced.given)}
        computed = [name for node in self._golden.nodes for name in node.outputs if name in edge_names]
        outputs = tuple(Value(name, self._golden.type_of(name)) for name in computed)
        results = self._run(self._mixed, replace(self._golden, outputs=outputs), self._fed)
        # the values known before the run come first: weights and inputs
        edges = {**self._golden.weights, **self._fed, **dict(zip(computed, results, strict=True))}
        edges = {name: edges[name] for name in edge_names if isinstance(edges.get(name), np.ndarray)}
        return ExchangedPart(spliced, difference, whole, edges, self._computed_in)

    def _explains(self, units: Sequence[frozenset[str]], whole: float) -> bool:
        difference = self._difference(units)
        return difference >= whole * EXPLAINED if math.isfinite(whole) else not math.isfinite(difference)

    def _difference(self, units: Sequence[frozenset[str]]) -> float:
        """Return how far the exchange of some operators moves the outputs; 0 if the network cannot run."""
        try:
            return self._distance(self._results_of(self._spliced(units).graph))
        except MsdumpError:
            return 0.0

    def _spliced(self, units: Sequence[frozenset[str]]) -> Spliced:
        scales = ({name: (each.scale, each.zero) for name, each in side.items()} for side in self._scales)
        return splice(
            self._golden, self._mine, self._values, frozenset().union(*units), (next(scales), next(scales))
        )

    def _run(self, arithmetic: OperatorArithmetic, graph: Graph, fed: Mapping[str, Any]) -> list[Any]:
        inputs = {name: values.from_python(item, graph.type_of(name).dtype) for name, item in fed.items()}
        program = Program(graph, arithmetic.roundings, self._copies, kernels=arithmetic.kernels)
        outputs = program.run(inputs)
        self.probes += 1
        self._probed()
        return outputs

    def _results_of(self, graph: Graph) -> list[Any]:
        """Run golden, or a network with golden's inputs and outputs; return the outputs as real numbers."""
        names = [value.name for value in graph.outputs]
        return as_real(names, self._run(self._mixed, graph, self._fed), self._scales[0])

    def _distance(self, outputs: Sequence[Any]) -> float:
        """Return the largest relative distance of outputs from golden's."""
        pairs = zip(outputs, self._outputs, strict=True)
        tensors = ((a, b) for a, b in pairs if isinstance(a, np.ndarray) and isinstance(b, np.ndarray))
        return max(
            (errors.measure(a, b).distance if a.shape == b.shape else math.inf for a, b in tensors),
            default=0.0,
        )
