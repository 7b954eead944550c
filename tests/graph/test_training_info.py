"""Bindings of initializers to outputs, of ONNX's training_info or of the caller, checked at the load."""

import numpy as np
import pytest
from onnx import numpy_helper

from msdump.errors import GraphError, UnsupportedOpError
from msdump.graph import loader
from tests import steps


def test_the_plain_form_is_one_graph():
    """Bindings that the caller gives make the model's own graph the training step."""
    graph = loader.load(steps.message(steps.PLAIN), update_binding=steps.BINDING)

    assert steps.BINDING == graph.bindings
    assert {"w", "m", "step"} == graph.variables
    assert graph.training.step is None


def test_an_empty_algorithm_is_the_plain_form():
    """Bindings of training_info without an algorithm mean the model's own outputs."""
    model = steps.message(steps.PLAIN)
    steps.bind(model.training_info.add().update_binding, steps.BINDING)

    graph = loader.load(model)

    assert steps.BINDING == graph.bindings
    assert graph.training.step is None


def test_an_algorithm_follows_the_graph():
    """The step has the operators, inputs, outputs and initializers of the graph, then the algorithm's."""
    model = steps.with_training_info()
    model.training_info[0].algorithm.node[0].metadata_props.add(key="kept", value="yes")

    graph = loader.load(model)

    step = graph.training.step
    assert [{}, steps.BINDING] == [graph.bindings, step.bindings]
    assert [{"w"}, {"w", "m", "step"}] == [graph.variables, step.variables]
    assert [4, 7] == [len(graph.nodes), len(step.nodes)]
    names = [[node.operator.full_name for node in each.nodes] for each in (graph, step)]
    assert names[0] == names[1][:4]
    assert "Default/MatMul-op1" in names[1]
    assert ["x", "t"] == [value.name for value in step.inputs]
    assert ["loss", "w_new", "m_new", "step_new"] == [value.name for value in step.outputs]


def test_large_initializers_are_the_same_arrays(tmp_path):
    """The step shares the weights of the graph, which lie in the mapped file."""
    model = steps.with_training_info()
    big = numpy_helper.from_array(np.ones(400, np.float32), "big")
    model.graph.initializer.append(big)
    path = tmp_path / "step.onnx"
    path.write_bytes(model.SerializeToString())

    graph = loader.load(path)

    assert graph.training.step.weights["big"] is graph.weights["big"]


STEP = "initializer 'step' cannot have output 'loss' as its new value: the one is int32, the other float32"
SHAPE = "initializer 'm' cannot have output 'loss' as its new value: the one has shape [3, 2], the other []"

FAULTS = {
    "initializer": ([("ww", "w_new")], "there is no initializer 'ww' (did you mean 'w'?)"),
    "output": ([("w", "w_neww")], "there is no output 'w_neww' for 'w' (did you mean 'w_new'?)"),
    "inner value": ([("w", "g")], "there is no output 'g' for 'w'"),
    "type": ([("step", "loss")], STEP),
    "shape": ([("m", "loss")], SHAPE),
    "twice": ([("w", "w_new"), ("w", "m_new")], "initializer 'w' is bound 2 times"),
}


@pytest.mark.parametrize(("pairs", "expected"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("make", [lambda: steps.message(steps.PLAIN), steps.with_training_info])
def test_a_binding_that_does_not_fit_is_refused(make, pairs, expected):
    """A faulty binding is refused when the model is loaded."""
    model = make()
    info = model.training_info[0] if model.training_info else model.training_info.add()
    del info.update_binding[:]
    steps.bind(info.update_binding, pairs)

    with pytest.raises(GraphError) as caught:
        loader.load(model)

    assert f"<ModelProto>: update_binding: {expected}" == str(caught.value)


def test_initial_values_are_checked():
    """A binding of the initialization that does not fit is refused as such."""
    model = steps.with_training_info(
        "start () => (float[2] first) { first = Constant<value_floats=[1.0, 2.0]>() }"
    )
    steps.bind(model.training_info[0].initialization_binding, {"w": "first"})

    with pytest.raises(
        GraphError,
        match=r"initialization_binding: .*'w' cannot have output 'first' as its new value: .*\[3, 2\]",
    ):
        loader.load(model)


def test_bindings_of_two_kinds_are_refused():
    """A model with bindings of its own takes none from the caller."""
    with pytest.raises(GraphError, match="has bindings of its own"):
        loader.load(steps.with_training_info(), update_binding=steps.BINDING)


def asking(op_type):
    """Return a function that gives the node ``grad`` of an algorithm another type."""
    return lambda model: setattr(model.training_info[0].algorithm.node[1], "op_type", op_type)


ALONE = {
    "several steps": (
        lambda model: model.training_info.add().CopyFrom(model.training_info[0]),
        "training_info describes 2 steps, but only one is supported",
    ),
    "Gradient": (asking("Gradient"), "<ModelProto>: training_info: node 'grad': Gradient requires"),
    "GraphCall": (asking("GraphCall"), "<ModelProto>: training_info: node 'grad': GraphCall requires"),
}


@pytest.mark.parametrize(("change", "message"), ALONE.values(), ids=ALONE)
def test_training_that_is_not_there_yet(change, message):
    """A model of several steps, or with Gradient nodes, is for inference; its training says why."""
    model = steps.with_training_info()
    change(model)
    graph = loader.load(model)

    assert 4 == len(graph.nodes)
    with pytest.raises(UnsupportedOpError, match=message):
        graph.training_step()


def test_an_initializer_of_both_graphs_is_refused():
    """A name that the graph and the algorithm both give to an initializer is a fault of the model."""
    model = steps.with_training_info()
    model.training_info[0].algorithm.initializer.add().CopyFrom(model.graph.initializer[0])

    with pytest.raises(GraphError, match="initializer 'w': is listed 2 times"):
        loader.load(model)


def test_a_torn_tensor_of_an_algorithm_is_told():
    """Initializers of the algorithm are read like any others."""
    model = steps.with_training_info()
    tensor = model.training_info[0].algorithm.initializer[0]
    tensor.ClearField("float_data")
    tensor.raw_data = np.zeros(2, np.float32).tobytes()

    with pytest.raises(GraphError, match="initializer 'm'"):
        loader.load(model)
