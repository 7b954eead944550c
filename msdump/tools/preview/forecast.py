"""Forecasts how many files and bytes a dump will write, before anything runs.

The dump is rehearsed: its own code gets tensors of the known shapes, whose elements are never
written or read, and writes them into files that only count bytes. So a forecast cannot differ from
the dump by a rule that one of them lacks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture.dumps import dump_of
from msdump.capture.process import Process
from msdump.capture.selection import select
from msdump.counters import ModelIdentity, Run
from msdump.device import formats
from msdump.device.ascend import Ascend
from msdump.device.memory import BASE, Block
from msdump.device.placement import DeviceTensor
from msdump.dtypes import STRING, DType
from msdump.errors import FormatError
from msdump.execute.compilation import emulated
from msdump.graph.graph import Graph
from msdump.observer import Observer
from msdump.plan import DeviceTarget, DumpPlan, Tree, Trigger
from msdump.record import IO, Buffer
from msdump.store.write.buffers import size_of
from msdump.store.write.sinks import Sink, SyncSink


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of files and the bytes in them."""

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
        unknown: Number of tensors of an iteration whose shape only a run shows; the amounts lack them.
        branches: Number of tensors that branches and loops write each time they run; the amounts lack
            them, as well as constants and weights inside branches and loops.
        iterations: Number of dumped iterations; None: they have no end.
        total: Amount of the whole run; None where the iterations have no end.
    """

    once: Amount
    per_iteration: Amount
    skipped: Mapping[str, int]
    unknown: int
    branches: int
    iterations: int | None
    total: Amount | None


def forecast(graph: Graph, plan: DumpPlan, settled: Graph) -> Forecast:
    """Return the forecast of a run of a graph under a plan.

    It is exact where shapes are known, but for the digits of stand-ins in ``mapping.csv``, the numbers
    in rows of statistics and, on GPU, the lines of undumped iterations in the list of iterations. It
    leaves out the files of overflowing and failing operators (``op_debug_mode`` 3 and 4).

    Args:
        graph: The model.
        plan: The plan; operators that only ``set_dump`` marks are left out.
        settled: The same model, loaded with the sizes of its dynamic dimensions.
    """
    graph = graph if plan.files.tree is Tree.RANKS else settled  # graph files of ranks show names of sizes
    device = emulated(graph, plan, plan.context, _NoRounding)
    rehearsal = _Rehearsal(graph if device is None else device.graph, plan, settled, device)
    # The first iteration writes what is written once, too; the second one shows what each further one adds.
    rehearsal.play(0)
    amount, skipped = rehearsal.amount, rehearsal.skipped
    unknown, branches = rehearsal.play(1)
    each = rehearsal.amount - amount
    once = amount - each
    spans = _dumped_spans(plan)
    return Forecast(
        once=once,
        per_iteration=each,
        skipped=rehearsal.skipped - skipped,
        unknown=unknown,
        branches=branches,
        iterations=None if spans is None else sum(high - low + 1 for low, high in spans),
        total=None if spans is None else _total(plan, once, each, spans),
    )


def _dumped_spans(plan: DumpPlan) -> tuple[tuple[int, int], ...] | None:
    """Return the ranges of dumped iterations that a run reaches; None where they have no end."""
    if plan.when.iterations.spans is None:
        return None
    first = plan.when.initial_iteration
    return tuple((max(low, first), high) for low, high in plan.when.iterations.spans if high >= first)


def _total(plan: DumpPlan, once: Amount, each: Amount, spans: Sequence[tuple[int, int]]) -> Amount:
    count = sum(high - low + 1 for low, high in spans)
    is_listed = plan.context.device_target is not DeviceTarget.ASCEND
    # The rehearsed iterations have numbers of one digit; the list of iterations holds the real ones.
    digits = sum(_digits(high) - _digits(low - 1) for low, high in spans) - count if is_listed else 0
    # the CPU lists dumped iterations alone: without one there is no list
    unlisted = not count and plan.context.device_target is DeviceTarget.CPU
    return Amount(once.files + count * each.files - unlisted, once.bytes + count * each.bytes + digits)


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
    """A dump of tensors without contents into files without contents."""

    def __init__(self, graph: Graph, plan: DumpPlan, settled: Graph, device: Ascend | None) -> None:
        self._graph = graph
        self._tensors = UnfilledTensors(graph, settled)
        self._is_certain = plan.when.trigger is Trigger.ALWAYS
        self._parameters = _parameters(graph, plan)
        self._files = _CountingFiles()
        self._sink = SyncSink(plan.files.on_write_error, files=self._files)
        self._dump = dump_of(
            graph,
            plan,
            _OneSinkProcess(self._sink),
            device,
            memory=lambda: _OnePlaceMemory(graph),
            model=ModelIdentity(),
        )
        self._dump.write_graph_files()

    @property
    def amount(self) -> Amount:
        """Files and bytes that were written so far."""
        return Amount(len(self._files.sizes), sum(self._files.sizes.values()))

    @property
    def skipped(self) -> Counter[str]:
        """Tensors that got no file so far, by reason."""
        return Counter(self._sink.summary.skipped)

    def play(self, iteration: int) -> tuple[int, int]:
        """Dump one iteration; return the number of tensors of unknown shape, and of those in branches."""
        names = [value.name for value in self._graph.inputs]
        unknown: list[str] = []
        feeds = dict(zip(names, self._tensors.of(names, unknown), strict=True))
        unknown = [name for name in unknown if name in self._parameters]
        capture = self._dump.begin(Run(iteration, iteration), feeds)
        for position, node in enumerate(self._graph.nodes):
            if capture.watched[position] and self._is_certain:
                inputs = node.inputs if capture.wants_inputs else ()
                outputs = node.declared_outputs if capture.wants_outputs else ()
                capture.ran(position, self._tensors.of(inputs, unknown), self._tensors.of(outputs, unknown))
        self._dump.end()
        return len(unknown), self._inside(self._graph, capture)

    def _inside(self, graph: Graph, capture: Observer) -> int:
        """Return the number of tensors that the branches and loops in a graph write if each runs once."""
        count = 0
        for body in graph.bodies:
            inner = capture.enter(body)
            if inner is None or not self._is_certain:
                continue
            for node in itertools.compress(body.nodes, inner.watched):
                sides = node.inputs * inner.wants_inputs + node.declared_outputs * inner.wants_outputs
                count += len(list(filter(None, sides)))
            count += self._inside(body, inner)
        return count


def _parameters(graph: Graph, plan: DumpPlan) -> frozenset[str]:
    """Return the names of the weights and inputs that have files of their own after an iteration."""
    if plan.context.device_target is DeviceTarget.ASCEND or not plan.what.keeps_outputs:
        return frozenset()
    return frozenset(select(graph, plan, frozenset()).parameters)


class _NoRounding(Ascend):
    """A device that rounds nothing: the tensors of a rehearsal are never read."""

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        return np.zeros(array.shape, dtype.numpy)  # the numbers in rows of statistics are the same each time

    def laid_out(self, array: np.ndarray, tensor: DeviceTensor) -> np.ndarray:
        if formats.find(tensor.format).shape_rule is not None:
            raise FormatError(f"only the shape of {tensor.format} is known")
        dtype = dtypes.from_numpy(array.dtype)
        return np.zeros(formats.shape(tensor.format, array.shape, dtype, tensor.groups), array.dtype)


class _OnePlaceMemory:
    """A device memory in which every tensor has one address: in a file all addresses take as many bytes."""

    def __init__(self, graph: Graph) -> None:
        self.blocks = {value.name: _ONE_PLACE for value in graph.inputs}

    def block(self, _position: int, _io: IO, _slot: int) -> Block:
        return _ONE_PLACE

    def inside(self, _index: int) -> _OnePlaceMemory:
        return self


_SOME_TIME: Final = "20000101000000"
_ONE_PLACE: Final = Block(BASE, 0)


class UnfilledTensors:
    """Tensors of known shapes; memory is set aside for them, but never touched."""

    def __init__(self, graph: Graph, settled: Graph) -> None:
        """Take shapes from a graph, and where it leaves sizes open from the same one with sizes."""
        self._graph = graph
        self._settled = settled

    def of(self, names: Sequence[str], unknown: list[str]) -> list[np.ndarray | None]:
        """Return tensors of values; None where the shape is not known, and the name goes to ``unknown``."""
        return [self._of(name, unknown) if name else None for name in names]

    def _of(self, name: str, unknown: list[str]) -> np.ndarray | None:
        if name in self._graph.weights:
            return self._graph.weights[name]
        value_type = self._graph.type_of(name)
        if not value_type.is_settled and self._settled.type_of(name).is_settled:
            value_type = self._settled.type_of(name)
        if value_type.kind in {"sequence", "map"}:
            return None  # the dump holds tensors only
        if value_type.dtype is STRING:
            return np.empty(1, value_type.dtype.numpy)  # gets no file, whatever its shape
        sizes = tuple(size for size in value_type.shape or () if isinstance(size, int))
        if value_type.dtype is None or not value_type.is_settled:
            unknown.append(name)
            return None
        return np.zeros(sizes, value_type.dtype.numpy)  # Linux gives zeroed pages only when they are touched


class _OneSinkProcess(Process):
    """A process whose dumps all go to one sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def sink(self, plan: DumpPlan) -> Sink:  # noqa: ARG002 - the signature of a process
        return self._sink

    def configured(self, plan: DumpPlan) -> str:  # noqa: ARG002 - the signature of a process
        return _SOME_TIME


class _CountingFiles:
    """Sizes of files by path, and the contents of those that are read again."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        self.replace(directory, name, buffers)

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        self.sizes[f"{directory}/{name}"] = size_of(buffers)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer], mode: int = 0) -> int:
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

    def read(self, _directory: str, _name: str) -> bytes:
        return b""

    def close(self) -> None:
        self.sizes.clear()
