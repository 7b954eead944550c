"""Scopes, full names and source lines of operators."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import helper, numpy_helper

from msdump.graph import SourceLine, loader
from msdump.graph.names import FullNames, name_nodes, scope_of, source_of
from tests.texts import parsed

HOOK = "_empty_nn_module_stack_from_metadata_hook"


def torch(scopes, classes):
    """Return metadata as PyTorch's exporter writes them."""
    return {"pkg.torch.onnx.name_scopes": str(scopes), "pkg.torch.onnx.class_hierarchy": str(classes)}


def onnxscript(scopes, classes):
    """Return metadata as onnxscript's tracer writes them."""
    return {"pkg.onnxscript.name_scopes": str(scopes), "pkg.onnxscript.class_hierarchy": str(classes)}


SCOPES = {
    "PyTorch: module": (
        *("n", torch(["", "conv3", "conv2d_2"], ["m.Net", "torch.nn.Conv2d", "aten.conv2d"])),
        *("Default/conv3-Conv2d", "Default/conv3"),
    ),
    "PyTorch: whole paths": (
        *("n", torch(["", "l", "l.0", "l.0.fc", "mm"], ["Net", "Seq", "m.Block", "Linear", "aten.mm"])),
        *("Default/l-Seq/0-Block/fc-Linear", "Default/l/0/fc"),
    ),
    "PyTorch: module within one of its name": (
        *("n", torch(["", "a", "a.a", "op"], ["Net", "A", "B", "aten.op"])),
        *("Default/a-A/a-B", "Default/a/a"),
    ),
    "PyTorch: called twice in itself": (
        *("n", torch(["", "a", "a", "op"], ["Net", "A", "A", "aten.op"])),
        *("Default/a-A", "Default/a"),
    ),
    "onnxscript: root": ("Add_node_1", onnxscript([""], ["Net"]), "Default", "Default"),
    "onnxscript: own names": (
        *("n", onnxscript(["", "layers", "0", "fc"], ["Net", "CellList", "Cell", "Dense"])),
        *("Default/layers-CellList/0-Cell/fc-Dense", "Default/layers/0/fc"),
    ),
    "node name": ("conv1-Conv2d/Conv", {}, "Default/conv1-Conv2d", "Default/conv1-Conv2d"),
    "node name without a path": ("Conv_3", {}, None, None),
    "PyTorch: in no module": ("n", torch([HOOK, "split"], ["", "aten.split"]), None, None),
    "PyTorch: module behind the hook": (
        *("n", torch([HOOK, "fc", "mm"], ["", "Linear", "aten.mm"])),
        *("Default/fc-Linear", "Default/fc"),
    ),
    "node name with a leading slash": ("/layer/fc/MatMul", {}, "Default/layer/fc", "Default/layer/fc"),
    "gradient": ("Gradients/Default/fc/MatMul", {}, "Gradients/Default/fc", "Gradients/Default/fc"),
    "foreign metadata": ("a/b", {"pkg.torch.onnx.name_scopes": "what("}, "Default/a", "Default/a"),
}


@pytest.mark.parametrize(("name", "metadata", "full", "short"), SCOPES.values(), ids=SCOPES)
def test_scope(name, metadata, full, short):
    """A scope comes from the exporter's metadata, else from the node's name, or is unknown."""
    found = (scope_of(name, metadata), scope_of(name, metadata, keeps_classes=False))

    assert (full, short) == found


def exported(*nodes):
    """Return the full names of a model; a node is (operator, inputs, outputs, torch's scopes or None)."""
    protos = []
    for op_type, inputs, outputs, scopes in nodes:
        proto = helper.make_node(op_type, inputs.split(), outputs.split(), name=f"node_{outputs}")
        for key, value in torch([*scopes, "call"], []).items() if scopes is not None else ():
            proto.metadata_props.add(key=key, value=value)
        protos.append(proto)
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(protos, "g", values[:1], values[1:]), ir_version=10)
    return [node.operator.full_name for node in loader.load(model).nodes]


