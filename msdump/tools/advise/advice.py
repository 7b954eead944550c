"""Advice for a network: the operators to keep, found on some inputs and confirmed on another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.errors import InputError
from msdump.graph.graph import Node
from msdump.tools.advise.runs import Example, Runs, Truth, golden
from msdump.tools.advise.search import Progress, Search
from msdump.tools.advise.variants import Values, Variants

_CONFIRMATIONS: Final = 6
"""How often a set that fails on an input that was not looked at is searched for anew, with that input."""

Unseen = Callable[[int], tuple[str, Values]]
"""Makes up the input of a number from 0: its name, and its values as they are fed."""


@dataclass(frozen=True, slots=True)
class OutputError:
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
class Advice:
    """What to keep.

    Attributes:
        measured: The runs of the inputs that the search has looked at.
        bound: The largest error that is allowed.
        kept: Positions of the operators to keep; None where no set keeps the bound.
        errors: The errors of every output and input; without a set, ``after`` is that with everything kept.
        is_confirmed: Whether the bound holds on an input that had no part in the search.
        runs: How often the whole network ran, partial runs added up.
    """

    measured: Runs
    bound: float
    kept: frozenset[int] | None
    errors: tuple[OutputError, ...]
    is_confirmed: bool
    runs: float

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
    truth: Truth,
    seen: Sequence[tuple[str, Values]],
    unseen: Unseen,
    *,
    bound: float,
    progress: Progress = lambda _text: None,
) -> Advice:
    """Return the smallest set of operators to keep so that every output stays within a bound.

    Args:
        variants: The network.
        truth: Gives the outputs that are right.
        seen: Inputs that the search looks at: their names, and their values as they are fed.
        unseen: Gives inputs to confirm the set on. One that refutes it is looked at from then on.
        bound: The largest relative error of any output of any input.
        progress: Told what goes on.

    Raises:
        InputError: True outputs are not finite, or the device rounds nothing.
    """
    if not variants.candidates:
        raise InputError(f"{variants.graph.source}: the device rounds no operator: there is nothing to keep")
    # the truth of the first trial, too, before the device's kernels take memory
    examples = [golden(name, feeds, truth) for name, feeds in seen]
    trial = _trial(truth, unseen, 0, progress)
    search = Search(Runs(variants, examples), bound, progress)
    for number in range(1, 1 + _CONFIRMATIONS):
        kept = search.smallest()
        if kept is None or trial is None:
            break
        error = Runs(variants, [trial]).worst(kept)
        progress(f"on {trial.name}, which the search has not seen: error {error:.3g}")
        if error <= bound:
            return _advice(search, bound, kept, trial, is_confirmed=True)
        search.add(trial)
        if number > 1:  # what holds on some inputs alone lacks a margin for others
            search.limit *= bound / error
        trial = _trial(truth, unseen, number, progress)
    return _advice(search, bound, kept, trial, is_confirmed=False)


def _trial(truth: Truth, unseen: Unseen, number: int, progress: Progress) -> Example | None:
    """Return an input to confirm a set on, None where none can be had."""
    try:
        name, feeds = unseen(number)
        return golden(name, feeds, truth)
    except InputError as error:
        progress(f"no input to confirm the set on: {error}")
        return None


def _advice(
    search: Search, bound: float, kept: frozenset[int] | None, trial: Example | None, *, is_confirmed: bool
) -> Advice:
    runs, variants = search.runs, search.runs.variants
    everything = frozenset(variants.candidates)
    shown = [(example, False) for example in runs.examples]
    shown += [(trial, True)] if trial is not None else []
    errors: list[OutputError] = []
    for example, is_unseen in shown:
        alone = Runs(variants, [example])
        before = alone.errors(0, frozenset())
        after = alone.errors(0, everything if kept is None else kept)
        errors += [
            OutputError(example.name, output, before[output], after[output], is_unseen) for output in before
        ]
    return Advice(
        runs,
        bound,
        kept,
        tuple(errors),
        is_confirmed,
        runs.spent / len(variants.graph.nodes),
    )
