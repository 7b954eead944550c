"""Segments: the bits of single operators, operators that stay alone, failures, and steps of training."""

import itertools
import logging

import numpy as np
import pytest
from onnx import parser

import msdump
from msdump.errors import ExecutionError
from msdump.execute import KernelFactory, Program, as_the_model_says, emulated, values
from msdump.execute import segments as planning
from msdump.execute.segment_compiler import MOST, MOST_BYTES, MOST_SHOWN, Joining, cut
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel, Optimization, PrecisionMode
from msdump.training import step_graph
from sample_nets.build import build
from tests import inputs
from tests.execute import whole
from tests.execute.watching import Watch
from tests.world import GRAPHS

RNG = np.random.default_rng(11)


class Alone(KernelFactory):
    """Compiles operators that all run alone."""

    joins = False


CPU = Context(DeviceTarget.CPU, JitLevel.O0)
DEVICES = {
    "CPU": CPU,
    **{
        f"{level.name}, {mode.value}": Context(DeviceTarget.ASCEND, level, precision_mode=mode)
        for level in (JitLevel.O0, JitLevel.O1, JitLevel.O2)
        for mode in (
            PrecisionMode.ALLOW_FP32_TO_FP16,
            PrecisionMode.MUST_KEEP_ORIGIN_DTYPE,
            PrecisionMode.ALLOW_FP32_TO_BF16,
            PrecisionMode.ALLOW_MIX_PRECISION_FP16,
        )
    },
}
MANY = ("overflow", "transformer")
FEW = ("CPU", "O0, allow_fp32_to_fp16", "O1, allow_mix_precision_fp16", "O2, allow_fp32_to_bf16")
SAMPLES = ("lenet", "mini", "overflow")
FILES = tuple(sorted(path.stem for path in GRAPHS.glob("*.onnx")))


def _runs(graph, context, feeds, *watches, kernels=KernelFactory):
    """Run a graph once for each watch, or for none; return the outputs of each run."""
    device = emulated(graph, None, context)
    compiled = graph if device is None else device.graph
    roundings = as_the_model_says if device is None else device.roundings
    program = Program(compiled, roundings, kernels=kernels)
    fed = {name: values.from_python(item, graph.type_of(name).dtype) for name, item in feeds.items()}
    seen = [None if every is None else Watch(compiled, every) for every in watches]
    outputs = [program.run(fed, watch) for watch in seen]
    return program, outputs, [None if watch is None else watch.shown for watch in seen]


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, each) for name in (*SAMPLES, *FILES) for each in DEVICES if name in MANY or each in FEW],
)
def test_bits_are_those_of_single_operators(name, device, tmp_path_factory):
    """Outputs, and tensors of all or some operators, have the bits of operators that run alone."""
    path = (
        build(name, tmp_path_factory.getbasetemp() / "nets", batch=1)
        if name in SAMPLES
        else GRAPHS / f"{name}.onnx"
    )
    graph = loader.load(path)
    feeds = inputs.small(graph)
    _, (expected,), (tensors,) = _runs(graph, DEVICES[device], feeds, 1, kernels=Alone)

    _, outputs, shown = _runs(graph, DEVICES[device], feeds, None, 1, 3, None, 1)

    assert all(whole.same(expected, each) for each in outputs)
    for seen in filter(None, shown):
        assert seen.keys() <= tensors.keys()
        assert [] == [key for key, arrays in seen.items() if not whole.same(tensors[key], arrays)]
    assert tensors.keys() == shown[1].keys() == shown[4].keys()


def _graph(body, inputs="float[2,2] x", output="float[2,2] y", extra=""):
    return loader.load(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1, "mindspore.ops": 1]>'
            f"g ({inputs}) => ({output}) <float[2,2] w = {{1, 2, 3, 4}}{extra}> {{ {body} }}"
        )
    )


X = np.array([[1, -2], [3, 0.5]], np.float32)


def _lengths(program, observer=None):
    """Return the number of operators in each segment of a program."""
    return [
        len(segment.operators) for segment in program._planner.plan_for(observer, program.frame()).segments
    ]


