"""Scopes and full names: ``Default/conv1-Conv2d/Conv2D-op0``.

A node exported by PyTorch (or built with onnxscript) carries its module path and
classes in metadata; any other node's scope is the path in its own name. Operator
numbers count per (scope, primitive) from 0, so a name is unique in its network
and the same in every run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any, Final

from msdump.graph.graph import SourceLine

ROOT: Final = "Default"
_ROOTS: Final = (ROOT, "Gradients", "Expand")  # MindSpore's own first components
_METADATA_PREFIXES: Final = ("pkg.torch.onnx.", "pkg.onnxscript.")
_FRAME: Final = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)[^\n]*\n(?P<code>[^\n]*)')


class FullNames:
    """Gives each operator of one network its full name."""

    def __init__(self) -> None:
        """Start counting at 0."""
        self._counts: Counter[tuple[str, str]] = Counter()

    def next(self, scope: str, primitive: str) -> str:
        """Return ``{scope}/{primitive}-op{n}`` with the next free n."""
        number = self._counts[scope, primitive]
        self._counts[scope, primitive] += 1
        return f"{scope}/{primitive}-op{number}"


def scope_of(name: str, metadata: dict[str, str], *, keeps_classes: bool = True) -> str:
    """Return the scope of a node, ``Default/conv1-Conv2d``.

    Args:
        name: ONNX node name; its last component is the node itself.
        metadata: The node's metadata_props.
        keeps_classes: Append the class of each module (``reserve_class_name_in_scope``).
    """
    paths = _metadata_list(metadata, "name_scopes")
    classes = _metadata_list(metadata, "class_hierarchy")
    components = _module_components(paths[:-1], classes if keeps_classes else [])
    if not components:
        components = [part for part in name.split("/")[:-1] if part]
    if not components or components[0] not in _ROOTS:
        components = [ROOT, *components]
    return "/".join(components)


def source_of(metadata: dict[str, str]) -> tuple[SourceLine, ...]:
    """Return the source lines of a node, outermost call first."""
    for prefix in _METADATA_PREFIXES:
        trace = metadata.get(prefix + "stack_trace")
        if trace:
            return tuple(
                SourceLine(frame["file"], int(frame["line"]), frame["code"].strip())
                for frame in _FRAME.finditer(trace + "\n")
            )
    return ()


def _metadata_list(metadata: dict[str, str], key: str) -> list[str]:
    for prefix in _METADATA_PREFIXES:
        text = metadata.get(prefix + key)
        if text:
            return _string_list(text)
    return []


def _string_list(text: str) -> list[str]:
    try:
        value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []  # metadata of another program under the same key: names fall back to the node's own
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        return []
    return list(value)


def _module_components(paths: list[str], classes: list[str]) -> list[str]:
    """Return ``conv1-Conv2d`` for each module below the root; paths are cumulative."""
    components: list[str] = []
    parent = ""
    for position, path in enumerate(paths):
        own = path.removeprefix(parent + ".") if parent else path
        if own and own != parent:
            cell = classes[position].rpartition(".")[2] if position < len(classes) else ""
            components.append(f"{own}-{cell}" if cell else own)
        parent = path or parent
    return [component.replace("/", "_") for component in components]
