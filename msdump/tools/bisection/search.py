"""Which operators of one model, put into another one, bring about the difference between the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.errors import InputError, MsdumpError
from msdump.execute import values
from msdump.execute.program import Program
from msdump.execute.weights import WeightCopies
from msdump.graph.cutting.region import external_values
from msdump.graph.cutting.splice import Spliced, exchangeable, forms, is_taken, splice
from msdump.graph.graph import Graph
from msdump.observer import Arrays, Observer
from msdump.tools.bisection.arithmetic import AS_THE_MODEL_SAYS, ArithmeticPair, OperatorArithmetic, mixed
from msdump.tools.bisection.minimise import minimise
from msdump.tools.diff.distances import distance
from msdump.tools.diff.models import golden_inputs, output_names
from msdump.tools.diff.pairing import Pairing
from msdump.tools.diff.quantised import as_real

EXPLAINED: Final = 0.5
"""Share of the whole difference that a part must bring about to explain it."""


@dataclass(frozen=True, slots=True)
class ExchangedPart:
    """A part of one model in the place of its counterpart in another one.

    Attributes:
        spliced: The network that has it, and the operators that were exchanged.
        difference: Relative distance of its outputs from those of the network without the part.
        whole: The same of the two models.
        edges: What golden holds at the edges of the part, by name.
        computed_in: What the part, and its counterpart, compute in.
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
        """Full names of the operators in whose place they stand."""
        return [node.operator.full_name for node in self.spliced.given]


class Bisection:
    """The search for the part of a model that makes its results differ.

    Attributes:
        probes: How many networks were run.
    """

    def __init__(
        self,
        mine: Graph,
        golden: Graph,
        pairing: Pairing,
        inputs: Mapping[str, Any],
        probed: Callable[[], None] = lambda: None,
        *,
        computed_in: ArithmeticPair = (AS_THE_MODEL_SAYS, AS_THE_MODEL_SAYS),
    ) -> None:
        """Run golden.

        Args:
            mine: The model whose part is looked for.
            golden: The model that parts are put into.
            pairing: What belongs together in the two models, before onnxruntime has optimised one of them.
            inputs: What the examined model is fed.
            probed: Called after each network that was run.
            computed_in: What the operators of the two compute in; each takes its own along.

        Raises:
            MsdumpError: Golden cannot run.
        """
        self.probes = 0
        self._mine, self._golden, self._probed = mine, golden, probed
        self._computed_in, self._mixed = computed_in, mixed(computed_in)
        self._scales = pairing.golden_quantised.get(golden.index, {}), pairing.quantised.get(mine.index, {})
        self._results = output_names(mine, golden, pairing.graphs[mine.index].values)
        self._values = {**_exchanged(pairing.graphs[mine.index].values, mine, golden), **self._results}
        self._inputs = inputs
        self._fed = golden_inputs(mine, golden, inputs)
        self._copies = WeightCopies()
        self._outputs = self._results_of(golden)

    def find(self) -> ExchangedPart:
        """Return the smallest part whose exchange brings about at least half of the difference.

        Raises:
            InputError: The two agree, or what differs has no counterpart to be exchanged with.
            MsdumpError: The examined model cannot run.
        """
        whole = self._distance(self._own_outputs())
        if not whole:
            raise InputError("both models give the same outputs: there is nothing to look for")
        units = self._units()
        if not self._explains(units, whole):
            raise InputError(
                "the exchange of all operators that have a counterpart does not bring the difference about:"
                " it lies in what has none"
            )
        smallest = minimise(units, lambda part: self._explains(part, whole))
        spliced, difference = self._spliced(smallest), self._difference(smallest)
        recorder = _Edges(self._golden, spliced)
        self._run(self._golden, self._fed, recorder)
        edges = {**self._arrays(spliced), **recorder.arrays}
        return ExchangedPart(spliced, difference, whole, edges, self._computed_in)

    def _units(self) -> list[frozenset[str]]:
        """Return the values of golden that can be computed by the other model, operator by operator."""
        last = forms(self._mine, self._values)
        units = []
        for node in self._mine.nodes:
            common = {name: self._values[name] for name in node.outputs if name in self._values}
            made = frozenset(value for name, value in common.items() if last[value] == name)
            if made and exchangeable(self._golden, self._mine, node):
                units.append(made)
        return units

    def _explains(self, units: Sequence[frozenset[str]], whole: float) -> bool:
        difference = self._difference(units)
        return difference >= whole * EXPLAINED if math.isfinite(whole) else not math.isfinite(difference)

    def _difference(self, units: Sequence[frozenset[str]]) -> float:
        """Return what the exchange of some operators does to the outputs; 0 where the network cannot run."""
        try:
            return self._distance(self._results_of(self._spliced(units).graph))
        except MsdumpError:
            return 0.0

    def _spliced(self, units: Sequence[frozenset[str]]) -> Spliced:
        scales = ({name: (each.scale, each.zero) for name, each in side.items()} for side in self._scales)
        return splice(
            self._golden, self._mine, self._values, frozenset().union(*units), (next(scales), next(scales))
        )

    def _run(self, graph: Graph, fed: Mapping[str, Any], observer: Observer | None = None) -> list[Any]:
        """Run golden, or a network with its inputs and outputs."""
        return self._run_as(self._mixed, graph, fed, observer)

    def _run_as(
        self, arithmetic: OperatorArithmetic, graph: Graph, fed: Mapping[str, Any], observer: Observer | None
    ) -> list[Any]:
        inputs = {name: values.from_python(item, graph.type_of(name).dtype) for name, item in fed.items()}
        program = Program(graph, arithmetic.roundings, self._copies, kernels=arithmetic.kernels)
        outputs = program.run(inputs, observer)
        self.probes += 1
        self._probed()
        return outputs

    def _results_of(self, graph: Graph) -> list[Any]:
        """Run golden, or a network with its inputs and outputs; return the outputs as real numbers."""
        names = [value.name for value in graph.outputs]
        return as_real(names, self._run(graph, self._fed), self._scales[0])

    def _own_outputs(self) -> list[Any]:
        """Return the outputs of the examined model in golden's order; None for one that it lacks."""
        run = self._run_as(self._computed_in[0], self._mine, self._inputs, None)
        own = as_real([value.name for value in self._mine.outputs], run, self._scales[1])
        names = (self._results.get(value.name) for value in self._mine.outputs)
        by_common = dict(zip(names, own, strict=True))
        return [by_common.get(value.name) for value in self._golden.outputs]

    def _distance(self, outputs: Sequence[Any]) -> float:
        """Return the largest relative distance of outputs from golden's."""
        pairs = zip(outputs, self._outputs, strict=True)
        tensors = ((a, b) for a, b in pairs if isinstance(a, np.ndarray) and isinstance(b, np.ndarray))
        return max(
            (distance(a, b).distance if a.shape == b.shape else math.inf for a, b in tensors), default=0.0
        )

    def _arrays(self, spliced: Spliced) -> dict[str, np.ndarray]:
        """Return what stands at the edges before the network runs: its inputs, and weights."""
        names = _edges(spliced)
        fed = {
            name: item for name, item in self._fed.items() if name in names and isinstance(item, np.ndarray)
        }
        return {**{name: array for name, array in self._golden.weights.items() if name in names}, **fed}


