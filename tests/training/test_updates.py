"""Derived steps and the table of what operators write in place tell the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from msdump.graph import loader
from msdump.graph.operator_types import UPDATES
from msdump.training import step_graph

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
OPTIMIZERS = ("sgd:0.1", "momentum:0.1,0.9", "adam:0.001,weight_decay=0.02", "adamw:0.001")

NORMALIZED = """
<ir_version: 10, opset_import: ["": 20]>
net (float[4,2,3,3] x) => (float[4,18] logits)
<float[2] scale = {1, 1}, float[2] bias = {0, 0}, float[2] mean = {0, 0}, float[2] variance = {1, 1}> {
  y = BatchNormalization(x, scale, bias, mean, variance)
  logits = Flatten(y)
}
"""


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [str(GRAPHS / "mini.onnx"), NORMALIZED], ids=["mini", "normalized"])
def test_every_update_is_bound_to_the_input_that_it_writes(model, optimizer):
    """What an operator writes in place is a variable, which takes the output that the table names."""
    source = model if model.endswith(".onnx") else parser.parse_model(model)

    graph = loader.load(step_graph(source, optimizer=optimizer))

    written = {}
    for node in graph.nodes:
        assert len(node.declared_outputs) == (node.update.declared or len(node.outputs))
        pairs = zip(node.inputs, node.inputs_after_run, strict=True)
        written |= {old: new for old, new in pairs if new != old}
    # beta powers are written by an operator of their own, whose result the others read
    assert graph.bindings == written


def test_the_table_has_the_operators_that_steps_have():
    """Every optimizer that can be chosen writes by a row of the table."""
    types = {
        node.op_type
        for optimizer in OPTIMIZERS
        for node in loader.load(step_graph(str(GRAPHS / "mini.onnx"), optimizer=optimizer)).nodes
        if node.update.new_values
    }

    assert {"SGD", "ApplyMomentum", "Adam", "AdamWeightDecay", "Assign", "AssignAdd"} == types
    assert types < set(UPDATES)
