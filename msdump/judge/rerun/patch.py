"""Proof by cure: the network's outputs with golden's output in the place of an operator's.

All that reads the patched values runs again in the examined side's arithmetic, with its weights where they
were dumped. Their own errors stay: the difference between the dumped output and that of running again on the
operator's own inputs is added to the new output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from msdump.errors import InputError, ToolError
from msdump.graph import Node, reads
from msdump.judge import errors
from msdump.judge.rerun.reexecution import Reexecution
from msdump.judge.rerun.sites import ModelOperator, file_names
from msdump.judge.rerun.values import UNREADABLE, Holder
from msdump.read import describe_miss, find_operators
from msdump.record import IO
from msdump.return_codes import ReturnCode


@dataclass(frozen=True, slots=True)
class Cure:
    """The relative distance of a network's output from golden's, without and with a patch."""

    output: str
    without: float
    patched: float


def cures(run: Reexecution, names: Collection[str]) -> tuple[Cure, ...]:
    """Return how far the network's outputs are from golden's before and after patching some operators.

    Args:
        run: The run, after all operators ran again.
        names: The operators, by full names, names in files, or names of ONNX nodes.

    Raises:
        InputError: The run has no such operator, or it stands in a branch or loop.
        ToolError: Golden has no output of it, or a reader cannot run again.
    """
    return tuple(_Patch(run, names).cures())


class _Patch:
    def __init__(self, run: Reexecution, names: Collection[str]) -> None:
        self._run = run
        self._graph = run.model.graph
        self._positions = {
            each.site.node.name: position
            for position, each in enumerate(run.values.operators)
            if each.site is not None and each.site.graph is self._graph
        }
        nodes = [self._node(name) for name in names]
        self._patched = {node.name for node in nodes}
        self._values: dict[str, np.ndarray] = {}

    def _node(self, name: str) -> Node:
        nodes = {
            node.operator.full_name: node for node in self._graph.operators if node.name in self._positions
        }
        names = {full_name: (node.name, *file_names(node)) for full_name, node in nodes.items()}
        found = find_operators(name, names)
        if len(found) != 1:
            raise InputError(f"--patch: the main graph: {describe_miss(name, names, found)}")
        return nodes[found[0]]

    def cures(self) -> Iterator[Cure]:
        """Propagate the patched values, and yield a cure for each network output that both sides dumped."""
        for node in self._graph.nodes:
            if node.name in self._patched:
                self._values |= self._golden(node)
            elif self._values.keys() & {*reads(node)}:
                self._values |= self._again(node)
        for value in self._graph.outputs:
            both = self._output(value.name)
            if both is not None:
                mine, golden = both
                now = self._values.get(value.name, mine)
                yield Cure(
                    value.name, errors.measure(mine, golden).distance, errors.measure(now, golden).distance
                )

    def _golden(self, node: Node) -> dict[str, np.ndarray]:
        found = {
            name: self._dumped(node, slot, of_golden=True) for slot, name in enumerate(node.declared_outputs)
        }
        arrays = {name: array for name, array in found.items() if name and array is not None}
        if not arrays:
            full_name = node.operator.full_name
            raise ToolError(ReturnCode.NO_DUMP_FILE, f"--patch {full_name}: golden has no output of it")
        return arrays

    def _dumped(self, node: Node, slot: int, *, of_golden: bool = False) -> np.ndarray | None:
        position = self._positions.get(node.name)
        if position is None:
            return None
        operator = self._run.values.operators[position]
        tensor = operator.tensors.get((IO.OUTPUT, slot))
        if of_golden and tensor is not None:
            tensor = operator.golden((IO.OUTPUT, tensor.index))
        if tensor is None:
            return None
        return self._run.values.array(self._graph, node.outputs[slot], Holder(tensor, position, node))

    def _output(self, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        producer = self._run.model.producer(self._graph, name)
        if producer is None:
            return None
        site, slot = producer
        golden, mine = self._dumped(site.node, slot, of_golden=True), self._dumped(site.node, slot)
        return None if mine is None or golden is None else (mine, golden)

    def _again(self, node: Node) -> dict[str, np.ndarray]:
        site = ModelOperator(node, self._graph)
        try:
            given = self._given(node)
            patched = {name: self._values[name] for name in reads(node) if name in self._values}
            now = self._run.again(site, {**given, **patched})
            before = self._run.again(site, given)
        except UNREADABLE as error:
            raise ToolError(ReturnCode.NO_DUMP_FILE, f"--patch: {error}") from error
        outputs = {}
        for slot, name in enumerate(node.outputs):
            new, old = now[slot], before[slot]
            if name and new is not None and old is not None:
                outputs[name] = self._with_own_error(node, slot, new, old)
        return outputs

    def _given(self, node: Node) -> dict[str, np.ndarray]:
        values, position = self._run.values, self._positions.get(node.name)
        if position is None:  # control flow, or an operator without files
            return values.held(self._graph, node)
        given = values.given(position)
        inputs = [each for each in values.operators[position].tensors.values() if each.io is IO.INPUT]
        for slot, name in self._run.reruns[position].weights.items():
            tensor = next(each for each in inputs if each.index == slot)
            given[name] = values.array(self._graph, name, Holder(tensor, position, node))
        return given

    def _with_own_error(self, node: Node, slot: int, new: np.ndarray, old: np.ndarray) -> np.ndarray:
        """Return a new output plus the own error: the dumped output minus that of running again (``old``)."""
        mine = self._dumped(node, slot)
        if mine is None or mine.shape != new.shape or old.shape != new.shape:
            return new
        if new.dtype.kind != "f":
            return np.where(mine == old, new, mine)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(np.where(mine == old, new, new + (mine - old)), new.dtype)
