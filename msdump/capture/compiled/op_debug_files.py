"""The files that describe overflows: ``Opdebug.Node_OpDebug.{task}.{stream}.{timestamp}`` and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msdump.device.tasks import Task
from msdump.encode import dump_data, op_debug
from msdump.encode.op_debug import DebugRecord, OldRecord, Unit
from msdump.record import Artifact
from msdump.store.operator_names import OP_DEBUG, OperatorFileKind, OperatorName
from msdump.store.write.sinks import Sink

# vendor: the number of a floating point overflow in CANN's own example
_OVERFLOW: Final = 2048

_OLD_SECTION: Final = "AI Core"


class OpDebugWriter:
    """Writes a file for each overflow.

    Its name has the ids of the debug task, which follow those of the model's tasks; the ids of the operator
    that overflowed stand inside.
    """

    def __init__(self, sink: Sink, tasks: Sequence[Task | None], model_id: int, *, is_json: bool) -> None:
        """Write into a sink.

        Args:
            sink: Where files go.
            tasks: The tasks of the model's operators.
            model_id: Number of the model.
            is_json: MindSpore's JSON (``file_format`` npy) instead of CANN's dump file.
        """
        assigned = [task for task in tasks if task is not None]
        self._sink = sink
        self._model_id = model_id
        self._is_json = is_json
        self._task_id = 1 + max((task.task_id for task in assigned), default=-1)
        self._stream_id = 1 + max((task.stream_id for task in assigned), default=-1)

    def write(self, directory: str, task: Task, timestamp: int) -> None:
        """Write the file that says that the operator of a task has overflowed.

        Args:
            directory: Absolute directory of the operator's own file.
            task: The operator's task.
            timestamp: Microseconds since the epoch.
        """
        name = OperatorName(OP_DEBUG.op_type, OP_DEBUG.full_name, self._task_id, self._stream_id, timestamp)
        if self._is_json:
            self._write_json(directory, name, task)
            return
        body = op_debug.encode(DebugRecord(Unit.AIC, self._fields(task), (_OVERFLOW,)))
        header = dump_data.header(op_debug.header_data(timestamp))
        self._sink.write(Artifact(directory, str(name), (header, body), len(body)))

    def _write_json(self, directory: str, name: OperatorName, task: Task) -> None:
        record = OldRecord({_OLD_SECTION: self._old_fields(task) | {"status": _OVERFLOW}})
        text = op_debug.to_compact_json(record)
        self._sink.write(Artifact(directory, name.file_name(OperatorFileKind.OVERFLOW_JSON), (text,)))

    def _old_fields(self, task: Task) -> dict[str, int]:
        return {"model_id": self._model_id, "stream_id": task.stream_id, "task_id": task.task_id}

    def _fields(self, task: Task) -> dict[str, int]:
        return self._old_fields(task) | {"context_id": op_debug.NONE, "thread_id": op_debug.NONE}
