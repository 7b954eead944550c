"""A module as golden by hooks: inputs and outputs of its modules, where a file has no names of functions.

The older exporter names values by modules, ``/layers/layers.0/conv1/Conv_output_0``.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdump.errors import InputError
from msdump.graph import Graph, reads
from msdump.judge.torch.golden import (
    SITE,
    Call,
    Golden,
    Source,
    TorchGolden,
    TorchModule,
    as_array,
    guarded,
    require,
)


def golden_of(source: Source, graph: Graph, inputs: Mapping[str, Any]) -> Golden:
    """Return the golden side of a file: the functions of its module, or the modules in it.

    The latter where the older exporter wrote the file, or the newer one refuses the module.
    """
    names = [name for node in graph.nodes for name in node.outputs if name]
    if 2 * sum(name.startswith("/") for name in names) > len(names):
        return HookedModule(source, graph, inputs)
    try:
        return TorchGolden(source, graph, inputs)
    except InputError as error:
        if "refuses the module" not in str(error):
            raise
        return HookedModule(source, graph, inputs)


class HookedModule(TorchModule):
    """A module that shows the inputs and outputs of its modules.

    A value's name is its place: ``/layers.0#0/conv#1 in``, the input of the second call of a module.
    """

    def __init__(self, source: Source, graph: Graph, inputs: Mapping[str, Any]) -> None:
        """Run the module once and record which modules it calls."""
        self._begin(source, graph, inputs)
        self.paths = {path: each for path, each in source.module.named_modules() if path}
        self.followers: dict[str, str] = {}
        self._calls: dict[str, Call] = {}
        self._lines: dict[str, str] = {}
        self.state = frozenset(name for name, _ in source.module.named_parameters())
        self.inputs = tuple(f"input {at}" for at, _ in enumerate(graph.inputs))
        shown = []
        self.run([np.array(inputs[value.name]) for value in graph.inputs], lambda name, _: shown.append(name))
        self.outputs = tuple(name for name in shown if name.startswith("output "))
        self.names = tuple(dict.fromkeys(shown))
        self.varying = {*self.names}

    def call(self, name: str) -> Call:
        """Return the module that has a value."""
        return self._calls.get(name, Call())

    def described(self, name: str) -> str:
        """Return a value in words."""
        call, side = self.call(name), name.rpartition(" ")[2] + "put"
        return f"value is the {side} of module {call.module} ({call.target})" if call.module else name

    def parameters(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the parameters of modules, by name."""
        return {
            f"{path}.{name}": as_array(tensor)
            for path in dict.fromkeys(self.call(each).module for each in names)
            for name, tensor in (self.paths[path].named_parameters() if path else ())
        }

    def run(self, inputs: Sequence[Any], show: Callable[[str, np.ndarray], None]) -> None:
        """Run the module once and show the inputs and outputs of its modules as soon as they are computed."""
        torch, receive = require(), guarded(show)
        around, counts = [""], Counter[str]()

        def enter(path: str) -> Callable[..., None]:
            def hook(module: Any, args: Any) -> None:
                place = f"{around[-1]}/{path}"
                around.append(f"{place}#{counts[place]}")
                self._lines[around[-1]] = _calling_line()
                counts[place] += 1
                tensors = [each for each in args if isinstance(each, torch.Tensor)]
                if tensors and "BatchNorm" in type(module).__name__:
                    self.followers[getattr(tensors[0], "msdump_maker", "")] = around[-1]
                if len(tensors) == 1:
                    record(f"{around[-1]} in", path, module, tensors[0])

            return hook

        def leave(path: str) -> Callable[..., None]:
            def hook(module: Any, _: Any, result: Any) -> None:
                place = around.pop()
                if isinstance(result, torch.Tensor):
                    record(f"{place} out", path, module, result)
                    result.msdump_maker = place

            return hook

        def record(name: str, path: str, module: Any, tensor: Any) -> None:
            line = self._lines[name.rpartition(" ")[0]]
            self._calls[name] = Call(type(module).__name__, path, source=line, maker=name)
            receive(name, as_array(tensor).copy())  # later modules may change it in place

        for at, array in enumerate(inputs):
            show(f"input {at}", np.asarray(array))
        with contextlib.ExitStack() as hooks:
            for path, module in self.paths.items():
                hooks.callback(module.register_forward_pre_hook(enter(path)).remove)
                hooks.callback(module.register_forward_hook(leave(path)).remove)
            result = self._call(self._module, inputs)
        tensors = (each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor))  # noqa: SLF001
        for at, tensor in enumerate(tensors):
            show(f"output {at}", as_array(tensor))


