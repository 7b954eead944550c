"""Runs the operators of a dump again on their dumped inputs, and finds own errors.

Every operator runs in the golden side's arithmetic; if it differs, in the arithmetic of the examined side,
which is the one that explains most of the network; remaining errors are judged by float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from msdump.errors import MsdumpError
from msdump.execute import is_repeatable
from msdump.graph.kernel import FLOAT32
from msdump.judge import TensorError, errors
from msdump.judge.pair import kinds
from msdump.judge.rerun.arithmetic import Arithmetic, candidates, in_type, is_rounded, type_named
from msdump.judge.rerun.own import OperatorRunners, OwnErrors, RerunOutput, is_near
from msdump.judge.rerun.sites import CompiledModel, ModelOperator, RerunOperator, file_names
from msdump.judge.rerun.values import SWAPPED, UNREADABLE, DumpedInputs, DumpedValues, Holder, wrong_weights
from msdump.judge.verdict import PACKED, OwnError
from msdump.observer import Array
from msdump.record import IO
from msdump.threads import thread_count

_MOST_THREADS: Final = 4  # few: onnxruntime's kernels use threads of their own
_LEAST_SIZE: Final = 1 << 17  # mean size of tensors from which threads pay: smaller ones mostly hold the GIL
_R = TypeVar("_R")


def each(work: Callable[[int], _R], count: int, size: float) -> Iterator[_R]:
    """Yield the results of ``work(0)``, ``work(1)``, ... in order, computed by threads for large tensors.

    Python's lock is free while kernels run, files are read and tensors are compared. If these are small,
    threads mostly wait for the lock: one alone is faster.

    ``size`` is the mean number of elements that a call reads. After an error waiting calls are cancelled.
    """
    threads = min(thread_count(), _MOST_THREADS, count)
    if threads <= 1 or size < _LEAST_SIZE:
        yield from map(work, range(count))
        return
    with ThreadPoolExecutor(threads, "msdump-rerun") as pool:
        # map's generator cancels waiting calls if it is closed early
        yield from pool.map(work, range(count))


_SAMPLE: Final = 12
"""Size of the sample of suspects from which the examined side's arithmetic is inferred."""

_MOST: Final = 0.5
"""Share of the operators with other roundings that an arithmetic must explain to be the whole network's."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """The result of an operator that ran again."""

    own: tuple[OwnError, ...] = ()  # its own error, by output; empty if it did not run
    # relative distance from the golden output to the output of running again on the examined side's inputs;
    # None if equal to the distance of the dumped output, or if it did not run
    propagated: float | None = None
    wiring: str = ""  # sentence on an input that differs from its producer's output; "" for none
    # names of weights and constants that the operator read with other contents, by input
    weights: dict[int, str] = field(default_factory=dict)
    replaces: str = ""  # names of the model's operators that it stands for, "" if it is the model's
    names: tuple[str, ...] = ()  # the model's names of its inputs
    note: str = ""  # reason why it did not run again, "" where it did

    @property
    def is_suspect(self) -> bool:
        """Whether an output is off by more than a few units of the last place."""
        return any(not each.is_explained for each in self.own)

    @property
    def is_miswired(self) -> bool:
        """Whether an input has other contents than the model's producer or weight."""
        return bool(self.wiring or self.weights) and not self.replaces


