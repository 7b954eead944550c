"""From a plan to its steps, through which every tensor walks, and the writer at their end.

    OperatorRecords --steps--> TensorRecord --writer--> Artifact

Every kind of dump gets its pipeline here, so that a step added to ``compile_steps`` reaches all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msdump.capture import steps
from msdump.capture.statistics import RowSheet, Statistics
from msdump.capture.steps import Memory, OperatorRecords, Step, sample, walk
from msdump.capture.writers import (
    ArtifactWriter,
    FailureWriter,
    OperatorTableWriter,
    OperatorWriter,
    TensorWriter,
)
from msdump.device import Ascend, Task
from msdump.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, ExceptionDump, FileFormat, Scene, Tree
from msdump.reasons import Reason
from msdump.record import OperatorRef, TensorRecord
from msdump.store import Key, PathKind, names
from msdump.store.write import Sink

if TYPE_CHECKING:
    from msdump.capture.watch import GraphWatch

EXCEPTIONS: Final = frozenset(
    {Scene.LITE_EXCEPTION, Scene.BRIEF_EXCEPTION, Scene.NORM_EXCEPTION, Scene.DETAIL_EXCEPTION}
)
"""The scenes in which a failing operator is dumped."""


class ArtifactKind(enum.Enum):
    """Contents of one artifact."""

    TENSOR = enum.auto()
    OPERATOR = enum.auto()
    OPERATOR_TABLE = enum.auto()
    FAILURE = enum.auto()


def artifact_kind(plan: DumpPlan) -> ArtifactKind:
    """Return the contents of one artifact of a plan."""
    if plan.compiled.operator_statistics is not None:
        return ArtifactKind.OPERATOR_TABLE
    is_compiled = plan.files.tree is not Tree.RANKS
    return (
        ArtifactKind.OPERATOR
        if is_compiled and plan.files.file_format is FileFormat.BIN
        else ArtifactKind.TENSOR
    )


def compile_steps(plan: DumpPlan, kind: ArtifactKind) -> tuple[Step, ...]:
    """Return the steps of every tensor on its way into an artifact."""
    return (*compile_drops(kind), *_showing(plan, kind))


def compile_drops(kind: ArtifactKind) -> tuple[Step, ...]:
    """Return the steps that may drop a tensor; ``check`` and ``explain`` show their reasons."""
    # a table has a row even for text, a dump file describes a tensor without elements
    if kind is ArtifactKind.OPERATOR_TABLE:
        return ()
    return (steps.drop_text(drops_empty=kind is ArtifactKind.TENSOR),)


def _showing(plan: DumpPlan, kind: ArtifactKind) -> Iterator[Step]:
    """Yield the steps that convert a tensor into the type and layout of its artifact."""
    if kind is not ArtifactKind.TENSOR:
        yield steps.to_device_memory
    elif plan.files.tree is not Tree.RANKS:
        yield steps.to_device_type
    elif plan.context.device_target is DeviceTarget.ASCEND:
        yield steps.to_device() if plan.what.keeps_device_format else steps.to_host
        if plan.what.sample_count is not None:
            yield sample(plan.what.sample_count)


def shows_outputs_as_run(plan: DumpPlan) -> bool:
    """Return whether artifacts hold outputs as operators wrote them: host layout, all elements."""
    what = plan.what
    return plan.files.tree is Tree.RANKS and not what.keeps_device_format and what.sample_count is None


class Pipeline:
    """The steps of a plan, and the writer behind them.

    Attributes:
        need: Statistics of rows, where only rows are written and one pass over the elements finds them;
            None where elements are needed.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        writer: ArtifactWriter,
        skip: Callable[..., None],
        watch: GraphWatch | None = None,
    ) -> None:
        """Join steps and writer."""
        self._steps = tuple(steps)
        self._writer = writer
        self._watch = watch
        self._skip = skip
        self.need = writer.need

    def sheet(self, records: Iterable[TensorRecord]) -> RowSheet | None:
        """Return the part of rows that is the same in all iterations, for tensors of these types and shapes.

        None if a step changes or drops a tensor: steps decide by type, shape, and device type and format.
        """
        tensors = [*records]
        is_as_shown = all(walk(record, self._steps) is record for record in tensors)
        return self._writer.sheet(tensors) if is_as_shown else None

    def take(
        self,
        directory: str,
        operator: OperatorRef,
        task: Task,
        records: Sequence[TensorRecord],
        *,
        is_saturated: bool = False,
        hits_none: bool = False,
    ) -> None:
        """Write the files and rows of an operator; ``finish`` follows after the last operator of a batch.

        Each tensor walks through the steps and is written before the next one, so that copies by steps are
        not held for long.

        ``hits_none``: it is certain that no rule hits.
        """
        watch, writer = None if hits_none else self._watch, self._writer
        if watch is not None and not watch.keeps(records, saturated=is_saturated):
            self._skip(Reason.NO_HIT, len(records))
            records = ()
        together: list[TensorRecord] | None = [] if writer.is_by_operator else None
        for record in records:
            kept = record
            for step in self._steps:  # ``walk`` inlined: this loop runs for each dumped tensor
                shown = step(kept)
                if isinstance(shown, Reason):
                    self._skip(shown)
                    break
                kept = shown
            else:
                if together is None:
                    writer.write_tensor(directory, task, kept)
                else:
                    together.append(kept)
        if together is not None:
            writer.write_operator(directory, operator, task, together)
        if watch is not None:
            watch.stop()  # after the operator's files, which show the hit

    def finish(self) -> None:
        """Write the rows that the operators of a batch share; also after an error, for earlier operators."""
        self._writer.finish()


