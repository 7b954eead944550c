"""Colours of operators: equal where the networks around two operators are equal.

The colour by what is before an operator tells all operators that lead to it, the colour by what is behind it
all that follow; where one operator was dropped, all operators before it keep the first one and all behind it
the second. Colours of a radius tell the neighbours alone, so that they stay equal between two changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.tools.matching.sides import IndexedGraph, is_commutative, place_of

RADII: Final = (1, 2, 3)


class Palette:
    """Numbers of colours, which both graphs share."""

    def __init__(self) -> None:
        """Begin without a colour."""
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """Return the number of a colour, the same for equal keys."""
        return self._numbers.setdefault(key, len(self._numbers))


@dataclass(frozen=True, slots=True)
class Colouring:
    """A colour for each operator of both graphs.

    Attributes:
        mine: Colours by position in the first graph.
        golden: Colours by position in the second one.
        unique: The colours that one operator of either graph has.
    """

    mine: Sequence[int]
    golden: Sequence[int]
    unique: frozenset[int]

    def joins(self, mine: int, golden: int) -> bool:
        """Tell whether an operator of each graph have the same colour."""
        return self.mine[mine] == self.golden[golden]

    def is_unique(self, mine: int) -> bool:
        """Tell whether no other operator of either graph has the colour of an operator of the first one."""
        return self.mine[mine] in self.unique


@dataclass(frozen=True, slots=True)
class Colours:
    """All colourings of two graphs.

    Attributes:
        before: By all that leads to an operator.
        behind: By all that follows it.
        around: By its neighbours up to each of ``RADII``.
    """

    before: Colouring
    behind: Colouring
    around: tuple[Colouring, ...]


def colours(mine: IndexedGraph, golden: IndexedGraph) -> Colours:
    """Return the colourings of two graphs."""
    palette = Palette()
    around = zip(*(_around(graph, palette) for graph in (mine, golden)), strict=True)
    return Colours(
        _colouring(_before(mine, palette), _before(golden, palette)),
        _colouring(_behind(mine, palette), _behind(golden, palette)),
        tuple(_colouring(*each) for each in around),
    )


def _colouring(mine: Sequence[int], golden: Sequence[int]) -> Colouring:
    counts = Counter(mine), Counter(golden)
    return Colouring(
        mine, golden, frozenset(colour for colour in counts[0] if counts[0][colour] == counts[1][colour] == 1)
    )


def _before(graph: IndexedGraph, palette: Palette) -> list[int]:
    colours: list[int] = []
    for op_type, producers in zip(graph.types, graph.producers, strict=True):
        # what is read behind its place, in a graph without an order, has no colour yet
        parts = [
            (colours[each.position] if each.position < len(colours) else -1, each.slot)
            if each.position >= 0
            else each.label
            for each in producers
        ]
        colours.append(palette.number(("before", op_type, _arranged(op_type, parts))))
    return colours


def _behind(graph: IndexedGraph, palette: Palette) -> list[int]:
    colours = [-1] * len(graph.operators)
    for position in reversed(range(len(colours))):
        op_type = graph.types[position]
        readers = [
            (
                colours[reader.position] if reader.position >= 0 else "output",
                place_of(graph, reader),
                reader.output,
            )
            for reader in graph.readers[position]
        ]
        key = ("behind", op_type, _weights(graph, position), tuple(sorted(readers, key=str)))
        colours[position] = palette.number(key)
    return colours


def _around(graph: IndexedGraph, palette: Palette) -> list[list[int]]:
    """Return the colours of each radius."""
    colours = [
        palette.number(("alone", op_type, _weights(graph, position)))
        for position, op_type in enumerate(graph.types)
    ]
    rounds = []
    for _ in RADII:
        colours = [_next(graph, position, colours, palette) for position in range(len(colours))]
        rounds.append(colours)
    return rounds


def _next(graph: IndexedGraph, position: int, colours: Sequence[int], palette: Palette) -> int:
    op_type = graph.types[position]
    parts = [
        (colours[each.position], each.slot) if each.position >= 0 else each.label
        for each in graph.producers[position]
    ]
    readers = [
        (
            colours[reader.position] if reader.position >= 0 else "output",
            place_of(graph, reader),
            reader.output,
        )
        for reader in graph.readers[position]
    ]
    return palette.number(
        ("around", colours[position], _arranged(op_type, parts), tuple(sorted(readers, key=str)))
    )


def _weights(graph: IndexedGraph, position: int) -> tuple[Hashable, ...]:
    """Return what an operator reads beside other operators' outputs."""
    labels = [each.label for each in graph.producers[position] if each.position < 0]
    return _arranged(graph.types[position], labels)


def _arranged(op_type: str, parts: Sequence[Hashable]) -> tuple[Hashable, ...]:
    return tuple(sorted(parts, key=str)) if is_commutative(op_type) else tuple(parts)