class Reexecution:
    """Runs the operators of one run of a network again.

    Attributes:
        model: The model as the examined side was compiled.
        values: The values of the run.
        golden: The golden side's arithmetic.
        mine: The examined side's arithmetic, known once all operators ran.
        reruns: The result of each operator, once all ran.
    """

    def __init__(
        self,
        model: CompiledModel,
        operators: Sequence[RerunOperator],
        computed_in: tuple[Arithmetic, Arithmetic | None],
        before: DumpedValues | None = None,
    ) -> None:
        """List the values of the run.

        Args:
            model: The model as the examined side was compiled.
            operators: The operators of the run, in the order in which they ran.
            computed_in: Arithmetic of golden and of the examined side, None where it is to be found out.
            before: The values of the run before, which its variables began with; None: not dumped.
        """
        self.model = model
        self.values = DumpedValues(model, operators, before)
        self.golden, self.mine = computed_in
        self.reruns: list[Rerun] = []
        self._runners = OperatorRunners(around=model.around)

    def all(self, advance: Callable[[], None] = lambda: None) -> list[Rerun]:
        """Run every operator again, call ``advance`` after each, and return the results in their order."""
        reruns: list[Rerun] = []
        for rerun in each(self._first, len(self.values.operators), self.values.mean_size):
            reruns.append(rerun)
            advance()
        suspects = [position for position, each in enumerate(reruns) if each.is_suspect]
        if self.mine is None:
            self.mine = self._found_arithmetic(reruns, suspects)
        if self.mine == self.golden:
            self.mine = self._rounding(reruns)
        for position in suspects:
            if self.values.operators[position].is_inserted:
                continue
            judged = self._judged(position, reruns[position])
            operator = self.values.operators[position]
            if judged.is_suspect and operator.site is not None and not judged.replaces:
                # a kernel fused of other parts stands for the model's
                named = file_names(operator.site.node)[0]
                is_other = kinds(operator.name) != kinds(named)
                judged = replace(judged, replaces=named) if is_other else judged
            reruns[position] = judged
        for position, rerun in enumerate(reruns):
            if not rerun.is_miswired:
                continue
            rewired = self._rewired(position, rerun, self.mine)
            strangers = dict(DumpedInputs(self.values, position, self.mine).strangers())
            for stranger, text in strangers.items():
                reruns[stranger] = replace(reruns[stranger], wiring=reruns[stranger].wiring or text)
            reruns[position] = replace(rewired, wiring="") if strangers else rewired
        self.reruns = reruns
        return reruns

    def _rewired(self, position: int, rerun: Rerun, mine: Arithmetic) -> Rerun:
        """Return a result with faults of inputs that remain if inputs are rounded in an arithmetic."""
        text = DumpedInputs(self.values, position, mine).fault()
        weights = wrong_weights(self.values, position, mine)
        if text.endswith(SWAPPED):
            again = self._again(position, mine, as_written=True)
            # swapped inputs are no fault if the results agree: their order does not matter
            if _are_near(again):
                own = tuple(each.near(error, mine) for each, error in again)
                return replace(rerun, own=own, wiring="", weights=weights)
        return replace(rerun, wiring=text, weights=weights)

    @property
    def _arithmetic(self) -> Arithmetic:
        """The examined side's arithmetic; golden's until it is known."""
        return self.mine or self.golden

    def _first(self, position: int) -> Rerun:
        operator = self.values.operators[position]
        if operator.is_inserted:
            return self._handed_on(operator)
        site, replaces = operator.site, operator.replaces
        if operator.op_type == PACKED and (site is None or site.node.op_type != PACKED):
            site, replaces = None, ""  # a product with the model's weight in few bits
        if site is None:
            text = f"in place of {replaces}" if replaces else ""
            note = "the model lacks this operator"
            if self.values.is_of_other_form:
                note = "the model computes it in another form"
            return Rerun(wiring=text, replaces=replaces, note=note)
        if replaces:
            return self._in_the_place(position, site, replaces)
        is_other_form = self.values.is_of_other_form  # its graph shows its inputs
        rerun = Rerun(
            wiring="" if is_other_form else DumpedInputs(self.values, position, self._arithmetic).fault(),
            weights=wrong_weights(self.values, position, self._arithmetic),
            names=site.node.inputs,
        )
        if not is_repeatable(site.node):
            return replace(rerun, note="its results change from run to run")
        try:
            given = self.values.given(position)
            again = self._runners.outputs(site.graph, site.node, given, self.golden)
        except (*UNREADABLE, MsdumpError) as reason:
            return replace(rerun, note=str(reason))
        own, propagated = [], 0.0
        for output, result in self._results(position, site, again):
            error = output.error(result)
            own.append(output.near(error, self.golden))
            if not error.is_same:
                propagated = max(propagated, self._propagated(position, site, output, result))
        return replace(rerun, own=tuple(own), propagated=propagated or None)

    def _in_the_place(self, position: int, site: ModelOperator, replaces: str) -> Rerun:
        """Return the result of a dumped operator in the place of another operator of the model."""
        again = self._again(position, self.golden, as_written=True)
        if _are_near(again):  # the same operator under another name
            return Rerun(tuple(each.near(error, self.golden) for each, error in again))
        note = "" if again else f"its results are not from {site.node.operator.op_type} of the model"
        return Rerun(wiring=f"in place of {replaces}", replaces=replaces, note=note)

    def _outputs(self, position: int, site: ModelOperator) -> Iterator[RerunOutput]:
        """Yield the operator's dumped outputs; an output written in place is dumped as an input."""
        tensors, node = self.values.operators[position].tensors, site.node
        updates = node.update.new_values.items()
        shown = {output: (IO.INPUT, slot) for slot, output in updates if (IO.INPUT, slot) in tensors}
        others = {slot: (IO.OUTPUT, slot) for slot in range(len(node.declared_outputs)) if slot not in shown}
        for slot, place in {**shown, **others}.items():
            if slot >= len(node.outputs) or not node.outputs[slot] or place not in tensors:
                continue
            tensor = tensors[place]
            try:
                array = self.values.array(site.graph, node.outputs[slot], Holder(tensor, position, node))
            except UNREADABLE:  # said where the tensors themselves are compared
                continue
            yield RerunOutput(slot, array, type_named(tensor.dtype, array), tensor.io, tensor.slot)

    def _propagated(
        self, position: int, site: ModelOperator, output: RerunOutput, again: np.ndarray
    ) -> float:
        """Return the distance of a new output from the golden one; 0 without a golden one of this size."""
        try:
            golden = self.values.operators[position].golden((output.io, output.place))
            if golden is None:
                return 0.0
            name = site.node.outputs[output.slot]
            array = self.values.array(site.graph, name, Holder(golden, position, site.node))
        except UNREADABLE:
            return 0.0
        # sizes may depend on values
        return errors.measure(again, array).distance if again.size == array.size else 0.0

    def _found_arithmetic(self, reruns: Sequence[Rerun], suspects: Sequence[int]) -> Arithmetic:
        """Return the arithmetic that explains the results of most operators, preferably golden's.

        Only operators that compute differently in the two kinds of arithmetic, on the model's weights, count.
        """
        best, most = self.golden, 0.0
        others = sorted({*range(len(reruns))} - {*suspects})
        for arithmetic in candidates():
            wrong = self._of_model(self._concerned(suspects, reruns, arithmetic), arithmetic)
            explained = self._share(wrong, reruns, arithmetic) * len(wrong)
            if explained <= most:  # the usual case, decided without running the other operators
                continue
            right = self._of_model(self._concerned(others, reruns, arithmetic), arithmetic)
            of_golden = (1 - self._share(right, reruns, arithmetic)) * len(right)
            if explained > of_golden:
                best, most = arithmetic, explained
                if explained == len(wrong) + len(right):  # it explains all
                    break
        return best

    def _of_model(self, positions: Iterable[int], arithmetic: Arithmetic) -> list[int]:
        return [position for position in positions if not wrong_weights(self.values, position, arithmetic)]

    def _share(self, positions: Sequence[int], reruns: Sequence[Rerun], arithmetic: Arithmetic) -> float:
        """Return the share of a sample of operators with results that an arithmetic explains."""
        overflowing = [each for each in positions if any(own.error.misplaced for own in reruns[each].own)]
        spread = positions[:: max(1, len(positions) // _SAMPLE)]
        sample = [*dict.fromkeys((*overflowing[:2], *spread))]
        return sum(_are_near(self._again(position, arithmetic)) for position in sample) / max(len(sample), 1)

    def _rounding(self, reruns: Sequence[Rerun]) -> Arithmetic:
        """Return the arithmetic that explains most of the inputs that differ from their producers' outputs.

        Needed if inputs were dumped after rounding: then results agree in several kinds of arithmetic.
        """
        miswired = [position for position, rerun in enumerate(reruns) if rerun.is_miswired]
        if not miswired:
            return self.golden
        for arithmetic in candidates():
            wrong = [*self._concerned(miswired, reruns, arithmetic)]
            concerned = self._concerned(range(len(reruns)), reruns, arithmetic)
            enough = int(len(wrong) / _MOST)
            if sum(1 for _ in islice(concerned, enough)) == enough:  # no need to look at the others
                continue
            sample = wrong[:: max(1, len(wrong) // _SAMPLE)]
            left = sum(
                self._rewired(position, reruns[position], arithmetic).is_miswired for position in sample
            )
            if left <= (1 - _MOST) * len(sample):
                return arithmetic
        return self.golden

    def _concerned(
        self, positions: Sequence[int], reruns: Sequence[Rerun], arithmetic: Arithmetic
    ) -> Iterator[int]:
        """Yield operators that ran again, for which an arithmetic rounds differently than golden's."""
        for position in positions:
            site = self.values.operators[position].site
            if reruns[position].own and site is not None and arithmetic.differs(site.node, self.golden):
                yield position

    def _again(
        self, position: int, arithmetic: Arithmetic, *, as_written: bool = False
    ) -> list[tuple[RerunOutput, TensorError]]:
        """Return dumped outputs with their errors from running again in an arithmetic; [] if that fails."""
        site = self.values.site(position)
        try:
            given = self.values.given(position, as_written=as_written)
            again = self._runners.outputs(site.graph, site.node, given, arithmetic)
        except (*UNREADABLE, MsdumpError):
            return []
        return [
            (output, self._nearest(output, result, site, arithmetic))
            for output, result in self._results(position, site, again)
        ]

    def _results(
        self, position: int, site: ModelOperator, again: Sequence[Array]
    ) -> Iterator[tuple[RerunOutput, np.ndarray]]:
        """Yield pairs of dumped and new output, if their sizes are equal."""
        for output in self._outputs(position, site):
            result = again[output.slot]
            if result is not None and result.size == output.dumped.size:
                yield output, result

    @staticmethod
    def _nearest(
        output: RerunOutput, again: np.ndarray, site: ModelOperator, arithmetic: Arithmetic
    ) -> TensorError:
        """Return an output's error from the new output, or from that rounded as the device writes it.

        Operators that move or convert elements do not round; only results of integers, and added updates, are
        rounded when written.
        """
        error, rounding = output.error(again), arithmetic.written(site.node, output.slot)
        declared = site.graph.type_of(site.node.outputs[output.slot]).dtype
        if is_near(error) or rounding is None or again.dtype != np.float32 or declared is not FLOAT32:
            return error
        narrow = in_type(again, rounding.writes, saturates=rounding.saturates)
        written = output.error(narrow.astype(np.float32))
        return written if is_near(written) else error

    def _judged(self, position: int, rerun: Rerun) -> Rerun:
        """Return a suspect's result with errors explained by the examined side's arithmetic or rounding."""
        again = self._again(position, self._arithmetic)
        if not again:
            return rerun
        site, given = self.values.site(position), self.values.given(position)
        errors = OwnErrors(self._runners, site.graph, site.node, given, self._arithmetic)
        apart = {(each.io, each.slot): each.error for each in rerun.own}
        own = (
            errors.explained(each, error, apart.get((each.io, each.place), error)) for each, error in again
        )
        return replace(rerun, own=tuple(own))

    @staticmethod
    def _handed_on(operator: RerunOperator) -> Rerun:
        """Return the result of an inserted operator (cast or transfer), which must not change its input."""
        read, written = (operator.tensors.get((io, 0)) for io in IO)
        if read is None or written is None:
            return Rerun(note="its input or its output was not dumped")
        try:
            given, result = (each.on_host().reshape(-1) for each in (read, written))
        except UNREADABLE as reason:
            return Rerun(note=str(reason))
        if given.size != result.size:
            return Rerun(note=f"it reads {given.size} elements and writes {result.size}")
        dtype = type_named(written.dtype, result)
        is_same = is_rounded(result, given, dtype)
        error = RerunOutput(0, result, dtype, IO.OUTPUT, 0).error(result if is_same else given)
        return Rerun(own=(OwnError(0, error, 0.0, is_same, dtype.name),))


def _are_near(again: Sequence[tuple[RerunOutput, TensorError]]) -> bool:
    return bool(again) and all(is_near(error) for _, error in again)
