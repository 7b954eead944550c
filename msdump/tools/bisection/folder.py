"""The folder of a bug report that runs: the part as both models have it, what it reads, and a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import UnsupportedOpError
from msdump.execute.kernels import RoundingsOf, as_the_model_says
from msdump.execute.runtime import runtime
from msdump.graph.cutting.emulated import emulated_model
from msdump.graph.cutting.region import RegionModel, ValueShape, external_values, region_model
from msdump.graph.graph import Graph, Node
from msdump.tools import reports
from msdump.tools.bisection.search import ExchangedPart
from msdump.tools.preview import archives

MINE: Final = "mine.onnx"
GOLDEN: Final = "golden.onnx"
INPUTS: Final = "inputs.npz"
SCRIPT: Final = "run.py"

_SCRIPT: Final = '''"""Run a part of {mine}
and its counterpart of {golden} on one input, and print how far they are apart."""
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).parent
inputs, results = dict(np.load(here / "{inputs}")), []
for name in ("{mine_file}", "{golden_file}"):
    session = onnxruntime.InferenceSession(here / name)
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
    spliced = part.spliced
    outputs = common_outputs(part)
    paths = []
    edges: dict[str, np.ndarray] = {}
    sides = (MINE, spliced.graph, spliced.taken), (GOLDEN, golden, spliced.given)
    for (name, graph, nodes), arithmetic in zip(sides, part.computed_in, strict=True):
        arrays = {each: part.edges[each] for each in external_values(nodes) if each in part.edges}
        fed = {each: array for each, array in arrays.items() if each not in graph.weights}
        forms = {each: _form(graph, each, fed[each]) for each in fed}
        model = _model(graph, nodes, forms, outputs, arithmetic)
        edges |= {each: fed[each] for each in model.inputs}
        paths.append(reports.write_bytes(folder, name, [model.data]))
    paths.append(str(Path(folder).resolve() / INPUTS))
    archives.write(paths[-1], edges)
    script = _SCRIPT.format(
        mine=mine.source,
        golden=golden.source,
        inputs=INPUTS,
        mine_file=MINE,
        golden_file=GOLDEN,
        outputs=repr(outputs),
    )
    paths.append(reports.write(folder, SCRIPT, [script]))
    return paths


def _model(
    graph: Graph,
    nodes: Sequence[Node],
    fed: Mapping[str, ValueShape],
    outputs: Sequence[str],
    arithmetic: RoundingsOf,
) -> RegionModel:
    """Return the model of operators in an arithmetic.

    Raises:
        UnsupportedOpError: They cannot stand in one model with the device's casts around each.
    """
    if arithmetic is as_the_model_says:
        return region_model(graph, nodes, fed, outputs)
    model = emulated_model(graph, nodes, fed, outputs, (arithmetic, runtime().limits))
    if model is None:
        names = ", ".join(node.operator.full_name for node in nodes)
        raise UnsupportedOpError(f"{names}: the device's arithmetic cannot be written into one model")
    return model


def common_outputs(part: ExchangedPart) -> list[str]:
    """Return the values that the part and its counterpart both give, those that others read."""
    taken, given = _written(part.spliced.taken), _written(part.spliced.given)
    inside = {name for node in part.spliced.taken for name in node.inputs}
    both = [name for name in taken if name in given]
    return [name for name in both if name not in inside] or both


def _written(nodes: tuple[Node, ...]) -> dict[str, None]:
    return {name: None for node in nodes for name in node.outputs if name}


def _form(graph: Graph, name: str, array: np.ndarray) -> ValueShape:
    return ValueShape(graph.type_of(name).dtype or dtypes.from_numpy(array.dtype), array.shape)
