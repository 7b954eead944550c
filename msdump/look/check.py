"""Preview of a dump: settings in words, matches of kernels, numbers of files and bytes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.capture import EXCEPTIONS, Process, dump_of, operators, refusals, select, selection, unmatched
from msdump.counters import ModelIdentity, Run
from msdump.device import BASE, Ascend, Block, DeviceTensor, formats
from msdump.dtypes import STRING, DType
from msdump.errors import FormatError, UnsupportedOpError
from msdump.execute import (
    KernelFactory,
    Runtime,
    WeightStore,
    as_the_model_says,
    cpu_runtime,
    emulated,
    values,
)
from msdump.graph import Graph, MixedTypes, Node, collective, mixed_types, reads, uses_float_status
from msdump.judge import MOST_DIMENSIONS, is_array
from msdump.observer import NodeRun, Observer
from msdump.plan import (
    NO_OPERATOR_DTYPES,
    DeviceTarget,
    DumpPlan,
    Existing,
    FileFormat,
    JitLevel,
    Naming,
    OnHit,
    OnWriteError,
    Optimization,
    Tree,
    Trigger,
)
from msdump.reasons import Reason
from msdump.record import IO, Buffer, OperatorRef
from msdump.selector import DumpMode, PatternKind
from msdump.store import Key, PathKind, outline
from msdump.store.write import DiskFiles, Sink, SyncSink, size_of


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An item of ``kernels`` that selects nothing.

    Attributes:
        item: The item as the user wrote it.
        hint: A suggestion, "" where no item is close.
    """

    item: str
    hint: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Operators, inputs or outputs that get no file, for one reason.

    Attributes:
        noun: "operator", "input" or "output".
        reason: Why.
        count: Number of them in the model.
    """

    noun: str
    reason: str
    count: int


_MOST: Final = 1 << 16  # most elements of a stand-in; larger tensors have a stand-in of one element


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """An operator without a kernel.

    Attributes:
        node: The operator.
        is_certain: Whether every run reaches it; false inside branches and loops.
        reason: Why it cannot run.
    """

    node: Node
    is_certain: bool
    reason: str


def _stand_in(graph: Graph, name: str) -> Any:
    """Return zeros of the type of a value; None where it is not known, or no tensor."""
    declared = graph.type_of(name)
    if declared.dtype is None or declared.kind != "tensor":
        return None
    if declared.dtype is STRING:
        return values.from_array(np.array([""], declared.dtype.numpy))
    shape = [dim if isinstance(dim, int) else 1 for dim in declared.shape or ()]
    is_small = is_array(shape, 1) and math.prod(shape) <= _MOST
    stand_in_shape = shape if is_small else [1] * min(len(shape), MOST_DIMENSIONS)
    return values.owned(np.zeros(stand_in_shape, declared.dtype.numpy))


def unrunnable(graph: Graph) -> Iterator[Unrunnable]:
    """Yield the operators that neither onnxruntime nor ONNX's reference can run.

    Each kind of operator is compiled once, for its input types and without its weights: kernels do not depend
    on values. Operators with inputs of unknown type, or that are no tensors, are not tested and not yielded.
    """
    # One runtime with one thread for all kinds of operators: sessions are compiled in it and never run.
    sessions = Runtime(1, cpu_runtime().providers)
    refusal_of: dict[Hashable, str] = {}
    for inner in graph.walk():
        for node in inner.operators:
            kind = (node.domain, node.op_type)
            if collective(*kind) is not None or uses_float_status(*kind):  # runs in Python, without a kernel
                continue
            stand_ins = {name: _stand_in(inner, name) for name in reads(node)}
            if any(value is None for value in stand_ins.values()):
                continue
            attributes = repr(sorted(node.attributes.items()))
            types = [values.kind_of(stand_ins[name]) if name in stand_ins else "" for name in node.inputs]
            key = (*kind, node.proto.overload, attributes, *types)
            # A network repeats few kinds of operators many times, and compiling one takes milliseconds.
            if key not in refusal_of:
                weights = WeightStore(inner.weights)
                unweighted = {name: value for name, value in stand_ins.items() if name not in weights}
                # some kernels compile only with their weights
                for store, given in ((WeightStore({}), stand_ins), (weights, unweighted)):
                    try:
                        KernelFactory(inner, store, sessions, as_the_model_says).make(node, given)
                    except UnsupportedOpError as error:
                        # The message names the model and the operator first, which the reader sees anyway.
                        refusal = str(error).partition(f"node {node.name!r}: ")[2] or str(error)
                    else:
                        refusal = ""
                        break
                refusal_of[key] = refusal
            if refusal_of[key]:
                yield Unrunnable(node, inner is graph, refusal_of[key])


_NAMES: Final = {
    Naming.CLASSIC: "classic names (Conv2D-op12, no dtype)",
    Naming.V2_5: "names of MindSpore 2.5",
    Naming.V2_7: "names of MindSpore 2.7",
}
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def subjects(plan: DumpPlan) -> dict[str, str]:
    """Return the words of the description of a plan by their subject, such as "iterations"."""
    context, when = plan.context, plan.when
    level = f" {context.jit_level}" if context.jit_level else ""
    first = f", the first one is number {when.initial_iteration}" if when.initial_iteration else ""
    limit = f", the first {when.overflow_limit} of the process" if when.overflow_limit else ""
    triggers = {
        Trigger.EXCEPTION: "only the operator that fails",
        Trigger.OVERFLOW: f"only operators that overflow{limit}",
    }
    if plan.files.is_async:
        writing = f"asynchronous, at most {_bytes_text(plan.files.queue_bytes)} in the queue"
    else:
        is_held = plan.watch.writes_hits_alone or plan.watch.history
        moment = "when the step returns" if is_held else "before the next segment starts"
        writing = f"synchronous, the files are complete {moment}"
    is_off = f"off, because device {context.device_id} is not in support_device"
    # first the dumped tensors, then how they are written
    words = {
        "dump": "" if plan.is_enabled else is_off,
        "device": f"{context.device_target}{level}, device {context.device_id}",
        "files": _files(plan),
        "iterations": f"{when.iterations}{first}",
        "operators": _operators(plan),
        "trigger": triggers.get(when.trigger, ""),
        "tensors": _tensors(plan),
        "statistics": _statistics(plan),
        "writing": writing,
        "watch": _joined("; ", _watch(plan)),
        "also": _joined(", ", _limits(plan)),
    }
    return {subject: text for subject, text in words.items() if text}


def _files(plan: DumpPlan) -> str:
    root = plan.files.path.rstrip("/")
    if plan.compiled.scene in EXCEPTIONS:  # exception dumps have a directory of their own
        place = Key(PathKind.EXCEPTIONS, device=plan.context.device_id)
        return place.below(plan.compiled.exception_path or root)
    if plan.files.tree is not Tree.RANKS:
        return f"{root}/{outline(plan.files.tree)}/"
    return f"{root}/{outline(plan.files.tree, net=plan.files.net_name)}/, {_NAMES[plan.files.naming]}"


def _operators(plan: DumpPlan) -> str:
    selector = plan.what.selector
    unused = f" (dump_mode {selector.mode} does not use kernels)" if plan.what.has_unused_kernels else ""
    if selector.mode is DumpMode.MARKED:
        return f"the operators that set_dump marks{unused}"
    if selector.mode is DumpMode.ALL or not selector.patterns:
        return f"all{unused}"
    texts = {
        PatternKind.NAME: "{0.text}",
        PatternKind.TYPE: "types that contain {0.text!r} in any case",
        PatternKind.REGEX: "names that {1} /{0.text}/",
    }
    return "; ".join(
        texts[each.kind].format(each, "contain" if each.searches else "match") for each in selector.patterns
    )


def _tensors(plan: DumpPlan) -> str:
    is_kept = {"inputs": plan.what.keeps_inputs, "outputs": plan.what.keeps_outputs}
    sides = " and ".join(side for side, kept in is_kept.items() if kept)
    if not plan.files.keeps_tensors:
        return f"none; {sides} are only measured"
    layout = "device" if plan.what.keeps_device_format else "host"
    sample = f", first {plan.what.sample_count} elements" if plan.what.sample_count else ""
    if plan.compiled.operator_statistics is not None:
        return f"none; {sides} are only measured: {', '.join(plan.compiled.operator_statistics)}"
    form = "one file for each operator" if plan.files.file_format is FileFormat.BIN else "as .npy"
    return f"{sides}{sample}, in {layout} format, {form}"


def _statistics(plan: DumpPlan) -> str:
    if plan.statistics is None:
        return ""
    names = ", ".join(plan.statistics.categories) or "sizes, types and shapes only"
    if not plan.statistics.on_device:
        return f"{names}, on the host"
    precision = "in float32" if plan.statistics.high_precision else "in the tensor's type"
    return f"{names}, on the device {precision}"


_Parts = Sequence[tuple[str, object]]
"""Words, and whether they are said."""


def _joined(between: str, parts: _Parts) -> str:
    return between.join(words for words, is_said in parts if is_said)


def _watch(plan: DumpPlan) -> _Parts:
    watch = plan.watch
    steps = "step" if watch.history == 1 else f"{watch.history} steps"
    causes = "a failure" if not watch.rules or watch.on_hit is OnHit.LOG else "a hit or a failure"
    memory = f"in memory, at most {_bytes_text(watch.history_bytes)}"
    return (
        (f"rules {', '.join(rule.name for rule in watch.rules)}", watch.rules),
        ("a hit only warns", watch.rules and watch.on_hit is OnHit.LOG),
        ("only operators with a hit are written", watch.writes_hits_alone),
        ("a hit ends the run", watch.rules and watch.on_hit is OnHit.STOP),
        (f"the last {steps} {memory}; written after {causes}", watch.history),
    )


def _limits(plan: DumpPlan) -> _Parts:
    own = plan.operator_dtypes
    count = len(own.kept) + len(own.customized) + (len(own.lists.types) if own.lists else 0)
    return (
        (f"at most {_bytes_text(plan.files.max_bytes)} of tensor files", plan.files.max_bytes),
        (f"{plan.files.writer_threads} writer threads", plan.files.writer_threads > 1),
        ("a failed write only warns", plan.files.on_write_error is OnWriteError.WARN),
        ("existing files are removed", plan.files.existing is Existing.REPLACE),
        ("existing files are an error", plan.files.existing is Existing.REFUSE),
        (f"precision_mode {plan.precision_mode}", plan.precision_mode),
        (
            f"operators that are not dumped are fused (optimize {plan.optimization}): last bits change",
            plan.optimization is not Optimization.NONE,
        ),
        (f"a precision of their own for {count} names or types of operators", own != NO_OPERATOR_DTYPES),
        ("no operators are fused", not plan.context.fuses),
        ("kernel arguments are saved", plan.what.saves_kernel_args),
    )


def _bytes_text(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of files and the bytes in them.

    Attributes:
        files: Number of files.
        bytes: Bytes in all of them.
    """

    files: int
    bytes: int

    def __sub__(self, other: Amount) -> Amount:
        """Return the difference of two amounts, of which the other one is a part."""
        return Amount(self.files - other.files, self.bytes - other.bytes)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The files and bytes that a dump will write.

    Attributes:
        once: Amount that is written once: graph files, metadata and constants.
        per_iteration: Amount of one dumped iteration, with its line in the list of iterations.
        skipped: Number of tensors of an iteration that get no file, by reason.
        unknown: Number of tensors of an iteration with a shape that only a run shows; the amounts lack them.
        unfit: Number of tensors of an iteration that no array of this machine can hold, and the bytes of
            their elements; the amounts lack them.
        branches: Number of tensors that branches and loops write each time they run; the amounts lack
            them, as well as constants and weights inside branches and loops.
        iterations: Number of dumped iterations; None: they have no end.
        total: Amount of the whole run; None where the iterations have no end.
    """

    once: Amount
    per_iteration: Amount
    skipped: Mapping[str, int]
    unknown: int
    unfit: Amount
    branches: int
    iterations: int | None
    total: Amount | None


def forecast(graph: Graph, plan: DumpPlan, settled: Graph) -> Forecast:
    """Return the forecast of a run of a graph under a plan.

    It is exact where shapes are known, but for the digits of stand-ins in ``mapping.csv``, the numbers
    in rows of statistics and, on GPU, the lines of undumped iterations in the list of iterations. It
    leaves out the files of overflowing and failing operators (``op_debug_mode`` 3 and 4), and operators that
    only ``set_dump`` marks. ``settled`` is the same model, loaded with the sizes of its dynamic dimensions.
    """
    graph = graph if plan.files.tree is Tree.RANKS else settled  # rank trees' graph files name sizes
    device = emulated(graph, plan, plan.context, _NoRounding)
    rehearsal = _Rehearsal(graph if device is None else device.graph, plan, settled, device)
    # The first iteration also writes the files of the whole run; each later one writes as much as the second.
    rehearsal.play(0)
    amount, skipped = rehearsal.amount, Counter(rehearsal.sink.summary.skipped)
    absent, branches = rehearsal.play(1)
    unfit = [size for size in absent if size >= 0]
    each = rehearsal.amount - amount
    once = amount - each
    when, target = plan.when, plan.context.device_target
    first, count, total = when.initial_iteration, None, None
    if when.iterations.spans is not None:  # they have an end
        spans = [(max(low, first), high) for low, high in when.iterations.spans if high >= first]
        count = sum(high - low + 1 for low, high in spans)
        # The rehearsed iterations have one-digit numbers; the list has the further digits of real ones.
        digits = sum(_digits(high) - _digits(low - 1) for low, high in spans) - count
        digits = 0 if target is DeviceTarget.ASCEND else digits
        # on CPU the list has only dumped iterations, so without any there is no list
        unlisted = not count and target is DeviceTarget.CPU
        total = Amount(once.files + count * each.files - unlisted, once.bytes + count * each.bytes + digits)
    return Forecast(
        once=once,
        per_iteration=each,
        skipped=Counter(rehearsal.sink.summary.skipped) - skipped,
        unknown=len(absent) - len(unfit),
        unfit=Amount(len(unfit), sum(unfit)),
        branches=branches,
        iterations=count,
        total=total,
    )


@dataclass(frozen=True, slots=True)
class ModelPreview:
    """The effects of a configuration on a model.

    Attributes:
        graph: The model, or its training step.
        kernels: Selected operators in execution order; branches and loops follow the main graph.
        parameters: Names of selected weights and graph inputs (CPU and GPU).
        unmatched: Items that select nothing.
        compiled: Number of kernels that the device compiles them into; None where it does not.
        amounts: The files that a dump writes; None where it writes none.
        left_out: Operators, inputs and outputs that get no file, by reason.
        cannot_run: Operators that no kernel of this machine can run.
        mixed_types: Operators with input types that differ although ONNX has one type for them.
    """

    plan: DumpPlan
    graph: Graph
    kernels: tuple[OperatorRef, ...]
    parameters: tuple[str, ...]
    unmatched: tuple[Unmatched, ...]
    compiled: int | None
    amounts: Forecast | None
    left_out: list[LeftOut]
    cannot_run: list[Unrunnable]
    mixed_types: list[MixedTypes]

    @property
    def operators(self) -> int:
        """Number of its operators, in branches and loops as well."""
        return sum(len(inner.operators) for inner in self.graph.walk())

    @property
    def may_succeed(self) -> bool:
        """Whether a run may succeed: a branch or a loop with an operator that has no kernel may not run."""
        return not any(each.is_certain for each in self.cannot_run)


def preview_model(model: Graph, plan: DumpPlan, settled: Graph, device: Ascend | None) -> ModelPreview:
    """Return the effects of a plan on a model; ``settled`` has the sizes of its dynamic dimensions.

    Operators that a program would mark by ``set_dump`` are not selected: it does not run here.
    """
    parameters: tuple[str, ...] = ()
    listed: Sequence[Node]
    is_of_ranks = plan.files.tree is Tree.RANKS
    if is_of_ranks:
        graph = model if device is None else device.graph
        graphs = [*graph.walk()]
        selections = [select(inner, plan, frozenset()) for inner in graphs]
        # Ascend dumps parameters as inputs of operators only; CPU and GPU at the end of each iteration, too.
        if plan.what.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND:
            parameters = tuple(name for chosen in selections for name in chosen.parameters)
        nodes = [node for inner in graphs for node in inner.nodes]
        watched = [is_watched for chosen in selections for is_watched in chosen.watched]
        names, listed = [*selection.selectable(graph, plan)], operators(graph)
        count = sum(len(inner.operators) for inner in graphs)
    else:
        from msdump.capture.compiled import full_names, select_compiled

        assert device is not None, "only Ascend compiles whole graphs"
        devices = tuple(device.walk())
        listed = nodes = [node for inner in devices for node in inner.graph.nodes]
        compiled = select_compiled(devices, plan, frozenset(), model.file_stem)
        watched = [is_watched for each in compiled for is_watched in each.watched]
        names = [name for node in nodes for name in full_names(node)]
        # An operator without a task, such as a reshape, does not run and never has a file.
        count = sum(task is not None for inner in devices for task in inner.tasks)
    counts: Counter[tuple[str, Reason]] = Counter()
    for table in refusals(model, device, plan, file_name=model.file_stem):
        for position, refusal in enumerate(table.operators):
            slots = [((str(io), slot), reason) for (io, slot), reason in table.slots(position)]
            for (noun, _), reason in slots if refusal is None else [(("operator", 0), refusal)]:
                if reason is not None and reason is not Reason.ABSENT:
                    counts[noun, reason] += 1
    pairs = unmatched(plan.what.selector.patterns, selection.used_items(plan, names), listed)
    return ModelPreview(
        plan,
        model,
        tuple(node.operator for node, is_watched in zip(nodes, watched, strict=True) if is_watched),
        parameters,
        tuple(Unmatched(pattern.item, hint) for pattern, hint in pairs),
        count if not is_of_ranks or plan.context.jit_level is JitLevel.O1 else None,
        forecast(model, plan, settled) if plan.is_enabled and model.nodes else None,
        [LeftOut(noun, reason, number) for (noun, reason), number in counts.items()],
        [*unrunnable(settled)],
        [*mixed_types(model)],
    )


def _digits(last: int) -> int:
    """Return how many digits the numbers from 0 to a last one have in all; 0 for a last one below 0.

    >>> _digits(9), _digits(11)
    (10, 14)
    """
    if last < 0:
        return 0
    # One digit each, one more for each number from 10, from 100, ...
    further_digits: int = sum(last + 1 - 10**zeros for zeros in range(1, len(str(last))))
    return last + 1 + further_digits


class _Rehearsal:
    """A dump of tensors without contents into files without contents, to count files and bytes.

    The real dump code gets tensors of the known shapes, with memory that is never touched, and writes to
    files that only count bytes: so the forecast follows every rule of the dump.
    """

    def __init__(self, graph: Graph, plan: DumpPlan, settled: Graph, device: Ascend | None) -> None:
        self._graph = graph
        self._settled = settled
        self._is_certain = plan.when.trigger is Trigger.ALWAYS
        # weights and inputs that have files of their own after an iteration
        has_files = plan.context.device_target is not DeviceTarget.ASCEND and plan.what.keeps_outputs
        self._parameters = {*select(graph, plan, frozenset()).parameters} if has_files else set[str]()
        self._files = _CountingFiles()
        # counts the tensors that get no file
        self.sink = SyncSink(plan.files.on_write_error, files=self._files)
        self._dump = dump_of(
            graph,
            plan,
            _OneSinkProcess(self.sink),
            device,
            memory=lambda: _OnePlaceMemory(graph),
            model=ModelIdentity(),
        )
        self._dump.write_graph_files()

    @property
    def amount(self) -> Amount:
        """Files and bytes so far."""
        return Amount(len(self._files.sizes), sum(self._files.sizes.values()))

    def play(self, iteration: int) -> tuple[list[int], int]:
        """Dump one iteration; return the bytes of absent tensors, and the number of tensors in branches."""
        absent: list[int] = []

        def tensors(names: Iterable[str]) -> list[np.ndarray | None]:
            made = [unfilled(self._graph, name, self._settled) if name else None for name in names]
            absent.extend(each for each in made if isinstance(each, int))
            return [None if isinstance(each, int) else each for each in made]

        names = [value.name for value in self._graph.inputs]
        feeds = dict(zip(names, tensors(names), strict=True))
        absent.clear()  # an input counts that has a file of its own
        tensors(name for name in names if name in self._parameters)
        capture = self._dump.begin(Run(iteration, iteration), feeds)
        interest = capture.interest
        for position, node in enumerate(self._graph.nodes):
            if interest.shows(position) and self._is_certain:
                inputs = tensors(node.inputs * interest.inputs)
                outputs = tensors(node.declared_outputs * interest.outputs)
                capture.ran((NodeRun(position, inputs, outputs),))
        self._dump.end()
        return absent, self._inside(self._graph, capture)

    def _inside(self, graph: Graph, capture: Observer) -> int:
        """Return the number of tensors that the branches and loops in a graph write if each runs once."""
        count = 0
        for body in graph.bodies:
            inner = capture.enter(body)
            if inner is None or not self._is_certain:
                continue
            for node in itertools.compress(body.nodes, inner.interest.positions):
                sides = node.inputs * inner.interest.inputs + node.declared_outputs * inner.interest.outputs
                count += len(list(filter(None, sides)))
            count += self._inside(body, inner)
        return count


class _NoRounding(Ascend):
    """A device without arithmetic, for rehearsals: it gives zeros of the right types and shapes."""

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        return np.zeros(array.shape, dtype.numpy)  # so rows of statistics are always equal

    def laid_out(self, array: np.ndarray, tensor: DeviceTensor) -> np.ndarray:
        if formats.find(tensor.format).shape_rule is not None:
            raise FormatError(f"only the shape of {tensor.format} is known")
        dtype = dtypes.from_numpy(array.dtype)
        return np.zeros(formats.shape(tensor.format, array.shape, dtype, tensor.groups), array.dtype)


class _OnePlaceMemory:
    """A device memory that gives every tensor the same address: addresses in files have a fixed size."""

    def __init__(self, graph: Graph) -> None:
        self.blocks = {value.name: _ONE_PLACE for value in graph.inputs}

    def block(self, _position: int, _io: IO, _slot: int) -> Block:
        return _ONE_PLACE

    def inside(self, _index: int) -> _OnePlaceMemory:
        return self


_SOME_TIME: Final = "20000101000000"
_ONE_PLACE: Final = Block(BASE, 0)


def unfilled(graph: Graph, name: str, settled: Graph | None = None) -> np.ndarray | int | None:
    """Return a tensor of a value's type and shape for rehearsals; its memory is reserved, but never touched.

    Where no array can be made it is the number of bytes of the elements, -1 if their number is not known;
    None for a value that is no tensor. ``settled`` is the same graph with all sizes known.
    """
    if name in graph.weights:
        return graph.weights[name]
    value_type = graph.type_of(name)
    if not value_type.is_settled and settled is not None and settled.type_of(name).is_settled:
        value_type = settled.type_of(name)
    if value_type.kind in {"sequence", "map"}:
        return None  # the dump holds tensors only
    if value_type.dtype is STRING:
        return np.empty(1, value_type.dtype.numpy)  # gets no file, whatever its shape
    sizes = tuple(size for size in value_type.shape or () if isinstance(size, int))
    if value_type.dtype is None or not value_type.is_settled:
        return -1
    item_bytes = value_type.dtype.numpy.itemsize
    if not is_array(sizes, item_bytes):
        return math.prod(sizes) * item_bytes
    return np.zeros(sizes, value_type.dtype.numpy)  # Linux gives zeroed pages only when they are touched


class _OneSinkProcess(Process):
    """A process with one given sink for all networks."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def sink(self, plan: DumpPlan) -> Sink:  # noqa: ARG002 - the signature of a process
        return self._sink

    def configured(self, plan: DumpPlan) -> str:  # noqa: ARG002 - the signature of a process
        return _SOME_TIME


class _CountingFiles(DiskFiles):
    """Sizes of the files that would be written, by path; contents only of files that are read again."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> int:
        self.replace(directory, name, buffers)
        return size_of(buffers)

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        self.sizes[f"{directory}/{name}"] = size_of(buffers)

    def stream(self, directory: str, name: str, pieces: Iterable[Any], mode: int = 0) -> int:
        del mode
        size = self.sizes[f"{directory}/{name}"] = sum(size_of((piece,)) for piece in pieces)
        return size

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        path = f"{directory}/{name}"
        is_new = path not in self.sizes
        self.sizes[path] = (self.sizes.get(path) or len(header)) + len(rows)
        return is_new

    def exists(self, directory: str, name: str) -> bool:
        return f"{directory}/{name}" in self.sizes

    def read(self, directory: str, name: str) -> bytes:  # noqa: ARG002 - the signature of files
        return b""

    def close(self) -> None:
        self.sizes.clear()
