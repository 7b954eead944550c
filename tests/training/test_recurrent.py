"""Gradients of recurrent layers against numerical differences."""

import numpy as np
import pytest

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, check, normals, one_operator

_RNG = np.random.default_rng(43)
STEPS, BATCH, INPUT, HIDDEN = 3, 2, 3, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


_normal = normals(_RNG)


def _layer(op_type, states=0, *, bias=True, **attributes):
    """Return a case: how many states begin with numbers of their own."""
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op_type] * HIDDEN
    arrays = [_normal(STEPS, BATCH, INPUT), _normal(count, rows, INPUT), _normal(count, rows, HIDDEN)]
    arrays += [_normal(count, 2 * rows) if bias else None, None]
    arrays += [_normal(count, BATCH, HIDDEN) for _ in range(states)]
    while arrays[-1] is None:
        arrays.pop()
    return op_type, arrays, {"hidden_size": HIDDEN, **attributes}


CASES = {
    "lstm": _layer("LSTM"),
    "lstm_bidirectional": _layer("LSTM", 2, direction="bidirectional"),
    "lstm_without_bias": _layer("LSTM", bias=False),
    "gru_state": _layer("GRU", 1),
    "gru_without_bias": _layer("GRU", 1, bias=False),
    "gru_linear_before_reset_bidirectional": _layer(
        "GRU", 1, linear_before_reset=1, direction="bidirectional"
    ),
    "rnn_reverse_without_bias": _layer("RNN", bias=False, direction="reverse"),
}


@pytest.mark.parametrize("slot", [1, 2])
def test_gradients_of_the_last_state(slot):
    """The last output and the memory have gradients, too."""
    model = one_operator(*CASES["lstm_bidirectional"], 3)
    node = model.graph.node[0]
    node.output[0], node.output[slot] = "", "y0"
    node.output[3 - slot] = ""

    check(model, step=1 / 64, tolerance=1e-3)


REFUSED = {
    "a clip": {"clip": 1.0},
    "coupled gates": {"input_forget": 1},
    "other activations": {"activations": ["Sigmoid", "Relu", "Tanh"]},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason):
    """Options that the cells do not compute are named."""
    with pytest.raises(GraphError, match=f"LSTM: with {reason} it has no gradient"):
        step_graph(one_operator(*_layer("LSTM", **REFUSED[reason])), WEIGHTED)
