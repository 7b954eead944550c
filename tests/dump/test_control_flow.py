"""Branches and loops as graphs of their own: directories, names, values and every setting inside them."""

import csv
import json

import numpy as np
import onnx
import pytest
from onnx import parser

from msdump.errors import ExecutionError
from tests.dump import trees
from tests.execute import whole
from tests.graph.files.test_ir_proto import decoded_model
from tests.world import GPU, O0, O1

TARGETS = {"CPU": {}, "GPU": GPU, "O0": O0, "O1": O1}
HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
X = np.array([1, -2, 3], np.float32)

# Graph 0 holds a loop (its body: graph 1) and a choice of graphs 4 and 5; graph 1 a choice of 2 and 3.
NESTED = """g (float[3] x, int64 n, bool c) => (float[3] y) {
    far = Neg(x)
    last = Loop(n, , x) <body = round (int64 i, bool go, float[3] v) => (bool go, float[3] v2) {
        two = Constant<value = int64 {2}>()
        rest = Mod(i, two)
        odd = Cast<to = 9>(rest)
        v1 = Add(v, far)
        v2 = If(odd) <then_branch = odd_round () => (a) { a = Abs(v1) },
                      else_branch = even_round () => (b) { b = Sub(v1, x) }> }>
    y = If(c) <then_branch = yes () => (a) { a = Add(last, x) },
               else_branch = no () => (b) { p = Add(last, far)  b = Relu(p) }> }"""
NAMES = [
    ["Default/Neg-op0"],
    ["Default/FloorMod-op0", "Default/Cast-op0", "Default/Add-op0"],
    ["Default/Abs-op0"],
    ["Default/Sub-op0"],
    ["Default/Add-op1"],
    ["Default/Add-op2", "Default/ReLU-op0"],
]
"""Full names by graph."""


def model_of(text):
    """Return a model of ONNX's text form."""
    return parser.parse_model(HEAD + text)


def feeds(rounds, condition):
    """Return inputs of the nested network."""
    return {"x": X, "n": np.array(rounds), "c": np.array(condition)}


def listed(rank, graph):
    """Return the names in a graph's execution order."""
    path = rank / "execution_order" / f"ms_execution_order_graph_{graph}.csv"
    return path.read_text().splitlines()[1:]


def outputs(folder):
    """Return ``(operator, array)`` of every first output below a directory in order of time."""
    found = trees.tensors(folder)
    return [
        (match["name"].rpartition("_")[2], np.load(path).tolist())
        for match, path in found
        if (match["io"], match["slot"]) == ("output", "0") and match["type"] != "Parameter"
    ]


@pytest.mark.parametrize("context", TARGETS.values(), ids=TARGETS)
def test_graphs_have_numbers(door, context):
    """Graph files of every graph exist from the loading on; graphs are numbered as they appear."""
    door.configure()

    door.load(model_of(NESTED), **context)

    graphs = [f"ms_output_trace_code_graph_{number}.{kind}" for number in range(6) for kind in ("ir", "pb")]
    orders = [f"ms_execution_order_graph_{number}.csv" for number in range(6)]
    assert sorted(graphs) == sorted(path.name for path in (door.rank / "graphs").iterdir())
    assert orders == sorted(path.name for path in (door.rank / "execution_order").iterdir())
    assert not (door.rank / "Net").exists()
    if context is not O1:
        assert NAMES == [listed(door.rank, number) for number in range(6)]


@pytest.mark.parametrize("context", TARGETS.values(), ids=TARGETS)
def test_only_graphs_that_ran_have_directories(door, context):
    """Each step has directories of the graphs that ran in it; only the main graph lists its iterations."""
    door.configure()
    network = door.load(model_of(NESTED), **context)

    for rounds, condition in ((0, True), (1, False), (2, True)):
        network.run(feeds(rounds, condition))

    ran = {path.relative_to(door.rank / "Net").as_posix() for path in (door.rank / "Net").glob("*/[0-9]*")}
    assert {"0/0", "4/0", "0/1", "1/1", "3/1", "5/1", "0/2", "1/2", "2/2", "3/2", "4/2"} == ran
    history = [path.name for path in (door.rank / "execution_order").glob("ms_global*")]
    is_listed = context.get("device_target") != "Ascend"
    assert ["ms_global_execution_order_graph_0.csv"] * is_listed == history


@pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "O0"])
def test_each_execution_is_dumped(door, context, enable):
    """Every round of a loop writes its tensors, with rising timestamps, into the one directory."""
    network = door.dump(
        model_of(NESTED), feeds(3, False), context=context, enable=enable, precision_mode="force_fp32"
    )

    far = -X
    first = X + far - X
    second = np.abs(first + far)
    third = second + far - X
    rounds = [item for item in outputs(door.rank / "Net" / "1" / "0") if item[0] == "Add-op0"]
    assert [("Add-op0", v.tolist()) for v in (X + far, first + far, second + far)] == rounds
    assert [("Abs-op0", second.tolist())] == outputs(door.rank / "Net" / "2" / "0")
    assert [("Sub-op0", v.tolist()) for v in (first, third)] == outputs(door.rank / "Net" / "3" / "0")
    assert ("ReLU-op0", np.maximum(third + far, 0).tolist()) == outputs(door.rank / "Net" / "5" / "0")[-1]
    times = [match["time"] for match, _ in trees.tensors(door.rank)]
    assert len(times) == len(set(times))
    assert network.run(feeds(3, False))["y"].tolist() == np.maximum(third + far, 0).tolist()


