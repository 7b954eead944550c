"""If, Loop and Scan operator by operator: the values of the runtime's own, and errors that name the place."""

import gc

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from msdump.errors import ExecutionError, MsdumpError
from msdump.execute import values
from msdump.graph import loader
from msdump.session import Network
from tests.execute import whole
from tests.execute.watching import Watch
from tests.execute.whole import model_of, network_of

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3)).astype(np.float32)
W = RNG.standard_normal((3, 3)).astype(np.float32)
YES, NO = np.array(True), np.array(False)

BRANCH = """g (float[2,3] x, bool c) => (float[N,3] y, float[2,3] z) {
    near = Neg(x)
    y, z = If(c) <
        then_branch = t () => (a, b) { a = Add(near, x)  k = Constant<value = float {2}>()  b = Mul(x, k) },
        else_branch = e () => (a, b) { a = Concat<axis = 0>(x, x)  b = Sin(near) }> }"""
STEPS = """g (float[2,3] x, int64 n, bool go) => (float[2,3] last, float[K,2,3] all, int64[K] numbers) {
    last, all, numbers = Loop(n, go, x) <body = b (int64 i, bool c, float[2,3] v)
        => (bool c2, float[2,3] v2, float[2,3] seen, int64 number) {
        half = Constant<value = float {0.75}>()
        v2 = Mul(v, half)
        seen = Cos(v2)
        number = Mul(i, i)
        largest = ReduceMax<keepdims = 0>(v2)
        edge = Constant<value = float {0.3}>()
        c2 = Greater(largest, edge) }> }"""
UNTIL = """g (float[2,3] x) => (float[2,3] last) {
    last = Loop(, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool c2, float[2,3] v2) {
        v2 = Add(v, v)
        sum = ReduceL1<keepdims = 0>(v2)
        edge = Constant<value = float {1000}>()
        c2 = Less(sum, edge) }> }"""
GROWS = """g (float[N,3] x, int64 n) => (float[M,3] last) {
    last = Loop(n, , x) <body = b (int64 i, bool c, float[R,3] v) => (bool c, float[S,3] v2) {
        v2 = Concat<axis = 0>(v, x) }> }"""
NESTED = """g (float[2,3] x, float[3,3] w, int64 n) => (float[2,3] last, float[K,2,3] rows) {
    far = Neg(x)
    last, rows = Loop(n, , x) <body = outer (int64 i, bool c, float[2,3] v)
        => (bool c, float[2,3] v2, float[2,3] row) {
        two = Constant<value = int64 {2}>()
        rest = Mod(i, two)
        odd = Cast<to = 9>(rest)
        v2 = If(odd) <
            then_branch = t () => (a) {
                p = MatMul(v, w)
                a = Loop(two, , p) <body = inner (int64 j, bool d, float[2,3] u) => (bool d, float[2,3] u2) {
                    u2 = Add(u, far) }> },
            else_branch = e () => (a) { p = Tanh(v)  a = Mul(p, far) }>
        row = Identity(v2) }> }"""
SCAN = """g (float[3] s, float[4,3] a, float[3,4] b) => (float[3] last, float[4,3] up, float[3,4] down) {
    last, up, down = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [1, 0],
        scan_output_axes = [0, -1], scan_output_directions = [0, 1],
        body = b (float[3] t, float[3] p, float[3] q) => (float[3] t2, float[3] r, float[3] m) {
            t1 = Add(t, p)  t2 = Mul(t1, q)  r = Sub(p, q)  m = Identity(t2) }>(s, a, b) }"""
SEQUENCE = """g (float[2,3] x, int64 n) => (seq(float) kept, int64 count) {
    none = SequenceEmpty()
    kept = Loop(n, , none) <body = b (int64 i, bool c, seq(float) s) => (bool c, seq(float) s2) {
        f = Cast<to = 1>(i)  y = Add(x, f)  s2 = SequenceInsert(s, y) }>
    count = SequenceLength(kept) }"""
MAPPED = """g (seq(float[3]) xs, float[3] x) => (seq(float[3]) ys) {
    ys = SequenceMap(xs, x) <body = b (float[3] v, float[3] u) => (float[3] o) {
        t = Mul(v, u)  o = Neg(t) }> }"""
