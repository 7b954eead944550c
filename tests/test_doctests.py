"""Examples in docstrings: they are run, and the modules of formats and grammars have some."""

import doctest
import importlib

import pytest

from tests.world import ROOT

_SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "msdump").rglob("*.py"))
}
_WITH_EXAMPLES = [name for name, path in _SOURCES.items() if ">>> " in path.read_text()]

SHOWN_BY_EXAMPLE = (
    "msdump.capture.compiled.dump",
    "msdump.capture.compiled.model_selection",
    "msdump.capture.statistics",
    "msdump.statistics.passes",
    "msdump.capture.steps",
    "msdump.capture.triggers",
    "msdump.capture.pipeline",
    "msdump.config.acl.rules",
    "msdump.config.grammar",
    "msdump.config.regex",
    "msdump.cli.documents",
    "msdump.cli.trend",
    "msdump.device.blocks",
    "msdump.device.formats",
    "msdump.device.memory",
    "msdump.dtypes",
    "msdump.encode.dump_data",
    "msdump.encode.dump_message",
    "msdump.encode.ge",
    "msdump.encode.npy",
    "msdump.encode.op_debug",
    "msdump.encode.operator_csv",
    "msdump.encode.elements",
    "msdump.encode.statistic_csv",
    "msdump.graph.files.arguments",
    "msdump.graph.files.ir_text",
    "msdump.graph.kernel.onenode",
    "msdump.graph.names",
    "msdump.graph.operators",
    "msdump.read.ir",
    "msdump.read.iteration",
    "msdump.read.operator_graph",
    "msdump.read.selection",
    "msdump.read.statistic_table",
    "msdump.selector",
    "msdump.store.graph_names",
    "msdump.store.layouts",
    "msdump.store.names",
    "msdump.store.operator_names",
    "msdump.store.layouts",
    "msdump.store.templates",
    "msdump.store.write.rows",
    "msdump.store.write.sinks",
    "msdump.read.folder",
    "msdump.convert.format",
    "msdump.convert.file",
    "msdump.judge.errors",
    "msdump.wire",
)
"""Modules of formats, names, grammars and layouts: an example says more than their rules."""


@pytest.mark.parametrize("name", _WITH_EXAMPLES)
def test_examples_hold(name):
    """Examples show the results of the code."""
    if "torchair" in name:
        pytest.importorskip("torch")
    module = importlib.import_module(name)

    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)

    assert failed == 0
    assert attempted > 0


@pytest.mark.parametrize("name", SHOWN_BY_EXAMPLE)
def test_formats_and_grammars_have_examples(name):
    """Each module of a format or a grammar shows an example."""
    assert name in _WITH_EXAMPLES
