"""The emulated device of a network: the graph compiled as the level (O0, O1, O2) does, for an Ascend.

The device transposes and casts by onnxruntime instead of numpy: onnxruntime casts float32 to float16 and back
four to eight times as fast, with the same rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import Ascend, blocks, check_operator_dtypes, has_float_status, precision
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.runtime import Runtime, cpu_runtime
from msdump.graph import BUILT, ENDED, INSERTED, Graph, compile_graph, fuse_elementwise
from msdump.graph.kernel import onenode, type_text
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, PrecisionMode, Trigger

_MOVED_AS: Final = {1: np.uint8, 2: np.float16, 4: np.float32, 8: np.int64}
"""Types that the runtime can transpose, by size of an element; only the bits count."""

_WORTH_IT_FROM: Final = 1 << 14  # elements; for fewer, numpy is faster than a call of the runtime


@functools.cache
def accelerate_device() -> None:
    """Make the emulated device transpose and cast by onnxruntime; later calls do nothing."""
    # set from here: the package device may not import onnxruntime, which readers of dumps do not need
    blocks.transpose = transposed
    precision.cast = cast


def transposed(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Return an array in C order with its axes permuted; elements of 1, 2, 4 or 8 bytes."""
    bits = array.view(_MOVED_AS[array.itemsize])
    return _run(_transpose(bits.dtype, tuple(order)), bits).view(array.dtype)


def cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return a float array in another float type, rounded to nearest, ties to even."""
    if array.size < _WORTH_IT_FROM:
        return precision.numpy_cast(array, dtype)
    return _run(_cast(dtypes.from_numpy(array.dtype), dtype), array)


@functools.lru_cache(maxsize=64)
def _transpose(dtype: np.dtype, order: tuple[int, ...]) -> Any:
    kind = type_text(dtypes.from_numpy(dtype))
    return _one_thread().session(onenode.one_operator("Transpose", ("x", kind), perm=order))


@functools.cache
def _one_thread() -> Runtime:
    """Return a single-threaded runtime for transposes: waking threads would take longer than the kernel."""
    return Runtime(1)


@functools.cache
def _cast(source: DType, target: DType) -> Any:
    return cpu_runtime().session(onenode.one_operator("Cast", ("x", type_text(source)), to=target.onnx))


def _run(session: Any, array: np.ndarray) -> np.ndarray:
    array = values.contiguous(array)
    fed = {"x": values.from_array(array)}
    return values.to_array(session.run_with_ort_values(fed, ["y"], None)[0])


Note = Callable[[str, Graph | Ascend], None]
"""Takes the name of a stage of the compilation, and the graph or device that it ended with."""


def emulated(
    graph: Graph,
    plan: DumpPlan | None,
    context: Context,
    kind: type[Ascend] = Ascend,
    note: Note | None = None,
) -> Ascend | None:
    """Return the emulated device if the context's device target is Ascend; None for CPU and GPU.

    O0 leaves the graph as it is, O1 fuses chains of elementwise operators, O2 compiles it as a whole and
    calls ``note`` after each stage.
    """
    if context.device_target is not DeviceTarget.ASCEND:
        return None
    accelerate_device()
    configured = context.precision_mode or (plan.precision_mode if plan is not None else None)
    precision = configured or PrecisionMode.ALLOW_FP32_TO_FP16
    dtypes = context.operator_dtypes if plan is None else context.operator_dtypes.over(plan.operator_dtypes)
    check_operator_dtypes(graph, precision, dtypes)
    reports = plan is not None and (
        plan.when.trigger is Trigger.OVERFLOW or any(rule.reads_overflows for rule in plan.watch.rules)
    )
    device = functools.partial(
        kind,
        precision=precision,
        operator_dtypes=dtypes,
        overflow=context.overflow_mode,
        reports=reports or has_float_status(graph),
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


def _computed(part: Graph, device: Ascend) -> Sequence[np.ndarray]:
    """Fold constants: return the outputs of a graph without inputs, in the device's arithmetic."""
    from msdump.execute.program import Program  # not above: only O2, which folds constants, runs operators

    return Program(part, device.roundings).run({})