def test_what_nobody_watches_is_one_session():
    """Operators that few or none watch are one segment; an observer that wants them one by one ends it."""
    graph = _graph("a = Neg(x) b = Abs(a) c = MatMul(b, w) d = Relu(c) y = Exp(d)")
    program, _, _ = _runs(graph, CPU, {"x": X}, None)
    some, waiting = Watch(graph, every=2), Watch(graph, every=2)
    waiting.interest = waiting.interest._replace(one_by_one=True)

    assert [5] == _lengths(program) == _lengths(program, some)
    assert [1, 2, 2] == _lengths(program, waiting)


@pytest.fixture
def one_plan(monkeypatch):
    """Give programs of any size one plan for all observers, made anew after two runs that want less."""
    monkeypatch.setattr(planning, "_LARGE", 0)
    monkeypatch.setattr(planning, "_PATIENCE", 2)


@pytest.mark.usefixtures("one_plan")
def test_runs_of_a_large_program_share_a_plan():
    """A plan shows the operators of all runs; after two that want fewer, then four, only the next run's."""
    graph = _graph("a = Neg(x) b = Abs(a) c = MatMul(b, w) d = Relu(c) y = Exp(d)")
    program, every, odd = Program(graph), Watch(graph), Watch(graph, every=2)
    runs = [
        (None, 0),
        (odd, 3),
        (None, 3),
        (every, 5),
        *[(odd, 5)] * 2,
        (odd, 3),
        *[(None, 3)] * 5,
        (None, 0),
    ]

    plans = [program._planner.plan_for(observer, program.frame()) for observer, _ in runs]

    assert [expected for _, expected in runs] == [sum(plan.interest.positions) for plan in plans]


@pytest.mark.usefixtures("one_plan")
@pytest.mark.parametrize("name", ["lenet", "mini"])
def test_a_shared_plan_shows_each_run_its_operators(name, tmp_path):
    """Runs in turns have the bits, and show the operators, of runs with plans of their own."""
    graph = loader.load(build(name, tmp_path, batch=1))
    feeds = inputs.small(graph)
    _, (expected,), (tensors,) = _runs(graph, CPU, feeds, 1, kernels=Alone)

    program, outputs, shown = _runs(graph, CPU, feeds, None, 2, 1, None, 3)

    assert all(whole.same(expected, each) for each in outputs)
    for every, seen in zip((2, 1, 3), filter(None, shown), strict=True):
        assert {key for key in tensors if key[-1] % every == 0} == seen.keys()
        assert [] == [key for key, arrays in seen.items() if not whole.same(tensors[key], arrays)]
    assert 1 == len(program._planner._plans)


