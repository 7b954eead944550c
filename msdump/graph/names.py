"""Scopes and full names: ``Default/conv1-Conv2d/Conv2D-op0``.

A node exported by PyTorch (or built with onnxscript) carries its module path and
classes in metadata; any other node's scope is the path in its own name. One that has
neither lies in the scope that its readers share. Operator numbers count per (scope,
primitive) from 0, so a name is unique in its network and the same in every run.

    >>> scope_of("/conv1/Conv", {})
    'Default/conv1'
    >>> torch = {
    ...     "pkg.torch.onnx.name_scopes": "['', 'layers', 'layers.0', 'conv2d']",
    ...     "pkg.torch.onnx.class_hierarchy": "['net.Net', 'nn.Sequential', 'nn.Conv2d', 'aten.conv2d']",
    ... }
    >>> scope_of("node_conv2d", torch)
    'Default/layers-Sequential/0-Conv2d'
    >>> scope_of("node_conv2d", torch, keeps_classes=False)
    'Default/layers/0'
    >>> scope_of("Conv_0", {}) is None, shared_scope(["Default/a/b", "Default/a/c"])
    (True, 'Default/a')
    >>> full_names = FullNames()
    >>> [full_names.next("Default/conv1-Conv2d", "Conv2D") for _ in range(2)]
    ['Default/conv1-Conv2d/Conv2D-op0', 'Default/conv1-Conv2d/Conv2D-op1']
"""

from __future__ import annotations

import ast
import json
import os.path
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import zip_longest
from typing import Any, Final

import onnx

from msdump.graph.graph import Graph, SourceLine
from msdump.graph.order import subgraphs
from msdump.record import OperatorRef
from msdump.threads import new_lock

ROOT: Final = "Default"
_ROOTS: Final = (ROOT, "Gradients", "Expand")  # first components of MindSpore's scopes
_TORCH: Final = "pkg.torch.onnx."
ONNXSCRIPT: Final = "pkg.onnxscript."
"""Prefix of the metadata of onnxscript: scopes, classes and source lines."""

FORWARD: Final = "msdump.forward"
"""Metadata of a gradient operator: ONNX name of the forward operator that it belongs to."""
FULL_NAME: Final = "msdump.full_name"
"""Metadata of an operator with a name of MindSpore's own: its full name."""

ARGUMENTS: Final = "msdump.arguments"
"""Metadata of such an operator: MindSpore's arguments as JSON."""

LISTED_NAME: Final = "msdump.listed_name"
"""Metadata of such an operator: its full name in .ir, .pb and csv, where another number stands."""
UNLISTED_INPUTS: Final = "msdump.unlisted_inputs"
"""Metadata of such an operator: slots of inputs that the kernel takes and no file shows, ``1 2``."""

RETURNED: Final = "msdump.returned"
"""Metadata of an Identity by which a branch or body returns a value that it has not made."""
KERNEL_GRAPH: Final = "msdump.kernel_graph"
"""Metadata of such an operator: the number of its kernel graph, where calls cut the network into several."""
_NOWHERE: Final = "_empty_nn_module_stack_from_metadata_hook"  # torch's module for a node without a module
_PARSING: Final = new_lock()
"""Python 3.11's parser counts its depth for all threads together: two at once raise SystemError at times."""
_LINE_END: Final = re.compile(r"[\r\n]")  # execution-order files have a full name in each line
_FRAME: Final = re.compile(r'File "(?P<file>[^"\n<][^"\n]*)", line (?P<line>\d+)[^\n]*\n(?P<code>[^\n]*)')


def name_nodes(graph: onnx.GraphProto, seen: set[str] | None = None) -> None:
    """Give nodes without a name, or with that of another node, a unique name; outer graphs come first."""
    seen = set() if seen is None else seen
    # a name that is made up must not take that of a node further behind
    taken = seen | {node.name for node in graph.node}
    for position, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            base = node.name or f"{node.op_type}_{position}"
            number = position
            name = base
            while name in taken:
                name = f"{base}_{number}"
                number += 1
            node.name = name
            taken.add(node.name)
        seen.add(node.name)
    for node in graph.node:
        for inner in subgraphs(node):
            name_nodes(inner, seen)


