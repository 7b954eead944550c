"""Normalisations: gradients, moving statistics, frozen ones."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import (
    WEIGHTED,
    analytic,
    bindings_of,
    check,
    label,
    normals,
    one_operator,
    outputs_of,
)

COVERED = {("mindspore.ops", "BatchNorm")}

_RANDOM = np.random.default_rng(29)
SHAPES = {2: (6, 3), 3: (4, 3, 5), 4: (3, 2, 3, 4), 5: (2, 2, 2, 3, 2)}


_batch_normal = normals(_RANDOM)


def _batch_norm(rank, outputs=1, **attributes):
    channels = SHAPES[rank][1]
    arrays = [
        _batch_normal(*SHAPES[rank]),
        *(_batch_normal(channels) for _ in range(3)),
        _batch_normal(channels) ** 2 + 0.5,
    ]
    return one_operator("BatchNormalization", arrays, attributes, outputs)


@pytest.mark.parametrize("rank", SHAPES)
def test_gradients(rank):
    """In training the statistics of the batch depend on the input, too."""
    check(_batch_norm(rank, 3, epsilon=0.01, training_mode=1))


def test_inference_form():
    """A model in inference form is trained as one in training form."""
    models = [_batch_norm(4), _batch_norm(4, 3, training_mode=1)]
    del models[1].graph.initializer[:]
    models[1].graph.initializer.extend(models[0].graph.initializer)
    weights = _batch_normal(*SHAPES[4])

    first, second = (analytic(model, weights) for model in models)

    assert ["p0", "p1", "p2"] == sorted(first)
    for name, gradient in first.items():
        np.testing.assert_array_equal(gradient, second[name], err_msg=name)


@pytest.mark.parametrize("rank", SHAPES)
def test_frozen_gradients(rank):
    """With frozen statistics the gradients are as in inference."""
    check(_batch_norm(rank, epsilon=0.1), batch_statistics=False)


def _moved(step):
    """Return the moving statistics of a layer after a step."""
    bindings = bindings_of(step)
    return outputs_of(step, [bindings["p3"], bindings["p4"]], {"inputs0": label(step)})


@pytest.mark.parametrize("rank", SHAPES)
def test_moving_statistics(rank):
    """A step moves mean and unbiased variance by a tenth towards the batch's."""
    model = _batch_norm(rank)
    x, _, _, mean, variance = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    axes = tuple(axis for axis in range(rank) if axis != 1)

    new_mean, new_variance = _moved(step_graph(model, WEIGHTED))

    np.testing.assert_allclose(0.9 * mean + 0.1 * x.mean(axes), new_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(0.9 * variance + 0.1 * x.var(axes, ddof=1), new_variance, rtol=1e-5)


def _numbers(step):
    """Return the inputs of BatchNorm behind its statistics: is_training, epsilon, momentum, format."""
    nodes = {node.op_type: node for node in step.graph.node}
    constants = {node.output[0]: node for node in step.graph.node if node.op_type == "Constant"}
    return [numpy_helper.to_array(constants[name].attribute[0].t) for name in nodes["BatchNorm"].input[5:]]


def _twice():
    """Return a model that normalises twice by the same layer."""
    model = _batch_norm(2)
    first = model.graph.node[0]
    second = onnx.NodeProto()
    second.CopyFrom(first)
    first.output[0] = "between"
    second.input[0], second.name = "between", "layer/again"
    model.graph.node.append(second)
    return model


def test_layer_that_is_used_twice():
    """Statistics of a layer that is used twice move twice."""
    model = _twice()
    step = step_graph(model, WEIGHTED)
    x, gamma, beta, mean, _ = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    between = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * gamma + beta

    new_mean, _ = _moved(step)

    expected = 0.9 * (0.9 * mean + 0.1 * x.mean(0)) + 0.1 * between.mean(0)
    np.testing.assert_allclose(expected, new_mean, rtol=1e-5)


def test_frozen_statistics():
    """Frozen statistics do not move, and the operator says that it does not train."""
    step = step_graph(_batch_norm(4), WEIGHTED, batch_statistics=False)

    assert not {"p3", "p4"} & bindings_of(step).keys()
    assert not _numbers(step)[0]


def test_statistics_that_cannot_move():
    """Statistics that are no initializers are refused, unless they are frozen."""
    model = _batch_norm(4)
    constant = model.graph.initializer.pop(3)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["p3"], name="mean", value=constant))

    with pytest.raises(GraphError, match="'p3', a moving statistic, is not an initializer"):
        step_graph(model, WEIGHTED)

    assert step_graph(model, WEIGHTED, batch_statistics=False).training_info


_RNG = np.random.default_rng(5)


_normal = normals(_RNG)


def _layer_norm(*arrays, outputs=1, **attributes):
    return ("LayerNormalization", arrays, attributes, outputs)


X = _normal(2, 3, 4)

CASES = {
    "last_axis": _layer_norm(X, _normal(4), _normal(4)),
    "without_shift": _layer_norm(X, _normal(4)),
    "broadcast_scale": _layer_norm(X, _normal(3, 1), _normal(4), axis=1),
    "broadcast_scale_without_shift": _layer_norm(X, _normal(1), axis=1),
    "with_statistics": _layer_norm(X, _normal(4), _normal(4), outputs=3),
}

IMAGES = _normal(2, 4, 3, 3)

OTHERS = {"rms_broadcast": ("RMSNormalization", [X, _normal(3, 1)], {"axis": -2}, 1, 23)}

BY_RUNTIME = {
    "group": ("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21),
    "group_by_group": ("GroupNormalization", [IMAGES, _normal(2), _normal(2)], {"num_groups": 2}, 1, 18),
    "lrn": ("LRN", [IMAGES], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
}


def test_types_behind_functions():
    """Operators behind one of a type that ONNX does not infer are trained as well."""
    model = one_operator("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21)
    model.graph.node[0].output[0] = "normal"
    model.graph.node.append(helper.make_node("Mul", ["normal", "normal"], ["square"], name="square"))
    model.graph.node.append(helper.make_node("Relu", ["square"], ["y0"], name="relu"))

    check(model, step=1 / 128, tolerance=1e-3)
