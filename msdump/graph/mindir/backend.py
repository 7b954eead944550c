"""The kernel graphs of a MindIR file: kernels in the order in which they run, under their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.errors import UnsupportedOpError
from msdump.graph.mindir.casts import insert_casts
from msdump.graph.mindir.expansions import expanded
from msdump.graph.mindir.file import MindIR
from msdump.graph.mindir.kernels import Constant, Kernel, KernelNodes, NodeReader, Operand
from msdump.graph.mindir.order import execution_order, post_order
from msdump.plan import Context, DeviceTarget

_NUMBER: Final = re.compile(r"(?P<type>.*)-op(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """Kernels that MindSpore compiles as one graph.

    Attributes:
        kernels: In the order in which they run.
        results: What the graph returns.
        nodes: The graph of the file that it is, or a part of.
    """

    kernels: Sequence[Kernel]
    results: Sequence[Operand]
    nodes: KernelNodes


def kernel_graphs(file: MindIR, context: Context) -> list[KernelGraph]:
    """Return the kernel graphs of a file, in the order of their ids.

    On CPU and GPU composites are computed by several kernels; Ascend has a kernel for each.
    """
    expands = context.device_target is not DeviceTarget.ASCEND
    if file.functions:
        raise UnsupportedOpError("control flow (functions of the file) cannot run yet")
    reader = NodeReader(
        file, expanded if expands else lambda _: None, has_loaded_scopes=context.has_loaded_scopes
    )
    nodes = reader.nodes(file.graph, is_main=True)
    if expands:
        own_tuples(nodes.kernels)
        insert_casts(nodes.kernels, nodes.results)
    kernels = execution_order(nodes.results)
    names = _Names(nodes.kernels)
    names.give(nodes.results, kernels)
    return [KernelGraph(kernels, nodes.results, nodes)]


def own_tuples(kernels: Sequence[Kernel]) -> None:
    """Give each kernel a RealMakeTuple of its own; a Reshape to computed sizes is made anew."""
    used: set[Kernel] = set()
    for kernel in kernels:
        if not kernel.runs or kernel.op_type == "RealMakeTuple":
            continue
        for place, item in enumerate(kernel.inputs):
            if isinstance(item, Kernel) and item.op_type == "RealMakeTuple":
                kernel.is_new |= kernel.op_type == "Reshape"
                if item in used:
                    kernel.inputs[place] = replace(item)
                used.add(item)


class _Names:
    """Gives kernels their names.

    Files number the kernels of each scope and type from 0, in depth-first order. .ir, .pb and csv keep the
    front end's numbers; kernels that the backend has made get the numbers behind those, as they run.
    """

    def __init__(self, nodes: Sequence[Kernel]) -> None:
        self._in_files: Counter[tuple[str, str]] = Counter()
        self._listed: Counter[tuple[str, str]] = Counter()
        for node in nodes:
            scope, _, last = node.front_name.rpartition("/")
            match = _NUMBER.fullmatch(last)
            if match:
                key = scope, match["type"]
                self._listed[key] = max(self._listed[key], int(match["number"]) + 1)

    def give(self, results: Sequence[Operand], kernels: Sequence[Kernel]) -> None:
        """Name the kernels of a graph, given what it returns, and its kernels as they run."""
        for kernel in post_order(results):
            if kernel.runs:
                kernel.name = self._next(self._in_files, kernel)
        for kernel in kernels:
            made = kernel.is_new or _is_made_anew(kernel)
            kernel.listed_name = (
                self._next(self._listed, kernel) if made else kernel.front_name or kernel.name
            )

    def _next(self, counts: Counter[tuple[str, str]], kernel: Kernel) -> str:
        key = kernel.scope, kernel.op_type
        counts[key] += 1
        return f"{kernel.scope}/{kernel.op_type}-op{counts[key] - 1}"


_MADE_ANEW: Final = frozenset(
    """
    AdamWeightDecay BinaryCrossEntropyGrad Conv2DBackpropFilter Conv2DBackpropInput Conv3DBackpropInput
    PadV3Grad StridedSliceGrad UnsortedSegmentSum AddExt AddN BinaryCrossEntropy Cast Concat CropAndResize
    Cross Eye Meshgrid PadV3 Round Stack TopK
    """.split()  # noqa: SIM905 - a list of texts would be a screen long
)
"""Kernels that the backend makes anew: an argument becomes an attribute or a tensor, or a tuple is cut."""


def _is_made_anew(kernel: Kernel) -> bool:
    if kernel.op_type not in _MADE_ANEW:
        return False
    # these two only where k or the paddings are numbers and not a tensor
    if kernel.op_type in {"TopK", "PadV3"} and len(kernel.inputs) > 1:
        given = kernel.inputs[1]
        if isinstance(given, Kernel) and given.is_cast:
            given = given.inputs[0]
        return isinstance(given, Constant) and isinstance(given.value, (int, tuple))
    return True
