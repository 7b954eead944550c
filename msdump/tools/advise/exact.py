"""The smallest set of kept operators of a small network, by trying all that could be smaller.

Operators are decided on in execution order. What follows depends on the values alone that are still needed,
so two beginnings that give the same bits are continued once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.tools.advise.runs import DeviceRuns, distance, nbytes, values_of
from msdump.tools.advise.variants import Values

_CACHE_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, order=True)
class KeptSet:
    """Operators that are kept behind some position.

    Attributes:
        size: Number of operators.
        cost: What they compute, for ties.
        kept: Their positions.
    """

    size: int
    cost: int
    kept: tuple[int, ...] = field(compare=False)


@dataclass(slots=True)
class _Exhaustive:
    """The search at one bound; it remembers which operators gave what, and which ends have no solution."""

    runs: DeviceRuns
    bound: float
    costs: Mapping[int, int]
    outputs: dict[tuple[Any, ...], list[Values]] = field(default_factory=dict)
    cached: int = 0
    ends: dict[tuple[Any, ...], KeptSet | None] = field(default_factory=dict)

    def best(self, most: int) -> KeptSet | None:
        """Return the cheapest of the smallest sets of at most so many operators, None where there is none."""
        feeds = [dict(example.feeds) for example in self.runs.examples]
        marks = {name: _mark([each.get(name) for each in feeds]) for each in feeds[:1] for name in each}
        return self._continued(0, feeds, marks, most)

    def _continued(
        self, position: int, values: list[Values], marks: dict[str, bytes], most: int
    ) -> KeptSet | None:
        """Return the best end of a run that stands before a position."""
        variants = self.runs.variants
        count = len(variants.graph.nodes)
        while position < count and position not in variants.candidates:
            values, marks = self._stepped(position, values, marks, is_kept=False)
            position += 1
        if position == count:
            return KeptSet(0, 0, ()) if self._is_near(values) else None
        key = (position, most, *sorted(marks.items()))
        if key not in self.ends:
            self.ends[key] = self._decided(position, values, marks, most)
        return self.ends[key]

    def _decided(
        self, position: int, values: list[Values], marks: dict[str, bytes], most: int
    ) -> KeptSet | None:
        narrow = self._stepped(position, values, marks, is_kept=False)
        best = self._continued(position + 1, *narrow, most)
        size = self.runs.variants.candidates[position].size
        if size > most:
            return best
        wide = self._stepped(position, values, marks, is_kept=True)
        if wide[1] == narrow[1]:  # the same bits: keeping it gains nothing
            return best
        rest = self._continued(position + 1, *wide, most - size)
        if rest is None:
            return best
        kept = KeptSet(rest.size + size, rest.cost + self.costs[position], (position, *rest.kept))
        return kept if best is None else min(best, kept)

    def _stepped(
        self, position: int, values: list[Values], marks: dict[str, bytes], *, is_kept: bool
    ) -> tuple[list[Values], dict[str, bytes]]:
        """Return the values behind an operator, and what tells them apart."""
        variants = self.runs.variants
        node = variants.graph.nodes[position]
        read = tuple(marks.get(name, b"") for name in variants.needed(position))
        key = (position, is_kept, read)
        if key not in self.outputs:
            written = [variants.run(position, each, is_kept=is_kept) for each in values]
            self.runs.spent += len(written)
            self.cached += sum(map(nbytes, written))
            if self.cached > _CACHE_BYTES:
                self.outputs.clear()
                self.cached = 0
            self.outputs[key] = written
        written = self.outputs[key]
        after = [each | more for each, more in zip(values, written, strict=True)]
        marked = marks | {name: _mark([each.get(name) for each in written]) for name in node.outputs if name}
        outputs = {value.name for value in variants.graph.outputs}
        for name in variants.dead[position]:
            if name not in outputs:
                marked.pop(name, None)
                for each in after:
                    each.pop(name, None)
        return after, marked

    def _is_near(self, values: list[Values]) -> bool:
        for example, each in zip(self.runs.examples, values, strict=True):
            outputs = values_of(self.runs.variants, tuple(example.golden), each)
            if not all(
                distance(outputs[name], array) <= self.bound for name, array in example.golden.items()
            ):
                return False
        return True


def smallest(
    runs: DeviceRuns, bound: float, costs: Mapping[int, int], progress: Callable[[str], None]
) -> frozenset[int] | None:
    """Return the smallest set of kept operators whose errors stay within a bound, None where there is none.

    Args:
        runs: The network and its inputs.
        bound: The largest error of any output of any input.
        costs: What each operator computes; of equally small sets the cheapest is taken.
        progress: Told what goes on.
    """
    search = _Exhaustive(runs, bound, costs)
    whole = sum(candidate.size for candidate in runs.variants.candidates.values())
    for most in range(whole + 1):
        progress(f"trying every set of {most} operators")
        found = search.best(most)
        if found is not None:
            return frozenset(found.kept)
    return None


def _mark(arrays: list[Any]) -> bytes:
    """Return a digest of the same value of all inputs."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if isinstance(array, np.ndarray) and array.dtype != object:
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        else:
            digest.update(repr(array).encode())
    return digest.digest()
