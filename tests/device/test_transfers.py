"""Tasks of the device, and TransData and Cast in a compiled graph."""

import itertools

import onnx.parser
import pytest

from msdump.device import Ascend, Task, runs_on_device
from msdump.device.tasks import assign
from msdump.graph import compile_graph
from msdump.graph.loader import load
from msdump.plan import OverflowMode, PrecisionMode
from msdump.record import IO

HOST, HD, NZ = "DefaultFormat", "NC1HWC0", "FRACTAL_NZ"
IMAGE = "float[2,16,8,8]"
CONV = "Conv<pads = [1, 1, 1, 1]>"
HALF, WHOLE = PrecisionMode.ALLOW_FP32_TO_FP16, PrecisionMode.MUST_KEEP_ORIGIN_DTYPE
EVERYTHING, BRAIN = PrecisionMode.FORCE_FP16, PrecisionMode.ALLOW_FP32_TO_BF16


def placed(network, inputs, outputs, body, mode):
    """Return the device of a compiled graph."""
    graph = network(f"g ({inputs}) => ({outputs}) {body}")
    return Ascend(compile_graph(graph), mode, OverflowMode.INFNAN, numbers=itertools.count())


def weighted(code):
    """Return the body of a graph with a convolution's weight among its initializers."""
    ones = ", ".join(["1"] * 2304)
    return f"<float[16,16,3,3] w = {{{ones}}}, float[1024,5] m = {{{', '.join(['1'] * 5120)}}}> {{ {code} }}"


def listed(device):
    """Return name, inputs and outputs of every operator."""
    return [(node.name, node.inputs, node.outputs) for node in device.graph.nodes]


def form(device, position, io):
    """Return format and element type of an operator's first input or output."""
    tensor = device.tensor(position, io, 0)
    return tensor.format, tensor.dtype.name


def test_a_convolution_reads_its_own_form(network):
    """An input is rounded first, then laid out; the result is as on the host. Weights need nothing."""
    device = placed(network, f"{IMAGE} x", "y", weighted(f"[c] y = {CONV}(x, w)"), HALF)

    assert [
        ("trans_Cast_0", ("x",), ("trans_Cast_0:0",)),
        ("trans_TransData_1", ("trans_Cast_0:0",), ("trans_TransData_1:0",)),
        ("c", ("trans_TransData_1:0", "w"), ("y:device",)),
        ("trans_TransData_2", ("y:device",), ("y",)),
    ] == listed(device)
    assert (HOST, "float32") == form(device, 0, IO.INPUT)
    assert (HOST, "float16") == form(device, 0, IO.OUTPUT) == form(device, 1, IO.INPUT)
    assert (HD, "float16") == form(device, 1, IO.OUTPUT) == form(device, 2, IO.INPUT)
    assert (HD, "float32") == form(device, 2, IO.OUTPUT) == form(device, 3, IO.INPUT)
    assert (HOST, "float32") == form(device, 3, IO.OUTPUT)


CASES = {
    "nothing to change": ("float[4] x", "y", "{ y = Neg(x) }", WHOLE, []),
    "bfloat16": (f"{IMAGE} x", "y", weighted(f"y = {CONV}(x, w)"), BRAIN, ["Cast", "TransData", "TransData"]),
    "one form for two readers": (
        f"{IMAGE} x",
        "y",
        weighted(f"a = {CONV}(x, w) b = {CONV}(x, w) y = Max(a, b)"),
        HALF,
        ["Cast", "TransData", "TransData"],
    ),
    "the format travels": (
        f"{IMAGE} x",
        "y",
        weighted(f"a = {CONV}(x, w) b = MaxPool<kernel_shape = [2, 2]>(a) y = {CONV}(b, w)"),
        HALF,
        ["Cast", "TransData", "Cast", "TransData"],
    ),
    "from one device format to another": (
        f"float[1,1,1,1024] x, {IMAGE} i, int64[2] s",
        "y",
        weighted("a = MaxPool<kernel_shape = [1, 1]>(x) y = MatMul(a, m)"),
        WHOLE,
        ["TransData", "TransData", "TransData", "TransData"],
    ),
    "everything in float16": (
        "float[4] x",
        "y",
        "{ a = Softmax(x) y = Neg(a) }",
        EVERYTHING,
        ["Cast", "Cast"],
    ),
    "float16 of the model": (
        "float16[2,16,8,8] x, float16[16,16,3,3] v",
        "y",
        f"{{ y = {CONV}(x, v) }}",
        HALF,
        ["TransData", "TransData", "TransData"],
    ),
}


@pytest.mark.parametrize(("inputs", "outputs", "body", "mode", "expected"), CASES.values(), ids=CASES)
def test_what_is_inserted(network, inputs, outputs, body, mode, expected):
    """Operators stand where format or element type change, once for each form of a value."""
    device = placed(network, inputs, outputs, body, mode)

    inserted = [node for node in device.graph.nodes if node.name.startswith("trans_")]
    assert expected == [node.operator.op_type for node in inserted]
    assert [f"trans_{kind}_{number}" for number, kind in enumerate(expected)] == [n.name for n in inserted]


