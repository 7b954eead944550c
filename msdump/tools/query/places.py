"""Where the files of a dump stand, as the columns that all views share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msdump.store.layouts import Key, PathKind
from msdump.store.read.reader import Dump, Iteration, open_dump


@dataclass
class OpenedDump:
    """A dump with its label.

    Attributes:
        label: What the column ``dump`` holds.
        path: Its directory.
        faults: What could not be read, in words; views add to it.
    """

    label: str
    path: str
    faults: dict[str, None] = field(default_factory=dict)

    @cached_property
    def dump(self) -> Dump:
        """The dump; DumpReadError where there is none."""
        return open_dump(self.path)

    def fault(self, message: str) -> None:
        """Remember what could not be read; several views may come upon it."""
        self.faults[message] = None

    def iterations(self) -> Iterator[Iteration]:
        """Yield the directories of iterations, as ``directories`` does."""
        return map(replace, self.dump.all_iterations)

    def directories(self) -> Iterator[Iteration]:
        """Yield the directories of tensors: iterations, executions of models, constants.

        Each is new: what it lists and reads is given back with it, however many there are.
        """
        yield from self.iterations()
        yield from map(replace, self.dump.constants)

    def place(self, directory: Iteration) -> dict[str, Any]:
        """Return the columns of a directory of tensors."""
        return self.place_of(directory.key) | {"directory": self.below(directory.path)}

    def place_of(self, key: Key) -> dict[str, Any]:
        """Return the columns of a place in a dump's tree."""
        is_model = key.net is None
        return {
            "dump": self.label,
            "rank": key.device if key.rank is None else key.rank,
            "network": key.model if is_model else key.net,
            "graph": key.model_id if is_model and key.graph is None else key.graph,
            "iteration": None if key.kind is PathKind.CONSTANTS else key.iteration,
        }

    def below(self, path: str) -> str:
        """Return a path below the dump."""
        return os.path.relpath(path, self.dump.path)
