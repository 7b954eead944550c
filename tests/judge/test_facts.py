"""Differences of two operator graphs, and none that compilation explains."""

from itertools import combinations

import numpy as np
import onnx
import pytest

from msdump.execute import WeightCopies
from msdump.graph import compile_graph, loader
from msdump.judge import list_facts
from msdump.judge.diff import make_side, models, pair_models
from msdump.judge.pair import GraphSide, align, joined_parts, operator_graphs
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueForm, ValueSource
from scripts.faults.networks import SOUND, network
from tests.judge.roads import judged
from tests.texts import parsed

MODES = ("Ascend:O2", "Ascend:O1", "Ascend:allow_fp32_to_bf16", "Ascend:force_fp16", "Ascend", "float32")


@pytest.mark.parametrize("name", SOUND)
def test_sound_pairs_have_no_facts(name, tmp_path):
    """Fusion, folding, casts and inserted transfers of one model in any two modes are no facts."""
    onnx.save(network(name).model, tmp_path / "net.onnx")
    model = loader.load(tmp_path / "net.onnx")
    trains = network(name).trains
    compiled = {
        mode: operator_graphs(make_side(model, models.parse(mode), WeightCopies(), trains=trains).graph)
        for mode in MODES
    }

    for mine, golden in combinations(MODES, 2):
        for number in compiled[mine].keys() & compiled[golden].keys():
            sides = (GraphSide(compiled[mode][number]) for mode in (mine, golden))
            assert () == facts_of(*sides), f"{mine} beside {golden}"


def facts_of(mine, golden):
    """Return the facts of two graphs that are matched."""
    return list_facts(mine, golden, align(mine, golden))


GOLDEN = """g (float[4,8] x, float[4,8] z) => (float[4,8] y) {
    [a] a = Tanh(x) [b] b = Sub(a, z) [c] c = LeakyRelu<alpha = 0.1>(b) [d] d = Abs(c) [e] e = Mul(d, z)
    [f] f = Add(e, b) [g] y = Sigmoid(f) }"""

CHANGES = {
    "attribute": ("alpha = 0.1", "alpha = 0.3", "c", "negative_slope 0.3, in golden 0.1"),
    "dropped": (
        *("d = Abs(c) [e] e = Mul(d, z)", "e = Mul(c, z)", "d"),
        "input 0 of Default/Mul-op0 is from Default/LeakyRelu-op0, in golden from this operator",
    ),
    "first dropped": (
        *("[a] a = Tanh(x) [b] b = Sub(a, z)", "[b] b = Sub(x, z)", "a"),
        "input 0 of Default/Sub-op0 is from input x, in golden from this operator",
    ),
    "last dropped": (
        *("f = Add(e, b) [g] y = Sigmoid(f)", "y = Add(e, b)", "g"),
        "output 0 of the network is from Default/Add-op0, in golden from this operator",
    ),
    "inserted": (
        *("[e] e = Mul(d, z)", "[n] n = Neg(d) [e] e = Mul(n, z)", "n"),
        "input 0 of Default/Mul-op0 is from this operator, in golden from Default/Abs-op0",
    ),
    "inserted before its like": (
        *("[a] a = Tanh(x)", "[n] n = Tanh(x) [a] a = Tanh(n)", "n"),
        "input 0 of Default/Tanh-op1 is from this operator, in golden from input x",
    ),
    "rewired": (
        *("Abs(c)", "Abs(a)", "d"),
        "input 0 is from Default/Tanh-op0, in golden from Default/LeakyRelu-op0",
    ),
    "swapped": ("Sub(a, z)", "Sub(z, a)", "b", "inputs 0 and 1 are swapped"),
    "replaced": ("Tanh(x)", "Softsign(x)", "a", "Softsign in place of Default/Tanh-op0 (Tanh)"),
    "commutative": ("Add(e, b)", "Add(b, e)", "", ""),
    "identity": (
        *("d = Abs(c) [e] e = Mul(d, z)", "i = Identity(c) [i] d = Abs(i) [e] e = Mul(d, z)"),
        *("", ""),
    ),
}
"""Text in GOLDEN and its replacement, the node of the fact, and the text of the fact ("" for none)."""


