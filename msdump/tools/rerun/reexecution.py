"""Runs the operators of a dump again on the inputs that they read, and finds those with errors of their own.

First every operator in the golden side's arithmetic; those that differ in the arithmetic that the examined
side computed in, which is the one that explains most of the network; what still differs is judged by float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from msdump.errors import MsdumpError
from msdump.execute.operators.float64.evaluator import Change
from msdump.execute.operators.runner import is_repeatable
from msdump.graph.kernel.emulation import FLOAT32
from msdump.observer import Array
from msdump.record import IO
from msdump.tools.judge import errors
from msdump.tools.judge.errors import TensorError
from msdump.tools.judge.evidence import OwnError
from msdump.tools.matching.sides import kinds
from msdump.tools.rerun import allowance, elements, hidden, side_by_side, wiring
from msdump.tools.rerun.allowance import Allowance
from msdump.tools.rerun.arithmetic import Arithmetic, candidates
from msdump.tools.rerun.compiled_model import CompiledModel, ModelOperator, file_names
from msdump.tools.rerun.dumped import RerunOperator
from msdump.tools.rerun.outputs import RerunOutput, is_near
from msdump.tools.rerun.runners import Runners
from msdump.tools.rerun.sites import Sites
from msdump.tools.rerun.values import UNREADABLE, DumpedValues, Given

_SAMPLE: Final = 12
"""Suspects by which the examined side's arithmetic is found."""

