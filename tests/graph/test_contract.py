"""Every pass over a graph keeps the contract: unique names, producers first, the same inputs and outputs."""

import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.execute import emulated
from msdump.graph import compile_graph, functions, fuse_elementwise, loader, names
from msdump.plan import Context, DeviceTarget, JitLevel
from tests.graph.contract import faults, message_faults
from tests.world import GRAPHS

MODELS = sorted(GRAPHS.rglob("*.onnx"))
OPSETS = '<ir_version: 10, opset_import: ["": 20, "own": 1]>'

ODD = {
    "nobody is named": "g (float[2,2] x) => (float[2,2] y) { a = Abs(x) b = Relu(a) y = Add(a, b) }",
    "one name for all": "g (float[2,2] x) => (float[2,2] y) { [n] a = Abs(x) [n] b = Neg(a) [n] y = Exp(b) }",
    "a name that fusion would give": (
        "g (float[2,2] x) => (float[2,2] y) { [a] a = Abs(x) [b] b = Neg(a) [ab] y = MatMul(b, b) }"
    ),
    "chains of one short name": (
        'g (float[2,2] x) => (float[2,2] q, float[2,2] s) { ["a/Abs"] p = Abs(x) ["b/Neg"] q = Neg(p)'
        ' ["c/Abs"] r = Abs(x) ["d/Neg"] s = Neg(r) }'
    ),
    "out of order": "g (float[2,2] x) => (float[2,2] y) { y = Exp(b) b = Neg(a) a = Abs(x) }",
    "an output twice": "g (float[2,2] x) => (float[2,2] y, float[2,2] y) { a = Abs(x) y = Neg(a) }",
    "an input is the output": "g (float[2,2] x) => (float[2,2] x) { y = Neg(x) }",
    "a value inside a chain is an output": (
        "g (float[2,2] x) => (float[2,2] a, float[2,2] y) { a = Abs(x) b = Neg(a) y = Exp(b) }"
    ),
    "constants only": (
        "g () => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w) b = Abs(a) c = Exp(b) y = Identity(c) }"
    ),
    "identities": (
        "g (float[2,2] x) => (float[2,2] y) { a = Identity(x) b = Neg(a) c = Identity(b) y = Identity(c) }"
    ),
    "branches that read around": (
        "g (float[2,2] x, bool c) => (float[2,2] y) <float[2] w = {1, 2}> {"
        " a = Neg(w) b = Abs(x) y = If (c) <"
        "  then_branch = t () => (float[2,2] p) { q = Add(b, a) p = Relu(q) },"
        "  else_branch = e () => (float[2,2] r) { s = Identity(x) u = MatMul(s, b) r = Relu(u) }>"
        " }"
    ),
    "a loop": (
        "g (float[2,2] x, int64 n) => (float[2,2] y) { a = Abs(x) k = Constant<value_int = 1>()"
        " t = Cast<to = 9>(k) y = Loop (n, t, a) <"
        "  body = b (int64 i, bool c, float[2,2] s) => (bool d, float[2,2] o)"
        "   { d = Identity(c) m = MatMul(s, x) o = Relu(m) }> }"
    ),
    "a sequence is mapped": (
        "g (float[2,2] x) => (float[2,2] y) { l = SequenceConstruct(x, x) m = SequenceMap (l) <"
        "  body = b (float[2,2] s) => (float[2,2] o) { m = Neg(s) o = Abs(m) }>"
        " k = Constant<value_int = 0>() y = SequenceAt(m, k) }"
    ),
    "functions of functions": (
        "g (float[2,2] x) => (float[2,2] y) { [f] a = own.Outer(x) [f] b = own.Outer(a) y = own.Inner(b) }"
        ' <domain: "own", opset_import: ["": 20, "own": 1]> Inner (x) => (y) { a = Neg(x) y = Abs(a) }'
        ' <domain: "own", opset_import: ["": 20, "own": 1]> Outer (x) => (y) { a = own.Inner(x) y = Exp(a) }'
    ),
    "a convolution with all that follows": (
        "g (float[1,4,8,8] x, float[4,4,3,3] w, float[4] b) => (float[1,4,6,6] y)"
        " { c = Conv(x, w) n = BatchNormalization(c, b, b, b, b) r = Relu(n) y = Mul(r, r) }"
    ),
    "a value in two formats": (
        "g (float[1,4,8,8] x, float[4,4,3,3] w) => (float[1,4,6,6] c, float[1,4,36] y)"
        " <int64[3] s = {1, 4, 36}> { c = Conv(x, w) r = Softmax(c) y = Reshape(r, s) }"
    ),
}

