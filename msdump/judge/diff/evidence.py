"""Tensors of an operator on both sides of lockstep: how far they are apart, and the evidence of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.graph import Graph, Node
from msdump.judge import SAME, TensorError, errors, is_regrouped
from msdump.judge.diff.lockstep import Nesting, Ran
from msdump.judge.diff.pairing import GraphPairing, Pairing
from msdump.judge.pair import is_quantised
from msdump.judge.verdict import Limits, TensorEvidence, TensorVerdict
from msdump.observer import Array
from msdump.record import IO
from msdump.statistics import Distance, address
from msdump.statistics import distances as first_look
from msdump.threads import map_threads, split_by_size

_PART: Final = 1 << 15
"""Elements of pairs that keep a thread busy for longer than it takes to wake one."""

_SAFE_SHARE: Final = 0.5
"""Share of the limit up to which the quick measurement counts; larger distances are measured in full."""

_SMALLEST: Final = 1e-12
"""Least mean square of golden elements: below it squares may vanish."""

_LARGEST: Final = 4096.0
"""Largest magnitude for the quick measurement: larger elements may be masks, which errors leave out."""


class ArrayPair(NamedTuple):
    """Two arrays of one shape; pairs clearly within ``limit`` are measured quickly (None: always in full)."""

    mine: np.ndarray
    golden: np.ndarray
    limit: float | None = None


def measure_pairs(pairs: Sequence[ArrayPair]) -> list[TensorError]:
    """Return the error of each pair; threads share the pairs.

    A first look, which takes a fifth of the full time, settles tensors that clearly agree. Its sums of
    squares are off by far less than the limits of agreement; NaN, nearly equal tensors, and tensors near
    the limit are measured in full.
    """
    found = {place: SAME for place, pair in enumerate(pairs) if _is_one(pair.mine, pair.golden)}
    seen = [
        place
        for place, pair in enumerate(pairs)
        if place not in found and pair.limit is not None and first_look.takes(pair.mine, pair.golden)
    ]
    looks = dict(zip(seen, first_look.distances([pairs[place][:2] for place in seen]), strict=True))
    for place, look in looks.items():
        settled = _agreement(look, pairs[place].limit or 0.0, pairs[place].mine.size)
        if settled is not None:
            found[place] = settled

    def measure(share: list[int]) -> None:
        for place in share:
            pair = pairs[place]
            look = looks.get(place)
            settled = None
            if look is not None and look.most >= -errors.MASK:
                settled = _agreement_beside_masks(pair)
            # only a sum above 0 proves that bits differ: NaN may be equal in bits, and 0 hides -0 beside 0
            is_unlike = look is not None and look.differences > 0
            found[place] = settled or errors.measure(pair.mine, pair.golden, is_unlike=is_unlike)

    unsettled = [place for place in range(len(pairs)) if place not in found]
    map_threads(measure, split_by_size(unsettled, lambda place: pairs[place].mine.size, _PART))
    return [found[place] for place in range(len(pairs))]


def measure_pair(mine: np.ndarray, golden: np.ndarray, limit: float | None) -> TensorError:
    """Return the error of two tensors of one shape; arguments as of ``ArrayPair``."""
    return measure_pairs((ArrayPair(mine, golden, limit),))[0]


def _is_one(mine: np.ndarray, golden: np.ndarray) -> bool:
    if mine is golden:
        return True
    is_alike = mine.dtype == golden.dtype and mine.strides == golden.strides
    return is_alike and address(mine) == address(golden)


def _agreement(look: Distance, limit: float, count: int, masked: int = 0) -> TensorError | None:
    """Return the error of two tensors that clearly agree without being equal, None for others.

    The ulps are NaN: no verdict needs them of tensors that agree, and they take as long as all others.
    """
    difference, norm, largest, most = look
    is_near = 0 < difference <= norm * (limit * _SAFE_SHARE) ** 2
    if not (is_near and norm >= _SMALLEST * count and most < _LARGEST):
        return None
    distance = math.sqrt(difference / norm)
    return TensorError(
        is_same=False,
        distance=distance,
        cosine=1 - distance * distance / 2,  # a lower bound: part of the difference may be in length
        largest=largest,
        norm=math.sqrt(difference),
        scaled=largest / most,
        ulps=math.nan,  # no verdict needs them of tensors that agree, and they take as long as all others
        masked=masked,
    )


def _agreement_beside_masks(pair: ArrayPair) -> TensorError | None:
    """Return the error outside of masked lanes if it clearly agrees; None without masked lanes."""
    masked = errors.are_masked(pair.mine, pair.golden)
    count = int(np.count_nonzero(masked))
    if not count:
        return None
    outside = [np.where(masked, np.float32(0), array) for array in pair[:2]]
    (look,) = first_look.distances([(outside[0], outside[1])], is_shared=False)
    return _agreement(look, pair.limit or 0.0, masked.size, count) if errors.may_be_masks(look.most) else None


Measured = Mapping[tuple[int, int], TensorError]
"""How far tensors and their counterparts are apart, by the ids of both arrays."""

WeightEvidence = dict[tuple[int, str, int], TensorEvidence]
"""Evidence of weights as inputs, by graph, operator and slot."""

_TEXT: Final = "O"  # numpy's kind of arrays of texts


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator that has run, and the tensors of its counterpart by their common names."""

    mine: Ran
    pair: GraphPairing | None
    golden: Mapping[tuple[IO, str], np.ndarray]

    def common(self, name: str) -> str:
        return name if self.pair is None else self.pair.values.get(name, name)


