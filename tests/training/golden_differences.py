"""Differences between the reference's training dumps and ours, and the names that they are about.

Names are those of the execution order; ``~`` stands for the scope of the network,
``Default/network-WithLossCell/_backbone-MLP``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        reason: Why it is there.
        names: The reference's names in files, with ours.
        shapes: Slots, an operator and a slot as a pattern, whose elements are the same in another shape.
        halved: Slots whose files the reference calls Float16 though its tensor is Float32: they hold the
            first half of its bytes.
        values: Slots whose values are not compared.
        ours: Slots that we alone have; there is none that the reference alone has.
        places: Graphs and iterations that the reference alone has.
        graph: The graph whose slots are meant; None: any.
        histories: Our histories of graphs.
    """

    reason: str
    names: Mapping[str, str] = field(default_factory=dict)
    shapes: tuple[str, ...] = ()
    halved: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    graph: str | None = None
    histories: Mapping[str, list[str]] = field(default_factory=dict)


COLUMNS = ("shapes", "halved", "values", "ours")
"""The fields that are patterns of slots."""


def numbers(name, *ours):
    """Return names of one scope and type with other numbers: ours, in the order of the reference's."""
    return {
        f"{name}-op{theirs}": f"{name}-op{number}" for theirs, number in enumerate(ours) if theirs != number
    }


def moved(name, homes):
    """Return names of one scope and type that have other scopes here, by the reference's number."""
    return {f"{name}-op{number}": home for number, home in homes.items()}


def renumbered(names):
    """Return the reference's names in a graph with numbers from 0 for each scope and type.

    Its execution order counts nodes that a pass has put others in place of, and the files of a graph count on
    from those of the graphs before it.
    """
    counted = defaultdict(list)
    for name in names:
        start, _, number = name.rpartition("-op")
        if number.isdecimal():
            counted[start].append(int(number))
    return {
        f"{start}-op{theirs}": f"{start}-op{number}"
        for start, listed in counted.items()
        for number, theirs in enumerate(sorted(listed))
    }


class Expected:
    """What differs in one golden, ready to be looked up by names in files."""

    def __init__(self, network, rows):
        """Read the rows of a golden.

        Args:
            network: The scope of the network.
            rows: The differences.
        """
        self._network = network
        self.names = {
            self._whole(theirs): self._whole(ours) for row in rows for theirs, ours in row.names.items()
        }
        self.places = [place for row in rows for place in row.places]
        self.histories = {graph: listed for row in rows for graph, listed in row.histories.items()}
        self._patterns = {
            column: [
                (row.graph, re.compile(self._whole(pattern).replace("/", "_")))
                for row in rows
                for pattern in getattr(row, column)
            ]
            for column in COLUMNS
        }

    def tells(self, column, place, name):
        """Return whether a slot is in a column: its name is that of the operator in files, and the slot."""
        return any(
            graph in (None, place.partition("/")[0]) and pattern.fullmatch(name.partition(".")[2]) is not None
            for graph, pattern in self._patterns[column]
        )

    def _whole(self, name):
        return name.replace("~", self._network)
