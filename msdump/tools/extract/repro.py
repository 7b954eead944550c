"""A dumped operator that runs by itself: its model, what it read, and what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from msdump.errors import InputError
from msdump.graph.cutting.region import RegionModel
from msdump.graph.graph import Graph
from msdump.store.read.reader import Dump
from msdump.tools.extract.dumped_operator import OperatorRun
from msdump.tools.extract.from_graph_file import FromGraphFile
from msdump.tools.extract.from_model import FromModel
from msdump.tools.extract.tensors import in_type


@dataclass(frozen=True, slots=True)
class Repro:
    """What reproduces one run of an operator.

    Attributes:
        name: Full name of the operator.
        op_type: Its type.
        place: Which run of it, in words.
        model: Its model, serialised.
        inputs: What the model is fed, by name.
        outputs: What the dump has of its outputs, by name in the model.
    """

    name: str
    op_type: str
    place: str
    model: bytes
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]


def reproduce(run: OperatorRun, dump: Dump, graph: Graph | None) -> Repro:
    """Return what reproduces a run of an operator.

    Args:
        run: The run.
        dump: The dump that it stands in.
        graph: The model; None: the operator is rebuilt from the graph file of the dump.

    Raises:
        InputError: The model has no such operator, or the dump lacks what it read or wrote.
        UntoldOperatorError: No graph file tells the operator, or a part of it alone.
        UnsupportedOpError: The graph file does not tell how the operator computes.
        DumpReadError: A file cannot be read.
    """
    source = FromGraphFile(run) if graph is None else FromModel(run, dump, graph)
    outputs = source.outputs()
    if not outputs:
        raise InputError(f"{run.directory.path}: no output of {run.name} was dumped: nothing can be compared")
    inputs = source.inputs()
    model: RegionModel = source.model(inputs, tuple(outputs))
    return Repro(
        run.name,
        run.first.op_type,
        run.place,
        model.data,
        {name: in_type(inputs[name], dtype) for name, dtype in model.inputs.items()},
        outputs,
    )
