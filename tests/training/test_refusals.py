"""Models without a gradient: what is missing is named with its scope and source line."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from msdump.errors import UnsupportedOpError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED

TRACE = 'File "/net/model.py", line 12, in forward\n    return self.head(x)\n'


def _model(op_type, *, nodes=(), **attributes):
    """Return a model whose only operator reads a weight, from a line of a program."""
    node = helper.make_node(op_type, ["w"], ["y"], name="head/node", **attributes)
    node.metadata_props.add(key="pkg.onnxscript.stack_trace", value=TRACE)
    graph = helper.make_graph(
        [*nodes, node],
        "net",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _branch():
    """Return a model with an If."""
    body = helper.make_graph(
        [helper.make_node("Det", ["w"], ["d"])],
        "body",
        [],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, [])],
    )
    model = _model("If", then_branch=body, else_branch=body)
    model.graph.node[0].input[:] = ["choice"]
    model.graph.input.append(helper.make_tensor_value_info("choice", TensorProto.BOOL, []))
    return model


@pytest.mark.parametrize(
    ("model", "operator", "reason"),
    [
        (_model("Det"), "MatrixDeterminant", "ai.onnx.Det has no gradient rule"),
        (_branch(), "If-op0", "If, a branch or loop, has no gradient rule"),
    ],
)
def test_missing_rule(model, operator, reason):
    """An operator without a rule is named, with its scope and the line of the program that made it."""
    with pytest.raises(UnsupportedOpError) as refused:
        step_graph(model, WEIGHTED)

    assert f"head/{operator}: {reason}" in str(refused.value)
    assert 'File "/net/model.py", line 12, in forward; return self.head(x);' in str(refused.value)