@dataclass(slots=True)
class Observations:
    """The evidence of one run of both sides.

    A tensor is measured once, where it is written; operators that read it share the measurement. An input of
    a body is looked up in the graphs around it, too.
    """

    pairing: Pairing
    limits: Limits
    # returns how many elements of a weight become infinite when an operator reads it
    count_overflows: Callable[[Node, np.ndarray], int]
    is_first: bool = True  # whether this is the first run, in which variables have the model's initial values
    # evidence of weights, which is the same in every run
    weights: WeightEvidence = field(default_factory=dict)
    _measured: dict[Nesting, dict[str, TensorEvidence]] = field(default_factory=dict)

    def tensors(self, ran: Sequence[tuple[Ran, Ran | None]]) -> Iterator[tuple[TensorEvidence, ...]]:
        """Yield the evidence of each operator's tensors, inputs first; all outputs are measured together."""
        steps = [self._step(*each) for each in ran]
        outputs = [
            ArrayPair(array, golden, _limit(array, golden, self.limits))
            for step in steps
            for _, name, array in _slots(step.mine.node.declared_outputs, step.mine.outputs)
            if (golden := step.golden.get((IO.OUTPUT, step.common(name)))) is not None
            if array.shape == golden.shape and _TEXT not in (array.dtype.kind, golden.dtype.kind)
        ]
        ids = ((id(pair.mine), id(pair.golden)) for pair in outputs)
        measured = dict(zip(ids, measure_pairs(outputs), strict=True))
        for step in steps:
            mine, tensors = step.mine, []
            known = self._measured.setdefault(mine.nesting, {})
            for slot, name, array in _slots(mine.node.inputs_after_run, mine.inputs):
                tensors.append(self._input(step, slot, name, array))
            for slot, name, array in _slots(mine.node.declared_outputs, mine.outputs):
                known[name] = self._measure(step, (IO.OUTPUT, slot, name), array, measured)
                tensors.append(known[name])
            yield tuple(tensors)

    def control_inputs(self, nesting: Nesting, graph: Graph, control: Node) -> Iterator[TensorEvidence]:
        """Yield the evidence of the inputs of a branch or loop that is about to run."""
        pair = self.pairing.graphs.get(graph.index)
        for slot, name in enumerate(control.inputs if pair is not None else ()):
            assert pair is not None
            if name in pair.weights and (self.is_first or name not in graph.variables):
                yield self._weight(graph, control, slot, name, pair)
                continue
            names = pair.origins.get(name, name), pair.values.get(name, name)
            evidence = next(filter(None, (self._known(nesting, each) for each in names)), None)
            dtype = graph.type_of(name).dtype
            if evidence is not None:
                yield _as_input(evidence, slot)
            elif not nesting and dtype is not None and any(each.name == name for each in graph.inputs):
                # both networks are fed the same
                yield TensorEvidence(
                    IO.INPUT, slot, dtype=dtype.name, golden_dtype=dtype.name, error=SAME, name=name
                )

    def _step(self, mine: Ran, golden: Ran | None) -> _Step:
        pair = self.pairing.graphs.get(mine.graph.index)
        if pair is None or golden is None:
            return _Step(mine, pair, {})
        node, common = golden.node, pair.golden_values
        inputs = _slots(node.inputs_after_run, golden.inputs)
        outputs = _slots(node.declared_outputs, golden.outputs)
        read = {(IO.INPUT, common.get(name, name)): array for _, name, array in inputs}
        return _Step(
            mine, pair, read | {(IO.OUTPUT, common.get(name, name)): array for _, name, array in outputs}
        )

    def _measure(
        self, step: _Step, which: tuple[IO, int, str], array: np.ndarray, measured: Measured
    ) -> TensorEvidence:
        """Return the evidence of a tensor and the counterpart of its common name; unchecked without one."""
        golden = step.golden.get((which[0], step.common(which[2])))
        if golden is None:
            return _unchecked(*which, array)
        return compare_arrays(which, array, golden, self.limits, measured)

    def leave(self, nesting: Nesting, body: int) -> None:
        """Forget the values of a body that has run."""
        depth = len(nesting)
        for key in [key for key in self._measured if len(key) > depth and key[:depth] == nesting]:
            if key[depth][0] == body:
                del self._measured[key]

    def _input(self, step: _Step, slot: int, name: str, array: np.ndarray) -> TensorEvidence:
        mine, pair = step.mine, step.pair
        if pair is None:
            return _unchecked(IO.INPUT, slot, name, array)
        is_unlike = bool(self.pairing.models.quantised) and is_quantised((mine.node.op_type,))
        if is_unlike and name in pair.weights:
            return _unchecked(IO.INPUT, slot, name, array)  # the numbers it stands for are compared
        if name in pair.weights and (self.is_first or name not in mine.graph.variables):
            return self._weight(mine.graph, mine.node, slot, name, pair)
        evidence = self._known(mine.nesting, pair.origins.get(name, name))
        if evidence is None and (IO.INPUT, step.common(name)) in step.golden:
            evidence = self._measure(step, (IO.INPUT, slot, name), array, {})
        if evidence is None:  # a cast or other form of a measured value, or a value under its common name
            evidence = self._known(mine.nesting, step.common(name))
        if evidence is not None:
            self._measured.setdefault(mine.nesting, {}).setdefault(name, evidence)
            return _as_input(evidence, slot)
        # an input of the network: the same array for both sides of one model
        unchecked = _unchecked(IO.INPUT, slot, name, array)
        if not self.pairing.is_one_model:
            return unchecked
        return replace(unchecked, golden_dtype=unchecked.dtype, error=SAME)

    def _weight(self, graph: Graph, node: Node, slot: int, name: str, pair: GraphPairing) -> TensorEvidence:
        key = graph.index, node.name, slot
        known = self.weights.get(key)
        if known is None:
            own, golden = pair.weights[name]
            known = compare_arrays((IO.INPUT, slot, name), own, golden, self.limits, {})
            is_same = known.error is None or known.error.is_same
            is_rounded = not is_same and errors.is_rounding(own, golden)
            known = self.weights[key] = replace(
                known,
                is_weight=True,
                is_rounded=is_rounded,
                places="" if is_same or is_rounded else errors.places_text(own, golden),
                overflows=self.count_overflows(node, own),
            )
        return known

    def _known(self, nesting: Nesting, name: str) -> TensorEvidence | None:
        for depth in range(len(nesting), -1, -1):
            evidence = self._measured.get(nesting[:depth], {}).get(name)
            if evidence is not None:
                return evidence
        return None


