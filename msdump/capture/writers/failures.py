"""Exception dumps: one of CANN's dump files with the tensors of an operator that fails.

Those are its inputs, and under acl its outputs too. Kernels of the emulated device need no
workspace, so that there is none to dump.
"""

from __future__ import annotations

from collections.abc import Iterable

from msdump.capture.writers import device_tensor
from msdump.device.tasks import Task
from msdump.encode import dump_data, dump_enums
from msdump.encode.dump_data import DumpData, TensorInfo
from msdump.graph.files import arguments
from msdump.graph.graph import Graph
from msdump.plan import Scene
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.store import operator_names
from msdump.store.clock import CLOCK
from msdump.store.write.sinks import Sink


class FailureWriter:
    """Writes a dump file for each operator that fails.

    ``aic_err_norm_dump`` keeps types, shapes and formats; the other scenes keep the bytes and their
    number alone.
    """

    def __init__(self, sink: Sink, directory: str, scene: Scene, graph: Graph) -> None:
        """Write into a directory.

        Args:
            sink: Where files go.
            directory: Absolute directory, ``extra-info/data-dump/{device_id}`` of the dump.
            scene: What is written.
            graph: The compiled graph.
        """
        self._sink = sink
        self._directory = directory
        self._is_norm = scene is Scene.NORM_EXCEPTION
        self._graph = graph
        self._nodes = {node.operator.full_name: node for node in graph.nodes}

    def write(
        self,
        directory: str,  # noqa: ARG002 - failures of all models stand in one of their own
        operator: OperatorRef,
        task: Task,
        tensors: Iterable[TensorRecord],
    ) -> None:
        """Write the tensors of an operator that has just failed, if any; the file is read-only at once."""
        records = list(tensors)
        described = [(record, device_tensor.info(record)) for record in records]
        header = dump_data.header(
            DumpData(
                operator.full_name,
                records[0].timestamp if records else CLOCK.now(),
                inputs=tuple(self._info(info) for record, info in described if record.io is IO.INPUT),
                outputs=tuple(self._info(info) for record, info in described if record.io is IO.OUTPUT),
                dfx_message=self._text(operator, task),
            )
        )
        contents = (device_tensor.contents(record) for record, info in described if info.size)
        self._sink.replace(Artifact(self._directory, self._name(operator, task), (header, *contents)))

    def _text(self, operator: OperatorRef, task: Task) -> str:
        """Return the header's text for people: which operator failed, where, and with which arguments."""
        where = f"{operator.op_type} {operator.full_name}, task {task.task_id}, stream {task.stream_id}"
        if not self._is_norm:
            return where
        return f"{where}, {arguments.kernel_args_json(self._nodes[operator.full_name], self._graph).decode()}"

    def _name(self, operator: OperatorRef, task: Task) -> str:
        time = CLOCK.milliseconds()
        if self._is_norm:
            return operator_names.norm_exception(operator, task.task_id, time)
        return operator_names.brief_exception(task.task_id, task.stream_id, time)

    def _info(self, info: TensorInfo) -> TensorInfo:
        # vendor: brief files say of a tensor how many bytes it has, and neither type nor shape
        return info if self._is_norm else TensorInfo(dump_enums.UNDEFINED, 0, (), (), info.size)
