"""Advice for a network: the operators to keep, found on some inputs and confirmed on another one."""

from __future__ import annotations

import enum
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.errors import InputError
from msdump.graph.graph import Node
from msdump.tools.advise.runs import DeviceRuns, Example, Truth, golden
from msdump.tools.advise.search import Progress, SetSearch
from msdump.tools.advise.variants import Values, Variants

_CONFIRMATIONS: Final = 6
"""How often a set that fails on an input that was not looked at is searched for anew, with that input."""

_WITHOUT_MARGIN: Final = 1
"""How often it is searched for anew with no margin for further inputs."""

_EXACT_CONFIRMATIONS: Final = 12
"""The same for small networks, whose sets take no time to find..."""

_EXACT_WITHOUT_MARGIN: Final = 8
"""...and are the smallest ones as long as there is no margin."""

Unseen = Callable[[int], tuple[str, Values]]
"""Makes up the input of a number from 0: its name, and its values as they are fed."""


class SearchEnd(enum.StrEnum):
    """How a search ended."""

    CONFIRMED = "confirmed"
    """The set keeps the bound on an input that the search has not seen."""
    UNCONFIRMED = "unconfirmed"
    """It keeps the bound on the inputs that were looked at, and on no other, or there was none."""
    NONE = "none"
    """No set keeps the bound."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ErrorPair:
    """The error of one output of one input.

    Attributes:
        example: The input.
        output: Name of the output.
        before: With nothing kept.
        after: With the advised operators kept.
        is_unseen: The input had no part in the search.
    """

    example: str
    output: str
    before: float
    after: float
    is_unseen: bool


@dataclass(frozen=True, slots=True)
class KeepAdvice:
    """What to keep.

    Attributes:
        measured: The runs of the inputs that the search has looked at.
        bound: The largest error that is allowed.
        kept: Positions of the operators to keep; None where no set keeps the bound.
        errors: The errors of every output and input; without a set, ``after`` is that with everything kept.
        outcome: How the search ended.
        runs: How often the whole network ran, partial runs added up.
    """

    measured: DeviceRuns
    bound: float
    kept: frozenset[int] | None
    errors: tuple[ErrorPair, ...]
    outcome: SearchEnd
    runs: float

    @property
    def is_confirmed(self) -> bool:
        """Whether the bound holds on an input that had no part in the search."""
        return self.outcome is SearchEnd.CONFIRMED

    @property
    def variants(self) -> Variants:
        """The network."""
        return self.measured.variants

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators to keep, in execution order."""
        return self.nodes_at(self.kept or frozenset())

    def nodes_at(self, positions: frozenset[int]) -> tuple[Node, ...]:
        """Return the operators of candidates."""
        return tuple(node for each in sorted(positions) for node in self.variants.candidates[each].nodes)


def advise(
    variants: Variants,
    side: Callable[[], Truth],
    seen: Sequence[tuple[str, Values]],
    unseen: Unseen,
    *,
    bound: float,
    progress: Progress = lambda _text: None,
) -> KeepAdvice:
    """Return the smallest set of operators to keep so that every output stays within a bound.

    Args:
        variants: The network.
        side: Compiles what gives the outputs that are right; dropped while it is not needed, for its memory.
        seen: Inputs that the search looks at: their names, and their values as they are fed.
        unseen: Gives inputs to confirm the set on. One that refutes it is looked at from then on.
        bound: The largest relative error of any output of any input.
        progress: Told what goes on.

    Raises:
        InputError: True outputs are not finite, or the device rounds nothing.
    """
    if not variants.candidates:
        raise InputError(f"{variants.graph.source}: the device rounds no operator: there is nothing to keep")
    truth = side()
    examples = [golden(name, feeds, truth) for name, feeds in seen]
    trial = _trial(truth, unseen, 0, progress)
    del truth
    gc.collect()  # sessions stand in cycles
    search = SetSearch(DeviceRuns(variants, examples), bound, progress)
    try:
        return _confirmed(search, bound, unseen, side, trial)
    except KeyboardInterrupt:
        return KeepAdvice(search.runs, bound, search.best, (), SearchEnd.INTERRUPTED, search.share)


def _confirmed(
    search: SetSearch, bound: float, unseen: Unseen, side: Callable[[], Truth], trial: Example | None
) -> KeepAdvice:
    variants, progress = search.runs.variants, search.progress
    most, without_margin = (
        (_EXACT_CONFIRMATIONS, _EXACT_WITHOUT_MARGIN)
        if search.is_exact
        else (_CONFIRMATIONS, _WITHOUT_MARGIN)
    )
    for number in range(1, 1 + most):
        kept = search.smallest()
        if kept is None or trial is None:
            break
        error = DeviceRuns(variants, [trial]).worst(kept)
        progress(f"on {trial.name}, which the search has not seen: error {error:.3g}")
        if error <= bound:
            return _advice(search, bound, kept, trial, SearchEnd.CONFIRMED)
        search.add(trial)
        if number > without_margin:  # what holds on some inputs alone lacks a margin for others
            search.limit *= bound / error
        trial = _trial(side(), unseen, number, progress)
    return _advice(search, bound, kept, trial, SearchEnd.UNCONFIRMED if kept is not None else SearchEnd.NONE)


def _trial(truth: Truth, unseen: Unseen, number: int, progress: Progress) -> Example | None:
    """Return an input to confirm a set on, None where none can be had."""
    try:
        name, feeds = unseen(number)
        return golden(name, feeds, truth)
    except InputError as error:
        progress(f"no input to confirm the set on: {error}")
        return None


def _advice(
    search: SetSearch, bound: float, kept: frozenset[int] | None, trial: Example | None, outcome: SearchEnd
) -> KeepAdvice:
    runs, variants = search.runs, search.runs.variants
    everything = frozenset(variants.candidates)
    shown = [(example, False) for example in runs.examples]
    shown += [(trial, True)] if trial is not None else []
    errors: list[ErrorPair] = []
    for example, is_unseen in shown:
        alone = DeviceRuns(variants, [example])
        before = alone.errors(0, frozenset())
        after = alone.errors(0, everything if kept is None else kept)
        errors += [
            ErrorPair(example.name, output, before[output], after[output], is_unseen) for output in before
        ]
    return KeepAdvice(
        runs,
        bound,
        kept,
        tuple(errors),
        outcome,
        search.share,
    )
