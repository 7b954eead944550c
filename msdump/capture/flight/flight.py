"""What follows the runs of a configuration: one object for all its networks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msdump.graph.graph import Graph
from msdump.iterations import IterationSet
from msdump.store.write.sinks import Sink

if TYPE_CHECKING:
    from msdump.capture.flight.graph_watch import GraphWatch


class Flight:
    """Follows runs of a configuration without rules and without a history; any thread may use it.

    Attributes:
        sink: Where the files of its networks go.
        networks: Gives each of its networks a number, from 0.
    """

    def __init__(self, sink: Sink) -> None:
        """Watch nothing.

        Args:
            sink: Takes what is written.
        """
        self.sink = sink
        self.networks = itertools.count()

    @property
    def written(self) -> IterationSet:
        """Iterations that are on disk whole, of those that are dumped only where something was found."""
        return IterationSet()

    def graph_watch(self, graphs: Iterable[Graph]) -> GraphWatch | None:  # noqa: ARG002 - of those with rules
        """Return what checks the rules on some graphs, None without rules."""
        return None

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""

    def compare_ranks(self, network: int, iteration: int) -> None:
        """Check the rules that compare what ranks hold at the end of a step of this thread."""

    def end(self) -> None:
        """End the step of this thread."""

    def broken_off(self, iteration: int, error: BaseException) -> None:
        """Write what is kept of a step that failed, and of those before it."""

    def close(self) -> None:
        """Close the sink.

        Raises:
            DumpWriteError: A file could not be written and the plan wants to know.
        """
        self.sink.close()
