"""The folder of a bug report that runs: the part as both models have it, what it reads, and a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.kernels import as_the_model_says
from msdump.execute.program import Program
from msdump.execute.runtime import runtime
from msdump.execute.variants.mixed_kernels import narrowed
from msdump.graph.cutting.emulated import emulated_model
from msdump.graph.cutting.region import RegionModel, ValueShape, external_values, region_model
from msdump.graph.graph import Graph, Node, Value
from msdump.tools import reports
from msdump.tools.bisection.arithmetic import OperatorArithmetic
from msdump.tools.bisection.search import ExchangedPart
from msdump.tools.preview import archives

MINE: Final = "mine.onnx"
GOLDEN: Final = "golden.onnx"
INPUTS: Final = "inputs.npz"
SCRIPT: Final = "run.py"

RESULTS: Final = ".npz"
"""Ends the file of a side's results, where no model says what the side computes in."""

_SCRIPT: Final = '''"""Run a part of {mine}
and its counterpart of {golden} on one input, and print how far they are apart.
Results in an .npz file were computed in an arithmetic that no model says, as float64."""
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).parent
inputs, results = dict(np.load(here / "{inputs}")), []
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
for file in (here / "{mine_file}", here / "{golden_file}"):
    if file.suffix == "{results}":
        results.append([np.load(file)[name] for name in {outputs}])
        continue
    session = onnxruntime.InferenceSession(file, options)
    results.append(session.run({outputs}, {{each.name: inputs[each.name] for each in session.get_inputs()}}))
for name, mine, golden in zip({outputs}, *results, strict=True):
    mine, golden = mine.astype(np.float64), golden.astype(np.float64)
    print(f"{{name}}: largest difference {{np.abs(mine - golden).max(initial=0):.3g}}, relative distance "
          f"{{np.linalg.norm(mine - golden) / (np.linalg.norm(golden) or 1):.3g}}")
'''


def write_folder(part: ExchangedPart, mine: Graph, golden: Graph, folder: str) -> list[str]:
    """Write a part that explains a difference; return the paths of its files.

    Args:
        part: The part.
        mine: The model that it is of.
        golden: The model that has its counterpart.
        folder: The folder; made where it is missing, files of these names in it are replaced.

    Raises:
        ToolError: A file cannot be written.
        DumpWriteError: The .npz file cannot be written.
    """
    spliced, outputs = part.spliced, common_outputs(part)
    parts = (
        _Part(MINE, spliced.graph, spliced.taken, part.computed_in[0]),
        _Part(GOLDEN, golden, spliced.given, part.computed_in[1]),
    )
    edges: dict[str, np.ndarray] = {}
    paths, run = [], []
    for each in parts:
        fed = each.fed(part.edges)
        model, is_exact = each.model(fed, outputs)
        paths.append(reports.write_bytes(folder, each.file, [model.data]))
        run.append(each.file)
        if not is_exact:
            run[-1] = str(Path(each.file).with_suffix(RESULTS))
            paths.append(_write_arrays(folder, run[-1], each.results(fed, outputs)))
        edges |= {name: fed[name] for name in model.inputs}
    paths.append(_write_arrays(folder, INPUTS, edges))
    script = _SCRIPT.format(
        mine=mine.source,
        golden=golden.source,
        inputs=INPUTS,
        mine_file=run[0],
        golden_file=run[1],
        outputs=repr(outputs),
        results=RESULTS,
    )
    paths.append(reports.write(folder, SCRIPT, [script]))
    return paths


def _write_arrays(folder: str, name: str, arrays: Mapping[str, np.ndarray]) -> str:
    path = str(Path(folder).resolve() / name)
    archives.write(path, arrays)
    return path


@dataclass(frozen=True, slots=True)
class _Part:
    """One side of the report.

    Attributes:
        file: Name of its model's file.
        graph: The graph of its operators.
        nodes: The operators.
        arithmetic: What they compute in.
    """

    file: str
    graph: Graph
    nodes: Sequence[Node]
    arithmetic: OperatorArithmetic

    def fed(self, edges: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what the operators read from outside and is no weight, in the types that dumps hold."""
        names = (name for name in external_values(self.nodes) if name in edges)
        return {
            name: _held(edges[name], self.graph.type_of(name).dtype)
            for name in names
            if name not in self.graph.weights
        }

    def model(self, fed: Mapping[str, np.ndarray], outputs: Sequence[str]) -> tuple[RegionModel, bool]:
        """Return the model of the operators, and whether it computes in their arithmetic."""
        has_bodies = any(node.bodies for node in self.nodes)
        # what a loop carries may change its shape
        forms = {
            name: ValueShape(self._dtype(name, fed), None if has_bodies else array.shape)
            for name, array in fed.items()
        }
        is_plain = self.arithmetic.roundings is as_the_model_says
        if not is_plain and not has_bodies:
            device = self.arithmetic.roundings, runtime().limits
            model = emulated_model(self.graph, self.nodes, forms, outputs, device)
            if model is not None:
                return model, True
        return region_model(self.graph, self.nodes, forms, outputs), is_plain and not self.arithmetic.is_wide

    def results(self, fed: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Return what the operators make of their inputs, in their own arithmetic."""
        graph = replace(
            self.graph,
            nodes=tuple(self.nodes),
            inputs=tuple(Value(name, self.graph.type_of(name)) for name in fed),
            outputs=tuple(Value(name, self.graph.type_of(name)) for name in outputs),
        )
        program = Program(graph, self.arithmetic.roundings, kernels=self.arithmetic.kernels)
        given = {
            name: values.owned(array.astype(self._dtype(name, fed).numpy)) for name, array in fed.items()
        }
        return {name: _held(array, None) for name, array in zip(outputs, program.run(given), strict=True)}

    def _dtype(self, name: str, fed: Mapping[str, np.ndarray]) -> DType:
        return self.graph.type_of(name).dtype or dtypes.from_numpy(fed[name].dtype)


def _held(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Return a value in the type in which dumps hold the declared one, None: its own."""
    array = array if dtype is None else narrowed(array, dtype)
    return dtypes.widen(array, dtypes.from_numpy(array.dtype))


def common_outputs(part: ExchangedPart) -> list[str]:
    """Return the values that the part and its counterpart both give, those that others read."""
    taken, given = _written(part.spliced.taken), _written(part.spliced.given)
    inside = {name for node in part.spliced.taken for name in node.inputs}
    both = [name for name in taken if name in given]
    return [name for name in both if name not in inside] or both


def _written(nodes: tuple[Node, ...]) -> dict[str, None]:
    return {name: None for node in nodes for name in node.outputs if name}