CALLED = """g (float[2,3] x, bool c) => (float[2,3] y) { y = own.Choice(x, c) }
    <domain: "own", opset_import: ["" : 20, "own" : 1]> Choice (x, c) => (y) {
        y = If(c) <then_branch = t () => (a) { a = own.Twice(x) }, else_branch = e () => (a) { a = Neg(x) }> }
    <domain: "own", opset_import: ["" : 20]> Twice (x) => (y) { y = Add(x, x) }"""
HALF = """g (float16[2,3] x, int64 n) => (float16[2,3] last, float16[K,2,3] rows) {
    last, rows = Loop(n, , x) <body = b (int64 i, bool c, float16[2,3] v)
        => (bool c, float16[2,3] v2, float16[2,3] r) {
        v2 = Neg(v)  r = Identity(v2) }> }"""
TEXT = """g (string[2] x, int64 n) => (string[2] last, string[K,2] rows) {
    last, rows = Loop(n, , x) <body = b (int64 i, bool c, string[2] v)
        => (bool c, string[2] v2, string[2] r) {
        v2 = StringConcat(v, v)  r = Identity(v2) }> }"""
UNUSED = """g (float[2,3] x, int64 n) => (float[K,2,3] rows) {
    last, numbers, rows = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v)
        => (bool c, float[2,3] v2, int64 i2, float[2,3] r) {
            v2 = Add(v, v)  r = Neg(v2)  i2 = Identity(i) }> }"""

WEIGHTS = """g (float[2,3] x, int64 n, bool c) => (float[2,3] last) {
    last = Loop(n, , x) <body = b (int64 i, bool d, float[2,3] v) => (bool d, float[2,3] v2) {
        v1 = MatMul(v, w)
        v2 = If(c) <then_branch = t () => (a) { p = MatMul(v1, w)  a = Add(p, bias) },
                    else_branch = e () => (a) { a = Identity(bias2) }> }> }"""
PRODUCT = """g (float[1,3] x, bool c) => (float[1,3] y) {
    y = If(c) <then_branch = t () => (a) { a = %s }, else_branch = e () => (b) { b = Neg(x) }> }"""
INNER = "If(c) <then_branch = t1 () => (p) { p = %s(x, w) }, else_branch = e1 () => (q) { q = Neg(x) }>"
OVERRIDDEN = """g (float[3] x, bool c, float[3] w) => (float[3] y) {
    y = If(c) <then_branch = t () => (a) { a = Add(x, w) }, else_branch = e () => (a) { a = Sub(x, w) }> }"""

XS = {"xs": [X[0], X[1]], "x": X[0]}
ROWS = {"s": np.ones(3, np.float32), "a": RNG.random((4, 3), np.float32), "b": RNG.random((3, 4), np.float32)}
LINES = [{"x": RNG.standard_normal((1, 3)).astype(np.float32), "c": YES} for _ in range(20)]
OUTER = {"w": W, "bias": X[0], "bias2": X + 1}
CASES = {
    "then": (BRANCH, {"x": X, "c": YES}),
    "else": (BRANCH, {"x": X, "c": NO}),
    "condition of one element": (BRANCH.replace("bool c", "bool[1] c"), {"x": X, "c": np.array([True])}),
    "loop until its number": (STEPS, {"x": X, "n": np.array(3), "go": YES}),
    "loop until its condition": (STEPS, {"x": X, "n": np.array(1000), "go": YES}),
    "loop not entered by number": (STEPS, {"x": X, "n": np.array(0), "go": YES}),
    "loop not entered by condition": (STEPS, {"x": X, "n": np.array(5), "go": NO}),
    "loop of a negative number": (STEPS, {"x": X, "n": np.array(-3), "go": YES}),
    "loop without number": (UNTIL, {"x": X}),
    "loop that grows": (GROWS, {"x": X, "n": np.array(4)}),
    "nested": (NESTED, {"x": X, "w": W, "n": np.array(5)}),
    "scan": (SCAN, ROWS),
    "sequence": (SEQUENCE, {"x": X, "n": np.array(4)}),
    "sequence map": (MAPPED, XS),
    "functions": (CALLED, {"x": X, "c": YES}),
    "float16": (HALF, {"x": X.astype(np.float16), "n": np.array(3)}),
    "text": (TEXT, {"x": np.array(["a", "bc"], object), "n": np.array(2)}),
    "unused outputs": (UNUSED, {"x": X, "n": np.array(3)}),
}
WITH_WEIGHTS = {
    # weights of outer graphs are read where they lie, two graphs further in as well
    "weights, then": (WEIGHTS, [{"x": X, "n": np.array(3), "c": YES}], OUTER),
    "weights, else": (WEIGHTS, [{"x": X, "n": np.array(3), "c": NO}], OUTER),
    # the runtime packs weights one graph out, no further
    "product, one graph out": (PRODUCT % "MatMul(x, w)", LINES, {"w": W}),
    "product, two graphs out": (PRODUCT % (INNER % "MatMul"), LINES, {"w": W}),
    "Gemm, two graphs out": (PRODUCT % (INNER % "Gemm"), LINES, {"w": W}),
    "overridden weight": (
        OVERRIDDEN,
        [{"x": X[1], "c": YES} | more for more in ({}, {"w": W[0]}, {})],
        {"w": X[0]},
    ),
}