def pipeline(plan: DumpPlan, sink: Sink, watch: GraphWatch | None = None) -> Pipeline:
    """Return the pipeline of the tensors of a plan into a sink."""
    return Pipeline(compile_steps(plan, artifact_kind(plan)), _writer(plan, sink), sink.skip, watch)


def _writer(plan: DumpPlan, sink: Sink) -> ArtifactWriter:
    style = names.STYLES[plan.files.naming, plan.context.device_target]
    if plan.compiled.operator_statistics is not None:
        return OperatorTableWriter(sink, style, plan.compiled.operator_statistics)
    if artifact_kind(plan) is ArtifactKind.OPERATOR:
        return OperatorWriter(sink, style)
    return TensorWriter(
        sink,
        names.namer(plan.files.naming, plan.context.device_target),
        None if plan.statistics is None else Statistics(plan.statistics, style),
        keeps_tensors=plan.files.keeps_tensors,
        measures_saved=plan.files.tree is not Tree.RANKS,
    )


def failure_pipeline(plan: DumpPlan, graph: Graph, sink: Sink) -> Pipeline | None:
    """Return the pipeline of an operator that fails, None where no exception dump is on."""
    scene = plan.compiled.scene
    if scene is None and plan.context.exception_dump is ExceptionDump.FULL:
        scene = Scene.NORM_EXCEPTION
    if scene is None or scene not in EXCEPTIONS:
        return None
    place = Key(PathKind.EXCEPTIONS, device=plan.context.device_id)
    directory = place.below(plan.compiled.exception_path or plan.files.path)
    writer = FailureWriter(sink, directory, scene, graph)
    return Pipeline(compile_steps(plan, ArtifactKind.FAILURE), writer, sink.skip)


def operator_records(plan: DumpPlan, device: Ascend | None, memory: Memory = lambda: None) -> OperatorRecords:
    """Return the maker of records of a graph's operators, numbered as in the artifacts of a plan."""
    counts_present = artifact_kind(plan) is ArtifactKind.TENSOR and plan.files.tree is not Tree.RANKS
    return OperatorRecords(device, memory, counts_present=counts_present)
