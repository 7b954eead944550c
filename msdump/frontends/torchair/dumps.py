"""Dumps of captured graphs: graph files before and after optimisation, and tensors of eager runs."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from torch.fx import GraphModule, Interpreter, Node

from msdump import dtypes
from msdump.capture import View, graph_files
from msdump.counters import RunCounter
from msdump.encode import Message, ge, npy
from msdump.frontends.torchair import compiler_config, export
from msdump.graph import Graph
from msdump.record import IO
from msdump.store import CapturedTensorName, GraphFileKind, GraphFileName, Key, PathKind
from msdump.store.write import WriteStream, write_stream

_TENSOR_NAME: Final = "_fx_tensor_name"
_NO_NAME: Final = re.compile(r"\W")
_SHOWN: Final = ("dtype", "layout")


def origin_nodes(gm: Any, graph: Graph, origins: Mapping[str, str]) -> dict[str, Any]:
    """Return operator name -> captured node, for each operator that computes a node's value.

    Of several operators made from one node, that is the last one.
    """
    nodes = {node.name: node for node in gm.graph.nodes}
    # later operators of the same node replace earlier ones
    last = {origins.get(node.name, ""): node.name for node in graph.nodes}
    return {operator: nodes[origin] for origin, operator in last.items() if origin in nodes}


def captured_tensor(node: Any, io: IO, place: tuple[int, ...], time: str | None = None) -> CapturedTensorName:
    """Return the name of a tensor of a captured node: ``mm-aten.mm.default.OUTPUT.0``.

    ``place`` has two indices for a tensor in a list; without ``time``, as in graph files, the name has none.
    """
    is_overload = hasattr(node.target, "_schema")  # str() of other functions is no name
    target = str(node.target) if is_overload else getattr(node.target, "__name__", str(node.target))
    return CapturedTensorName(node.name, target, io, place, time)


def write_graph(  # noqa: PLR0917 - the facts of one file
    stage: str, graph_id: int, view: View, nodes: Mapping[str, Any], settings: Any, write: WriteStream
) -> None:
    """Write a graph, original or optimized, in the form of ``config.debug.graph_dump``.

    Readers take the n-th file, by ``graph_id``, for the n-th model of a dump. The outputs of operators among
    ``nodes`` get the names of their captured nodes.
    """
    name = GraphFileName(
        GraphFileKind.DYNAMO,
        graph=graph_id,
        stage=stage,
        rank=compiler_config.world()[1],
        pid=os.getpid(),
        time=datetime.now(UTC).strftime("%Y%m%d%H%M%S%f"),
        suffix=settings.type.value,
    )
    main = next(value for field, value in graph_files.model(view) if field == "graph")
    directory = str(Path(settings.path.value or ".").absolute())
    named = [(field, _named_op(value, nodes) if field == "op" else value) for field, value in main]
    write(directory, str(name), _FORMS[settings.type.value](named))


def _named_op(op: Message, nodes: Mapping[str, Any]) -> Message:
    """Return an operator with the names of the captured tensors in its outputs."""
    node = nodes.get(dict(op)["name"])
    if node is None:
        return op
    fields: Message = []
    slot = 0
    for field, value in op:
        if field == "output_desc":
            name = str(captured_tensor(node, IO.OUTPUT, (slot,)))
            attribute = [("key", _TENSOR_NAME), ("value", [("s", name)])]
            fields.append((field, [*value, ("attr", attribute)]))
            slot += 1
        else:
            fields.append((field, value))
    return fields


def _operators(main: Message) -> Iterator[Message]:
    return (value for field, value in main if field == "op")


def _board(main: Message) -> Iterator[bytes]:
    """Yield the text form of TensorFlow's GraphDef, which TensorBoard shows."""
    return ge.text(
        [
            (
                "node",
                [
                    ("name", dict(op)["name"]),
                    ("op", dict(op)["type"]),
                    *((field, value) for field, value in op if field == "input" and value),
                    *(
                        ("attr", attribute)
                        for slot, desc in enumerate(_outputs(op))
                        for attribute in _board_slot(slot, desc)
                    ),
                ],
            )
            for op in _operators(main)
        ]
    )


def _board_slot(slot: int, desc: Message) -> Iterator[Message]:
    fields = dict(desc)
    dims = "x".join(str(size) for _, size in fields["shape"])
    for key, value in (*((key, str(fields[key])) for key in _SHOWN), ("shape", dims)):
        yield [("key", f"output_{slot}_{key}"), ("value", [("s", value)])]


