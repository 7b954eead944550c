"""Operator graphs from rows of names, and the values of a model as the runtime computes them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from msdump.graph import loader
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueForm, ValueSource


def source(name):
    """Return the output of an operator, or the graph's input ``x``."""
    return ValueSource(SourceKind.INPUT if name == "x" else SourceKind.OPERATOR, name)


def graph(*rows, shape=(2, 3), outputs=()):
    """Return a graph of operators, each a name, a type (None: that in the name) and names of its inputs."""
    form = ValueForm("float32", shape)
    operators = {
        name: GraphOperator(
            name, op_type or name.rpartition("/")[2].partition("-op")[0], tuple(map(source, read)), (form,)
        )
        for name, op_type, *read in rows
    }
    return OperatorGraph(operators, {"x": form}, outputs=tuple(map(source, outputs)))


def outputs(path, feeds):
    """Return the outputs of every operator of a model by full name and number."""
    model = onnx.load(path)
    graph = loader.load(path)
    known = {value.name for value in model.graph.output}
    names = {
        (node.operator.full_name, slot): name
        for node in graph.nodes
        for slot, name in enumerate(node.outputs)
        if name
    }
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names.values() if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    computed = session.run([*names.values()], {each.name: feeds for each in session.get_inputs()})
    return dict(zip(names, computed, strict=True))


def are_alike(mine, golden):
    """Tell whether two arrays hold the same elements but for rounding, axes of length 1 left out."""
    return np.squeeze(mine).shape == np.squeeze(golden).shape and np.allclose(
        np.squeeze(mine), np.squeeze(golden), atol=1e-5
    )
