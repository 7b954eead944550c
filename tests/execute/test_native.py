"""The internals of onnxruntime that the room of execution stands on, each by its name."""

import ast
import sys
from types import SimpleNamespace

import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as installed

from msdump.errors import NotAvailableError
from msdump.execute import native
from tests.world import ROOT, completed

CLASSES = (installed.InferenceSession, installed.OrtValue, installed.SessionOptions)


def uses():
    """Return the internal names that are used."""
    return {
        node.attr
        for path in (ROOT / "msdump/execute").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and _is_internal(node)
    }


def _is_internal(node):
    """Tell an attribute of ``native``, of something of it, or one that only the runtime's objects have."""
    text = ast.unparse(node.value)
    if text == "native" or text.startswith("native."):
        return True
    return not node.attr.startswith("_") and any(hasattr(kind, node.attr) for kind in CLASSES)


def test_table_names_what_is_used():
    """Every internal that the code uses stands in the table, and nothing else."""
    named = {part for symbol in native.SYMBOLS for part in symbol.split(".")}
    owners = {symbol.split(".")[0] for symbol in native.SYMBOLS if "." in symbol}

    assert named - owners == uses() - owners


def test_only_one_module_imports_the_internals():
    """No other module goes past the check."""
    found = [path.name for path in (ROOT / "msdump").rglob("*.py") if "pybind11_state" in path.read_text()]

    assert ["native.py"] == found


def test_missing_symbols_are_told_by_name():
    """A runtime without some of them is refused with all of their names, its version and the remedy."""
    without = SimpleNamespace(**{name: getattr(installed, name) for name in dir(installed)})
    del without.OrtMemoryInfo, without.OrtMemType

    with pytest.raises(NotAvailableError) as caught:
        native.check(without, "9.9")

    assert str(caught.value).startswith(
        "onnxruntime 9.9 has no OrtMemType.DEFAULT, OrtMemoryInfo among the internals that msdump needs"
    )
    assert str(caught.value).endswith(
        f"install onnxruntime {native.TESTED}, the newest that msdump was tested with"
    )


def test_commands_tell_it_at_once():
    """A command on such a runtime ends with that message, not with a traceback."""
    code = (
        "from onnxruntime.capi import onnxruntime_pybind11_state as native; del native.OrtMemoryInfo\n"
        "from msdump.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", str(ROOT / "graphs/mini.onnx")]
    done = completed(*command, timeout=100)

    assert 2 == done.returncode
    assert done.stderr.startswith("msdump: error: onnxruntime ")
    assert "has no OrtMemoryInfo" in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_newest_tested_version_is_the_locked_one():
    """The message recommends the version that the tests run with."""
    assert f"onnxruntime=={native.TESTED}" in (ROOT / "requirements.lock").read_text().split()