_MOST: Final = 0.5
"""Share of the operators concerned that an arithmetic must explain to be that of the whole network."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """What came out when an operator ran again.

    Attributes:
        own: Its own error, by output; empty where it did not run.
        propagated: Relative distance from the golden output to that of the operator on the examined side's
            inputs; None where that is the distance of the dumped output itself, or nothing ran.
        wiring: Which input is not what its producer wrote, in words.
        weights: Names of the weights and constants that it read and that are not the model's, by input.
        replaces: Names of the model's operators in whose place it stands, "" where it is the model's.
        names: Names of the values that it reads, by input, as the model has them.
        note: Why it did not run again, "" where it did.
    """

    own: tuple[OwnError, ...] = ()
    propagated: float | None = None
    wiring: str = ""
    weights: dict[int, str] = field(default_factory=dict)
    replaces: str = ""
    names: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_suspect(self) -> bool:
        """Whether an output differs from what came out again by more than a few units of the last place."""
        return any(not each.is_explained for each in self.own)

    @property
    def is_miswired(self) -> bool:
        """Whether it read something else than what the model feeds it."""
        return bool(self.wiring or self.weights) and not self.replaces


class Reexecution:
    """Runs the operators of one run of a network again.

    Attributes:
        model: The model as the examined side was compiled.
        values: The values of the run.
        golden: The golden side's arithmetic.
        mine: The examined side's arithmetic, known once all operators ran.
        reruns: What came out of each operator, once all ran.
    """

    def __init__(
        self,
        model: CompiledModel,
        operators: Sequence[RerunOperator],
        sites: Sites,
        computed_in: tuple[Arithmetic, Arithmetic | None],
        before: DumpedValues | None = None,
    ) -> None:
        """List the values of the run.

        Args:
            model: The model as the examined side was compiled.
            operators: The operators of the run, in the order in which they ran.
            sites: The operators of the model that they are.
            computed_in: The golden side's, and the examined side's, None where it is to be found out.
            before: The values of the run before, whose variables this one began with; None: not dumped.
        """
        self.model = model
        self._replaced = sites.replaced
        self.values = DumpedValues(model, operators, sites, before)
        self.golden, self.mine = computed_in
        self.reruns: list[Rerun] = []
        self._runners = Runners(model)

    def all(self, advance: Callable[[], None] = lambda: None) -> list[Rerun]:
        """Return what comes out of every operator, in their order.

        Args:
            advance: Called after each of them.
        """
        reruns: list[Rerun] = []
        for rerun in side_by_side.each(self._first, len(self.values.operators), self.values.mean_size):
            reruns.append(rerun)
            advance()
        suspects = [position for position, each in enumerate(reruns) if each.is_suspect]
        if self.mine is None:
            self.mine = self._arithmetic(reruns, suspects)
        if self.mine == self.golden:
            self.mine = self._rounding(reruns)
        for position in suspects:
            judged = self._judged(position, reruns[position])
            reruns[position] = self._other_kernel(position, judged) if judged.is_suspect else judged
        for position, rerun in enumerate(reruns):
            if rerun.is_miswired:
                rewired = self._rewired(position, rerun, self.mine)
                # what the device inserts is read: one that reads something else is another of its kind
                is_other = self.values.operators[position].is_inserted
                reruns[position] = replace(rewired, wiring="") if is_other else rewired
        self.reruns = reruns
        return reruns

    def _rewired(self, position: int, rerun: Rerun, mine: Arithmetic) -> Rerun:
        """Return what is left of wrong inputs where an arithmetic tells to which types they were rounded."""
        text = wiring.fault(self.values, position, mine)
        weights = wiring.wrong_weights(self.values, position, mine)
        if text.endswith(wiring.SWAPPED):
            again = self._again(position, mine, as_written=True)
            # the order of its inputs does not matter
            if again and all(is_near(error) for _, error in again):
                own = tuple(each.near(error, mine) for each, error in again)
                return replace(rerun, own=own, wiring="", weights=weights)
        return replace(rerun, wiring=text, weights=weights)

    def again(self, site: ModelOperator, given: Given) -> tuple[Array, ...]:
        """Return the outputs of an operator in the examined side's arithmetic.

        Raises:
            MsdumpError: It cannot run on these inputs.
        """
        return self._runners.outputs(site, given, self.mine or self.golden)

    def _first(self, position: int) -> Rerun:
        site = self.values.sites[position]
        replaces = self._replaced.get(position, "")
        if site is None:
            text = f"in the place of {replaces}" if replaces else ""
            return Rerun(wiring=text, replaces=replaces, note="the model has no such operator")
        if replaces:
            return self._in_the_place(position, site, replaces)
        rerun = Rerun(
            wiring=wiring.fault(self.values, position, self.mine or self.golden),
            weights=wiring.wrong_weights(self.values, position, self.mine or self.golden),
            names=site.node.inputs,
        )
        if not is_repeatable(site.node):
            return replace(rerun, note="it gives other results in every run")
        try:
            again = self._runners.outputs(site, self.values.given(position), self.golden)
        except (*UNREADABLE, MsdumpError) as fault:
            return replace(rerun, note=str(fault))
        own, propagated = [], 0.0
        for output in self._outputs(position, site):
            result = again[output.slot]
            if result is None or result.size != output.dumped.size:
                continue
            error = output.error(result)
            own.append(output.near(error, self.golden))
            if not error.is_same:
                propagated = max(propagated, self._propagated(position, site, output, result))
        return replace(rerun, own=tuple(own), propagated=propagated or None)

    def _in_the_place(self, position: int, site: ModelOperator, replaces: str) -> Rerun:
        """Return what is wrong with an operator that stands in the place of one of the model's."""
        again = self._again(position, self.golden, as_written=True)
        if again and all(is_near(error) for _, error in again):  # another name for the same
            return Rerun(tuple(each.near(error, self.golden) for each, error in again))
        note = "" if again else f"it is no {site.node.operator.op_type} of the model"
        return Rerun(wiring=f"in the place of {replaces}", replaces=replaces, note=note)

    def _other_kernel(self, position: int, rerun: Rerun) -> Rerun:
        """Return what is known of a kernel that is put together of other parts than the model's."""
        operator, site = self.values.operators[position], self.values.sites[position]
        if site is None or rerun.replaces or kinds(operator.name) == kinds(file_names(site.node)[0]):
            return rerun
        return replace(rerun, replaces=file_names(site.node)[0])

    def _outputs(self, position: int, site: ModelOperator) -> Iterator[RerunOutput]:
        """Yield what the operator wrote; of what it writes in place, the input that shows it."""
        operator, node = self.values.operators[position], site.node
        shown: set[int] = set()
        for slot, output in node.update.new_values.items():
            if output < len(node.outputs) and (IO.INPUT, slot) in operator.tensors:
                shown.add(output)
                yield from self._output(position, site, output, (IO.INPUT, slot))
        for slot in range(len(node.declared_outputs)):
            if slot not in shown and (IO.OUTPUT, slot) in operator.tensors:
                yield from self._output(position, site, slot, (IO.OUTPUT, slot))

    def _output(
        self, position: int, site: ModelOperator, slot: int, place: tuple[IO, int]
    ) -> Iterator[RerunOutput]:
        operator = self.values.operators[position]
        tensor, name = operator.tensors[place], site.node.outputs[slot]
        if not name:
            return
        try:
            array = self.values.array(site.graph, name, tensor, operator, site.node)
        except UNREADABLE:  # said where the tensors themselves are compared
            return
        yield RerunOutput(slot, array, elements.type_named(tensor.dtype, array), *place)

    def _propagated(
        self, position: int, site: ModelOperator, output: RerunOutput, again: np.ndarray
    ) -> float:
        """Return how far what came out again is from the golden output; 0 where there is none."""
        operator = self.values.operators[position]
        golden = operator.golden.get((output.io, output.place))
        if golden is None:
            return 0.0
        try:
            name = site.node.outputs[output.slot]
            array = self.values.array(site.graph, name, golden, operator, site.node)
        except UNREADABLE:
            return 0.0
        return errors.measure(again, array).distance

    def _arithmetic(self, reruns: Sequence[Rerun], suspects: Sequence[int]) -> Arithmetic:
        """Return the arithmetic that explains most operators, golden's unless another one explains more.

        Only those count that compute otherwise in the two, and that read the weights of the model.
        """
        best, most = self.golden, 0.0
        others = sorted({*range(len(reruns))} - {*suspects})
        for arithmetic in candidates():
            wrong = self._of_model(self._concerned(suspects, reruns, arithmetic), arithmetic)
            explained = self._share(wrong, reruns, arithmetic) * len(wrong)
            if explained <= most:  # mostly so: the others need not run again
                continue
            right = self._of_model(self._concerned(others, reruns, arithmetic), arithmetic)
            of_golden = (1 - self._share(right, reruns, arithmetic)) * len(right)
            if explained > of_golden:
                best, most = arithmetic, explained
                if explained == len(wrong) + len(right):  # no other one explains more
                    break
        return best

    def _of_model(self, positions: Iterable[int], arithmetic: Arithmetic) -> list[int]:
        """Return those of some operators that read the weights of the model."""
        return [
            position for position in positions if not wiring.wrong_weights(self.values, position, arithmetic)
        ]

    def _share(self, positions: Sequence[int], reruns: Sequence[Rerun], arithmetic: Arithmetic) -> float:
        """Return the share of operators that an arithmetic explains, by a sample of them."""
        sample = _sample(positions, reruns)
        return sum(self._explains(position, arithmetic) for position in sample) / max(len(sample), 1)

    def _rounding(self, reruns: Sequence[Rerun]) -> Arithmetic:
        """Return the arithmetic that explains most of the inputs which are not what their producers wrote.

        Where all inputs were dumped as rounded, the results alone do not tell.
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
        """Yield those of some operators that ran again and compute otherwise than in golden's arithmetic."""
        for position in positions:
            site = self.values.sites[position]
            if reruns[position].own and site is not None and arithmetic.differs(site.node, self.golden):
                yield position

    def _explains(self, position: int, arithmetic: Arithmetic) -> bool:
        again = self._again(position, arithmetic)
        return bool(again) and all(is_near(error) for _, error in again)

    def _again(
        self, position: int, arithmetic: Arithmetic, *, as_written: bool = False
    ) -> list[tuple[RerunOutput, TensorError]]:
        """Return the errors of an operator's outputs in an arithmetic; none where it cannot run in it."""
        site = self.values.sites[position]
        assert site is not None
        try:
            given = self.values.given(position, as_written=as_written)
            again = self._runners.outputs(site, given, arithmetic)
        except (*UNREADABLE, MsdumpError):
            return []
        return [
            (output, self._nearest(output, result, site, arithmetic))
            for output in self._outputs(position, site)
            for result in (again[output.slot],)
            if result is not None and result.size == output.dumped.size
        ]

    @staticmethod
    def _nearest(
        output: RerunOutput, again: np.ndarray, site: ModelOperator, arithmetic: Arithmetic
    ) -> TensorError:
        """Return how far an output is from what came out again, or from that as the device writes it.

        Operators that move or convert elements keep what they are given, so that what they read is rounded;
        but what comes of integers, and of updates that are added, is rounded where it is written.
        """
        error, rounding = output.error(again), arithmetic.written(site.node, output.slot)
        declared = site.graph.type_of(site.node.outputs[output.slot]).dtype
        if is_near(error) or rounding is None or again.dtype != np.float32 or declared is not FLOAT32:
            return error
        narrow = elements.in_type(again, rounding.writes, saturates=rounding.saturates)
        written = output.error(narrow.astype(np.float32))
        return written if is_near(written) else error

    def _judged(self, position: int, rerun: Rerun) -> Rerun:
        """Return what the examined side's arithmetic, or else rounding, leaves of a suspect's errors."""
        assert self.mine is not None
        again = self._again(position, self.mine)
        if not again:
            return rerun
        if all(is_near(error) for _, error in again):
            own = (each.near(error, self.mine) for each, error in again)
            return replace(rerun, own=tuple(own))
        site = self.values.sites[position]
        assert site is not None
        given = self.values.given(position)
        exact = self._allowance(site, given)
        judged = [(output, self._explained(output, error, exact)) for output, error in again]
        if exact is not None:
            judged = [(output, self._overflowed(site, given, output, each)) for output, each in judged]
        return replace(rerun, own=tuple(each for _, each in judged))

    def _overflowed(self, site: ModelOperator, given: Given, output: RerunOutput, own: OwnError) -> OwnError:
        """Return an error with the part of the kernel whose overflow explains it, if one does."""
        assert self.mine is not None
        mine = self.mine
        if own.is_explained or own.error.misplaced or output.dumped.dtype.kind != "f":
            return own

        def run(change: Change) -> tuple[np.ndarray | None, ...]:
            return self._runners.exact(site, given, mine, change=change)

        return replace(own, overflow=hidden.overflowed_part(site.node, run, output.slot, output.dumped))

    def _allowance(self, site: ModelOperator, given: Given) -> Allowance | None:
        assert self.mine is not None
        try:
            return Allowance(self._runners, site, given, self.mine)
        except Exception:  # noqa: BLE001 - what has no float64 is judged by the units of its type
            return None

    def _explained(self, output: RerunOutput, error: TensorError, exact: Allowance | None) -> OwnError:
        if is_near(error):
            return output.near(error, self.mine)
        explanation = None if exact is None else exact.explain(output.slot, output.dumped, output.dtype)
        if explanation is None:
            return output.judged(allowance.faithful(error, output.dtype), str(self.mine))
        return output.judged(explanation, "float64")


def _sample(suspects: Sequence[int], reruns: Sequence[Rerun]) -> list[int]:
    """Return some of the suspects from all over the network, and of those that overflow, if there are any."""
    overflowing = [each for each in suspects if any(own.error.misplaced for own in reruns[each].own)]
    spread = suspects[:: max(1, len(suspects) // _SAMPLE)]
    return [*dict.fromkeys((*overflowing[:2], *spread))]
