"""Whole graphs compiled: which operators become one kernel, its name and contents."""

from collections import Counter

import onnx.parser
import pytest

from msdump.graph import BEGUN, compile_graph, loader
from msdump.graph.compilation import FUSED
from msdump.judge.pair import canonical_type
from tests.world import GRAPHS

HEAD = (
    '<ir_version: 10, opset_import: ["": 20]> g (float[1,4,8,8] x, float[4,4,3,3] w, float[4] b,'
    " float[4,4] m, float[3,4] r) => (y) <float[4] c = {1, 2, 3, 4}>"
)
NORM = "BatchNormalization(d, b, b, b, b)"


@pytest.mark.parametrize(
    ("keeps_node_names", "expected"), [(False, "Conv2DBackpropInput"), (True, "Conv2DTranspose")]
)
def test_transposed_convolution(keeps_node_names, expected):
    """A ConvTranspose is MindSpore's gradient of a convolution in its graphs, and a transpose in acl's."""
    graph = compiled("[a] y = ConvTranspose(x, w)", keeps_node_names=keeps_node_names)

    assert [expected] == [node.operator.op_type for node in graph.nodes]
    assert canonical_type(expected) == "Conv2DBackpropInput"


KERNELS = {
    "convolution, activation": ("[conv1] d = Conv(x, w) [conv1_relu] y = Relu(d)", ["conv1conv1_relu"]),
    "convolution, normalization": (f"[a] d = Conv(x, w) [n] y = {NORM}", ["an"]),
    "all of a block": (f"[a] d = Conv(x, w) [n] e = {NORM} [r] y = Relu(e)", ["anr"]),
    "transposed convolution": ("[a] d = ConvTranspose(x, w) [r] y = Sigmoid(d)", ["ar"]),
    "two activations": ("[a] d = Conv(x, w) [r] e = Relu(d) [s] y = Tanh(e)", ["ar", "s"]),
    "convolution of two readers": ("[a] d = Conv(x, w) [r] e = Relu(d) [s] y = Add(d, e)", ["a", "rs"]),
    "residual": ("[a] d = Conv(x, w) [s] e = Add(d, x) [r] y = Relu(e)", ["a", "sr"]),
    "product, bias": ("[p] d = MatMul(r, m) [q] y = Add(d, c)", ["pq"]),
    "bias, product": ("[p] d = MatMul(r, m) [q] e = Add(c, d) [s] y = Relu(e)", ["pqs"]),
    "product, sum": ("[p] d = MatMul(r, m) [q] y = Add(d, r)", ["p", "q"]),
    "product, normalization": ("[p] d = MatMul(r, m) [n] y = BatchNormalization(d, b, b, b, b)", ["p", "n"]),
    "Gemm": ("[p] d = Gemm(r, m, b) [q] y = Elu(d)", ["pq"]),
    "normalization, activation": ("[n] e = BatchNormalization(x, b, b, b, b) [r] y = Relu(e)", ["nr"]),
    "activation with bounds": (
        "[a] d = Conv(x, w) [k] l = Constant<value_float = 0.0>() [r] y = Clip(d, l)",
        ["ar"],
    ),
    "elementwise": ("[a] d = Abs(x) [e] f = Exp(d) [n] y = Neg(f)", ["aen"]),
    "elementwise behind a cast": ("[c] d = Cast<to = 10>(x) [a] f = Abs(d) [n] y = Neg(f)", ["can"]),
    "casts": ("[c] d = Cast<to = 10>(x) [f] y = Cast<to = 1>(d)", ["c", "f"]),
    "nothing": ("[s] d = Softmax(x) [p] y = MaxPool<kernel_shape = [2, 2]>(d)", ["s", "p"]),
    "pooling between": (
        "[a] d = Conv(x, w) [p] e = MaxPool<kernel_shape = [2, 2]>(d) [r] y = Relu(e)",
        ["a", "p", "r"],
    ),
    "bounds of a Clip are the result": ("[a] d = Conv(x, w) [r] y = Clip(d, d)", ["a", "r"]),
    "slope of a PReLU is the result": ("[a] d = Conv(x, w) [r] y = PRelu(x, d)", ["a", "r"]),
}


