"""Gradients of attention against differences of onnxruntime's own attention."""

import numpy as np
import pytest
from onnx import helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, check, forward, label, normals, one_operator, outputs_of

_RNG = np.random.default_rng(31)


_normal = normals(_RNG)


def _attention(q, k, v, mask=None, **attributes):
    """Return a case of ONNX's Attention."""
    arrays = [_normal(*q), _normal(*k), _normal(*v), *([] if mask is None else [mask])]
    return ("Attention", arrays, attributes, 1, 23)


BOOLS = np.array([[True, False, True, True], [True, True, False, False], [False, True, True, False]])

NOWHERE = np.array([[True, False, True, True], [False] * 4, [False, True, True, False]])


def _numbers(mask, masked):
    return np.where(mask, 0, masked).astype(np.float32)


CASES = {
    "heads": _attention((2, 2, 3, 4), (2, 2, 4, 4), (2, 2, 4, 5)),
    "bool_mask": _attention((1, 2, 3, 3), (1, 2, 4, 3), (1, 2, 4, 3), BOOLS),
    "float_mask": _attention((2, 2, 3, 3), (2, 2, 4, 3), (2, 2, 4, 3), _normal(2, 1, 3, 4)),
    "grouped": _attention((1, 4, 3, 2), (1, 2, 4, 2), (1, 2, 4, 3)),
    "side_by_side": _attention((2, 3, 8), (2, 4, 8), (2, 4, 6), q_num_heads=2, kv_num_heads=2),
    "side_by_side_grouped_causal": _attention(
        (1, 4, 8), (1, 4, 4), (1, 4, 6), q_num_heads=4, kv_num_heads=2, is_causal=1
    ),
    "softcap_causal": _attention((1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4), softcap=0.7, is_causal=1),
}

_EMPTY = {
    "bools": NOWHERE,
    "infinities": _numbers(NOWHERE, -np.inf),
    "lowest": _numbers(NOWHERE, np.finfo(np.float32).min),
}

ANGLES = _RNG.uniform(0, 3, (6, 2)).astype(np.float32)
PLACES = np.array([[0, 2, 5], [1, 3, 4]])
TABLES = [np.cos(ANGLES), np.sin(ANGLES)]

ROTATIONS = {
    "heads": ("RotaryEmbedding", [_normal(2, 2, 3, 4), *TABLES, PLACES], {}, 1, 23),
    "interleaved": (
        "RotaryEmbedding",
        [_normal(2, 3, 8), *TABLES, PLACES],
        {"interleaved": 1, "num_heads": 2},
        1,
        23,
    ),
}


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("mask", _EMPTY)
def test_rows_that_attend_to_no_place(mask, is_causal):
    """Such a row is zero, as in onnxruntime, and no gradient comes from it."""
    arguments = _attention((1, 2, 3, 3), (1, 2, 4, 3), (1, 2, 4, 3), _EMPTY[mask], is_causal=is_causal)
    model = one_operator(*arguments)
    step = step_graph(model, WEIGHTED)
    (node,) = (node for node in step.graph.node if node.op_type == "FlashAttentionScore")

    (output,) = outputs_of(step, [node.output[3]], {"inputs0": label(step)})

    run, values = forward(model, by_runtime=True)
    np.testing.assert_allclose(run(values), output, atol=1e-6)
    assert not output[:, :, 1].any()
    check(model, step=1 / 64, tolerance=1e-3)


def test_gradient_of_the_shift():
    """A trained mask of numbers has a gradient, summed over its broadcast axes."""
    arguments = _attention((2, 2, 3, 3), (2, 2, 4, 3), (2, 2, 4, 3))
    model = one_operator("Attention", [*arguments[1], _normal(2, 1, 3, 4)], {}, 1, 23)
    model.graph.node.insert(0, helper.make_node("Neg", ["p3"], ["shift"], name="negated"))
    model.graph.node[1].input[3] = "shift"

    check(model, step=1 / 64, tolerance=1e-3)


def test_slots():
    """Attention is one operator with MindSpore's slots, and so is its gradient."""
    step = step_graph(one_operator(*CASES["float_mask"]), WEIGHTED)

    nodes = {node.op_type: node for node in step.graph.node}
    forward, backward = nodes["FlashAttentionScore"], nodes["FlashAttentionScoreGrad"]
    assert ["p0", "p1", "p2", "p3", "", "", ""] == list(forward.input)
    assert list(forward.input) == [*backward.input[:3], *backward.input[4:8]]
    assert list(forward.output) == list(backward.input[8:])


def test_cache_is_refused():
    """Attention that goes on from former keys is for inference alone."""
    arrays = [_normal(1, 1, 2, 2) for _ in range(3)] + [None] + [_normal(1, 1, 2, 2) for _ in range(2)]

    with pytest.raises(GraphError, match="with past_key, past_value it has no gradient"):
        step_graph(one_operator("Attention", arrays, {}, 1, 23), WEIGHTED)
