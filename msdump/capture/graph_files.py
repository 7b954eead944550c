"""Graph files of a dump: .ir, .pb, pictures, and the graphs that GE shows."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes, env
from msdump.capture.capture import Capture
from msdump.capture.process import Process
from msdump.capture.selection import graph_refusals, select
from msdump.capture.steps import host_format, reader
from msdump.capture.triggers import OverflowTrigger
from msdump.communication import current
from msdump.counters import Counters
from msdump.device import Ascend, DeviceTensor, Task, host_tensor
from msdump.dtypes import DType
from msdump.encode import Message, Symbol, dump_message, elements, ge
from msdump.graph import BEGUN, BUILT, Graph, Node, reads, split_kernel_graphs
from msdump.graph.files import ir_proto, ir_text
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Trigger
from msdump.record import DEFAULT_FORMAT, IO, Artifact
from msdump.store import CLOCK, ORDER_HEADER, GraphFileKind, GraphFileName, Key, Layout, PathKind
from msdump.store.write import Sink, WriteStream, probe, write_stream

_CONST: Final = "Const"
_OUTPUT: Final = ("Node_Output", ge.NET_OUTPUT)


@dataclass(frozen=True, slots=True)
class HostView:
    """A graph before formats and element types of the device are chosen."""

    graph: Graph

    @property
    def tasks(self) -> Sequence[Task | None]:
        """An empty sequence: tasks are assigned by the last stage."""
        return ()

    @property
    def bodies(self) -> Mapping[int, HostView]:
        """The graphs directly inside it, by their index."""
        return {body.index: HostView(body) for body in self.graph.bodies}

    def tensor(self, position: int, io: IO, slot: int) -> DeviceTensor | None:
        """Return an input or output as on the host, None for an absent one."""
        name = _sides(self.graph.nodes[position])[io][slot]
        return host_tensor(self.graph, name) if name else None


View = HostView | Ascend
"""A graph at some stage of its compilation; the emulated device is its last one."""


def model(view: View, *, with_data: bool = False) -> Message:
    """Return a model; its name is that of the main graph.

    Each graph lists its inputs (``Data``), the constants that are read (``Const``), the operators in
    execution order and the ``NetOutput``. An operator names its producers, ``conv1:0``, and its formats,
    element types and original operators. Branches and bodies of loops are graphs of their own, which the
    control flow operator names.
    """
    return [
        ("name", view.graph.name),
        *(("graph", _Builder(inner, with_data=with_data).graph()) for inner in _walk(view)),
    ]


def _walk(view: View) -> Iterator[View]:
    yield view
    for inner in view.bodies.values():
        yield from _walk(inner)


def _sides(node: Node) -> dict[IO, tuple[str, ...]]:
    return {IO.INPUT: node.inputs, IO.OUTPUT: node.declared_outputs}


class _Builder:
    """Describes one graph."""

    def __init__(self, view: View, *, with_data: bool) -> None:
        self._view = view
        self._graph = view.graph
        self._with_data = with_data
        self._producers: dict[str, str] = {"": ""}  # an absent input keeps its place among the inputs
        self._forms = dict(self._constants())
        self._ops: list[Message] = []

    def graph(self) -> Message:
        graph = self._graph
        for index, value in enumerate(graph.inputs):
            attributes = [_attribute("index", index), _attribute(ge.ORIGINAL_NAMES, [value.name])]
            described = self._described(
                value.name, origin=_origin(value.name, 0, self._graph.type_of(value.name).dtype)
            )
            self._add_source(value.name, ge.DATA, [""], attributes, described)
        for name in self._forms:
            attributes = [_attribute(ge.ORIGINAL_NAMES, [])]
            array = self._graph.weights[name]
            if self._with_data and array.dtype != dtypes.STRING.numpy:
                dtype = dtypes.from_numpy(array.dtype)
                data = elements.pack(array, dtype) if dtype.per_byte > 1 else array
                contents = [("t", [("desc", self._described(name)), ("data", data)])]
                attributes.append([("key", "value"), ("value", contents)])
            self._add_source(name, _CONST, [], attributes, self._described(name, self._forms[name]))
        for position, node in enumerate(graph.nodes):
            full_name = node.operator.full_name
            described = [*self._slots(node, position, IO.INPUT), *self._slots(node, position, IO.OUTPUT)]
            bodies = [("subgraph_name", _name(body)) for body in node.bodies.values()]
            task = self._view.tasks[position] if self._view.tasks else None
            stream = [("stream_id", task.stream_id)] if task is not None and task.stream_id else []
            attributes = list(self._attributes(node, has_task=task is not None or not self._view.tasks))
            self._add(
                full_name, node.operator.op_type, node.inputs, attributes, [*stream, *described, *bodies]
            )
            outputs = node.declared_outputs
            self._producers |= {name: f"{full_name}:{slot}" for slot, name in enumerate(outputs) if name}
            # the new value of an input updated in place has no output of its own: readers name the input
            self._producers |= {
                name: self._producers[written] for name, written in node.undeclared_outputs.items()
            }
        output_names = [value.name for value in graph.results]
        no_originals = [_attribute(ge.ORIGINAL_NAMES, [])]
        described = [("input_desc", self._described(name)) for name in output_names]
        self._add(*_OUTPUT, output_names, no_originals, described)
        return [
            ("name", _name(graph)),
            *(("input", self._producers[value.name]) for value in graph.inputs),
            *(("output", self._producers[name]) for name in output_names),
            *(("op", op) for op in self._ops),
        ]

    def _constants(self) -> Iterator[tuple[str, DeviceTensor]]:
        """Yield the constants that are read, in the form in which the first reader has them."""
        forms: dict[str, DeviceTensor] = {}
        for position, node in enumerate(self._graph.nodes):
            for slot, name in enumerate(node.inputs):
                tensor = self._view.tensor(position, IO.INPUT, slot)
                if tensor is not None:
                    forms.setdefault(name, tensor)
        read_names = {name for node in self._graph.nodes for name in reads(node)}
        read_names |= {value.name for value in self._graph.results}
        for name in self._graph.weights:
            if name in read_names:
                yield name, forms.get(name) or host_tensor(self._graph, name)

    def _add_source(
        self, name: str, op_type: str, inputs: Sequence[str], attributes: list[Message], described: Message
    ) -> None:
        """Add an operator without a kernel and with one output: a graph input or a constant."""
        self._producers[name] = f"{name}:0"
        attributes.append(_attribute("OUTPUT_IS_VAR", [False]))
        self._add(name, op_type, inputs, attributes, [("output_desc", described)])

    def _slots(self, node: Node, position: int, io: IO) -> Iterator[tuple[str, Message]]:
        for slot, name in enumerate(_sides(node)[io]):
            tensor = self._view.tensor(position, io, slot)
            if tensor is None:
                continue
            origin: Sequence[Message] = ()
            if io is IO.OUTPUT and not node.is_added:
                # of fused operators the last one gives the output
                origin = _origin(node.members[-1].name, slot, self._graph.type_of(name).dtype)
            yield f"{io}_desc", self._described(name, tensor, origin)

    def _attributes(self, node: Node, *, has_task: bool) -> Iterator[Message]:
        for name, value in node.attributes.items():
            if isinstance(value, (bool, int, float, str, tuple)):
                yield _attribute(name, list(value) if isinstance(value, tuple) else value)
        yield _attribute(ge.ORIGINAL_NAMES, [] if node.is_added else [part.name for part in node.members])
        if not has_task:
            yield _attribute("_no_task", value=True)

    def _described(
        self, name: str, tensor: DeviceTensor | None = None, origin: Sequence[Message] = ()
    ) -> Message:
        """Describe a tensor as the device has it, and as the model has it."""
        host = host_tensor(self._graph, name)
        shown = tensor or host
        # the model's own shape and format stand beside the device's, so that tools can convert back
        layout = host_format(host.shape)
        attributes = [
            _attribute(ge.HOST_FORMAT, layout),
            _attribute(ge.HOST_SHAPE, list(host.shape)),
            *origin,
        ]
        if origin:
            attributes.append(_attribute(ge.ORIGIN_FORMAT, layout))
        return [
            ("dtype", Symbol(_type_name(shown.dtype))),
            ("shape", [("dim", size) for size in shown.shape]),
            ("layout", layout if shown.format == DEFAULT_FORMAT else shown.format),
            *(("attr", attribute) for attribute in attributes),
            *([] if shown.nbytes is None else [("size", shown.nbytes)]),
            ("device_type", "NPU"),
        ]

    def _add(
        self, name: str, op_type: str, inputs: Sequence[str], attributes: Sequence[Message], trailing: Message
    ) -> None:
        """Add an operator, given the values that it reads and the fields that stand behind its number."""
        self._ops.append(
            [
                ("name", name),
                ("type", op_type),
                *(("input", self._producers[value]) for value in inputs),
                *(("attr", attribute) for attribute in attributes),
                ("id", len(self._ops)),
                *trailing,
            ]
        )


def _name(graph: Graph) -> str:
    """Return a name that is unique in the model, where branches of several operators may share one."""
    return f"{graph.name}_{graph.index}" if graph.index else graph.name


def _origin(name: str, index: int, dtype: DType | None) -> list[Message]:
    """Return the attributes that name an output of the original network."""
    return [
        _attribute(ge.ORIGIN_NAME, name),
        _attribute(ge.ORIGIN_INDEX, index),
        _attribute(ge.ORIGIN_DTYPE, _type_name(dtype)),
    ]


def _type_name(dtype: DType | None) -> str:
    number = None if dtype is None else dtype.dump
    return dump_message.data_type_name(dump_message.UNDEFINED if number is None else number)


_FIELDS: Final[Mapping[type, tuple[str, str]]] = {
    str: ("s", "VT_LIST_STRING"),
    bool: ("b", "VT_LIST_BOOL"),
    int: ("i", "VT_LIST_INT"),
    float: ("f", "VT_LIST_FLOAT"),
}
"""By type: the field of a value, and the name of a list of them."""


def _attribute(key: str, value: Any) -> Message:
    """Return an attribute; an empty list, which has no element type, becomes a list of texts as in GE.

    >>> _attribute("index", 3)
    [('key', 'index'), ('value', [('i', 3)])]
    """
    if not isinstance(value, list):
        return [("key", key), ("value", [(_FIELDS[type(value)][0], value)])]
    field, list_type = _FIELDS[type(value[0]) if value else str]
    items = [(field, item) for item in value]
    return [("key", key), ("value", [("list", [*items, ("val_type", Symbol(list_type))])])]


_log = logging.getLogger("msdump.capture")

_ALL, _WITHOUT_DATA, _RELATIONS = "1", "2", "3"
_ONE_STAGE: Final = {"3": BUILT, "4": BEGUN}
_EVERY_STAGE: Final = ("1", "2")
_USUAL_LEVEL: Final = "2"
_PROTO, _ONNX, _READABLE = "ge_proto", "onnx", "readable"

Stages = Callable[[str, Graph | Ascend], None]
"""Takes the name of a stage of a compilation and what it made."""


class StageFiles:
    """Writes the files of one graph's stages of compilation.

    ``DUMP_GE_GRAPH`` turns them on, ``DUMP_GRAPH_LEVEL`` chooses the stages (1 or 2: every one; 3: the last;
    4: the first; else parts of their names, a|b), ``DUMP_GRAPH_FORMAT`` the kinds of files,
    ``DUMP_GRAPH_PATH`` the place. A dump that GE options turn on (``ENABLE_MS_GE_DUMP``, torchair) has the
    last stage's ``ge_proto_*_Build.txt`` in any case, as CANN promises; other dumps leave no such file.
    """

    def __init__(
        self, device_id: int, counters: Counters, *, is_dumped: bool, write: WriteStream = write_stream
    ) -> None:
        """Read the environment and give the graph its number; wrong values are logged once."""
        content = env.read(env.GE_GRAPH) or ""
        if content not in {"", "0", _ALL, _WITHOUT_DATA, _RELATIONS}:
            _warn(f"{env.GE_GRAPH} = {content!r}: must be 1, 2 or 3; no graph files are written")
        self._content = content if content in {_ALL, _WITHOUT_DATA, _RELATIONS} else ""
        self._level = env.read(env.GE_GRAPH_LEVEL) or _USUAL_LEVEL
        self._kinds = frozenset(_named_kinds(env.read(env.GE_GRAPH_FORMAT) or f"{_PROTO}|{_ONNX}"))
        root = env.read(env.GE_GRAPH_PATH)
        if root is None and current().identity.size > 1:
            root = "."  # other ranks write there, too: each has the directory of its process and device
        own = GraphFileName(GraphFileKind.GE_DIRECTORY, pid=os.getpid(), device=device_id)
        self._directory = f"{root}/{own}" if root else "."
        self._is_dumped = is_dumped
        self._write = write
        self._numbers = counters.stage_files
        self._graph = next(counters.ge_graphs) if self.is_wanted else 0

    @property
    def is_wanted(self) -> bool:
        """Whether any stage may have files."""
        return bool(self._content) or self._is_dumped

    def write(self, stage: str, view: View) -> None:
        """Write the files of a stage, where they are wanted; DumpWriteError if one cannot be written."""
        if self._level in _ONE_STAGE:
            is_chosen = stage == _ONE_STAGE[self._level]
        else:
            parts = filter(None, self._level.split("|"))
            is_chosen = self._level in _EVERY_STAGE or any(part in stage for part in parts)
        kinds = self._kinds if self._content and is_chosen else frozenset()
        # vendor: a dump leaves ge_proto_*_Build.txt behind whether DUMP_GE_GRAPH is set or not
        kinds = kinds | {_PROTO} if self._is_dumped and stage == BUILT else kinds
        if not kinds:
            return
        number = next(self._numbers)  # one for both files of a stage
        directory = str(Path(self._directory).absolute())
        message = model(view, with_data=self._content == _ALL)
        if _PROTO in kinds:
            pieces = ge.text([field for field in message if field[0] == "graph"])
            self._write(
                directory, str(GraphFileName(GraphFileKind.GE_PROTO, number, self._graph, stage)), pieces
            )
        if _ONNX in kinds:
            shown = ge.text(ge.onnx_model(message, only_relations=self._content == _RELATIONS))
            self._write(
                directory, str(GraphFileName(GraphFileKind.GE_ONNX, number, self._graph, stage)), shown
            )


def stages(plan: DumpPlan | None, context: Context, process: Process) -> Stages | None:
    """Return a function that writes the stages of a network's compilation; None if no stage is wanted."""
    if context.device_target is not DeviceTarget.ASCEND or context.jit_level is not JitLevel.O2:
        return None
    is_enabled = plan is not None and plan.is_enabled
    is_dumped = plan is not None and is_enabled and plan.compiled.shows_graph
    write = process.stream(plan)
    files = StageFiles(context.device_id, process.counters, is_dumped=is_dumped, write=write)
    if not files.is_wanted:
        return None
    if plan is not None and is_enabled:
        probe(plan.files.path)  # makes the dump's root, which writers of files below it do not make
    return lambda stage, view: files.write(stage, HostView(view) if isinstance(view, Graph) else view)