def compiled(body, **how):
    """Return the compiled graph of operators in ONNX's text form."""
    text = f"{HEAD} {{ {body} }}"
    return compile_graph(loader.load(onnx.parser.parse_model(text)), **how)


@pytest.mark.parametrize(("body", "expected"), KERNELS.values(), ids=KERNELS)
def test_what_becomes_one_kernel(body, expected):
    """Bias, normalization and activation join their producer, elementwise operators each other."""
    graph = compiled(body, keeps_node_names=True)

    assert expected == [node.operator.full_name for node in graph.nodes]


def test_kernel():
    """A kernel has its first operator's type and arguments, its originals, and reads values from outside."""
    (kernel,) = compiled(
        "[a] d = Conv<group = 1>(x, w) [n] e = BatchNormalization(d, b, b, b, c) y = Relu(e)"
    ).nodes

    assert "Conv2D" == kernel.operator.op_type
    assert ("x", "w", "b", "c") == kernel.inputs
    assert ("y",) == kernel.outputs
    assert {"group": 1} == kernel.attributes
    assert ["Conv2D", "BatchNorm", "ReLU"] == [part.operator.op_type for part in kernel.parts]


def test_no_kernel_has_the_type_of_a_cast():
    """A kernel behind a Cast has the type and the arguments of its next part."""
    (kernel,) = compiled("d = Cast<to = 10>(x) e = Elu<alpha = 0.5>(d) y = Cast<to = 1>(e)").nodes

    assert "Elu" == kernel.operator.op_type
    assert {"alpha": 0.5} == kernel.attributes
    assert "Default/Cast-op0Elu-op0Cast-op1" == kernel.operator.full_name


def test_full_names_are_joined_too():
    """Under MindSpore's names a kernel has the scope of its first operator."""
    model = onnx.parser.parse_model(f"{HEAD} {{ d = Conv(x, w) y = Relu(d) }}")
    for node, name in zip(model.graph.node, ("net/conv1/Conv", "net/relu/Relu"), strict=True):
        node.name = name

    (kernel,) = compile_graph(loader.load(model)).nodes

    assert "Default/net/conv1/Conv2D-op0ReLU-op0" == kernel.operator.full_name
    assert "net/conv1/Convnet/relu/Relu" == kernel.name


def test_branches_are_compiled():
    """Operators inside a branch become kernels there."""
    branches = "".join(
        f"{name}_branch = {name}_g () => (float[1,4,8,8] {name}_y) {{"
        f" {name}_d = Conv<pads = [1, 1, 1, 1]>(x, w) {name}_y = {kind}({name}_d) }}{comma}"
        for name, kind, comma in (("then", "Relu", ","), ("else", "Tanh", ""))
    )

    graph = compiled(f"n = ReduceSum<keepdims = 0>(x) p = Cast<to = 9>(n) y = If(p) < {branches} >")

    bodies = [[node.op_type for node in body.nodes] for body in graph.bodies]
    assert [["Conv+Relu"], ["Conv+Tanh"]] == bodies


@pytest.mark.parametrize("fuses", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_original_is_kept_once(path, fuses):
    """Each operator of a model is in exactly one kernel of the compiled one, and all inputs exist."""
    graph = loader.load(path)

    result = compile_graph(graph, fuses=fuses)

    for before, after in zip(graph.walk(), result.walk(), strict=True):
        originals = Counter(part.name for node in after.nodes for part in node.members)
        assert Counter(node.name for node in before.nodes) == originals
        known = {value.name for value in after.inputs} | set(after.weights) | {""}
        for node in after.nodes:
            assert known.issuperset(node.inputs)
            known.update(node.outputs)


def test_stages():
    """``note`` gets the graph after each stage."""
    stages = []

    result = compiled("d = Conv(x, w) y = Relu(d)", note=lambda stage, graph: stages.append((stage, graph)))

    assert [BEGUN, FUSED] == [stage for stage, _ in stages]
    assert [2, 1] == [len(graph.nodes) for _, graph in stages]
    assert result is stages[-1][1]