PASSES = {
    "O1": fuse_elementwise,
    "compiled": compile_graph,
    "compiled under node names": lambda graph: compile_graph(graph, keeps_node_names=True),
    "compiled without fusion": lambda graph: compile_graph(graph, fuses=False),
}


def parsed(text):
    """Return the message of a model in ONNX's text form."""
    return onnx.parser.parse_model(f"{OPSETS} {text}")


def check(graph):
    """Assert that a graph, and the result of each pass over it, keeps the contract."""
    assert [] == faults(graph)
    for title, change in PASSES.items():
        assert (title, []) == (title, faults(change(graph), graph))
    for stage, stage_graph in _stages(graph).items():
        assert (stage, []) == (stage, faults(stage_graph, graph))


def _stages(graph):
    """Return the graph after each stage of O2's compilation, with TransData and Cast inserted at the last."""
    stages = {}
    context = Context(device_target=DeviceTarget.ASCEND, jit_level=JitLevel.O2)
    device = emulated(graph, None, context, note=lambda stage, result: stages.update({stage: result}))
    return {stage: result for stage, result in stages.items() if result is not device} | {
        "placed": device.graph
    }


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_passes_over_the_models_of_the_repository(path):
    """Each pass over each committed model gives a graph that keeps the contract."""
    check(loader.load(path))


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_passes_over_odd_graphs(text):
    """Colliding names, shared values, bodies, functions and constants alone keep the contract too."""
    check(loader.load(parsed(text)))


@pytest.mark.parametrize(
    "model",
    [*(onnx.load(path) for path in MODELS), *map(parsed, ODD.values())],
    ids=[*(path.stem for path in MODELS), *ODD],
)
def test_passes_over_messages(model):
    """Functions inlined and Identity operators taken out leave inputs, outputs and their producers."""
    before = onnx.GraphProto()
    before.CopyFrom(model.graph)

    names.name_nodes(model.graph)
    inlined = functions.inline(model)
    after_inlining = message_faults(inlined.graph, before)
    functions.remove_identities(inlined.graph)

    assert [] == after_inlining
    assert [] == message_faults(inlined.graph, before)


NODE_NAMES = st.sampled_from(["", "a", "b", "ab", "a_1", "s/a", "t/u/a"])
OPERATORS = st.sampled_from(["Neg", "Relu", "Identity", "Add", "Mul", "Div", "MatMul", "If"])


@st.composite
def models(draw):
    """Return models of up to twelve operators in any order, with names that collide."""
    values, nodes = ["x", "w"], []
    for number in range(draw(st.integers(1, 12))):
        op_type = draw(OPERATORS)
        value = st.sampled_from(values)
        result = f"v{number}"
        read = [draw(value) for _ in range(1 if op_type in {"Neg", "Relu", "Identity"} else 2)]
        if op_type == "If":
            nodes.append(_if(draw, read, result))
        else:
            nodes.append(onnx.helper.make_node(op_type, read, [result], name=draw(NODE_NAMES)))
        values.append(result)
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    info = {name: onnx.helper.make_tensor_value_info(name, 1, [2, 2]) for name in ("x", *outputs)}
    condition = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    weight = onnx.helper.make_tensor("w", 1, [2, 2], [1, 2, 3, 4])
    ordered = draw(st.permutations(nodes))
    graph = onnx.helper.make_graph(
        ordered, "g", [info["x"], condition], [info[name] for name in outputs], [weight]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def _if(draw, read, result):
    bodies = {}
    for branch, own in zip(("then_branch", "else_branch"), ("p", "q"), strict=True):
        inner = f"{own}{result}"
        steps = [
            onnx.helper.make_node("Add", read, [f"{inner}s"], name=draw(NODE_NAMES)),
            onnx.helper.make_node("Relu", [f"{inner}s"], [inner], name=draw(NODE_NAMES)),
        ]
        output = onnx.helper.make_tensor_value_info(inner, 1, [2, 2])
        bodies[branch] = onnx.helper.make_graph(steps, branch, [], [output])
    return onnx.helper.make_node("If", ["c"], [result], name=draw(NODE_NAMES), **bodies)


@settings(max_examples=40)
@given(models())
def test_passes_over_any_graph(model):
    """Whatever the operators, their order and their names are, passes keep the contract."""
    check(loader.load(model))