def looked_into(network: Network, feeds):
    """Return the outputs of a run with observed bodies."""
    graph = network.graph
    fed = {name: values.from_python(item, graph.type_of(name).dtype) for name, item in feeds.items()}
    return network._program.run(fed, Watch(graph, every=0))


@pytest.mark.parametrize(
    ("text", "runs", "weights"),
    [*((text, [feeds] * 2, {}) for text, feeds in CASES.values()), *WITH_WEIGHTS.values()],
    ids=[*CASES, *WITH_WEIGHTS],
)
def test_values_are_those_of_the_whole(text, runs, weights):
    """Every output has the bits of one session, whether bodies run as programs or not."""
    network, model = network_of(text, **weights), model_of(text, **weights)

    found = [list(network.run(feeds).values()) for feeds in runs]
    inside = [looked_into(network, feeds) for feeds in runs]

    expected = [whole.run(model, feeds) for feeds in runs]
    assert all(node.bodies for graph in network.graph.walk() for node in graph.nodes if has_graph(node))
    assert all(map(whole.same, expected * 2, found + inside))


def has_graph(node) -> bool:
    """Tell whether a node holds a graph."""
    return any(attribute.HasField("g") for attribute in node.proto.attribute)


def test_inner_weights_of_one_name():
    """Weights of two branches may have one name."""
    model = model_of(BRANCH)
    for attribute, number in zip(model.graph.node[1].attribute, (5, 7), strict=True):
        attribute.g.initializer.append(numpy_helper.from_array(np.full((2, 3), number, np.float32), "same"))
        attribute.g.node[-1].CopyFrom(onnx.helper.make_node("Mul", ["x", "same"], ["b"]))
    network = Network(loader.load(model))

    found = [network.run({"x": X, "c": c})["z"] for c in (YES, NO)]

    assert whole.same([X * np.float32(5), X * np.float32(7)], found)


PASSES = {
    "input": "a = Identity(x)",
    "weight": "a = Identity(w)",
    "constant": "a = Constant<value_floats = [4.0, 4.0, 4.0]>()",
}


@pytest.mark.parametrize("text", PASSES.values(), ids=PASSES)
def test_outputs_outlive_the_network(text):
    """Outputs of a branch stay valid without the network and its input."""
    network = network_of(
        f"g (float[3] x, bool c) => (float[3] y) {{ y = If(c) <then_branch = t () => (a) {{ {text} }},"
        " else_branch = e () => (a) { a = Neg(x) }> }",
        w=np.full(3, 4, np.float32),
    )
    outputs = [network.run({"x": np.full(3, 4, np.float32), "c": YES})["y"] for _ in range(10)]
    del network

    gc.collect()
    garbage = [np.full(size, -7, np.float32) for size in (3, 30) for _ in range(100)]

    assert [[4, 4, 4]] * 10 == [output.tolist() for output in outputs]
    assert garbage