def test_scope_that_readers_share():
    """An operator without a scope gets the innermost scope that holds all of its readers."""
    found = exported(
        ("Neg", "x", "a", [HOOK]),
        ("Abs", "a", "b", None),
        ("Exp", "b", "c", ["", "l", "l.0"]),
        ("Sin", "b", "d", ["", "l", "l.1"]),
        ("Cos", "x", "e", None),
        ("Add", "c e", "f", ["", "l", "l.0"]),
        ("Mul", "d f", "g", [""]),
        ("Sqrt", "g", "y", None),
    )

    assert [
        *("Default/l/Neg-op0", "Default/l/Abs-op0", "Default/l/0/Exp-op0", "Default/l/1/Sin-op0"),
        *("Default/l/0/Cos-op0", "Default/l/0/Add-op0", "Default/Mul-op0", "Default/Sqrt-op0"),
    ] == found


def test_nodes_of_branches_are_not_called_as_outer_ones():
    """A node in a branch that bears the name of an outer one gets another."""
    branch = "b () => (float i) { [same] i = Neg(x) }"
    graph = parsed(
        f"g (float x, bool c) => (float y) {{ [same] a = Abs(x) [choice] y = If (c)"
        f" <then_branch = {branch}, else_branch = {branch}> }}"
    ).graph

    name_nodes(graph)

    inner = [attribute.g.node[0].name for attribute in graph.node[1].attribute]
    assert ["same", "choice"] == [node.name for node in graph.node]
    assert 3 == len({"same", *inner})


def test_numbers_count_per_scope_and_primitive():
    """Operator numbers count from 0 for each scope and primitive."""
    names = FullNames()

    found = [names.next(*pair) for pair in (("D/a", "Add"), ("D/a", "Add"), ("D/a", "Mul"), ("D/b", "Add"))]

    assert found == ["D/a/Add-op0", "D/a/Add-op1", "D/a/Mul-op0", "D/b/Add-op0"]


@pytest.mark.parametrize("prefix", ["pkg.torch.onnx.", "pkg.onnxscript."])
def test_source_lines(prefix):
    """Source lines stand in the order of the stack trace, outermost call first."""
    trace = 'File "a.py", line 3, in forward\n    y = f(x)\nFile "b.py", line 9, in f\n    return x + 1'

    found = source_of({f"{prefix}stack_trace": trace})

    assert (SourceLine("a.py", 3, "y = f(x)"), SourceLine("b.py", 9, "return x + 1")) == found


class _Garbage:
    """A cycle that runs Python when it is collected, so that another thread may take over."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        sum(number for number in range(100))


@pytest.fixture
def hasty():
    """Let threads change and garbage be collected as often as can be."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("hasty")
def test_threads_read_metadata_at_once():
    """Scopes can be read in several threads at once, which Python 3.11's own parser does not allow."""
    metadata = torch(["", "layers", "layers.0", "conv2d"], ["Net", "Sequential", "Conv2d", "aten.conv2d"])

    def read(_):
        _Garbage()
        return scope_of("n", metadata)

    with ThreadPoolExecutor(4) as threads:
        scopes = set(threads.map(read, range(8000)))

    assert {"Default/layers-Sequential/0-Conv2d"} == scopes


def test_names_in_onnx_files_of_mindspore(caplog):
    """MindSpore's ONNX files have scopes of labels, parameters and readers; one line recommends .mindir."""
    norm = "6-Default/0-Layer/norm1-LayerNorm/TupleGetItem-op0"
    nodes = [
        helper.make_node("Relu", ["x"], ["1"], name="1Relu"),
        helper.make_node("Gemm", ["1", "blocks.0.fc.weight"], ["2"], name="2Gemm"),
        helper.make_node("ReduceMean", ["2"], [f"{norm}_mean"], name=f"{norm}_meanReduceMean"),
        helper.make_node("Sub", ["2", f"{norm}_mean"], [f"{norm}_centered"], name=f"{norm}_centeredSub"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", 1, [2, 4])],
        [info(f"{norm}_centered", 1, None)],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), "blocks.0.fc.weight")],
    )
    model = helper.make_model(graph, producer_name="MindSpore", opset_imports=[helper.make_opsetid("", 13)])
    assert [node.operator.full_name for node in loader.load(model).nodes] == [
        "Default/blocks/0/fc/ReLU-op0",
        "Default/blocks/0/fc/Dense-op0",
        "Default/0-Layer/norm1-LayerNorm/ReduceMean-op0",
        "Default/0-Layer/norm1-LayerNorm/Sub-op0",
    ]
    assert [".mindir" in record.getMessage() for record in caplog.records] == [True]
