"""An artifact for each operator: one of CANN's dump files with all its tensors."""

from __future__ import annotations

from collections.abc import Iterable

from msdump.capture.writers import device_tensor
from msdump.device.tasks import Task
from msdump.encode import dump_data
from msdump.encode.dump_data import DumpData
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.store import operator_names
from msdump.store.names import Style
from msdump.store.write.sinks import Sink


class OperatorWriter:
    """Writes an operator's tensors into one of CANN's dump files, as they lie in device memory."""

    def __init__(self, sink: Sink, style: Style) -> None:
        """Write into a sink.

        Args:
            sink: Where files go.
            style: How names are spelled.
        """
        self._sink = sink
        self._style = style

    def write(
        self, directory: str, operator: OperatorRef, task: Task, tensors: Iterable[TensorRecord]
    ) -> None:
        """Write the file of an operator; nothing where it has no tensors."""
        records = list(tensors)
        if not records:
            return
        # All tensors of the file were captured at one moment.
        timestamp = records[0].timestamp
        described = [(record, device_tensor.info(record)) for record in records]
        header = dump_data.header(
            DumpData(
                operator.full_name,
                timestamp,
                inputs=tuple(info for record, info in described if record.io is IO.INPUT),
                outputs=tuple(info for record, info in described if record.io is IO.OUTPUT),
            )
        )
        buffers = [device_tensor.contents(record) for record, info in described if info.size]
        size = sum(info.size for _, info in described)
        name = operator_names.of(operator, self._style, task.task_id, task.stream_id, timestamp)
        self._sink.write(Artifact(directory, str(name), (header, *buffers), size))