def _named_kinds(text: str) -> Iterator[str]:
    """Yield the kinds of files that ``DUMP_GRAPH_FORMAT`` names.

    >>> list(_named_kinds("ge_proto|onnx"))
    ['ge_proto', 'onnx']
    """
    for name in filter(None, text.split("|")):
        if name in {_PROTO, _ONNX}:
            yield name
        elif name == _READABLE:
            _warn(f"{env.GE_GRAPH_FORMAT} = {text!r}: ge_readable files are not written")
        else:
            _warn(f"{env.GE_GRAPH_FORMAT} = {text!r}: {name!r} is unknown; must be ge_proto or onnx")


@functools.cache  # one warning per message: the environment is read again for every graph
def _warn(message: str) -> None:
    _log.warning("%s", message)


class GraphDump:
    """All files of one graph below the dump path.

    Attributes:
        capture: Observes its operators.
        ids: Graph id by number of its kernel graphs, None where the graph is one.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        process: Process,
        layout: Layout,
        device: Ascend | None,
        *,
        first_id: int | None = None,
    ) -> None:
        """Give the graph its number; nothing is written yet.

        Its kernel graphs have numbers from ``first_id`` on; None: it is one, and takes the next number.
        """
        self.graph = graph
        self._plan = plan
        self._sink = process.sink(plan)
        self._graphs = {None: graph} if first_id is None else split_kernel_graphs(graph)
        start = next(process.counters.graph_ids) if first_id is None else first_id
        self.ids = {number: start + (number or 0) for number in self._graphs}
        self._layout = layout
        self._device = device
        self._trigger = None
        if plan.when.trigger is Trigger.OVERFLOW:
            read = None if device is None else reader(device)
            self._trigger = OverflowTrigger(process.overflow_limit(plan), read)
        self._watch = process.watch(plan).graph_watch((graph,))
        self._wrote_constants = False
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select the dumped operators again, for new full names that ``set_dump`` marked."""
        self._selections = {number: select(each, self._plan, marked) for number, each in self._graphs.items()}
        self.capture = Capture(
            self.graph,
            self._plan,
            graph_refusals(self.graph, self._plan, marked),
            self._sink,
            CLOCK,
            device=self._device,
            trigger=self._trigger,
            watch=self._watch,
        )

    def write_graph_files(self) -> None:
        """Write the files of compilation: .ir, .pb, execution order."""
        view = None if self._device is None else self._device.view()
        for number, graph in self._graphs.items():
            write_graph_files(graph, self.ids[number], self._layout, self._sink, view)

    def begin(self, iteration: int) -> None:
        """Direct the files of its operators into an iteration's directory."""
        directories = {
            number: self._layout.path(PathKind.ITERATION, graph_id, iteration)
            for number, graph_id in self.ids.items()
        }
        self.capture.begin(directories, iteration)

    def write_parameters(self, inputs: Mapping[str, Any]) -> None:
        """Write weights and graph inputs as they are at the end of an iteration."""
        for number, selection in self._selections.items():
            arrays = {name: inputs.get(name, self.graph.weights.get(name)) for name in selection.parameters}
            # sequences and optionals have no file
            self.capture.write_parameters(
                {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}, number
            )

    def write_constants(self) -> None:
        """Write the constants, once for the graph: they do not change."""
        if self._wrote_constants:
            return
        self._wrote_constants = True  # also after a failure, which would come again in each iteration
        for number, graph in self._graphs.items():
            directory = self._layout.path(PathKind.CONSTANTS, self.ids[number])
            chosen = self._selections[number].constants
            arrays = {place: graph.weights[graph.constants[place]] for place in chosen}
            self.capture.write_constants(arrays, directory)