CUTS = {
    "nothing is watched": ([True] * 6, {}, False, []),
    "what stands alone": ([True, False, True, True, False, False], {}, False, [1, 2, 4, 5]),
    "many bytes": ([True] * 4, {1: MOST_BYTES // 2, 2: MOST_BYTES // 2}, False, [3]),
    "one that is large": ([True] * 4, {1: MOST_BYTES}, False, [2]),
    "an observer that waits": ([True] * 4, {1: 1, 2: 1}, True, [2, 3]),
    "many operators": ([True] * (2 * MOST + 1), {}, False, [MOST, 2 * MOST]),
    "many watched": (
        [True] * (MOST_SHOWN + 3),
        dict.fromkeys(range(1, MOST_SHOWN + 3), 1),
        False,
        [MOST_SHOWN + 1],
    ),
}


@pytest.mark.parametrize("case", CUTS)
def test_where_segments_end(case):
    """Segments follow each other without a gap, and end where they must."""
    joins, shown, waits, ends = CUTS[case]
    edges = [0, *ends, len(joins)]

    assert [range(*edge) for edge in itertools.pairwise(edges)] == cut(
        range(len(joins)), joins.__getitem__, shown.get, one_by_one=waits
    )


_BRANCH = (
    "c = ReduceMax<keepdims=0>(x) d = IsNaN(c) y = If(d) <"
    "then_branch = a () => (float[2,2] p) { p = Neg(x) }, "
    "else_branch = b () => (float[2,2] q) { q = Abs(x) }>"
)

ALONE = {
    "random numbers": ("r = RandomNormalLike(x) y = Add(x, r)", {"RandomNormalLike"}),
    "dropout": ("r = Dropout(x) y = Identity(r)", {"Dropout"}),
    "what computes in a half type": ("h = Cast<to=10>(x) i = Exp(h) y = Cast<to=1>(i)", {"Exp"}),
    "another domain": ("y = com.microsoft.Gelu(x)", set()),
    "a collective": ("y = mindspore.ops.AllReduce(x)", {"AllReduce"}),
    "a branch": (_BRANCH, set()),
    "a matrix with two readers": ("a = MatMul(x, w) y = MatMul(a, w)", set()),
    "a sequence": (
        "s = SequenceConstruct(x, x) y = ConcatFromSequence<axis=0>(s)",
        {"SequenceConstruct", "ConcatFromSequence"},
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_stays_alone(case):
    """Operators run by themselves where a session with others might give other bits."""
    body, alone = ALONE[case]
    graph = _graph(body, output="float[p,q] y")
    joining = Joining(graph, as_the_model_says)

    assert alone == {node.op_type for node in graph.nodes if not joining.joins(node)}


@pytest.mark.parametrize(
    ("body", "lengths"),
    [
        ("a = com.microsoft.Gelu(x) b = Exp(a) y = Neg(b)", [3]),
        ("a = com.microsoft.Gelu(x) b = Exp(a) c = MatMul(b, w) y = Neg(c)", [2, 1, 1]),
    ],
    ids=["no operator rounds", "a product rounds"],
)
def test_unknown_types_stop_only_what_rounds(body, lengths):
    """Behind operators of other domains, of unknown types, only operators that round run alone."""
    graph, ascend = _graph(body, output="float[p,q] y"), Context(DeviceTarget.ASCEND, JitLevel.O0)
    _, (expected,), _ = _runs(graph, ascend, {"x": X}, None, kernels=Alone)

    program, (outputs,), _ = _runs(graph, ascend, {"x": X}, None)

    assert graph.type_of("b").dtype is None
    assert lengths == _lengths(program)
    assert whole.same(expected, outputs)


LOOP = """a = Neg(x) n = Constant<value = int64 {3}>()
    b, r = Loop(n, , a) <body = p (int64 i, bool c, float[2,2] v) => (bool c, float[2,2] v2, float[2,2] row) {
        v1 = Add(v, a) v2 = Sub(v1, w) row = Identity(v2) }>
    y = Abs(b)"""
PRODUCT = LOOP.replace("v2 = Sub(v1, w)", "v2 = MatMul(v1, w)")
RANDOM = LOOP.replace("v1 = Add(v, a)", "v1 = RandomNormalLike(v)")
HALF = "h = Cast<to=10>(w) " + LOOP.replace("v1 = Add(v, a)", "g = Add(h, h) v1 = Cast<to=1>(g)")
FOREIGN = LOOP.replace("v1 = Add(v, a)", "v1 = mindspore.ops.AllReduce(v)")

LOOPS = {
    "five operators": (LOOP, [3]),
    "a product with an outer weight": (PRODUCT, [1, 1, 1]),
    "random numbers": (RANDOM, [1, 1, 1]),
    "a half type": (HALF, [2, 1, 1]),
    "a collective": (FOREIGN, [1, 1, 1]),
}


@pytest.mark.parametrize("case", LOOPS)
def test_control_flow_that_nobody_looks_into(case):
    """An unobserved loop joins a segment if its body gives the same bits within the runtime."""
    text, lengths = LOOPS[case]
    graph = _graph(text)
    watching, away = Watch(graph, every=100), Watch(graph, every=100)
    away.looks_into = lambda _body: False
    program = Program(graph)

    assert lengths == _lengths(program) == _lengths(program, away)
    assert 1 in _lengths(program, watching)


def test_a_body_fails_by_its_operator():
    """Of a loop that failed as a part of a segment, the operator of its body is named."""
    text = LOOP.replace("v1 = Add(v, a)", "q = Gather(a, i) v1 = Add(v, q)")
    graph = _graph(text.replace("int64 {3}", "int64 {4}"))
    program = Program(graph)
    assert [3] == _lengths(program)

    with pytest.raises(ExecutionError, match="Gather-op0"):
        program.run({"x": values.owned(X)})


def test_a_failing_operator_is_named():
    """Of a segment that fails, earlier operators are shown, and name and inputs of the failing one."""
    graph = _graph("a = Neg(x) b = Gather(a, i) y = Relu(b)", "float[2,2] x, int64[1] i", "float[1,2] y")
    program = Program(graph)
    watch = Watch(graph)
    fed = {"x": values.owned(X), "i": values.owned(np.array([7]))}

    with pytest.raises(ExecutionError, match="Gather-op0"):
        program.run(fed, watch)

    position, inputs = watch.shown.pop("failed")
    assert 1 == position
    assert [[-1, 2], [-3, -0.5]] == inputs[0].tolist()
    assert {((), 0)} == watch.shown.keys()
    again = Watch(graph)
    assert [[0, 0]] == program.run({**fed, "i": values.owned(np.array([1]))}, again)[0].tolist()
    assert [3] == _lengths(program, again)  # the failure was of that run alone


def test_what_the_runtime_refuses_runs_another_way(caplog):
    """An operator that no session can hold leaves the segment; the others stay together."""
    graph = _graph("a = Neg(x) b = Abs(a) c = Mod(b, w) d = Relu(c) y = Exp(d)")
    with caplog.at_level(logging.WARNING):
        program, outputs, _ = _runs(graph, CPU, {"x": X}, None, None)

    expected = np.exp(np.maximum(np.mod(np.abs(-X), np.array([[1, 2], [3, 4]], np.float32)), 0))
    for (output,) in outputs:
        np.testing.assert_allclose(output, expected, rtol=1e-6)
    assert [2, 1, 2] == _lengths(program)
    assert 1 == len([record for record in caplog.records if "reference" in record.message])


@pytest.mark.parametrize("level", [Optimization.BASIC, Optimization.ALL])
def test_what_nobody_watches_may_be_optimised(level, tmp_path):
    """Optimised segments give the same watched operators, and tensors that differ in last bits."""
    graph = loader.load(build("mobilenetv2", tmp_path, batch=1))
    feeds = inputs.small(graph)
    plain, optimised = Watch(graph, every=50), Watch(graph, every=50)
    fed = {name: values.from_python(item) for name, item in feeds.items()}

    expected = Program(graph).run(fed, plain)
    actual = Program(graph, optimization=level).run(fed, optimised)

    assert plain.shown.keys() == optimised.shown.keys()
    assert any(each.tobytes() != one.tobytes() for each, one in zip(actual, expected, strict=True))
    pairs = [*zip(expected, actual, strict=True)]
    for key, [(inputs_, outputs, _)] in plain.shown.items():
        [(others, results, _)] = optimised.shown[key]
        pairs.extend(zip([*inputs_, *outputs], [*others, *results], strict=True))
    for one, other in pairs:
        np.testing.assert_allclose(np.asarray(other, float), np.asarray(one, float), rtol=1e-2, atol=1e-3)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """Return the training step of LeNet."""
    return step_graph(build("lenet", tmp_path_factory.mktemp("nets"), batch=2))


def _batches(count):
    for _ in range(count):
        yield RNG.standard_normal((2, 1, 32, 32)).astype(np.float32), RNG.integers(0, 10, 2).astype(np.int32)


def _alone(monkeypatch):
    """Let all operators run alone."""
    monkeypatch.setattr(KernelFactory, "joins", False)


def test_training_steps_have_the_bits_of_single_operators(lenet, monkeypatch):
    """Losses and variables are equal bit by bit, however a step has run."""
    batches = list(_batches(4))
    network = msdump.load(lenet)
    losses = [network.train_step(*batch) for batch in batches]
    _alone(monkeypatch)
    single = msdump.load(lenet)

    assert losses == [single.train_step(*batch) for batch in batches]
    for name, array in single.state().items():
        np.testing.assert_array_equal(array, network.state()[name], err_msg=name)
    assert {1} == {*_lengths(single.training._program)}
    assert [len(network.training.graph.nodes)] == _lengths(network.training._program)