def metadata_of(node: onnx.NodeProto) -> dict[str, str]:
    """Return the metadata of a node, texts by key."""
    return {entry.key: entry.value for entry in node.metadata_props}


def operator_of(metadata: Mapping[str, str]) -> OperatorRef | None:
    """Return the operator that MindSpore itself has named; None where the model has no such name.

    >>> operator_of({FULL_NAME: "Default/fc1-Dense/MatMul-op0"}).op_type
    'MatMul'
    """
    full_name = metadata.get(FULL_NAME, "")
    primitive = full_name.rpartition("/")[2].rpartition("-op")[0]
    listed = metadata.get(LISTED_NAME, "")
    return OperatorRef(primitive, full_name, listed * (listed != full_name)) if primitive else None


def arguments_of(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the arguments of an operator that MindSpore itself has named; None for any other operator.

    >>> arguments_of({FULL_NAME: "Default/MaxPool-op0", ARGUMENTS: '{"pad": [0, 1], "input_names": ["x"]}'})
    {'pad': (0, 1), 'input_names': ['x']}
    """
    if FULL_NAME not in metadata:
        return None
    try:
        values = json.loads(metadata.get(ARGUMENTS, "{}"))
    except (ValueError, RecursionError):  # a foreign program's
        return None
    return {name: _argument(value) for name, value in values.items()} if isinstance(values, dict) else None


def _argument(value: Any) -> Any:
    """Return lists of texts, which are names, as lists, others as tuples."""
    if not isinstance(value, list) or any(isinstance(item, str) for item in value):
        return value
    return tuple(map(_argument, value))


def kernel_graph_of(metadata: Mapping[str, str]) -> int | None:
    """Return the number of an operator's kernel graph; None where the model has no such numbers."""
    number = metadata.get(KERNEL_GRAPH, "")
    return int(number) if number.isdecimal() else None


class FullNames:
    """Gives each operator of one network its full name."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def next(self, scope: str, primitive: str) -> str:
        """Return ``{scope}/{primitive}-op{n}`` with the next free n."""
        number = self._counts[scope, primitive]
        self._counts[scope, primitive] += 1
        return f"{scope}/{primitive}-op{number}"


def scope_of(name: str, metadata: dict[str, str], *, keeps_classes: bool = True) -> str | None:
    """Return the scope of a node, ``Default/conv1-Conv2d``; None where neither metadata nor name has one.

    ``keeps_classes`` appends the class of each module (``reserve_class_name_in_scope``).
    """
    if not metadata and "/" not in name:
        return None
    modules = _torch_modules(metadata) or _onnxscript_modules(metadata)
    components = [
        (f"{module}-{cell.rpartition('.')[2]}" if cell and keeps_classes else module).replace("/", "_")
        for module, cell in modules
    ]
    if not components and "/" not in name:
        # scopes in the metadata without a module: the node lies in the root, which has no name
        noted = [_string_list(metadata.get(f"{prefix}name_scopes", "")) for prefix in (_TORCH, ONNXSCRIPT)]
        if not any(scopes and scopes[0] != _NOWHERE for scopes in noted):
            return None
    if not components:
        # the last component is the node itself
        components = [part for part in name.split("/")[:-1] if part]
    # scopes of a model exported from MindSpore begin with a root
    if not components or components[0] not in _ROOTS:
        components = [ROOT, *components]
    return _LINE_END.sub("_", "/".join(components))


_LABEL: Final = re.compile(rf"\d+-(?P<scope>(?:{'|'.join(_ROOTS)})(?:/[^/]+)*)/[^/]+")
"""A node's label in an .onnx file of MindSpore's: a running number, and a full name with suffixes."""


def is_mindspore_export(model: onnx.ModelProto) -> bool:
    """Return whether MindSpore has written an .onnx file: it drops most of the names of operators."""
    return model.producer_name == "MindSpore" and not any(
        map(operator_of, map(metadata_of, model.graph.node))
    )


def exported_scope(node: onnx.NodeProto, parameters: Container[str]) -> str | None:
    """Return the scope of a node in an .onnx file of MindSpore's: of its label, else of its parameter's name.

    None where it has neither. Nodes into which the exporter cuts an operator have one label.

    >>> norm = "6-Default/0-Layer/norm1-LayerNorm/TupleGetItem-op0_mean"
    >>> exported_scope(onnx.NodeProto(name=f"{norm}ReduceMean", output=[norm]), ())
    'Default/0-Layer/norm1-LayerNorm'
    >>> weight = "blocks.0.conv1.weight"
    >>> exported_scope(onnx.NodeProto(name="3Conv", input=["2", weight]), {weight})
    'Default/blocks/0/conv1'
    """
    for name in (node.name, *node.output):
        match = _LABEL.fullmatch(name)
        if match:
            return match["scope"]
    weights = (name for name in node.input if name in parameters and "." in name and not _LABEL.match(name))
    path = next(weights, "").split(".")[:-1]
    return "/".join((ROOT, *path)) if path else None


def shared_scope(scopes: Iterable[str]) -> str:
    """Return the innermost scope that holds all of some scopes, ``Default`` where none does."""
    listed = list(scopes)
    # commonpath compares whole components: conv1 and conv10 have nothing in common
    return (listed and os.path.commonpath(listed)) or ROOT


def source_of(metadata: dict[str, str]) -> tuple[SourceLine, ...]:
    """Return the source lines of a node, outermost call first."""
    return tuple(
        SourceLine(frame["file"], int(frame["line"]), frame["code"].strip())
        # the last frame may come without its line of code
        for frame in _FRAME.finditer(trace_of(metadata) + "\n")
    )


def trace_of(metadata: dict[str, str]) -> str:
    """Return the source lines of a node as its exporter wrote them, "" for none."""
    return metadata.get(f"{_TORCH}stack_trace") or metadata.get(f"{ONNXSCRIPT}stack_trace", "")


def root_class(graph: Graph) -> str:
    """Return the class of the whole network, as an exporter has noted it; "" for none."""
    for node in graph.nodes:
        metadata = metadata_of(node.proto)
        for prefix in (_TORCH, ONNXSCRIPT):
            scopes = _string_list(metadata.get(prefix + "name_scopes", ""))
            classes = _string_list(metadata.get(prefix + "class_hierarchy", ""))
            if scopes and classes and not scopes[0]:
                return classes[0].rpartition(".")[2]
    return ""


def _torch_modules(metadata: dict[str, str]) -> list[tuple[str, str]]:
    """Return module and class for each level below the root.

    PyTorch writes whole paths (``layers``, ``layers.0``) and the node itself as the last one.
    """
    paths = _string_list(metadata.get(_TORCH + "name_scopes", ""))[:-1]
    classes = _string_list(metadata.get(_TORCH + "class_hierarchy", ""))
    modules = []
    parent = ""
    for path, cell in zip_longest(paths, classes[: len(paths)], fillvalue=""):
        if path == _NOWHERE:
            continue
        if path and path != parent:
            modules.append((path.removeprefix(f"{parent}."), cell))
        parent = path or parent
    return modules


def _onnxscript_modules(metadata: dict[str, str]) -> list[tuple[str, str]]:
    """Return module and class for each level below the root; onnxscript writes names, not paths."""
    scopes = _string_list(metadata.get(ONNXSCRIPT + "name_scopes", ""))
    classes = _string_list(metadata.get(ONNXSCRIPT + "class_hierarchy", ""))
    pairs = zip_longest(scopes, classes[: len(scopes)], fillvalue="")
    return [(scope, cell) for scope, cell in pairs if scope]


def _string_list(text: str) -> list[str]:
    if not text:
        return []
    try:
        with _PARSING:
            value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []  # metadata of another program under the same key: the scope comes from the node's name
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        return []
    return list(value)
