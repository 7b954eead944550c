"""Own errors: the golden operator runs once more, on the inputs of the leading side's operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import MsdumpError
from msdump.execute import Values, is_repeatable
from msdump.graph import Node, reads
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.judge import errors
from msdump.judge.diff.evidence import measure_pair
from msdump.judge.diff.lockstep import Ran
from msdump.judge.diff.models import Side
from msdump.judge.diff.pairing import GraphPairing, Pairing, steps
from msdump.judge.rerun import OperatorRunners, OwnErrors, RerunOutput
from msdump.judge.verdict import QUANTISED, Limits, OwnError, TensorEvidence
from msdump.observer import Array
from msdump.record import IO

_ROUNDED: Final = 0.4
"""Steps by which weights that are rounded to the nearest number may be off: 0.29, and few are cut off."""

_NOISE: Final = 2.0
"""Times the error of rounded weights that a product of them may be off by."""

Given = Mapping[str, np.ndarray]
"""Inputs of an operator by the names of values."""


@dataclass(slots=True)
class GoldenOperators:
    """Runs golden operators on the leading side's inputs; made before each run of the networks.

    They compute in the leading side's arithmetic, so an operator that both sides have gives the same bits
    again. Another operator, or rounding of the same sums in another order, leaves a difference.
    """

    mine: Side
    golden: Side
    runners: OperatorRunners
    limits: Limits
    pairing: Pairing
    _before: Values = field(init=False)
    _variables: Mapping[str, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the values of variables: operators of a step run again after the step has updated them."""
        self._before, self._variables = self.mine.state.values, self.mine.state.arrays()

    def own_errors(
        self, mine: Ran, golden: Ran, outputs: Iterable[TensorEvidence]
    ) -> tuple[tuple[OwnError, ...], float | None]:
        """Return an operator's own errors, by output, and the error propagated from its inputs.

        The propagated error is the relative distance from the golden output to the output of the golden
        operator on the leading side's inputs. If the operator cannot run again: no own errors, and None.
        """
        pair = self.pairing.graphs[mine.graph.index]
        ran, theirs = self._runs_again(mine, golden, pair)
        given = self._given(mine, ran, theirs)
        if given is None and ran is not mine and self.pairing.is_one_model:
            # onnxruntime names a fused operator like one of its parts, which reads other values
            ran, given = mine, self._given(mine, mine, pair)
        if given is None or not is_repeatable(ran.node):
            return (), None
        try:
            results = self.runners.outputs(ran.graph, ran.node, given, self.mine.computes_in)
        except MsdumpError:  # golden's operator cannot run on these inputs: no evidence
            return (), None
        own_errors = OwnErrors(self.runners, ran.graph, ran.node, given, self.mine.computes_in)
        names = (pair.golden_values.get(name, name) for name in golden.node.declared_outputs)
        written = dict(zip(names, golden.outputs, strict=True))
        own, propagated = [], []
        for tensor in outputs:
            array, again = mine.outputs[tensor.slot], _result(results, tensor.slot)
            if array is not None and again is not None and array.shape == again.shape:
                own.append(self._own_error(tensor, array, again, (mine, ran), own_errors))
            other = written.get(pair.values.get(tensor.name, tensor.name))
            # a shorter type than golden's may overflow
            if again is not None and not np.isfinite(again).all():
                again = None
                with suppress(MsdumpError):
                    results_of_golden = self.runners.outputs(
                        ran.graph, ran.node, given, self.golden.computes_in
                    )
                    again = _result(results_of_golden, tensor.slot)
            if other is not None and again is not None and other.shape == again.shape:
                propagated.append(measure_pair(again, other, np.inf).distance)
        return tuple(own), max(propagated, default=None)

    def _own_error(
        self,
        tensor: TensorEvidence,
        array: np.ndarray,
        again: np.ndarray,
        ran: tuple[Ran, Ran],
        own: OwnErrors,
    ) -> OwnError:
        dtype, other = (dtypes.from_numpy(each.dtype) for each in (array, again))
        output = RerunOutput(tensor.slot, array, dtype, IO.OUTPUT, tensor.slot)
        error, types = errors.measure(array, again), (dtype.name, other.name)
        apart = tensor.error or error
        node, allowed = ran[1].node, self.limits.allowed(types, self.limits.precision) or 0.0
        if self.limits.explanation:
            allowed = min(allowed, max(QUANTISED, _NOISE * self._noise(*ran)))
        floor = self.limits.floor((*types, self.limits.precision), node.op_type if dtype is not other else "")
        if error.is_same or error.distance <= allowed or 0 < error.largest <= floor:
            part = own.overflowed_part(output, apart)
            found = OwnError(tensor.slot, error, allowed, not part, "", overflow=part)
        else:
            found = own.explained(output, error, apart)
        return replace(
            found,
            error=error,
            allowed=max(allowed, found.allowed),
            arithmetic=self.mine.variant.text,
            explanation=self.limits.explained,
        )

    def _runs_again(self, mine: Ran, golden: Ran, pair: GraphPairing) -> tuple[Ran, GraphPairing]:
        """Return the operator to run again as golden, and the pairing of its graph with the leading one.

        Mostly the counterpart. If that is fused of other operators: for one model the examined operator
        itself, for two models the operator of the golden model compiled as the leading side is.
        """
        if self.pairing.is_one_model:
            members = ([part.name for part in ran.node.members] for ran in (mine, golden))
            return (golden if next(members) == next(members) else mine), pair
        if self.pairing.alike is None or not mine.node.parts:
            return golden, pair
        graph, pairing = self.pairing.alike
        alike = pairing.graphs.get(mine.graph.index)
        name = None if alike is None else alike.partners.get(mine.node.name)
        for inner in graph.walk():
            for node in inner.nodes:
                if alike is not None and node.name == name and _types(node) == _types(mine.node):
                    return replace(golden, graph=inner, node=node), alike
        return golden, pair

    def _given(self, mine: Ran, ran: Ran, pair: GraphPairing) -> Given | None:
        """Return the inputs of the operator by its own value names; None where one is unknown."""
        graph, arrays = ran.graph, self._read(mine)
        sources = _sources(mine.node, ran.node, pair) if ran is not mine else {name: name for name in arrays}
        common = pair.values if ran is mine else pair.golden_values
        given = {}
        for name in reads(ran.node):
            source = sources.get(name, "")
            array, is_weight = arrays.get(source), name in graph.weights and name not in graph.variables
            if is_weight and (
                source in pair.weights or not self._agrees(mine, source, array, graph.weights[name])
            ):
                continue
            if array is None and name in graph.weights:
                continue
            declared = graph.type_of(common.get(name, name)).dtype
            if array is None or not _fits(array, declared):
                return None
            is_held = declared is FLOAT32 and dtypes.from_numpy(array.dtype) in HALVES
            given[name] = array.astype(np.float32) if is_held else array
        return given

    def _agrees(self, mine: Ran, name: str, array: Array, weight: np.ndarray) -> bool:
        """Return whether a weight that operators of the leading side compute agrees with golden's."""
        if array is None or array.shape != weight.shape or array.dtype != weight.dtype:
            return False
        step = steps(mine.graph, mine.node, name)
        if step is not None and self.limits.explanation:  # rounded to the nearest number
            return float(np.sqrt(np.mean(np.square(array - weight, dtype=np.float64)))) <= _ROUNDED * step
        allowed = self.limits.allowed((dtypes.from_numpy(array.dtype).name,), self.limits.precision)
        return allowed is not None and measure_pair(array, weight, allowed).distance <= allowed

    @staticmethod
    def _noise(mine: Ran, ran: Ran) -> float:
        """Return the relative error of weights that are rounded to the nearest quantised number."""
        weights = (ran.graph.weights[name] for name in ran.node.inputs if name in ran.graph.weights)
        size = max(
            (float(np.sqrt(np.mean(np.square(each, dtype=np.float64)))) for each in weights), default=0.0
        )
        found = [steps(mine.graph, mine.node, name) for name in mine.node.inputs[1:]]
        step = max((each for each in found if each is not None), default=0.0)
        return step / math.sqrt(12) / size if size else 0.0

    def _read(self, mine: Ran) -> dict[str, np.ndarray]:
        """Return the values of an operator's inputs before the operator updated any of them in place."""
        node, graph = mine.node, mine.graph
        variables = self._variables if graph.variables else {}
        arrays: dict[str, np.ndarray] = {}
        for name, after, array in zip(node.inputs, node.inputs_after_run, mine.inputs, strict=True):
            if name in variables:
                arrays[name] = variables[name]
            elif name and name == after and array is not None:
                arrays[name] = array
        return arrays


def _types(node: Node) -> list[str]:
    return [part.op_type for part in node.members]


def _result(results: Sequence[Array], slot: int) -> Array:
    return results[slot] if slot < len(results) else None


def _fits(array: np.ndarray, declared: dtypes.DType | None) -> bool:
    return declared is None or (array.dtype.kind in "iu") == (declared.saved.kind in "iu")


def _sources(node: Node, golden: Node, pair: GraphPairing) -> dict[str, str]:
    """Return the leading side's value for each value that the golden operator reads."""
    theirs = {pair.golden_values.get(name, name): name for name in reads(golden)}
    own = {name: pair.values.get(name, name) for name in node.inputs if name}
    sources = {theirs[common]: name for name, common in own.items() if common in theirs}
    if len(node.inputs) == len(golden.inputs) and _types(node) == _types(golden):
        # the two may read unpaired values, for example behind a missing operator: pair inputs by position
        for name, other in zip(node.inputs, golden.inputs, strict=True):
            sources.setdefault(other, name)
    return sources
