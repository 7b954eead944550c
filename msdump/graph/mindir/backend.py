"""The kernel graphs of a MindIR file: kernels in the order in which they run, under their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Final

from msdump.graph.mindir.casts import insert_casts
from msdump.graph.mindir.expansions import expanded
from msdump.graph.mindir.file import MindIR
from msdump.graph.mindir.kernels import (
    CALL,
    CONSTANT,
    ITEMS,
    PASSING,
    REFERENCE,
    Constant,
    Function,
    Kernel,
    KernelNodes,
    NodeReader,
    Operand,
    Variable,
    flattened,
    source,
)
from msdump.graph.mindir.order import depth_first, execution_order, post_order
from msdump.plan import Context, DeviceTarget

_CUTS: Final = frozenset({"Switch", CALL})
_NUMBER: Final = re.compile(r"(?P<type>.*)-op(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """Kernels that MindSpore compiles as one graph: a graph of the file, or its part between two calls."""

    number: int  # in the file; ids of graphs in a dump follow it
    kernels: Sequence[Kernel]  # as they run


@dataclass(frozen=True, slots=True)
class FileGraph:
    """A graph of the file, the main one or a function, as it runs: kernel graphs, and calls between them."""

    nodes: KernelNodes
    steps: Sequence[KernelGraph | Kernel]

    @property
    def tail(self) -> Kernel | None:
        """The call that it ends with: its result is that of the graph."""
        steps = [step for step in self.steps if isinstance(step, Kernel) or step.kernels]
        last, result = steps[-1] if steps else None, source(self.nodes.results[0])
        return last if isinstance(last, Kernel) and last is result else None

    @property
    def callees(self) -> frozenset[str]:
        """Names of the functions that it calls, or may call."""
        values = (
            item.value for node in self.nodes.kernels for item in node.inputs if isinstance(item, Constant)
        )
        return frozenset(value.name for value in values if isinstance(value, Function))


def file_graphs(file: MindIR, context: Context) -> dict[str, FileGraph]:
    """Return the graphs of a file by name, with all kernels named.

    On CPU and GPU composites are computed by several kernels; Ascend has a kernel for each.
    """
    expands = context.device_target is not DeviceTarget.ASCEND
    loaded = dict(_loaded_names(file)) if context.has_loaded_scopes else {}
    reader = NodeReader(file, expanded if expands else lambda _: None, loaded)
    read = [reader.nodes(file.graph, is_main=True)]
    read += [reader.nodes(each, is_main=False) for each in file.functions.values()]
    for nodes in read if expands else ():
        own_tuples(nodes.kernels)
        insert_casts(nodes.kernels, nodes.results, _handed(nodes) if file.functions else ())
    names = _Names([kernel for nodes in read for kernel in nodes.kernels])
    numbers = count()
    read.sort(key=lambda nodes: int((re.match(r"\d+(?=_)", nodes.name) or "0")[0]))
    return {nodes.name: FileGraph(nodes, _steps(nodes, names, numbers)) for nodes in read}


def _handed(nodes: KernelNodes) -> set[Operand]:
    """Return the kernels with results that a graph hands to functions, or returns in a tuple."""
    items = [item for node in nodes.kernels if node.op_type in {"Partial", CALL} for item in node.inputs]
    items += [source(item) for item in nodes.results if flattened(source(item)) != [source(item)]]
    return {source(each, PASSING | ITEMS) for item in items for each in flattened(source(item))}


def _steps(nodes: KernelNodes, names: _Names, numbers: Iterator[int]) -> list[KernelGraph | Kernel]:
    """Cut a graph at its calls; each part is a kernel graph with a number, also one without kernels."""
    ordered = post_order(nodes.results, from_last=True)
    steps: list[KernelGraph | Kernel] = []
    rest = (node for node in ordered if node.op_type != "Partial")
    for is_cut, part in groupby(rest, lambda node: node.op_type in _CUTS):
        members = list(part)
        if is_cut:
            steps += [node for node in members if node.op_type == CALL]
            continue
        inside = set(members)
        read = {item for node in ordered if node not in inside for item in node.inputs} | {*nodes.results}
        results = [node for node in members if node in read]
        inputs = {node: node.inputs for node in members}
        for node in members:  # values of other kernel graphs are inputs of this one
            node.inputs = [
                Variable("") if isinstance(item, Kernel) and item not in inside else item
                for item in node.inputs
            ]
        kernels = execution_order(results)
        names.give(results, kernels)
        for node in members:
            node.inputs = inputs[node]
        steps.append(KernelGraph(next(numbers), kernels))
    return steps


def _loaded_names(file: MindIR) -> Iterator[tuple[str, str]]:
    """Yield the full name of each node, by its value, in a file that MindSpore has loaded.

    All lie in ``Default``, with numbers for each type, depth first through the functions.
    """
    nodes = {
        node.output[0]: node
        for graph in (file.graph, *file.functions.values())
        for node in graph.node
        if node.output and node.op_type != CONSTANT
    }

    def before(value: str) -> Iterator[str]:
        node = nodes[value]
        for name in (node.op_type.removeprefix(REFERENCE), *node.input):
            called = file.functions.get(name)
            names = [name] if called is None else [info.name for info in called.output]
            yield from (each for each in names if each in nodes)

    counts = Counter[str]()
    for value in depth_first([info.name for info in file.graph.output if info.name in nodes], before):
        primitive = file.primitives.get(nodes[value].op_type.removeprefix(REFERENCE))
        if primitive is not None:
            yield value, f"Default/{primitive.op_type}-op{counts[primitive.op_type]}"
            counts[primitive.op_type] += 1


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
    front end's numbers; kernels that the backend has made get the numbers behind, as they run.
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
        """Name the kernels of a graph, given its results, and its kernels as they run."""
        for kernel in post_order(results):
            if kernel.runs:
                kernel.name = self._next(self._in_files, kernel)
        for kernel in kernels:
            is_new = kernel.is_new or _is_made_anew(kernel)
            known = kernel.front_name or kernel.name
            kernel.listed_name = self._next(self._listed, kernel) if is_new else known

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
