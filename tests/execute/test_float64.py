"""Operators in float64: the runtime's kernels of float32 lie within the bound of rounding."""

import numpy as np
import pytest
from onnx import helper, parser

from msdump.execute import Float64Runner, OperatorRunner
from msdump.graph import loader
from msdump.judge import inputs
from tests.world import GRAPHS

HEAD = '<ir_version: 10, opset_import: ["" : {opset}]>'

# operator with its attributes: shapes of its inputs, opset
OPERATORS = [
    ("Conv<pads=[1,2,0,1], strides=[2,1], dilations=[1,2]>", "2,6,9,11 4,6,3,3 4", 20),
    ("Conv<group=3, auto_pad='SAME_UPPER', strides=[2,2]>", "2,6,9,11 9,2,3,2", 20),
    ("Conv<group=6, auto_pad='SAME_LOWER', strides=[2,3]>", "1,6,9,11 12,1,4,2", 20),
    ("Conv<auto_pad='VALID'>", "1,3,20 5,3,4 5", 20),
    ("Conv", "1,2,5,6,7 3,2,2,3,2", 20),
    ("ConvTranspose<strides=[2,3], pads=[1,0,1,2], output_padding=[1,0]>", "2,4,5,4 4,3,3,3 3", 20),
    ("ConvTranspose<group=2, auto_pad='SAME_UPPER', strides=[2,2]>", "1,4,5,4 4,3,3,3", 20),
    ("ConvTranspose<group=2, auto_pad='SAME_LOWER', strides=[2,2]>", "1,4,5,4 4,3,3,3", 20),
    ("AveragePool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>", "2,3,8,9", 20),
    ("AveragePool<kernel_shape=[3,3], strides=[2,2], count_include_pad=1, ceil_mode=1>", "2,3,8,8", 20),
    ("MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1], ceil_mode=1>", "2,3,8,9", 20),
    ("MaxPool<kernel_shape=[2,2], dilations=[2,2]>", "1,3,8,9", 20),
    ("GlobalAveragePool", "2,3,8,9", 20),
    ("GlobalMaxPool", "2,3,8", 20),
    ("GlobalMaxPool", "2,3,4,5,6", 20),
    ("Mean", "2,1,4 3,1", 20),
    ("LpNormalization<axis=1, p=1>", "2,30,4", 20),
    ("Softsign", "1", 20),
    ("MatMul", "2,1,5,300 4,300,7", 20),
    ("Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>", "30,5 7,30 7", 20),
    ("Einsum<equation='bij,bjk->bik'>", "2,5,30 2,30,7", 20),
    ("Erf", "4,100", 20),
    ("Gelu", "4,100", 20),
    ("Gelu<approximate='tanh'>", "4,100", 20),
    ("Pow", "4,100 1", 20),
    ("Softmax<axis=1>", "4,100,3", 20),
    ("Softmax<axis=1>", "4,100,3", 11),
    ("LogSoftmax", "4,100", 20),
    ("LayerNormalization<axis=1, epsilon=0.001>", "4,5,60 5,60 5,60", 20),
    ("InstanceNormalization", "2,5,8,8 5 5", 20),
    ("GroupNormalization<num_groups=2>", "2,6,8,8 6 6", 21),
    ("LRN<size=3, alpha=0.1>", "2,6,8,8", 20),
    ("LpNormalization", "2,60", 20),
    ("ReduceMean<keepdims=0>", "4,5,60", 20),
    ("ReduceL2<axes=[1]>", "4,50", 13),
    ("ReduceLogSumExp<axes=[1], keepdims=0>", "4,50", 13),
    ("Sigmoid", "4,100", 20),
    ("Selu", "4,100", 20),
    ("HardSwish", "4,100", 20),
    ("Resize<mode='linear'>", "1,3,4,4 0 4s", 20),
]  # fmt: skip


def model_of(call: str, shapes: str, opset: int):
    """Return the graph of one operator, and random inputs by name."""
    generator = np.random.default_rng(0)
    op, _, attributes = call.partition("<")
    attributes = f" <{attributes}" if attributes else ""
    feeds, declared, names, stored = {}, [], [], []
    for position, text in enumerate(shapes.split()):
        name = f"x{position}"
        if text in {"0", "4s"}:  # Resize: no region, scales
            if text == "4s":
                stored.append(f"float[4] {name} = {{1, 1, 1.5, 2}}")
            names.append(name if text == "4s" else "")
            continue
        dims = tuple(map(int, text.split(",")))
        feeds[name] = np.abs(generator.standard_normal(dims)).astype(np.float32) - (op != "Pow") * 0.5
        declared.append(f"float[{text}] {name}")
        names.append(name)
    weights = f"<{', '.join(stored)}>" if stored else ""
    attributes = attributes.replace("'", '"')
    text = f"{HEAD.format(opset=opset)} g ({', '.join(declared)}) => (float y) {weights}"
    body = f"{{ y = {op}{attributes}({', '.join(names)}) }}"
    return loader.load(parser.parse_model(f"{text} {body}")), feeds


