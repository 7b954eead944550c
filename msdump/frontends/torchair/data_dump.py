"""The captured graph run by torch itself, with a file for each tensor: ``config.debug.data_dump``.

The device has no part in it: what it computes for a node can be compared with these files. They stand
where ``CapturedLayout`` says (``store/run_paths.py``) under the names of ``store/captured_names.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from msdump import dtypes
from msdump.counters import RunCounter
from msdump.encode import npy
from msdump.frontends.torchair import rank, tensors
from msdump.frontends.torchair.graph_dump import captured_tensor
from msdump.record import IO
from msdump.store.run_paths import CapturedLayout
from msdump.store.write.streams import write_stream


def wrap(gm: GraphModule, settings: Any, graph_number: int) -> Callable[..., Any]:
    """Return a function that runs a captured graph in torch and dumps its nodes.

    Args:
        gm: The captured graph.
        settings: ``config.debug.data_dump``: its ``path``, and its ``filter``, which takes a node
            and returns it, or None for one that is not dumped.
        graph_number: Names the directory.

    Returns:
        A function of the graph's inputs, which returns its outputs. It raises DumpWriteError
        where a file cannot be written, and what a node raises.
    """
    layout = CapturedLayout(str(settings.path.value or "."), *rank.world(), graph_number)
    chosen = frozenset(node.name for node in gm.graph.nodes if _is_chosen(node, settings.filter.value))
    runs = RunCounter()

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return _Dumping(gm, layout.step(runs.take().execution), chosen).run(*inputs)

    return run


def _is_chosen(node: Node, choose: Callable[[Node], Node | None] | None) -> bool:
    return node.op == "call_function" and (choose is None or choose(node) is not None)


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
            array = tensors.to_array(tensor)
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
