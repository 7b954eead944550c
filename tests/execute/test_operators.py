"""Single operators on given arrays: the bits of a run, and replaced weights."""

import numpy as np
import pytest
from onnx import parser

from msdump.errors import ExecutionError
from msdump.execute import OperatorRunner, Program, emulated, is_repeatable, values
from msdump.graph import loader
from msdump.judge import inputs
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from tests.execute.watching import Watch
from tests.world import GRAPHS

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'


def seen_in_a_run(graph, roundings, feeds):
    """Return inputs and outputs of each operator by its position."""
    watch = Watch(graph, looks_in=False)
    program = Program(graph, roundings) if roundings else Program(graph)
    program.run({name: values.from_python(array) for name, array in feeds.items()}, watch)
    return {position: passes[0][:2] for (_, position), passes in watch.shown.items()}


@pytest.mark.parametrize("model", ["lenet", "mini", "transformer", "float16", "quantized", "opset7"])
@pytest.mark.parametrize("level", [None, *JitLevel])
def test_an_operator_alone_gives_the_bits_of_the_run(model, level):
    """An operator gives the outputs of the run from the inputs of the run, on CPU and on all levels."""
    graph, roundings = loader.load(GRAPHS / f"{model}.onnx"), None
    if level is not None:
        context = Context(
            device_target=DeviceTarget.ASCEND, jit_level=level, precision_mode=PrecisionMode.FORCE_FP16
        )
        device = emulated(graph, None, context)
        graph, roundings = device.graph, device.roundings
    seen = seen_in_a_run(graph, roundings, inputs.made_up(graph, {}, 0, 0))
    runner = OperatorRunner(graph, roundings) if roundings else OperatorRunner(graph)
    for position, (read, written) in seen.items():
        node = graph.nodes[position]
        given = {name: array for name, array in zip(node.inputs, read, strict=True) if name}
        weightless = {name: array for name, array in given.items() if name not in graph.weights}
        for array, expected in zip(runner.run(node, weightless), written, strict=False):
            np.testing.assert_array_equal(expected, array)


LINEAR = f"""{HEAD} g (float[2, 3] x) => (float[2, 2] y)
<float[3, 2] w = {{1, 0, 0, 1, 0, 0}}> {{ y = MatMul(x, w) }}"""


def test_what_is_given_stands_for_a_weight():
    """A weight that is given is used in the place of the graph's, which stays for the next run."""
    graph = loader.load(parser.parse_model(LINEAR))
    runner, x = OperatorRunner(graph), np.arange(6, dtype=np.float32).reshape(2, 3)
    (node,) = graph.nodes
    assert [[0, 1], [3, 4]] == runner.run(node, {"x": x})[0].tolist()
    assert [[3, 3], [12, 12]] == runner.run(node, {"x": x, "w": np.ones((3, 2), np.float32)})[0].tolist()
    assert [[0, 1], [3, 4]] == runner.run(node, {"x": x})[0].tolist()


def test_a_forgotten_operator_runs_again():
    """A forgotten kernel is compiled anew."""
    graph = loader.load(parser.parse_model(LINEAR))
    runner, x = OperatorRunner(graph), np.zeros((2, 3), np.float32)
    first = runner.run(graph.nodes[0], {"x": x})[0]
    runner.forget(graph.nodes[0])
    np.testing.assert_array_equal(first, runner.run(graph.nodes[0], {"x": x})[0])


def test_an_unaligned_array_is_given():
    """Tensors of dump files lie at any address."""
    graph = loader.load(parser.parse_model(LINEAR))
    x = np.frombuffer(b"\1" + np.arange(6, dtype=np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    assert [[0, 1], [3, 4]] == OperatorRunner(graph).run(graph.nodes[0], {"x": x.reshape(2, 3)})[0].tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "its input 'x' is not given"), ({"x": np.zeros((2, 4), np.float32)}, "Default/MatMul-op0")],
)
def test_what_an_operator_cannot_read_is_told(given, message):
    """A missing input is named, and so is the operator that refuses one."""
    graph = loader.load(parser.parse_model(LINEAR))
    with pytest.raises(ExecutionError, match=message):
        OperatorRunner(graph).run(graph.nodes[0], given)


def test_control_flow_runs_as_one_operator():
    """A branch gives the runtime's results of its bodies."""
    graph = loader.load(GRAPHS / "if.onnx")
    feeds = inputs.made_up(graph, {}, 0, 0)
    expected = Program(graph).run({name: values.from_python(array) for name, array in feeds.items()})
    runner, known = OperatorRunner(graph), dict(feeds)
    for node in graph.nodes:
        known |= zip(node.outputs, runner.run(node, known), strict=True)
    for value, array in zip(graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(array, known[value.name])


@pytest.mark.parametrize(("op", "expected"), [("RandomNormalLike", False), ("Relu", True)])
def test_random_numbers_are_not_repeatable(op, expected):
    """An operator that draws numbers gives others in every run."""
    graph = loader.load(parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = {op}(x) }}"))
    assert expected is is_repeatable(graph.nodes[0])