@pytest.mark.parametrize(("call", "shapes", "opset"), OPERATORS)
def test_the_runtime_lies_within_the_bound(call, shapes, opset):
    """A kernel of float32 is as far from float64 as rounding explains, and not a tenth of a percent."""
    graph, feeds = model_of(call, shapes, opset)
    node, runner = graph.nodes[-1], Float64Runner(graph)
    single = OperatorRunner(graph).run(node, feeds)[0].astype(np.float64)
    ((exact, bound), *_) = runner.bounded(node, feeds, None, 2.0**-24, 2.0**-150)
    assert np.float64 == exact.dtype
    assert single.shape == exact.shape
    scale = np.linalg.norm(exact)
    assert np.linalg.norm(single - exact) <= 3 * np.linalg.norm(bound) + 1e-300
    assert np.linalg.norm(bound) <= 2e-5 * scale


def test_a_window_larger_than_its_image_is_an_error():
    """Own definitions refuse calls without a result, which ONNX's reference would compute as empty."""
    graph, feeds = model_of("AveragePool<kernel_shape=[2,2]>", "1,3,1,1", 20)

    with pytest.raises(ValueError, match="window"):
        Float64Runner(graph).run(graph.nodes[-1], feeds)


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 20, "mindspore.ops" : 1]>
g (float[3, 4] x, float[3, 4] y) => (float[3, 4] z) { z = mindspore.ops.Scaled<factor = 3.0>(x, y) }
<domain: "mindspore.ops", opset_import: ["": 20]>
Scaled <factor>(a, b) => (c) {
  f = Constant<value_float: float = @factor>() d = Mul(a, f) e = Erf(d) c = Add(e, b) }"""


def test_a_function_is_computed_by_its_body():
    """One of MindSpore's operators runs as the standard operators that define it, attributes included."""
    graph = loader.load(parser.parse_model(FUNCTIONS))
    feeds = inputs.made_up(graph, {}, 0, 0)
    (exact,) = Float64Runner(graph).run(graph.nodes[0], feeds)
    (single,) = OperatorRunner(graph).run(graph.nodes[0], feeds)
    assert 1e-9 < np.abs(exact - single).max() < 1e-6


@pytest.mark.parametrize("model", ["lenet", "transformer", "opset7", "float16", "quantized"])
def test_a_network_runs_operator_by_operator(model):
    """Each operator of a network gives its outputs from the outputs of earlier ones."""
    graph = loader.load(GRAPHS / f"{model}.onnx")
    single, double, known = (
        OperatorRunner(graph),
        Float64Runner(graph),
        dict(inputs.made_up(graph, {}, 0, 0)),
    )
    for node in graph.nodes:
        given = {name: known[name] for name in single.needed(node)}
        outputs = single.run(node, given)
        for array, exact in zip(outputs, double.run(node, given), strict=True):
            np.testing.assert_allclose(exact, array.astype(exact.dtype), rtol=1e-2, atol=1e-3)
        known |= zip(node.outputs, outputs, strict=True)


HIDDEN = 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RECURRENT = {
    "plain": {},
    "reverse": {"direction": "reverse"},
    "both ways": {"direction": "bidirectional"},
    "clip": {"clip": 0.2},
}
ACTIVATIONS = {"LSTM": ["HardSigmoid", "Relu", "Softsign"], "GRU": ["HardSigmoid", "Relu"], "RNN": ["Elu"]}
OPERATORS_OF_STEPS = [
    *((op_type, attributes) for op_type in GATES for attributes in RECURRENT.values()),
    *((op_type, {"activations": each, "activation_alpha": [0.3]}) for op_type, each in ACTIVATIONS.items()),
    ("LSTM", {"input_forget": 1}),
    ("GRU", {"linear_before_reset": 1}),
]


@pytest.mark.parametrize("lengths", [(5, 5), (5, 2)], ids=["whole", "lengths"])
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS_OF_STEPS, ids=str)
def test_recurrent_operators_are_the_runtimes(op_type, attributes, lengths):
    """Lengths, directions, clipping and activations have the same meaning as in the runtime's kernel."""
    generator = np.random.default_rng(5)
    directions, gates = 1 + (attributes.get("direction") == "bidirectional"), GATES[op_type] * HIDDEN
    shapes = [(5, 2, 4), (directions, gates, 4), (directions, gates, HIDDEN), (directions, 2 * gates)]
    given = {f"x{at}": generator.standard_normal(shape).astype(np.float32) for at, shape in enumerate(shapes)}
    given["x4"] = np.array(lengths, np.int32)
    for state in range(1 + (op_type == "LSTM")):
        given[f"x{5 + state}"] = generator.standard_normal((directions, 2, HIDDEN)).astype(np.float32)
    outputs = ["y", "h", "c"][: 2 + (op_type == "LSTM")]
    node = helper.make_node(op_type, list(given), outputs, hidden_size=HIDDEN, **attributes)
    declared = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in given.items()
    ]
    made = [helper.make_empty_tensor_value_info(each) for each in outputs]
    model = helper.make_graph([node], "g", declared, made)
    graph = loader.load(helper.make_model(model, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    single = OperatorRunner(graph).run(graph.nodes[0], given)
    exact = Float64Runner(graph).run(graph.nodes[0], given)

    for found, wanted in zip(single, exact, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
