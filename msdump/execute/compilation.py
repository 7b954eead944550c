"""The emulated device of a network: its graph as the level compiles it, placed on an Ascend."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from msdump.device.ascend import Ascend
from msdump.device.float_status import has_float_status
from msdump.device.mixed_precision import check_operator_dtypes
from msdump.execute import accelerate
from msdump.graph.compile.compilation import BUILT, ENDED, INSERTED, compile_graph
from msdump.graph.compile.fusion import fuse_elementwise
from msdump.graph.graph import Graph
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, PrecisionMode, Trigger

Note = Callable[[str, Graph | Ascend], None]
"""Takes the name of a stage of the compilation, and the graph or device that it ended with."""


def emulated(
    graph: Graph,
    plan: DumpPlan | None,
    context: Context,
    kind: type[Ascend] = Ascend,
    note: Note | None = None,
) -> Ascend | None:
    """Return the emulated device of an Ascend; None for CPU and GPU.

    O0 leaves the graph as it is, O1 fuses chains of elementwise operators, O2 compiles it as a whole.

    Args:
        graph: The model.
        plan: What is dumped.
        context: Where the network runs.
        kind: The device's class.
        note: Takes the stages of O2's compilation.
    """
    if context.device_target is not DeviceTarget.ASCEND:
        return None
    accelerate.install()
    configured = context.precision_mode or (plan.precision_mode if plan is not None else None)
    precision = configured or PrecisionMode.ALLOW_FP32_TO_FP16
    dtypes = context.operator_dtypes if plan is None else context.operator_dtypes.over(plan.operator_dtypes)
    check_operator_dtypes(graph, precision, dtypes)
    device = functools.partial(
        kind,
        precision=precision,
        operator_dtypes=dtypes,
        overflow=context.overflow_mode,
        reports=(plan is not None and _asks_for_overflows(plan)) or has_float_status(graph),
    )
    if context.jit_level is not JitLevel.O2:
        return device(fuse_elementwise(graph) if context.jit_level is JitLevel.O1 else graph)
    compiled = compile_graph(
        graph,
        fuses=context.fuses,
        compute=lambda part: _computed(part, device(part)),
        keeps_node_names=context.keeps_node_names,
        note=note,
    )
    # one count over the graph and its bodies: task numbers of a compiled model are unique
    built = device(compiled, numbers=itertools.count())
    if note is not None:
        for stage in (INSERTED, BUILT, ENDED):
            note(stage, built)
    return built


def _asks_for_overflows(plan: DumpPlan) -> bool:
    return plan.when.trigger is Trigger.OVERFLOW or any(rule.reads_overflows for rule in plan.watch.rules)


def _computed(part: Graph, device: Ascend) -> Sequence[np.ndarray]:
    """Return the outputs of a graph that reads nothing but weights, as the device computes them."""
    from msdump.execute.program import Program  # only O2 folds constants; all else here runs nothing

    return Program(part, device.roundings).run({})
