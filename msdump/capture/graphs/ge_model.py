"""A compiled graph as GE's ModelDef: what ``ge_proto*.txt`` shows and msaccucmp's ``-f`` reads.

Each graph lists its inputs (``Data``), the constants that are read (``Const``), the
operators in execution order and the ``NetOutput``. An operator names its producers,
``conv1:0``, and tells formats, element types and the original operators. Branches and
bodies of loops are graphs of their own, which the control flow operator names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from msdump import dtypes
from msdump.capture.steps.device import host_format
from msdump.device.placement import DeviceTensor, host_tensor
from msdump.device.tasks import Task
from msdump.dtypes import DType
from msdump.encode import dump_enums, ge_names, packing
from msdump.encode.ge_text import Message, Symbol
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.record import DEFAULT_FORMAT, IO

_CONST: Final = "Const"
_OUTPUT: Final = ("Node_Output", ge_names.NET_OUTPUT)


class View(Protocol):
    """A graph at some stage of its compilation; the emulated device is its last one."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def tasks(self) -> Sequence[Task | None]:
        """The task of each operator; none at all before tasks are assigned."""

    @property
    def bodies(self) -> Mapping[int, View]:
        """The graphs directly inside it, by their index."""

    def tensor(self, position: int, io: IO, slot: int) -> DeviceTensor | None:
        """Return how the operator at a position holds an input or output."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A graph before formats and element types of the device are chosen.

    Attributes:
        graph: The graph.
    """

    graph: Graph

    @property
    def tasks(self) -> Sequence[Task | None]:
        """An empty sequence: tasks are assigned by the last stage."""
        return ()

    @property
    def bodies(self) -> Mapping[int, View]:
        """The graphs directly inside it, by their index."""
        return {body.index: HostView(body) for body in self.graph.bodies}

    def tensor(self, position: int, io: IO, slot: int) -> DeviceTensor | None:
        """Return an input or output as on the host, None for an absent one."""
        name = _sides(self.graph.nodes[position])[io][slot]
        return host_tensor(self.graph, name) if name else None


def model(view: View, *, with_data: bool = False) -> Message:
    """Return a model; its name is that of the main graph.

    Args:
        view: The main graph.
        with_data: Constants have their elements.
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
            self._add_data(value.name, index)
        for name in self._forms:
            self._add_constant(name)
        for position, node in enumerate(graph.nodes):
            self._add_node(node, position)
        output_names = [value.name for value in graph.results]
        no_originals = [_attribute(ge_names.ORIGINAL_NAMES, [])]
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

    def _add_data(self, name: str, index: int) -> None:
        attributes = [_attribute("index", index), _attribute(ge_names.ORIGINAL_NAMES, [name])]
        described = self._described(name, origin=_origin(name, 0, self._graph.type_of(name).dtype))
        self._add_source(name, ge_names.DATA, [""], attributes, described)

    def _add_constant(self, name: str) -> None:
        attributes = [_attribute(ge_names.ORIGINAL_NAMES, [])]
        array = self._graph.weights[name]
        if self._with_data and array.dtype != dtypes.STRING.numpy:
            dtype = dtypes.from_numpy(array.dtype)
            data = packing.pack(array, dtype) if dtype.per_byte > 1 else array
            contents = [("t", [("desc", self._described(name)), ("data", data)])]
            attributes.append([("key", "value"), ("value", contents)])
        self._add_source(name, _CONST, [], attributes, self._described(name, self._forms[name]))

    def _add_source(
        self, name: str, op_type: str, inputs: Sequence[str], attributes: list[Message], described: Message
    ) -> None:
        """Add an operator that nobody runs, with one output: a graph input or a constant."""
        self._producers[name] = f"{name}:0"
        attributes.append(_attribute("OUTPUT_IS_VAR", [False]))
        self._add(name, op_type, inputs, attributes, [("output_desc", described)])

    def _add_node(self, node: Node, position: int) -> None:
        full_name = node.operator.full_name
        described = [*self._slots(node, position, IO.INPUT), *self._slots(node, position, IO.OUTPUT)]
        bodies = [("subgraph_name", _name(body)) for body in node.bodies.values()]
        task = self._view.tasks[position] if self._view.tasks else None
        stream = [("stream_id", task.stream_id)] if task is not None and task.stream_id else []
        attributes = list(self._attributes(node, has_task=task is not None or not self._view.tasks))
        self._add(full_name, node.operator.op_type, node.inputs, attributes, [*stream, *described, *bodies])
        outputs = node.declared_outputs
        self._producers |= {name: f"{full_name}:{slot}" for slot, name in enumerate(outputs) if name}
        # readers of a new value that is no declared output read the input that it was written to
        self._producers |= {
            name: self._producers[written] for name, written in node.undeclared_outputs.items()
        }

    def _slots(self, node: Node, position: int, io: IO) -> Iterator[tuple[str, Message]]:
        for slot, name in enumerate(_sides(node)[io]):
            tensor = self._view.tensor(position, io, slot)
            if tensor is None:
                continue
            origin: Sequence[Message] = ()
            if io is IO.OUTPUT and not node.is_added:
                # of fused operators the last one had this output in the model
                origin = _origin(node.members[-1].name, slot, self._graph.type_of(name).dtype)
            yield f"{io}_desc", self._described(name, tensor, origin)

    def _attributes(self, node: Node, *, has_task: bool) -> Iterator[Message]:
        for name, value in node.attributes.items():
            if isinstance(value, (bool, int, float, str, tuple)):
                yield _attribute(name, list(value) if isinstance(value, tuple) else value)
        yield _attribute(
            ge_names.ORIGINAL_NAMES, [] if node.is_added else [part.name for part in node.members]
        )
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
            _attribute(ge_names.HOST_FORMAT, layout),
            _attribute(ge_names.HOST_SHAPE, list(host.shape)),
            *origin,
        ]
        if origin:
            attributes.append(_attribute(ge_names.ORIGIN_FORMAT, layout))
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
    """Return the name of a graph; branches of several operators may share theirs in the model."""
    return f"{graph.name}_{graph.index}" if graph.index else graph.name


def _origin(name: str, index: int, dtype: DType | None) -> list[Message]:
    """Return the attributes that tell which output of the original network an output is."""
    return [
        _attribute(ge_names.ORIGIN_NAME, name),
        _attribute(ge_names.ORIGIN_INDEX, index),
        _attribute(ge_names.ORIGIN_DTYPE, _type_name(dtype)),
    ]


def _type_name(dtype: DType | None) -> str:
    number = None if dtype is None else dtype.dump
    return dump_enums.data_type_name(dump_enums.UNDEFINED if number is None else number)


_FIELDS: Final[Mapping[type, tuple[str, str]]] = {
    str: ("s", "VT_LIST_STRING"),
    bool: ("b", "VT_LIST_BOOL"),
    int: ("i", "VT_LIST_INT"),
    float: ("f", "VT_LIST_FLOAT"),
}
"""By type: the field of a value, and the name of a list of them."""


def _attribute(key: str, value: Any) -> Message:
    """Return an attribute; the type of an empty list is not known, GE takes texts.

    >>> _attribute("index", 3)
    [('key', 'index'), ('value', [('i', 3)])]
    """
    if not isinstance(value, list):
        return [("key", key), ("value", [(_FIELDS[type(value)][0], value)])]
    field, list_type = _FIELDS[type(value[0]) if value else str]
    items = [(field, item) for item in value]
    return [("key", key), ("value", [("list", [*items, ("val_type", Symbol(list_type))])])]
