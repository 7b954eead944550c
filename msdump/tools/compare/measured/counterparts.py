"""Which golden row measures the tensor of an examined one: by names, or by the graphs of both dumps."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from msdump.device.tasks import INSERTED_PREFIX
from msdump.record import IO
from msdump.store.read.cells import Cell
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind
from msdump.tools.compare.measured.rows import Place, RowSide, StatisticRow
from msdump.tools.compare.pairing import dump_folder, graph_matching
from msdump.tools.compare.pairing.identities import IdentifiedTensors, Identities, MatchedNames
from msdump.tools.matching.contents import TensorContent
from msdump.tools.matching.sides import GraphSide


@dataclass(frozen=True, slots=True)
class Counterparts:
    """The counterparts of the rows of a directory.

    Attributes:
        rows: The golden row beside each examined one, by the place of that one.
        matched: Operators that belong together by the graphs of both dumps; None: they have the same names.
    """

    rows: Mapping[Place, StatisticRow]
    matched: MatchedNames | None = None

    def note(self, name: str) -> str:
        """Return how the counterpart of an operator was found, "" where names tell."""
        return "" if self.matched is None else self.matched.notes.get(dump_folder.key(name), "")

    def replaces(self, name: str) -> str:
        """Return the operator of another type that stands in the place of one, "" for none."""
        return "" if self.matched is None else self.matched.replaced.get(dump_folder.key(name), "")

    def partner(self, name: str) -> str:
        """Return the golden operator that is the same one, "" where several are, or none."""
        if self.matched is None:
            return name
        return self.matched.partners.get(dump_folder.key(name), "")

    def lacks(self, row: StatisticRow) -> bool:
        """Tell whether the examined side should have, and has not, the operator of a golden row.

        What a device inserts to bring tensors into its types and formats belongs to it alone.
        """
        name = row.place[0]
        if row.is_parameter or self.matched is None:
            return not row.is_parameter
        return dump_folder.key(name) not in self.matched.golden and not name.startswith(INSERTED_PREFIX)


def find(
    dumped: RowSide, golden: RowSide, mine: OperatorGraph | None, theirs: OperatorGraph | None
) -> Counterparts:
    """Return the counterpart of each row.

    Args:
        dumped: The rows that are examined.
        golden: The rows that they are compared with.
        mine: The graph that ran on the examined side; None: nothing tells.
        theirs: The graph of the golden side.
    """
    if mine is None or theirs is None:
        return Counterparts(golden.rows)
    shared = tuple(each for each in dumped.categories if each in golden.categories)
    sides = _RowContents(mine, dumped, shared), _RowContents(theirs, golden, shared)
    identities = graph_matching.identities_of(*(each.graph_side() for each in sides))
    if identities.matched is None:
        return Counterparts(golden.rows)
    return Counterparts(_paired(dumped, golden, identities), identities.matched)


def _paired(dumped: RowSide, golden: RowSide, identities: Identities) -> dict[Place, StatisticRow]:
    """Return the golden row of the same tensor in the same pass, by the place of the examined one."""
    known: IdentifiedTensors[StatisticRow] = IdentifiedTensors()
    for row in golden.rows.values():
        name, io, slot, _ = row.place
        known.add(identities.golden(dump_folder.key(name), io, slot), io, row)
    asked = (
        (place, known.counterpart(identities.dumped, dump_folder.key(place[0]), place[1], place[2]))
        for place in dumped.rows
    )
    return {place: row for place, row in asked if row is not None}


class _RowContents:
    """What the rows of a directory tell of the elements of its tensors."""

    def __init__(self, graph: OperatorGraph, side: RowSide, shared: tuple[str, ...]) -> None:
        """Index the rows.

        Args:
            graph: The graph that ran.
            side: The rows.
            shared: The statistics that both sides have.
        """
        self._graph = graph
        self._shared = shared
        self._rows = {(dump_folder.key(row.place[0]), *row.place[1:]): row for row in side.rows.values()}
        self._readers = {
            source.name: (dump_folder.key(operator.full_name), IO.INPUT, slot, 0)
            for operator in graph.operators.values()
            for slot, source in enumerate(operator.inputs)
            if source.kind is SourceKind.WEIGHT
        }

    def graph_side(self) -> GraphSide:
        """Return the graph with what is known of elements."""
        return GraphSide(self._graph, self._digest_of, self._content_of)

    def _digest_of(self, name: str) -> Hashable | None:
        """Return what stands for the elements of a weight: all that both sides measured of it."""
        row = self._rows.get((dump_folder.key(name), IO.OUTPUT, 0, 0)) or self._rows.get(
            self._readers.get(name, ("", IO.INPUT, 0, 0))
        )
        return None if row is None else self._digest(row)

    def _digest(self, row: StatisticRow) -> Hashable | None:
        cells = tuple(row.cells.get(category) for category in self._shared)
        is_telling = math.prod(row.shape or ()) > 1 and any(cell is not None for cell in cells)
        return (row.shape, cells) if is_telling else None

    def _content_of(self, name: str, slot: int) -> TensorContent | None:
        row = self._rows.get((dump_folder.key(name), IO.OUTPUT, slot, 0))
        if row is None or row.shape is None:
            return None
        norm, largest, smallest = (_number(row.cells.get(each)) for each in ("l2norm", "max", "min"))
        return TensorContent(self._digest(row), math.prod(row.shape), norm, largest, smallest)


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else math.nan
