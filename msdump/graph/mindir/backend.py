"""The kernel graphs of a MindIR file: kernels in the order in which they run, under their names.

On CPU they have casts, since many kernels there have no float16: such a kernel takes and gives float32, its
result keeps the declared type in names and files, and kernels of the same kind read it as it is. Calls lead
to other graphs, and in a loop back to the same one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, groupby
from typing import Final, TypeVar

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import UnsupportedOpError
from msdump.graph.graph import ValueType
from msdump.graph.mindir.expansions import expanded
from msdump.graph.mindir.file import MindIR
from msdump.graph.mindir.kernels import (
    CALL,
    CONSTANT,
    ITEMS,
    PASSING,
    PICKING,
    REFERENCE,
    TUPLES,
    Constant,
    Function,
    Kernel,
    KernelNodes,
    NodeReader,
    Operand,
    Variable,
    flattened,
    is_monad,
    source,
)
from msdump.plan import Context, DeviceTarget

_T = TypeVar("_T")


def depth_first(starts: Iterable[_T], before: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """Return all nodes that some nodes need, each behind the nodes that it needs directly."""
    done: list[_T] = []
    seen: set[_T] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(before(start)))]
        while path:
            node, rest = path[-1]
            ahead = next((item for item in rest if item not in seen), None)
            if ahead is None:
                done.append(node)
                path.pop()
            else:
                seen.add(ahead)
                path.append((ahead, iter(before(ahead))))
    return done


def post_order(results: Iterable[Operand], *, from_last: bool = False) -> list[Kernel]:
    """Return nodes depth first, each behind its operands, which are visited from first to last or back."""

    def kernels(operands: Iterable[Operand]) -> Iterator[Kernel]:
        return (item for item in operands if isinstance(item, Kernel))

    step = -1 if from_last else 1
    return depth_first(kernels(results), lambda node: kernels(node.inputs[::step]))


def execution_order(results: Sequence[Operand]) -> list[Kernel]:  # noqa: C901, PLR0912, PLR0915 - its steps
    """Return the kernels that some results need, in the order in which MindSpore runs them.

    Users of each node are collected breadth first from the return; then nodes with ready operands run,
    nodes that only group values or have a single user at once. (MindSpore's ``ExecOrderBuilder``.)
    """
    top = results[0]
    if len(results) != 1 or not (isinstance(top, Kernel) and top.op_type == "MakeTuple"):
        top = Kernel("MakeTuple", "", list(results), (), runs=False)
    end = Kernel("Return", "", [top], (), runs=False)
    trivial: set[Kernel] = set()  # nodes that need no kernel: they group constants and weights alone
    for node in post_order([end]):
        if not node.runs and all(not isinstance(item, Kernel) or item in trivial for item in node.inputs):
            trivial.add(node)

    def operands(node: Kernel) -> list[Kernel]:
        # a kernel takes the members of tuples itself
        items = [each for item in node.inputs for each in flattened(item)] if node.runs else node.inputs
        return [item for item in items if isinstance(item, Kernel) and item not in trivial]

    users: dict[Kernel, list[Kernel]] = defaultdict(list)
    waiting: Counter[Kernel] = Counter()  # operands that have not run
    unused: Counter[Kernel] = Counter()  # uses that have not been visited
    queue = deque([end])
    while queue:
        node = queue.popleft()
        for item in operands(node):
            if item not in unused:
                queue.append(item)
            users[item].append(node)
            waiting[node] += 1
            unused[item] += 1

    # nodes without operands start; all but the last wait for kernels that are visited behind them
    starts: list[Kernel] = []
    kernels: deque[Kernel] = deque()
    virtual = deque([end])
    while kernels or virtual:
        node = virtual.popleft() if virtual else kernels.popleft()
        items = operands(node)
        for item in reversed(items):
            unused[item] -= 1
            if unused[item]:
                continue
            (kernels if item.runs else virtual).append(item)
            if item.runs and starts:
                late = starts.pop()
                users[item].append(late)
                waiting[late] += 1
        if not items:
            starts.append(node)

    done: list[Kernel] = []
    while starts:
        ready = deque([starts.pop()])
        while ready:
            node = ready.popleft()
            if node.runs:
                done.append(node)
            readers = users.get(node, [])
            for reader in readers:
                if waiting[reader] == 0:
                    continue
                waiting[reader] -= 1
                if waiting[reader]:
                    continue
                if not reader.runs or len(readers) == 1:
                    ready.appendleft(reader)
                else:
                    ready.append(reader)
    return done


_CUTS: Final = frozenset({"Switch", CALL})
_NUMBER: Final = re.compile(r"(?P<type>.*)-op(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """Kernels that MindSpore compiles as one graph: a graph of the file, or its part between two calls."""

    number: int  # in the file; ids of graphs in a dump follow it
    kernels: Sequence[Kernel]  # as they run


@dataclass(frozen=True)
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

    @cached_property
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


_FLOAT16: Final = dtypes.from_name("float16")
_FLOAT32: Final = dtypes.from_name("float32")
_INT32: Final = dtypes.from_name("int32")
_CONVERTED: Final = frozenset(map(dtypes.from_name, ("float16", "float32", "int32", "int64", "bfloat16")))

_WIDE: Final[Mapping[str, range | frozenset[int]]] = {
    **{name: range(count) for count, names in {
        1: "Abs Atanh Ceil Exp Floor GeLU HSigmoid LRN LogSoftmax LpNorm Mish ReLU6 Reciprocal ReduceMax "
           "ReduceMean ReduceMin ReduceProd ReduceSum Round Softplus Softsign Square StridedSlice "
           "StridedSliceGrad Tan Tanh",
        2: "BatchMatMul BiasAdd CeLU Conv2D Conv2DBackpropInput Conv3D Elu EluGrad HShrink LogSoftmaxGrad "
           "MatMul Minimum Pow ReLU6Grad RealDiv SoftShrink SoftmaxCrossEntropyWithLogits SoftplusGrad "
           "SqrtGrad TanhGrad",
        3: "AvgPoolGrad GeLUGrad MaxPoolGrad SmoothL1Loss",
        4: "BCEWithLogitsLoss LSTM",
    }.items() for name in names.split()},
    "BatchNorm": frozenset({0, 1, 2, 3, 4, 6, 7}),
    "BatchNormGrad": frozenset({0, 1, 2, 3, 4, 5, 7}),
    "ScatterNd": frozenset({1}),
}  # fmt: skip
"""Kernels without float16, and the slots of their operands that are float32."""

_INT32_SLOTS: Final = {"TopK": 1, "CumulativeLogsumexp": 1}
"""Slots of numbers that a kernel takes as int32."""


def insert_casts(kernels: Sequence[Kernel], results: list[Operand], handed: Collection[Operand] = ()) -> None:
    """Put a Cast in front of each operand that a kernel takes in another type than it has, in place.

    A single result that has another type on the device than by declaration is cast back. ``handed``: kernels
    with results that go to another graph as they are, and so are held as declared.
    """
    for kernel in kernels:
        if not kernel.runs or kernel.is_cast:
            continue
        kernel.device = _declared(kernel) if kernel in handed else _on_device(kernel)
        slot, operands = 0, []
        for item in kernel.inputs:
            members = [] if is_monad(item) else flattened(item)  # a tuple takes several slots
            made = [_cast(kernel, slot + place, member) for place, member in enumerate(members)]
            slot += len(members)
            if made == members:
                operands.append(item)
            else:
                whole = Kernel("MakeTuple", "", made, (None,) * len(made), runs=False)
                operands.append(made[0] if len(made) == 1 else whole)
        kernel.inputs = operands
    results[:] = [_cast_back(item) for item in results]


def _declared(item: Operand) -> DType | None:
    return None if item.type is None else item.type.dtype


def _cast(kernel: Kernel, slot: int, item: Operand) -> Operand:
    has, wants = _on_device(item), _wanted(kernel, slot, item)
    if wants is None or has is None or has is wants or not {has, wants} <= _CONVERTED:
        return item
    return _new_cast(kernel.scope, item, wants)


def _new_cast(scope: str, item: Operand, dtype: DType) -> Kernel:
    shape = None if item.type is None else item.type.shape
    return Kernel("Cast", scope, [item], (ValueType(dtype, shape),), is_new=True, device=dtype, is_cast=True)


def _wanted(kernel: Kernel, slot: int, item: Operand) -> DType | None:
    declared = _declared(item)
    if slot in _WIDE.get(kernel.op_type, ()):
        return _FLOAT32 if declared is _FLOAT16 else None
    is_index = kernel.op_type == "Gather" and slot == 1 and isinstance(item, Constant)
    if is_index or _INT32_SLOTS.get(kernel.op_type) == slot:
        return _INT32
    return declared if declared in {_FLOAT16, _FLOAT32} else None


def _on_device(item: Operand) -> DType | None:
    """Return the element type that an operand has on the device."""
    declared = _declared(item)
    if not isinstance(item, Kernel) or item.device is not None:
        return item.device if isinstance(item, Kernel) else declared
    if item.op_type in PASSING:
        return _on_device(item.inputs[0])
    if item.op_type == "Histogram":  # vendor: it declares the element type of its input
        return _INT32
    maker = source(item, PICKING)
    is_wide = isinstance(maker, Kernel) and maker.op_type in _WIDE
    return _FLOAT32 if is_wide and declared is _FLOAT16 else declared


def _cast_back(item: Operand) -> Operand:
    if not isinstance(item, Kernel) or item.op_type in TUPLES:
        return item
    if item.op_type == "Depend":
        inner = _cast_back(item.inputs[0])
        return item if inner is item.inputs[0] else replace(item, inputs=[inner, *item.inputs[1:]])
    declared = _declared(item)
    return item if declared is None or _on_device(item) is declared else _new_cast("Default", item, declared)


Target = tuple[str, Sequence[Operand]]
"""A function and its arguments."""


def targets(call: Kernel) -> list[Target]:
    """Return the functions that a call may run: two, for true and false, where a Switch chooses."""
    chosen = source(call.inputs[0])
    options = [chosen]
    if isinstance(chosen, Kernel) and chosen.op_type == "Switch":
        options = [source(item) for item in chosen.inputs[1:]]
    return [_target(item, call.inputs[1:]) for item in options]


def _target(function: Operand, arguments: Sequence[Operand]) -> Target:
    if isinstance(function, Kernel) and function.op_type == "Partial":
        return _target(source(function.inputs[0]), [*function.inputs[1:], *arguments])
    if isinstance(function, Constant) and isinstance(function.value, Function):
        return function.value.name, arguments
    raise UnsupportedOpError(
        "the function of a call is computed; only functions that the call or its Switch names can run"
    )


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: a function that decides whether the body runs, which calls it again as its last step."""

    header: str  # the function that decides
    members: frozenset[str]  # it and the functions that lead back to it
    # the functions that run behind the loop, one of them each time (``break`` and ``return`` have their
    # own), with the arguments that the header gives; None where other members leave it, too
    exits: Mapping[str, Sequence[Operand] | None]


def loop_of(graphs: Mapping[str, FileGraph], header: str, around: Collection[str]) -> Loop | None:
    """Return the loop that begins with a function, None where the function does not lead back to itself.

    ``around``: headers of the loops around it. A recursion that is no loop raises an UnsupportedOpError.
    """
    reached = functions_from(graphs, header, around)
    if header not in reached:
        return None
    members = frozenset(name for name in reached if header in functions_from(graphs, name, around))
    exits: dict[str, Sequence[Operand] | None] = {}
    for name in sorted(members):
        tail = graphs[name].tail
        if tail is None:
            raise UnsupportedOpError(
                f"function {name!r} leads back to {header!r}, but not as its last step: recursion cannot run"
            )
        for target, arguments in targets(tail):
            if target not in members:
                exits[target] = arguments if name == header and target not in exits else None
    if not exits:
        raise UnsupportedOpError(f"the loop of function {header!r} has no end")
    return Loop(header, members, exits)


def functions_from(graphs: Mapping[str, FileGraph], start: str, closed: Collection[str]) -> frozenset[str]:
    """Return the functions to which calls lead from one of them, none of them by way of the closed ones."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graphs[waiting.pop()].callees - found - {*closed}
        found |= new
        waiting += new
    return frozenset(found)
