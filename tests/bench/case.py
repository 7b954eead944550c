"""The circumstances of a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement's network and circumstances.

    Attributes:
        network: Name of the network; "" for none.
        batch: Its batch size.
        threads: Of one operator.
        folder: An empty folder for its files, in memory where the machine has such a place.
        seconds: How long the rounds of one figure may take; a few run in any case.
    """

    network: str
    batch: int
    threads: int
    folder: Path
    seconds: float

    @property
    def path(self) -> Path:
        """The network's file, built where it is missing."""
        from tests.bench.networks import files  # onnxscript, which one side's memory must not hold

        return files.path(self.network, self.batch)

    def within(self, name: str) -> Case:
        """Return the case with a folder of its own below this one's."""
        folder = self.folder / name
        folder.mkdir()
        return replace(self, folder=folder)
