"""Advice for a network: the operators to keep, found on some inputs and confirmed on another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.errors import InputError
from msdump.graph.graph import Node
from msdump.tools.advise.runs import Example, Runs, golden
from msdump.tools.advise.search import Progress, Search
from msdump.tools.advise.variants import Values, Variants

_CONFIRMATIONS: Final = 4
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
        variants: The network.
        bound: The largest error that is allowed.
        kept: Positions of the operators to keep; None where no set keeps the bound.
        errors: The errors of every output and input.
        everything: The largest error with everything kept.
        is_confirmed: Whether the bound holds on an input that had no part in the search.
        runs: How often the whole network ran, partial runs added up.
    """

    variants: Variants
    bound: float
    kept: frozenset[int] | None
    errors: tuple[OutputError, ...]
    everything: float
    is_confirmed: bool
    runs: float

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators to keep, in execution order."""
        return self.nodes_at(self.kept or frozenset())

    def nodes_at(self, positions: frozenset[int]) -> tuple[Node, ...]:
        """Return the operators of candidates."""
        return tuple(node for each in sorted(positions) for node in self.variants.candidates[each].nodes)


def advise(
    variants: Variants,
    seen: Sequence[tuple[str, Values]],
    unseen: Unseen,
    bound: float,
    progress: Progress = lambda _text: None,
) -> Advice:
    """Return the smallest set of operators to keep so that every output stays within a bound.

    Args:
        variants: The network.
        seen: Inputs that the search looks at: their names, and their values as they are fed.
        unseen: Gives inputs to confirm the set on. One that refutes it is looked at from then on.
        bound: The largest relative error of any output of any input.
        progress: Told what goes on.

    Raises:
        InputError: The outputs without a device are not finite, or the device rounds nothing.
    """
    if not variants.candidates:
        raise InputError(f"{variants.graph.source}: the device rounds no operator: there is nothing to keep")
    examples = [golden(variants, feeds, name) for name, feeds in seen]
    fresh = _examples(variants, unseen)
    trial = next(fresh)
    variants.forget_plain()
    runs = Runs(variants, examples)
    search = Search(runs, bound, progress)
    for _ in range(_CONFIRMATIONS):
        kept = search.smallest()
        if kept is None:
            break
        error = Runs(variants, [trial]).worst(kept)
        progress(f"on {trial.name}, which was not looked at: error {error:.3g}")
        if error <= bound:
            return _advice(search, kept, trial, is_confirmed=True)
        search.add(trial)
        trial = next(fresh)
    return _advice(search, kept, trial, is_confirmed=False)


def _examples(variants: Variants, unseen: Unseen) -> Iterator[Example]:
    number = 0
    while True:
        name, feeds = unseen(number)
        yield golden(variants, feeds, name)
        number += 1


def _advice(search: Search, kept: frozenset[int] | None, trial: Example, *, is_confirmed: bool) -> Advice:
    runs = search.runs
    variants = runs.variants
    everything = frozenset(variants.candidates)
    shown = [(example, False) for example in runs.examples] + [(trial, True)]
    errors: list[OutputError] = []
    for example, is_unseen in shown:
        alone = Runs(variants, [example])
        before = alone.errors(0, frozenset())
        after = alone.errors(0, everything if kept is None else kept)
        errors += [
            OutputError(example.name, output, before[output], after[output], is_unseen) for output in before
        ]
    return Advice(
        variants,
        search.bound,
        kept,
        tuple(errors),
        Runs(variants, [example for example, _ in shown]).worst(everything),
        is_confirmed,
        runs.spent / len(variants.graph.nodes),
    )