def _exchanged(values: Mapping[str, str], mine: Graph, golden: Graph) -> dict[str, str]:
    """Return golden's value for each value that has one there that may be computed in its place.

    What only one of the two computes, as a weight that is quantised, comes with the operators that read it.
    """
    computed = {name for node in golden.nodes for name in node.outputs}
    known = computed | {value.name for value in golden.inputs} | {*golden.weights}
    own = {name for node in mine.nodes for name in node.outputs}
    return {
        name: common
        for name, common in values.items()
        if common in known and (common in computed or name not in own)
    }


def _edges(spliced: Spliced) -> frozenset[str]:
    """Return the values that the exchanged operators read from outside."""
    return frozenset((*external_values(spliced.taken), *external_values(spliced.given)))


class _Edges:
    """Observes a run, and keeps what stands at the edges of a part."""

    wants_inputs = False
    wants_outputs = True
    holds_up = ()

    def __init__(self, graph: Graph, spliced: Spliced) -> None:
        self._graph, self._names = graph, _edges(spliced)
        self.watched = [not self._names.isdisjoint(node.outputs) for node in graph.nodes]
        self.arrays: dict[str, np.ndarray] = {}

    def starting(self, position: int, inputs: Arrays) -> None:
        """Ignore a collective that is about to run."""

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> None:
        """Keep the outputs that are edges."""
        del inputs, saturated
        for name, array in zip(self._graph.nodes[position].declared_outputs, outputs, strict=True):
            if name in self._names and array is not None:
                self.arrays[name] = array.copy()

    def failed(self, position: int, inputs: Arrays) -> None:
        """Ignore a failure: the error of the run tells it."""

    def looks_into(self, body: Graph) -> bool:
        """Look into no branch or loop."""
        del body
        return False

    def enter(self, body: Graph) -> None:
        """Look into no branch or loop."""
        del body
