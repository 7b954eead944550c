"""What an operator that fails leaves behind, in one of CANN's dump files (exception dump).

That is its inputs, and under acl its outputs too. Kernels of the emulated device need no
workspace, so that there is none to dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msdump.capture.compiled.held import Held
from msdump.capture.compiled.operator_writer import device_tensor
from msdump.device.tasks import Task
from msdump.encode import dump_data, dump_enums
from msdump.encode.dump_data import DumpData, TensorInfo
from msdump.graph.files import arguments
from msdump.graph.graph import Graph, Node
from msdump.plan import Scene
from msdump.record import Artifact, Buffer, OperatorRef
from msdump.store import operator_names
from msdump.store.clock import CLOCK
from msdump.store.write.sinks import Sink

EXCEPTIONS: Final = frozenset(
    {Scene.LITE_EXCEPTION, Scene.BRIEF_EXCEPTION, Scene.NORM_EXCEPTION, Scene.DETAIL_EXCEPTION}
)
"""The scenes in which a failing operator is dumped."""


class ExceptionWriter:
    """Writes the operators that fail.

    ``norm`` keeps types, shapes and formats; the others keep the bytes and their number alone.
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

    def write(self, node: Node, task: Task, inputs: Sequence[Held], outputs: Sequence[Held] = ()) -> None:
        """Write the tensors of an operator that has just failed; the file is read-only at once."""
        read, made = ([device_tensor(held) for held in tensors] for tensors in (inputs, outputs))
        header = dump_data.header(
            DumpData(
                node.operator.full_name,
                CLOCK.now(),
                inputs=tuple(self._info(info) for info, _ in read),
                outputs=tuple(self._info(info) for info, _ in made),
                dfx_message=self._text(node, task),
            )
        )
        buffers: list[Buffer] = [header, *(buffer for info, buffer in read + made if info.size)]
        self._sink.replace(Artifact(self._directory, self._name(node.operator, task), buffers))

    def _text(self, node: Node, task: Task) -> str:
        operator = node.operator
        where = f"{operator.op_type} {operator.full_name}, task {task.task_id}, stream {task.stream_id}"
        if not self._is_norm:
            return where
        return f"{where}, {arguments.kernel_args_json(node, self._graph).decode()}"

    def _name(self, operator: OperatorRef, task: Task) -> str:
        time = CLOCK.milliseconds()
        if self._is_norm:
            return operator_names.norm_exception(operator, task.task_id, time)
        return operator_names.brief_exception(task.task_id, task.stream_id, time)

    def _info(self, info: TensorInfo) -> TensorInfo:
        return info if self._is_norm else TensorInfo(dump_enums.UNDEFINED, 0, (), (), info.size)