@pytest.mark.parametrize(("before", "after", "node", "text"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_one_fact_and_accused(before, after, node, text, tmp_path):
    """One changed operator is one fact, not one for each that reads it, and the only one that is accused."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((4, 8), np.float32) for name in "xz"}
    mine, golden = parsed(GOLDEN.replace(before, after)), parsed(GOLDEN)

    code, accused, told = judged(tmp_path, mine, golden, "diff", **feeds)

    assert [(node, text)] * bool(node) == [(each["onnx_name"], each["text"]) for each in told["facts"]]
    assert ([node] * bool(node), int(bool(node))) == (accused, code)


KERNELS = """g (float[4,8] x, float[8,8] v, float[8,8] w) => (float[4,8] y) {
    [a] a = MatMul(x, v) [b] b = Add(a, x) [c] c = Relu(b)
    [d] d = MatMul(c, w) [e] e = Add(d, c) [f] f = Relu(e)
    [s] s = Softmax(f) [h] h = Tanh(s) [i] i = Abs(h) [j] j = Softmax(i) [k] y = MatMul(j, v) }"""

CHANGED_KERNELS = {
    "a kernel's operand dropped": (
        *("[d] d = MatMul(c, w) [e] e = Add(d, c)", "[e] e = Add(c, c)"),
        "missing Default/MatMul-op1",
    ),
    "a value inside of a kernel is read": ("MatMul(j, v)", "MatMul(h, v)", "wiring Default/MatMul-op2"),
    "a part of a kernel dropped": (
        "[h] h = Tanh(s) [i] i = Abs(h)",
        "[i] i = Abs(s)",
        "missing Default/Tanh-op0Abs-op0",
    ),
    "a part of a kernel replaced": ("Tanh(s)", "Sigmoid(s)", "replaced Default/Sigmoid-op0Abs-op0"),
}
"""Text in KERNELS and its replacement, and the fact of the compiled graphs."""


@pytest.mark.parametrize(("before", "after", "told"), CHANGED_KERNELS.values(), ids=CHANGED_KERNELS)
def test_a_change_of_a_compiled_graph_is_one_fact(before, after, told):
    """The change is one fact; kernels behind it that are fused otherwise are none."""
    mine, golden = (
        GraphSide(operator_graphs(compile_graph(loader.load(parsed(text))))[0])
        for text in (KERNELS.replace(before, after), KERNELS)
    )

    assert [told] == [f"{fact.kind} {fact.operator}" for fact in facts_of(mine, golden)]


def test_a_region_with_one_operator_more():
    """Transfers that a device inserts do not hide the operator that golden's region has alone."""
    x = ValueSource(SourceKind.INPUT, "x")

    def row(*names):
        operators, before = {}, x
        for name in names:
            op_type = "".join(part.rpartition("-op")[0] for part in joined_parts(name)) or "TransData"
            operators[name] = GraphOperator(name, op_type, (before,))
            before = ValueSource(SourceKind.OPERATOR, name)
        return GraphSide(OperatorGraph(operators, {"x": ValueForm()}, outputs=(before,)))

    mine = row("Softmax-op0", "Add-op1Elu-op0", "Sqrt-op0")
    golden = row(
        "Softmax-op0",
        "Add-op1",
        "trans_TransData_0",
        "InstanceNorm-op0",
        "Elu-op0",
        "trans_TransData_1",
        "Sqrt-op0",
    )

    assert ["missing InstanceNorm-op0"] == [f"{each.kind} {each.operator}" for each in facts_of(mine, golden)]


def test_weights_are_compared_by_their_bits(tmp_path):
    """A weight of other bits is a fact, one that is rounded to float16 is none."""
    weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    kinds = {"golden": weight, "rounded": weight.astype(np.float16).astype(np.float32), "wrong": weight * 2}
    text = "g (float[4,8] x) => (float[4,8] y) { [m] y = MatMul(x, w) }"
    for name, array in kinds.items():
        onnx.save(parsed(text, w=array), tmp_path / f"{name}.onnx")
    golden, rounded, wrong = (loader.load(tmp_path / f"{name}.onnx") for name in kinds)

    assert () == pair_models(rounded, golden).facts
    assert ["weight"] == [fact.kind for fact in pair_models(wrong, golden).facts]


@pytest.mark.parametrize(("mine", "golden"), [("2, -1", "2, 16"), ("2, 16", "2, -1"), ("2, 16", "2, 16")])
def test_a_missing_operator_is_no_part_of_a_view(mine, golden):
    """An operator between two views is missing, also where the views write their shapes in two ways."""
    text = """g (float[4,8] x) => (float[4,8] y) <int64[2] s = {{SHAPE}}, int64[2] u = {{4, 8}}>
        {{ [a] a = Abs(x) [r] r = Reshape(a, s) {} [v] v = Reshape({}, u) [e] y = Sigmoid(v) }}"""
    without, whole = text.format("", "r"), text.format("[h] h = Tanh(r)", "h")
    sides = without.replace("SHAPE", mine), whole.replace("SHAPE", golden)

    facts = pair_models(*(loader.load(parsed(each)) for each in sides)).facts

    assert ["h"] == [fact.onnx_name for fact in facts if fact.kind == "missing"]


@pytest.mark.parametrize(("last", "expected"), [("Tanh", (1, ["g"])), ("Relu", (0, []))])
def test_a_missing_last_operator_of_files(last, expected, tmp_path):
    """Outputs of the network are compared by place: a missing last operator is at fault if they differ."""
    text = "g (float[4,8] x) => (float[4,8] b, float[4,8] y) {{ [b] b = Abs(x) [m] {} }}"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    product = "y = MatMul(b, w)"
    ends = product, f"{product.replace('y', 'm', 1)} [g] y = {last}(m)"
    models = (parsed(text.format(end), w=np.eye(8, dtype=np.float32)) for end in ends)

    assert expected == judged(tmp_path, *models, "files", x=x)[:2]


def test_an_operator_among_constants_is_a_fact():
    """Where both models compute a constant, an operator more is none that was folded."""
    text = "g (float[2,2] x) => (float[2,2] y) { [p] p = Neg(w) [q] q = Exp(p) y = MatMul(x, q) }"
    wider = text.replace("[q] q = Exp(p)", "[t] t = Tanh(p) [q] q = Exp(t)")
    weight = np.float32([[1, 2], [3, 4]])

    pair = pair_models(*(loader.load(parsed(each, w=weight)) for each in (wider, text)))

    assert [("extra", "t")] == [(fact.kind, fact.onnx_name) for fact in pair.facts]


CONSTANTS = {  # as msdump's graph files and as MindSpore's have them
    "a number": ("Tensor(shape=[], dtype=Int64, value=7)", "I64(7)", "I64(8)"),
    "a flag": ("Tensor(shape=[], dtype=Bool, value=False)", "Bool(0)", "Bool(1)"),
    "a float": ("Tensor(shape=[], dtype=Float32, value=1e-05)", "F32(1e-05)", "F32(1e-06)"),
    "a tuple": ("Tensor(shape=[2], dtype=Int64, value=[2 -3])", "(I64(2), I64(-3))", "(I64(2), I64(3))"),
    "a nested tuple": ("((0, 1), (2, 3))", "((I64(0), I64(1)), (I64(2), I64(3)))", "((I64(0)), (I64(1)))"),
    "an empty tuple": ("Tensor(shape=[0], dtype=Int64, value=[])", "()", "(I64(1))"),
    "a text": ("same", "same", "valid"),
}


@pytest.mark.parametrize("written", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_are_compared_by_their_numbers(written):
    """Two ways to write one constant are no fact, other numbers are one, and ones left out are unknown."""
    ours, same, other = written

    assert () == facts_of(reading(ours), reading(same))
    assert ["wiring"] == [fact.kind for fact in facts_of(reading(ours), reading(other))]
    assert () == facts_of(reading(ours), reading("Tensor(shape=[64], dtype=Int64, value=[1 2 ... 9])"))


@pytest.mark.parametrize(("is_ours", "expected"), [(True, ["wiring"]), (False, [])])
def test_arguments_that_one_system_leaves_out_are_no_facts(is_ours, expected):
    """A constant beside no argument is a fact between graphs of msdump alone: others may write defaults."""
    facts = facts_of(reading(None), reading("I64(7)", is_ours=is_ours))

    assert expected == [fact.kind for fact in facts]


def reading(constant, *, is_ours=True):
    """Return a graph of an operator that reads an input and a constant, and of one behind."""
    source = ValueSource(SourceKind.CONSTANT, constant) if constant else ValueSource(SourceKind.ABSENT, "")
    form = (ValueForm("float32", (4, 8)),)
    first = GraphOperator("Default/First-op0", "Resize", (ValueSource(SourceKind.INPUT, "x"), source), form)
    inner = ValueSource(SourceKind.OPERATOR, first.full_name)
    last = GraphOperator("Default/Last-op0", "Sigmoid", (inner,), form, place=1)
    operators = {each.full_name: each for each in (first, last)}
    outputs = (ValueSource(SourceKind.OPERATOR, last.full_name),)
    return GraphSide(OperatorGraph(operators, {"x": form[0]}, outputs=outputs, is_ours=is_ours))