def test_untouched_loop_gives_a_copy():
    """A loop that is not entered gives its initial value, not the caller's memory."""
    network = network_of(GROWS)
    given = X.copy()

    last = network.run({"x": given, "n": np.array(0)})["last"]
    given += 1

    assert whole.same(X, last)


FAULTS = {
    "condition of two elements": (
        BRANCH.replace("bool c", "bool[M] c"),
        {"x": X, "c": np.array([True, False])},
        "Default/If-op0.*condition has 2 elements",
    ),
    "several shapes": (
        """g (float[N,3] x, int64 n) => (float[M,3] last, rows) {
            last, rows = Loop(n, , x) <body = b (int64 i, bool c, float[R,3] v)
                => (bool c, float[S,3] v2, float[S,3] r) {
                v2 = Concat<axis = 0>(v, x)  r = Identity(v2) }> }""",
        {"x": X, "n": np.array(2)},
        r"Default/Loop-op0.*several shapes for output 1: \(4, 3\), \(6, 3\)",
    ),
    "rows": (
        SCAN.replace("[4,3] a", "[N,3] a"),
        ROWS | {"a": np.ones((5, 3), np.float32)},
        "Default/Scan-op0.*4 and 5 rows",
    ),
    "inside": (
        """g (float[2,3] x, float[N,3] w, bool c) => (y) { y = If(c) <
            then_branch = t () => (a) { [deep] a = MatMul(x, w) },
            else_branch = e () => (a) { a = Neg(x) }> }""",
        {"x": X, "w": np.ones((5, 3), np.float32), "c": YES},
        "Default/MatMul-op0",
    ),
}


@pytest.mark.parametrize(("text", "feeds", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named(text, feeds, message):
    """An error names the operator that failed, also one inside a branch."""
    network = network_of(text)

    with pytest.raises(ExecutionError, match=message):
        network.run(feeds)
    with pytest.raises(ExecutionError, match=message):
        looked_into(network, feeds)

    with pytest.raises(Exception, match=r".+"):
        whole.run(model_of(text), feeds)


def test_observers_enter_bodies():
    """An observer sees each operator of each iteration, then the control flow itself."""
    text = """g (float[1] x, int64 n) => (float[1] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[1] v) => (bool c, float[1] v2) {
            v2 = Add(v, x) }> }"""
    network = network_of(text)
    watch = Watch(network.graph)
    feeds = {"x": np.ones(1, np.float32), "n": np.array(2)}

    network._program.run({name: values.from_python(item) for name, item in feeds.items()}, watch)

    made = [(key, [outputs[0].item() for _, outputs, _ in passes]) for key, passes in watch.shown.items()]
    assert [(((1,), 0), [2, 3]), (((), 0), [3])] == made


def test_omitted_outputs():
    """Outputs that the node does not name are left out, and the others keep their places."""
    omitted = UNUSED.replace("last, numbers, rows", ", , rows")
    feeds = {"x": X, "n": np.array(3)}

    found = list(network_of(omitted).run(feeds).values())

    assert whole.same(whole.run(model_of(UNUSED), feeds), found)


def test_miscounted_bodies_are_errors():
    """A body that takes other values than the node hands to it is refused, as the runtime refuses it."""
    network = network_of(
        """g (float[2,3] x, int64 n) => (float[2,3] last) {
            last = Loop(n, , x) <body = b (int64 i, float[2,3] v) => (float[2,3] v2) { v2 = Neg(v) }> }"""
    )

    with pytest.raises(MsdumpError):
        network.run({"x": X, "n": np.array(1)})


def test_loop_that_nothing_can_run_as_a_whole():
    """A loop without passes has rows of the right type, or an error says why not."""
    text = """g (float[2,3] x, int64 n) => (float[2,3] last, float[K,2,3] all) {
        last, all = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v)
            => (bool c, float[2,3] v2, float[2,3] seen) { v2 = Neg(v)  seen = own.Weird(v) }> }"""

    with pytest.raises(MsdumpError, match=r"Loop.*Weird"):
        network_of(text).run({"x": X, "n": np.array(0)})