def _slots(names: Sequence[str], arrays: Sequence[Array]) -> Iterator[tuple[int, str, np.ndarray]]:
    for slot, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if name and array is not None:
            yield slot, name, array


def _as_input(evidence: TensorEvidence, slot: int) -> TensorEvidence:
    """Return a copy of evidence as that of an input; ``dataclasses.replace`` takes three times as long."""
    return TensorEvidence(
        IO.INPUT,
        slot,
        evidence.shape,
        evidence.dtype,
        evidence.golden_dtype,
        error=evidence.error,
        verdict=evidence.verdict,
        note=evidence.note,
        name=evidence.name,
    )


def _unchecked(io: IO, slot: int, name: str, array: np.ndarray) -> TensorEvidence:
    dtype = dtypes.from_numpy(array.dtype).name
    return TensorEvidence(io, slot, array.shape, dtype, verdict=TensorVerdict.UNCHECKED, name=name)


def compare_arrays(
    which: tuple[IO, int, str],
    mine: np.ndarray,
    golden: np.ndarray,
    limits: Limits,
    measured: Measured,
) -> TensorEvidence:
    """Return the evidence of a tensor (given by io, slot and name) beside its counterpart."""
    io, slot, name = which
    dtype, golden_dtype = (dtypes.from_numpy(array.dtype).name for array in (mine, golden))
    verdict, note, error = TensorVerdict.UNCHECKED, "", None
    if mine.shape != golden.shape:
        note = f"shape {mine.shape} against {golden.shape}"
    if not is_regrouped(mine.shape, golden.shape):
        verdict = TensorVerdict.SHAPE
    elif _TEXT in (mine.dtype.kind, golden.dtype.kind):
        is_same = mine.dtype.kind == golden.dtype.kind and bool(np.array_equal(mine, golden))
        verdict, error = (verdict, SAME) if is_same else (TensorVerdict.DIFFERS, None)
    else:
        error = measured.get((id(mine), id(golden)))
        if error is None:
            error = measure_pair(mine, golden.reshape(mine.shape), _limit(mine, golden, limits))
    return TensorEvidence(
        io, slot, mine.shape, dtype, golden_dtype, error=error, verdict=verdict, note=note, name=name
    )


def _limit(mine: np.ndarray, golden: np.ndarray, limits: Limits) -> float | None:
    types = (dtypes.from_numpy(array.dtype).name for array in (mine, golden))
    return limits.allowed(types, limits.precision)
