"""Models without a gradient: what is missing is named with its scope and source line."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.errors import UnsupportedOpError
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED

TRACE = 'File "/net/model.py", line 12, in forward\n    return self.head(x)\n'
BRANCH = "b () => (float d) { d = Det(w) }"
MODELS = {
    "MatrixDeterminant": ("", "Det(w)", "ai.onnx.Det has no gradient rule"),
    "If-op0": (
        "bool choice",
        f"If (choice) <then_branch = {BRANCH}, else_branch = {BRANCH}>",
        "If, a branch or loop, has no gradient rule",
    ),
}


@pytest.mark.parametrize("operator", MODELS)
def test_missing_rule(operator):
    """An operator without a rule is named, with its scope and the line of the program that made it."""
    inputs, call, reason = MODELS[operator]
    text = f'net ({inputs}) => (float y) {{ ["head/node"] y = {call} }}'
    model = parsed(text, w=np.eye(2, dtype=np.float32))
    model.graph.node[0].metadata_props.add(key="pkg.onnxscript.stack_trace", value=TRACE)

    with pytest.raises(UnsupportedOpError) as refused:
        step_graph(model, WEIGHTED)

    assert f"head/{operator}: {reason}" in str(refused.value)
    assert 'File "/net/model.py", line 12, in forward; return self.head(x);' in str(refused.value)
