"""A tree of msprobe as golden: the operators of a model run again on the tree's tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from msdump.errors import InputError, MsdumpError, ToolError
from msdump.graph import Graph
from msdump.judge.compare import ComparedFolder, DumpComparison
from msdump.judge.diff import Variant
from msdump.judge.torch.comparison import torch_comparison
from msdump.judge.torch.golden import Call, Golden
from msdump.judge.verdict import Finding, joined
from msdump.read import Record, parse_name, read_parents
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import PARAMETER, sanitize


class TreeGolden(Golden):
    """The tensors of one process in one step of a tree, in the order of the model's operators."""

    values = "the tree's values"

    def __init__(self, graph: Graph, folder: ComparedFolder) -> None:
        """Take the tensors that are counterparts of values of the model."""
        self.title = folder.golden.path
        written = [(value.name, (sanitize(value.name), IO.OUTPUT, 0)) for value in graph.inputs]
        for node in graph.nodes:
            name = sanitize(node.operator.full_name)
            written += (
                (value, (name, IO.OUTPUT, slot)) for slot, value in enumerate(node.declared_outputs) if value
            )
        results = {
            (each.name, *place): record
            for each in folder.matched.executions
            for place, record in each.counterparts.items()
        }
        found = {value: results[place] for value, place in written if place in results}
        named = {value: self._named(each) for value, each in found.items()}
        self.partners: Mapping[str, str] = named
        self._tensors = {name: found[value] for value, name in named.items()}
        self._parameters = {each.op_name: each for each in folder.golden.tensors if each.op_type == PARAMETER}
        self.names = (*self._tensors,)
        # nodes of the model with an input that is another value in the tree
        self.rewired = {
            node.name
            for node in graph.nodes
            for slot, value in enumerate(node.inputs)
            for read in [results.get((sanitize(node.operator.full_name), IO.INPUT, slot))]
            if read is not None and value in named and self._named(read) != named[value]
        }
        self._parents = read_parents(self.title)
        self.varying = {*self.names}

    @staticmethod
    def _named(record: Record) -> str:
        return f"{record.io} {record.slot} of {record.op_name}"

    def array(self, value: str, file: Record | None) -> np.ndarray:
        """Return the tree's tensor of a value of the model, or the one in a file.

        Raises:
            InputError: Neither is there.
        """
        record = self._tensors.get(self.partners.get(value, ""), file)
        if record is None:
            raise InputError(f"no file has its input {value}")
        return record.array

    def call(self, name: str) -> Call:
        """Return the module or function that has a value, with the module around a function."""
        target = self._tensors[name].op_name
        calls = (parse_name(each or "") for each in (target, self._parents.get(target)))
        return Call(target, next((each.module for each in calls if each and each.module), ""), maker=name)

    def described(self, name: str) -> str:
        """Return a value in words."""
        return f"value is {name}"

    def parameters(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the parameters of the modules that have some values, by name."""
        paths = {self.call(name).module for name in names}
        own = (name for name in self._parameters if name.rpartition(".")[0] in paths)
        return {name: self._parameters[name].array for name in own}

    def run(self, inputs: Sequence[Any], show: Callable[[str, np.ndarray], None]) -> None:  # noqa: ARG002
        """Read the tensors and show them."""
        for name, record in self._tensors.items():
            show(name, record.array)


def rerun_on_tree(comparison: DumpComparison, graph: Graph, variant: Variant) -> int:
    """Run the operators of a model again on a tree's tensors, and hand their own errors to a comparison.

    An operator, or several between two tensors of the tree, runs on the tree's tensors.

    Returns:
        The number of operators with an own error.

    Raises:
        ToolError: The tree's tensors do not fit the model.
    """
    found = dict[tuple[str, str], Finding]()
    for folder in comparison.folders:
        golden, again = TreeGolden(graph, folder), dict[str, Finding]()
        both, accused = torch_comparison(graph, variant, golden, comparison.limits), dict[str, str]()
        files = {each.op_name: each for each in folder.dumped.tensors if each.op_type == PARAMETER}
        try:
            if not golden.names:
                raise InputError("no tensor is a value of the model")
            given = {
                value.name: golden.array(value.name, files.get(sanitize(value.name)))
                for value in graph.inputs
            }
            for row, cause in both.evidence(given):
                at, own = row.place.full_name, row.own
                cone = both.functions.cones[row.place.onnx_name].nodes
                if not golden.rewired.isdisjoint(node.name for node in cone):
                    continue
                if cause is not None:
                    note, at = joined(*cause.notes), both.places.of(cause.at).full_name
                    is_first = not cause.accused_before(accused, at)
                    own = tuple(replace(each, note=note) for each in own) if is_first else ()
                again[at] = replace(row, own=own)
        except MsdumpError as error:
            why = f"{graph.source} cannot run on the tensors of {golden.title}: {error}"
            raise ToolError(ReturnCode.PARAMETER, why) from error
        found |= {(folder.label, name): row for name, row in again.items()}

    def explain(evidence: Finding) -> Finding:
        row = found.get((evidence.place.label, evidence.place.full_name))
        return evidence if row is None else replace(evidence, own=row.own, propagated=row.propagated)

    comparison.explain = explain
    return sum(bool(row.own) for row in found.values())
