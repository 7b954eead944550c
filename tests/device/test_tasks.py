"""Which operators have a task of the device, and which numbers the tasks have."""

from __future__ import annotations

import onnx.parser
import pytest

from msdump.device import tasks
from msdump.device.tasks import Task, runs_on_device
from msdump.graph.loader import load

WITHOUT = {
    "Concat": "y = Concat<axis = 0>(x, x)",
    "Split": "y, z = Split<axis = 0, num_outputs = 2>(x)",
    "Identity": "y = Identity(x)",
    "Flatten": "y = Flatten(x)",
    "Unsqueeze": "y = Unsqueeze(x, a)",
    "Squeeze": "y = Squeeze(x, a)",
    "Reshape": "y = Reshape(x, a)",
    "Shape": "y = Shape(x)",
    "Size": "y = Size(x)",
    "sequence": "s = SequenceConstruct(x, x) y = SequenceAt(s, a)",
    "If": "y = If(c) <then_branch = t () => (float[4,6] p) {p = Relu(x)},"
    " else_branch = e () => (float[4,6] q) {q = Neg(x)}>",
}

WITH = {
    "Relu": "y = Relu(x)",
    "Cast": "y = Cast<to = 10>(x)",
    "Transpose": "y = Transpose(x)",
    "Gather": "y = Gather(x, a)",
    "MatMul": "t = Transpose(x) y = MatMul(x, t)",
}


@pytest.mark.parametrize("body", WITHOUT.values(), ids=WITHOUT)
def test_what_the_device_does_not_run_has_no_task(network, body):
    """Control flow, data flow and changes of shape have no task."""
    graph = network(f"g (float[4,6] x, int64[1] a, bool c) => (y) {{ {body} }}")

    assert [None] * len(graph.nodes) == list(tasks.assign(graph))


@pytest.mark.parametrize("body", WITH.values(), ids=WITH)
def test_what_the_device_runs_has_a_task(network, body):
    """Operators that compute or move elements have tasks."""
    graph = network(f"g (float[4,6] x, int64[1] a, bool c) => (y) {{ {body} }}")

    assert all(map(runs_on_device, graph.nodes))


def test_tasks_are_numbered_in_execution_order(network):
    """Operators without a task take no number."""
    graph = network("g (float[4] x, int64[1] s) => (y) {a = Relu(x) b = Reshape(a, s) y = Neg(b)}")

    assert (Task(0, 0), None, Task(1, 0)) == tasks.assign(graph)


def test_branches_have_streams_of_their_own():
    """No two operators of a model share task and stream."""
    graph = load("graphs/if.onnx")

    found = [task for inner in graph.walk() for task in tasks.assign(inner) if task]

    assert len({inner.index for inner in graph.walk() if inner.nodes}) > 1
    assert len(set(found)) == len(found)


def test_tasks_are_the_same_in_every_run():
    """Two loads of one model give the same tasks."""
    first, second = (tasks.assign(load("graphs/mini.onnx")) for _ in range(2))

    assert first == second


def test_custom_operators_have_tasks(network):
    """A domain of its own may use the name of an operator without task."""
    text = '<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[4] x) => (y) {y = own.Concat(x)}'
    graph = load(onnx.parser.parse_model(text))

    assert (Task(0, 0),) == tasks.assign(graph)