@pytest.mark.parametrize(("inputs", "outputs", "body", "mode", "_"), CASES.values(), ids=CASES)
def test_every_input_arrives_in_its_form(network, inputs, outputs, body, mode, _):
    """Each operator finds its inputs as it reads them; graph outputs are as on the host."""
    device = placed(network, inputs, outputs, body, mode)

    made = {}
    for position, node in enumerate(device.graph.nodes):
        for slot, name in enumerate(node.inputs):
            if name in made:
                assert made[name] == device.tensor(position, IO.INPUT, slot)
        made |= {name: device.tensor(position, IO.OUTPUT, slot) for slot, name in enumerate(node.outputs)}
    for value in device.graph.outputs:
        assert (HOST, value.type.dtype) == (made[value.name].format, made[value.name].dtype)


def test_fused_operators_are_rewired(network):
    """The parts of a kernel read its inputs and write its outputs."""
    body = weighted(f"[c] d = {CONV}(x, w) [r] e = Relu(d) [m] y = MaxPool<kernel_shape = [2, 2]>(e)")
    device = placed(network, f"{IMAGE} x", "y, e", body, WHOLE)

    kernel = device.graph.nodes[1]

    assert ("trans_TransData_0:0", "w") == kernel.inputs == tuple(kernel.parts[0].proto.input)
    assert ("e:device",) == kernel.outputs == tuple(kernel.proto.output)


def test_branches_find_values_as_on_the_host(network):
    """An outer value of a branch has its own name and the host's form."""
    body = weighted(
        f"[c] d = {CONV}(x, w) y = If(p) < then_branch = t () => ({IMAGE} a) {{ a = Abs(d) }},"
        f" else_branch = e () => ({IMAGE} b) {{ b = {CONV}(d, w) }} >"
    )
    device = placed(network, f"{IMAGE} x, bool p", "y", body, WHOLE)

    assert [("d:device",), ("d",), ("y",)] == [node.outputs for node in device.graph.nodes[1:]]
    inner = [[node.operator.op_type for node in body.nodes] for body in device.graph.bodies]
    assert [["Abs"], ["TransData", "Conv2D", "TransData"]] == inner
    assert len(set(names(device))) == len(names(device))


def names(device):
    """Return the names of all operators of a model."""
    return [node.name for graph in device.graph.walk() for node in graph.nodes]


def test_names_of_the_model_are_left_alone(network):
    """An inserted operator does not take a name that the model has."""
    body = f"{{ [trans_TransData_0] a = Abs(x) y = {CONV}(a, v) }}"
    device = placed(network, f"{IMAGE} x, float[16,16,3,3] v", "y", body, WHOLE)

    assert len(set(names(device))) == len(names(device))


def test_one_form_of_what_cubes_and_others_read(network):
    """Only a value that cube operators alone read in the small type has it on the host too."""
    body = weighted(f"a = Neg(x) b = {CONV}(x, w) c = {CONV}(a, w) y = Max(b, c) z = Concat<axis = 0>(x, y)")
    device = placed(network, f"{IMAGE} x", "z", body, EVERYTHING)

    (cast, *_) = device.graph.nodes

    assert "float32" == device.graph.type_of(cast.outputs[0]).dtype.name
    assert (HOST, "float16") == form(device, 0, IO.OUTPUT)


WITHOUT = {
    "Concat": "y = Concat<axis = 0>(x, x)",
    "Reshape": "y = Reshape(x, a)",
    "Shape": "y = Shape(x)",
    "sequence": "s = SequenceConstruct(x, x) y = SequenceAt(s, a)",
    "If": "y = If(c) <then_branch = t () => (float[4,6] p) {p = Relu(x)},"
    " else_branch = e () => (float[4,6] q) {q = Neg(x)}>",
}

WITH = {"Relu": "y = Relu(x)", "Transpose": "y = Transpose(x)", "Gather": "y = Gather(x, a)"}


@pytest.mark.parametrize("body", WITHOUT.values(), ids=WITHOUT)
def test_what_the_device_does_not_run_has_no_task(network, body):
    """Control flow, data flow and changes of shape have no task."""
    graph = network(f"g (float[4,6] x, int64[1] a, bool c) => (y) {{ {body} }}")

    assert [None] * len(graph.nodes) == list(assign(graph))


@pytest.mark.parametrize("body", WITH.values(), ids=WITH)
def test_what_the_device_runs_has_a_task(network, body):
    """Operators that compute or move elements have tasks."""
    graph = network(f"g (float[4,6] x, int64[1] a, bool c) => (y) {{ {body} }}")

    assert all(map(runs_on_device, graph.nodes))


def test_tasks_are_numbered_in_execution_order(network):
    """Operators without a task take no number."""
    graph = network("g (float[4] x, int64[1] s) => (y) {a = Relu(x) b = Reshape(a, s) y = Neg(b)}")

    assert (Task(0, 0), None, Task(1, 0)) == assign(graph)


def test_custom_operators_have_tasks(network):
    """A domain of its own may use the name of an operator without task."""
    text = '<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[4] x) => (y) {y = own.Concat(x)}'
    graph = load(onnx.parser.parse_model(text))

    assert (Task(0, 0),) == assign(graph)
