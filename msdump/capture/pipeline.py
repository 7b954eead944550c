"""From a plan to its steps, through which every tensor walks, and the writer at their end.

    OperatorRecords --steps--> TensorRecord --writer--> Artifact

Every kind of dump gets its pipeline here, so that a step added to ``compile_steps`` reaches all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msdump.capture import steps
from msdump.capture.statistics import Statistics
from msdump.capture.steps import Memory, OperatorRecords, Step, sample
from msdump.capture.writers import (
    ArtifactWriter,
    FailureWriter,
    OperatorTableWriter,
    OperatorWriter,
    TensorWriter,
)
from msdump.device import Ascend
from msdump.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, ExceptionDump, FileFormat, Scene, Tree
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


def pipeline(plan: DumpPlan, sink: Sink, watch: GraphWatch | None = None) -> ArtifactWriter:
    """Return the writer of the tensors of a plan, with its steps, and with rules that are checked before."""
    style = names.STYLES[plan.files.naming, plan.context.device_target]
    kind = artifact_kind(plan)
    writer: ArtifactWriter
    if plan.compiled.operator_statistics is not None:
        writer = OperatorTableWriter(sink, style, plan.compiled.operator_statistics)
    elif kind is ArtifactKind.OPERATOR:
        writer = OperatorWriter(sink, style)
    else:
        writer = TensorWriter(
            sink,
            names.namer(plan.files.naming, plan.context.device_target),
            None if plan.statistics is None else Statistics(plan.statistics, style),
            keeps_tensors=plan.files.keeps_tensors,
            measures_saved=plan.files.tree is not Tree.RANKS,
        )
    writer.steps, writer.watch = compile_steps(plan, kind), watch
    return writer


def failure_pipeline(plan: DumpPlan, graph: Graph, sink: Sink) -> ArtifactWriter | None:
    """Return the writer of an operator that fails, None where no exception dump is on."""
    scene = plan.compiled.scene
    if scene is None and plan.context.exception_dump is ExceptionDump.FULL:
        scene = Scene.NORM_EXCEPTION
    if scene is None or scene not in EXCEPTIONS:
        return None
    place = Key(PathKind.EXCEPTIONS, device=plan.context.device_id)
    directory = place.below(plan.compiled.exception_path or plan.files.path)
    writer = FailureWriter(sink, directory, scene, graph)
    writer.steps = compile_steps(plan, ArtifactKind.FAILURE)
    return writer


def operator_records(plan: DumpPlan, device: Ascend | None, memory: Memory = lambda: None) -> OperatorRecords:
    """Return the maker of records of a graph's operators, numbered as in the artifacts of a plan."""
    counts_present = artifact_kind(plan) is ArtifactKind.TENSOR and plan.files.tree is not Tree.RANKS
    return OperatorRecords(device, memory, counts_present=counts_present)