def _python(main: Message) -> Iterator[bytes]:
    """Yield a function, a line for each operator."""
    operators = list(_operators(main))
    multi_output = {dict(op)["name"] for op in operators if len(_outputs(op)) > 1}
    parameters = [_variable(dict(op)["name"]) for op in operators if dict(op)["type"] == ge.DATA]
    yield f"def {_variable(dict(main)['name'])}({', '.join(parameters)}):\n".encode()
    for op in operators:
        if dict(op)["type"] != ge.DATA:
            yield f"    {_line(op, multi_output)}\n".encode()


def _line(op: Message, multi_output: Collection[str]) -> str:
    """Return the line of an operator, ``relu = ge.ReLU(x)  # DT_FLOAT (2, 3)``."""
    fields = dict(op)
    arguments = ", ".join(_read(value, multi_output) for field, value in op if field == "input")
    if fields["type"] == ge.NET_OUTPUT:
        return f"return {arguments}"
    shapes = "; ".join(_shape(output) for output in _outputs(op))
    return f"{_variable(fields['name'])} = ge.{fields['type']}({arguments})  # {shapes}"


def _outputs(op: Message) -> list[Message]:
    return [value for field, value in op if field == "output_desc"]


def _read(producer: str, multi_output: Collection[str]) -> str:
    """Return the expression for an operator's output.

    >>> _read("split:1", {"split"}), _read("mm:0", {"split"}), _read("", ())
    ('split[1]', 'mm', 'None')
    """
    name, _, slot = producer.rpartition(":")
    if not name:
        return "None"
    return f"{_variable(name)}[{slot}]" if name in multi_output else _variable(name)


def _shape(output: Message) -> str:
    fields = dict(output)
    return f"{fields['dtype']} ({', '.join(str(size) for _, size in fields['shape'])})"


def _variable(name: str) -> str:
    """Return a Python identifier for a name.

    >>> _variable("Default/conv1"), _variable("1x"), _variable("lambda")
    ('Default_conv1', '_1x', '_lambda')
    """
    word = _NO_NAME.sub("_", name)
    return f"_{word}" if word[:1].isdigit() or keyword.iskeyword(word) else word


_FORMS: Final[Mapping[str, Callable[[Message], Iterator[bytes]]]] = {
    "txt": ge.text,
    "pbtxt": _board,
    "py": _python,
}
"""Forms of graph files: GE's graph as protobuf text, a graph that TensorBoard shows, a Python function."""


def wrap(gm: GraphModule, settings: Any, graph_number: int) -> Callable[..., Any]:
    """Return a function that runs a captured graph in torch and dumps its nodes (``debug.data_dump``).

    The filter of the settings returns a node, or None for one that is not dumped. The device has no part in
    it: its results for a node can be compared with these files.
    """
    root = str(settings.path.value or ".")
    size, rank = compiler_config.world()
    choose = settings.filter.value
    chosen = frozenset(
        node.name
        for node in gm.graph.nodes
        if node.op == "call_function" and (choose is None or choose(node) is not None)
    )
    runs = RunCounter()

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            number = runs.take().execution
            step = Key(PathKind.CAPTURED_STEP, rank, world=size, graph=graph_number, iteration=number)
            return _Dumping(gm, step.below(root), chosen).run(*inputs)

    return run


class _Dumping(Interpreter):
    """Runs a graph once and writes the tensors that chosen nodes read and make."""

    def __init__(self, gm: GraphModule, directory: str, chosen: frozenset[str]) -> None:
        super().__init__(gm)
        self._directory = directory
        self._chosen = chosen

    def run_node(self, n: Node) -> Any:
        if n.name not in self._chosen:
            return super().run_node(n)
        arguments, named = self.fetch_args_kwargs_from_env(n)
        self._write(n, IO.INPUT, (*arguments, *named.values()))  # before a node that changes them
        result = super().run_node(n)
        self._write(n, IO.OUTPUT, result if isinstance(result, (tuple, list)) else (result,))
        return result

    def _write(self, node: Node, io: IO, values: Sequence[Any]) -> None:
        # one time for all tensors of a side, in UTC as in the names of graph files
        time = datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")
        for place, tensor in _tensors(values):
            array = export.to_array(tensor)
            pieces = npy.encode(dtypes.widen(array, dtypes.from_numpy(array.dtype)))
            name = str(captured_tensor(node, io, place, time))
            # written at once: the next node may change a tensor in its place
            write_stream(self._directory, name, map(bytes, pieces))


def _tensors(values: Sequence[Any]) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Yield the tensors with their places: ``(i,)``, or ``(i, j)`` inside a list."""
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            yield (index,), value
        elif isinstance(value, (tuple, list)):
            yield from (((index, *place), tensor) for place, tensor in _tensors(value))