def test_inputs_from_outer_graphs(door):
    """A value of an outer graph is dumped as an operator's input like any other."""
    door.dump(model_of(NESTED), feeds(1, True), input_output=1)

    found = {
        (match["name"], match["slot"]): np.load(path).tolist()
        for match, path in trees.tensors(door.rank / "Net" / "3")
    }
    assert {("Default_Sub-op0", "0"): (X - X).tolist(), ("Default_Sub-op0", "1"): X.tolist()} == found


@pytest.mark.parametrize("context", TARGETS.values(), ids=TARGETS)
def test_dumping_changes_nothing(door, context):
    """Outputs equal one session over the whole graph, with a dump and without."""
    expected = whole.run(model_of(NESTED), feeds(4, False))
    plain = door.load(model_of(NESTED), **context).run(feeds(4, False))["y"]

    network = door.dump(model_of(NESTED), feeds(4, False), context=context)

    assert whole.same(expected, [plain])
    assert whole.same(expected, [network.run(feeds(4, False))["y"]])


SELECTED = {
    "full name": (["Default/Add-op0"], {"Default_Add-op0"}),
    "type": (["sub"], {"Default_Sub-op0"}),
    "pattern": ([r"name-regex(Default/A.+)"], {"Default_Add-op0", "Default_Abs-op0", "Default_Add-op1"}),
}


@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "O0"])
@pytest.mark.parametrize(("kernels", "expected"), SELECTED.values(), ids=SELECTED)
def test_kernels(door, context, kernels, expected):
    """Items of ``kernels`` select operators inside branches and loops."""
    door.dump(model_of(NESTED), feeds(2, True), context=context, dump_mode=1, kernels=kernels)

    assert expected == trees.operators(door.rank)


def test_control_flow_is_never_selected(door, caplog):
    """Control flow is no kernel: an item that names it matches nothing."""
    door.dump(model_of(NESTED), feeds(2, True), dump_mode=1, kernels=["If", "Default/Loop-op0", "ReLU"])

    door.process.close()

    assert [] == trees.tensors(door.rank)
    assert "items of kernels that matched no operator that ran: If, Default/Loop-op0" in caplog.text


def test_set_dump(door):
    """Operators inside branches can be marked, control flow cannot."""
    door.configure(dump_mode=2)
    network = door.load(model_of(NESTED), **O0)

    network.operator("Default/Abs-op0").set_dump(enabled=True)
    network.run(feeds(2, True))

    assert {"Default_Abs-op0"} == trees.operators(door.rank)
    assert {"Default/Abs-op0", "Default/ReLU-op0"} <= {item.full_name for item in network.operators}
    with pytest.raises(KeyError, match="Default/If-op0 is control flow"):
        network.operator("Default/If-op0")


FAILS = """g (float[2,3] x, float[N,3] w, bool c) => (y) {
    y = If(c) <then_branch = t () => (a) { p = Neg(x)  a = MatMul(p, w) },
               else_branch = e () => (b) { b = Abs(x) }> }"""


def test_failure_inside(door):
    """``op_debug_mode`` 4 leaves the inputs of an operator that fails inside a branch."""
    given = {"x": np.ones((2, 3), np.float32), "w": np.ones((5, 3), np.float32), "c": np.array(True)}

    with pytest.raises(ExecutionError, match="Default/MatMul-op0"):
        door.dump(model_of(FAILS), given, context=O0, op_debug_mode=4)

    assert ["MatMul-op0 input 0", "MatMul-op0 input 1"] == trees.slots(door.rank / "Net" / "1" / "0")


def test_kernel_arguments_and_statistics(door):
    """Arguments and statistics of inner operators stand in the directory of their graph."""
    door.dump(
        model_of(NESTED),
        feeds(2, True),
        context=O0,
        save_kernel_args=True,
        saved_data="full",
        statistic_category=["max"],
    )

    folder = door.rank / "Net" / "1" / "0"
    rows = list(csv.DictReader((folder / "statistic.csv").open()))
    cast = json.loads((folder / "Cast.Default_Cast-op0.json").read_text())
    assert {"Default_FloorMod-op0", "Default_Cast-op0", "Default_Add-op0"} == {row["Op Name"] for row in rows}
    sums = [row["Max Value"] for row in rows if (row["Op Type"], row["IO"]) == ("Add", "output")]
    assert [0, 4] == [float(number) for number in sums]
    assert {"dst_type": "Bool"} == cast