def pair_scopes(graph: Graph, golden: HookedModule) -> dict[str, str]:
    """Return golden's name for each value of a file that is the only input or the only output of a module.

    A batch normalisation without operators was folded into the operators before: their value is its output.
    """
    partners = dict(zip((value.name for value in graph.inputs), golden.inputs, strict=False))
    # a fused operator has the name of its first part, and its value that of the last
    named = {node.name: next((name for name in node.outputs if name[:1] == "/"), "") for node in graph.nodes}
    made = {name: node.name for node in graph.nodes for name in node.outputs if name}
    makers = {name: [*_scopes(named[node] or node, golden.paths)] for name, node in made.items()}
    readers = {
        name: [*_scopes(name if name[:1] == "/" else value, golden.paths)] for name, value in named.items()
    }
    clear = {name for name, value in named.items() if name[:1] == "/" or value}
    entering, leaving = defaultdict[str, dict[str, None]](dict), defaultdict[str, dict[str, None]](dict)
    uses = [(name, node.name) for node in graph.nodes for name in reads(node) if name not in graph.weights]
    for name, reader in (*uses, *((value.name, "") for value in graph.outputs)):
        around, within = makers.get(name, ()), readers.get(reader, ())
        for scope in (each for each in reversed(around) if each not in within):  # innermost first
            leaving[scope][name if not reader or reader in clear else ""] = None
        for scope in (each for each in reversed(within) if each not in around):
            entering[scope][name] = None
    present = {scope for each in (*readers.values(), *makers.values()) for scope in each}
    for side, values in (("out", leaving), ("in", entering)):
        for scope, names in values.items():
            behind = golden.followers.get(scope, "") if side == "out" else ""
            value = f"{behind if behind and behind not in present else scope} {side}"
            if len(names) == 1 and value in golden.names:
                partners.setdefault(next(iter(names)), value)
    outputs = zip((value.name for value in graph.outputs), golden.outputs, strict=False)
    partners.pop("", None)
    return {**dict(outputs), **partners}


def _calling_line() -> str:
    """Return the user's line that calls the module of a hook."""
    frame = sys._getframe(2)  # noqa: SLF001
    while frame.f_back is not None and f"{SITE}torch/" in frame.f_code.co_filename:
        frame = frame.f_back
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"{Path(path).name}:{number}: {linecache.getline(path, number).strip()}"


def _scopes(name: str, paths: Collection[str]) -> Iterator[str]:
    """Yield the calls of modules around an operator, outermost first, as the older exporter names them.

    >>> [*_scopes("/layers/layers.0/relu_1/Relu", ["layers", "layers.0", "layers.0.relu"])]
    ['/layers#0', '/layers#0/layers.0#0', '/layers#0/layers.0#0/layers.0.relu#1']
    """
    around, path = "", ""
    for component in name.split("/")[1:-1] if name.startswith("/") else ():
        number = re.fullmatch(r"(.+)_(\d+)", component)
        for part, count in ((component, 0), *([(number[1], int(number[2]))] if number else [])):
            before = [each for each in path.split(".") if each]
            inner = (".".join((*before[:kept], part)) for kept in range(len(before), -1, -1))
            found = next((each for each in inner if each in paths and each.startswith(path)), "")
            if found:
                path, around = found, f"{around}/{found}#{count}"
                yield around
                break
