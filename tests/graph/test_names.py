"""Scopes, full names and source lines of operators."""

from __future__ import annotations

import pytest

from msdump.graph.graph import SourceLine
from msdump.graph.names import FullNames, scope_of, source_of


def torch(scopes, classes):
    """Return metadata as PyTorch's exporter writes them."""
    return {"pkg.torch.onnx.name_scopes": str(scopes), "pkg.torch.onnx.class_hierarchy": str(classes)}


def onnxscript(scopes, classes):
    """Return metadata as onnxscript's tracer writes them."""
    return {"pkg.onnxscript.name_scopes": str(scopes), "pkg.onnxscript.class_hierarchy": str(classes)}


SCOPES = {
    "PyTorch: root": ("n", torch(["", "add"], ["Net", "aten.add"]), "Default", "Default"),
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
    "PyTorch: no classes": ("n", torch(["", "fc", "mm"], []), "Default/fc", "Default/fc"),
    "onnxscript: root": ("Add_node_1", onnxscript([""], ["Net"]), "Default", "Default"),
    "onnxscript: own names": (
        *("n", onnxscript(["", "layers", "0", "fc"], ["Net", "CellList", "Cell", "Dense"])),
        *("Default/layers-CellList/0-Cell/fc-Dense", "Default/layers/0/fc"),
    ),
    "onnxscript: module within one of its name": (
        *("n", onnxscript(["", "a", "a"], ["Net", "A", "B"])),
        *("Default/a-A/a-B", "Default/a/a"),
    ),
    "node name": ("conv1-Conv2d/Conv", {}, "Default/conv1-Conv2d", "Default/conv1-Conv2d"),
    "node name without a path": ("Conv_3", {}, "Default", "Default"),
    "node name with a leading slash": ("/layer/fc/MatMul", {}, "Default/layer/fc", "Default/layer/fc"),
    "node name from the root": ("Default/fc-Dense/MatMul", {}, "Default/fc-Dense", "Default/fc-Dense"),
    "gradient": ("Gradients/Default/fc/MatMul", {}, "Gradients/Default/fc", "Gradients/Default/fc"),
    "foreign metadata": ("a/b", {"pkg.torch.onnx.name_scopes": "what("}, "Default/a", "Default/a"),
    "metadata of another type": ("a/b", {"pkg.onnxscript.name_scopes": "[1]"}, "Default/a", "Default/a"),
}


@pytest.mark.parametrize(("name", "metadata", "full", "short"), SCOPES.values(), ids=SCOPES)
def test_scope(name, metadata, full, short):
    """A scope comes from the exporter's metadata, else from the node's name; classes can be left out."""
    found = (scope_of(name, metadata), scope_of(name, metadata, keeps_classes=False))

    assert (full, short) == found


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


def test_no_source_lines():
    """A node without a stack trace has no source lines."""
    assert source_of({}) == ()
