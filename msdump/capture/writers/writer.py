"""The protocol of the writers at the end of the steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msdump.device.tasks import Task
from msdump.record import OperatorRef, TensorRecord


class ArtifactWriter(Protocol):
    """Writes the files and rows of an operator, from the tensors that the steps keep."""

    def write(
        self, directory: str, operator: OperatorRef, task: Task, tensors: Iterable[TensorRecord]
    ) -> None:
        """Write the files and rows of an operator.

        Args:
            directory: Absolute directory.
            operator: The operator.
            task: The task that runs it; 0 on stream 0 where no graph is compiled.
            tensors: Its tensors, inputs first; each walks through the steps when it is taken.
        """
