"""Running operator by operator: the values of a whole-graph session, and memory that stays valid."""

import gc
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from msdump.execute import Program, cpu_runtime, values
from msdump.graph import functions, loader
from msdump.judge import inputs
from msdump.session import Network
from tests.execute import whole
from tests.execute.watching import Watch
from tests.execute.whole import model_of, network_of
from tests.world import GRAPHS

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
# Inputs of networks that made-up numbers do not suit.
FEEDS = {"loop": {"count": np.array(10), "start": np.array([1, 2, 3], np.float32)}, "optional": {"x": X}}


def run_watched(network: Network, feeds) -> dict[str, np.ndarray]:
    """Return every tensor of a run by its name."""
    watch = Watch(network.graph, looks_in=False)
    network._program.run({name: values.from_python(item) for name, item in feeds.items()}, watch)
    return {
        name: array
        for (_, position), [(_, outputs, _)] in watch.shown.items()
        for name, array in zip(network.graph.nodes[position].outputs, outputs, strict=True)
        if array is not None
    }


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_value_of_the_committed_models(path):
    """Each value of each committed model is, bit for bit, that of a session over the whole graph.

    Not so in float16: there the session computes chains of operators in float32.
    """
    network = Network(loader.load(path))
    feeds = FEEDS.get(path.stem) or inputs.made_up(network.graph, {}, 0, 0)

    found = run_watched(network, feeds)

    expected = whole.every_value(functions.inline(onnx.load(path)), feeds)
    tensors = {name: item for name, item in expected.items() if isinstance(item, np.ndarray)}
    names = {name for node in network.graph.nodes for name in node.outputs} & set(tensors)
    equal = close if path.stem == "float16" else whole.same
    assert names == set(found)
    assert [] == [name for name in names if not equal(tensors[name], found[name])]


def close(expected, found) -> bool:
    """Tell whether two arrays are of one type and within two units in the last place of float16."""
    return expected.dtype == found.dtype and np.allclose(expected, found, rtol=2**-9, atol=2**-12)


def litter() -> list[np.ndarray]:
    """Overwrite free memory."""
    gc.collect()
    return [np.full(size, -7, np.float32) for size in (6, 600, 6000) for _ in range(50)]


PASSING = {
    "input": ("g (float[N] x) => (float[N] x) { y = Relu(x) }", "x"),
    "made": ("g (float[N] x) => (float[N] y) { y = Relu(x) }", "y"),
    "shaped": ("g (float[N] x) => (float[1,N] y) { y = Unsqueeze(x, zero) }", "y"),
}


@pytest.mark.parametrize(("text", "name"), PASSING.values(), ids=PASSING)
def test_outputs_outlive_inputs_and_network(text, name):
    """An output keeps its values when the input, the network and everything else is gone."""
    network = network_of(text, zero=np.array([0]))
    outputs = [network.run({"x": np.full(600, number, np.float32)})[name] for number in range(20)]
    del network

    garbage = litter()

    assert [float(number) for number in range(20)] == [float(output.max()) for output in outputs]
    assert all(output.min() == output.max() for output in outputs)
    assert garbage


def test_weights_as_outputs_outlive_the_network(tmp_path):
    """A weight that is an output stays valid without the network and its file, used by an operator or not."""
    model = model_of(
        "g (float[2,3] x) => (float[3,500] w, float[700] free, float[2,500] y) { y = MatMul(x, w) }",
        w=np.full((3, 500), 5, np.float32),
        free=np.full(700, 6, np.float32),
    )
    onnx.save(model, tmp_path / "m.onnx")
    network = Network(loader.load(tmp_path / "m.onnx"))
    outputs = network.run({"x": X})
    del network
    (tmp_path / "m.onnx").unlink()

    garbage = litter()

    assert (outputs["w"] == 5).all()
    assert (outputs["free"] == 6).all()
    assert garbage


def test_runs_do_not_disturb_each_other():
    """A later run changes neither the outputs of an earlier one nor the caller's input."""
    network = network_of("g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Neg(y) }")
    given = np.full(500, 3, np.float32)

    first, _ = network(given)
    network(np.full(500, 9, np.float32))
    first += 1

    assert (given == 3).all()
    assert (first == 4).all()


def test_dropped_networks_leave_nothing():
    """Networks that are dropped free their sessions, and with them their threads."""
    dropped = []
    gc.collect()
    sessions, threads = len(cpu_runtime()._sessions), len(list(Path("/proc/self/task").iterdir()))

    for number in range(20):
        network = network_of(
            f"g (float[2,3] x) => (float[2,3] y) {{ a = LeakyRelu<alpha={number}.5>(x) y = MatMul(a, w) }}",
            w=np.ones((3, 3), np.float32),
        )
        network(X)
        dropped.append(weakref.ref(network))
    del network
    gc.collect()

    assert [None] * 20 == [reference() for reference in dropped]
    assert sessions == len(cpu_runtime()._sessions)
    assert threads >= len(list(Path("/proc/self/task").iterdir()))


def test_values_die_after_their_last_use():
    """A value is dropped after the last operator that reads it; outputs and weights are not."""
    program = network_of(
        """g (float[N] x) => (float[N] out) {
            a = Neg(x)  b, unread = Dropout(a)  out = Add(a, b)  late = Add(out, w) }""",
        w=np.ones(1, np.float32),
    )._program

    names = {slot: name for name, slot in program.slots.items()}
    assert [["x"], ["unread"], ["a", "b"], ["late"]] == [
        sorted(names[slot] for slot in operator.dead) for operator in program._operators
    ]


def test_overflow_status_is_of_one_operator():
    """The status of one operator's kernel does not stay for the next operator, which has none."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    kinds = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    graph = loader.load(proto)
    program, fed = Program(graph), {"x": values.owned(np.ones(2, np.float32))}
    watch = Watch(graph)
    watch.interest = watch.interest._replace(one_by_one=True)
    program.run(fed, watch)
    first, status = program._operators[0], program._frames.status
    run, first.results = first.run, (*first.results, status)
    first.dead = (*first.dead, status)
    first.run = lambda *given: [*run(*given), values.owned(np.array(True))]

    program.run(fed, watch)

    assert [True, False] == [bool(passes[1][2]) for passes in watch.shown.values()]


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_sessions_that_end_are_made_again(path):
    """The last run gives the results of any other run, and so do runs that follow."""
    graph = loader.load(path)
    fed = inputs.made_up(graph, {}, 0, 0) | FEEDS.get(path.stem, {})
    network, last = Network(graph), Network(graph)
    expected = network.run(fed)
    last.forget_sessions()

    for _ in range(2):
        found = last.run(fed)
        assert last.has_run or not graph.operators
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            np.testing.assert_equal(found[name], value)