def write_graph_files(
    graph: Graph, number: int, layout: Layout, sink: Sink, view: ir_text.DeviceView | None = None
) -> None:
    """Write the files of one graph's compilation: .ir, .pb, execution order."""
    names = [ORDER_HEADER, *(node.operator.listed_name for node in graph.operators)]
    contents = {
        PathKind.IR: ir_text.text(graph, number, view).encode(),
        PathKind.PB: ir_proto.encode(graph, number),
        PathKind.EXECUTION_ORDER: "".join(f"{name}\n" for name in names).encode(),
    }
    for kind, data in contents.items():
        sink.replace(Artifact(*os.path.split(layout.path(kind, number)), (data,)))


_LEVELS: Final = ("1", "2", "3")
_OFF: Final = "0"
_TEXT, _PICTURE = "ir", "dot"
_WITH_BUILT, _WITH_PICTURES = 2, 3


def save(
    graph: Graph, counters: Counters, device: Ascend | None = None, write: WriteStream = write_stream
) -> None:
    """Save a graph and its branches and loops, where MS_DEV_SAVE_GRAPHS wants it.

    Level 1 writes the graph that is handed to the backend, 2 the graph as it was built too, 3 also a picture
    of each in Graphviz's language. Under O2 the backend compiles the graph once more: these files have the
    names from before fusion.

    Raises:
        DumpWriteError: A file cannot be written.
    """
    level = _level()
    if level == 0:
        return
    numbers = counters.saved_graphs
    if level >= _WITH_BUILT:
        for inner in graph.walk():
            # vendor: one counter for all kinds of files, so that their order is that of the compilation
            built = GraphFileName(GraphFileKind.BUILT, next(numbers), inner.index, suffix=_TEXT)
            _write(built, inner, None, level=level, write=write)
    devices = {} if device is None else {inner.graph.index: inner for inner in device.walk()}
    for inner in (graph if device is None else device.graph).walk():
        traced = GraphFileName(GraphFileKind.TRACE, next(numbers))
        _write(traced, inner, devices.get(inner.index), level=level, write=write)


def _level() -> int:
    """Return the level of MS_DEV_SAVE_GRAPHS, 0 for nothing."""
    text = env.read(env.SAVE_GRAPHS) or _OFF
    if text in _LEVELS:
        return int(text)
    if text != _OFF:
        _log.warning("%s = %r: must be 0, 1, 2 or 3; no graphs are saved", env.SAVE_GRAPHS, text)
    return 0


def _write(
    name: GraphFileName, graph: Graph, device: Ascend | None, *, level: int, write: WriteStream
) -> None:
    # ranks that a launcher distributes have a directory each, as in MindSpore
    place, identity = Path(env.read(env.SAVE_GRAPHS_PATH) or ".").absolute(), current().identity
    directory = str(place if identity.size == 1 else place / Key(PathKind.RANK, identity.rank).path)
    view = None if device is None else device.view()
    write(directory, str(name), [ir_text.text(graph, graph.index, view).encode()])
    if level >= _WITH_PICTURES:
        picture = str(replace(name, suffix=_PICTURE))
        write(directory, picture, [ir_text.dot_text(graph, Path(picture).stem).encode()])