ROUNDED = """g (float[3] x, int64 n) => (float[3] y) {
    y = Loop(n, , x) <body = b (int64 i, bool c, float[3] v) => (bool c, float[3] v2) {
        t = Mul(v, v)  v2 = Sub(t, x) }> }"""


def half(array):
    """Return an array rounded to float16 and widened again."""
    return array.astype(np.float16).astype(np.float32)


def test_inner_operators_are_rounded(door):
    """Under force_fp16 each operator inside reads and writes float16, in files and in the result."""
    x = np.array([1.1, 0.3333333, 1.23456], np.float32)

    network = door.dump(
        model_of(ROUNDED), {"x": x, "n": np.array(2)}, context=O0, precision_mode="force_fp16"
    )

    t1 = half(half(x) * half(x))
    v1 = half(t1 - half(x))
    t2 = half(v1 * v1)
    v2 = half(t2 - half(x))
    expected = [("Mul-op0", t1), ("Sub-op0", v1), ("Mul-op0", t2), ("Sub-op0", v2)]
    found = outputs(door.rank / "Net" / "1" / "0")
    assert [(name, array.tolist()) for name, array in expected] == found
    assert v2.tolist() == network.run({"x": x, "n": np.array(2)})["y"].tolist()


def test_fusion_inside(door):
    """O1 fuses chains inside branches."""
    door.dump(model_of(NESTED), feeds(1, False), context=O1)

    assert ["Default/Add-op2ReLU-op0"] == listed(door.rank, 5)
    assert {"AddReLU"} == {match["type"] for match, _ in trees.tensors(door.rank / "Net" / "5")}


def with_weights():
    """Return a network with a weight outside, one inside and a constant inside its first branch."""
    model = model_of("""g (float[3] x, bool c) => (float[3] y) {
        y = If(c) <then_branch = t () => (a) {
                k = Constant<value_floats = [5.0, 6.0, 7.0]>()
                p = Mul(x, inner)  q = Add(p, k)  a = Sub(q, w) },
            else_branch = e () => (b) { b = Neg(x) }> }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(X * 10, "w"))
    branch = model.graph.node[0].attribute[0].g
    branch.initializer.append(onnx.numpy_helper.from_array(X * 2, "inner"))
    return model


def test_weights_and_constants_of_a_branch(door):
    """A branch's own weights and constants stand in its directories where it ran, outer ones outside."""
    door.configure()
    network = door.load(with_weights())

    for condition in (False, True, True):
        network.run({"x": X, "c": np.array(condition)})

    steps = [trees.parameters(door.rank / "Net" / "0" / str(step)) for step in range(3)]
    inner = [trees.parameters(door.rank / "Net" / "1" / str(step)) for step in range(3)]
    assert [["c", "w", "x"]] * 3 == steps
    assert [[], ["inner"], ["inner"]] == inner
    assert ["data-0"] == trees.parameters(door.rank / "Net" / "1" / "constants")
    assert not (door.rank / "Net" / "2" / "constants").exists()


def test_graph_files_link_graphs(door):
    """The main graph's files name the graphs of its branches and show their outer inputs."""
    door.configure()

    door.load(with_weights())

    folder = door.rank / "graphs"
    text = (folder / "ms_output_trace_code_graph_0.ir").read_text()
    (choice,) = (node for node in message(folder, 0).node if node.op_type == "If")
    assert "= If(%para3_c, %para2_x, %para1_w) {instance name: If_0}" in text
    assert "then_branch: @kernel_graph1, else_branch: @kernel_graph2" in text
    assert {"then_branch": "@kernel_graph1", "else_branch": "@kernel_graph2"} == {
        item.name: item.value.str_val for item in choice.attribute
    }
    assert ["inner", "w", "x"] == sorted(item.name for item in message(folder, 1).parameters)
    assert ["kernel_graph0", "kernel_graph1"] == [message(folder, number).name for number in (0, 1)]


def message(folder, number):
    """Return the graph of a .pb file."""
    return decoded_model((folder / f"ms_output_trace_code_graph_{number}.pb").read_bytes()).graph


def test_operators_without_a_graph_of_their_own(door, caplog):
    """A Scan over batches runs, is dumped as one operator, and one warning says so."""
    model = model_of("""g (float[1,2] s, float[1,3,2] xs) => (float[1,2] last, float[1,3,2] ys) {
        last, ys = Scan<num_scan_inputs = 1, body = b (float[2] t, float[2] x) => (float[2] t2, float[2] y) {
            t2 = Add(t, x)  y = Identity(t2) }>(, s, xs) }""")
    model.opset_import[0].version = 8
    given = {"s": np.zeros((1, 2), np.float32), "xs": np.ones((1, 3, 2), np.float32)}

    door.dump(model, given)

    told = [record.message for record in caplog.records if "runs as one operator" in record.message]
    assert {"Default_Scan-op0"} == trees.operators(door.rank)
    assert 1 == len(told)
    assert "Default/Scan-op0 runs as one operator (Scan of opset 8 works on batches)" in told[0]
