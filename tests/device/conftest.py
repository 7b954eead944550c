"""Networks in ONNX's text form, loaded."""

import onnx.parser
import pytest

from msdump.graph.loader import load

HEADER = '<ir_version: 10, opset_import: ["": 20]>'


@pytest.fixture(scope="session")
def network():
    """Return a loader of the text of a graph, opset 20."""
    return lambda text: load(onnx.parser.parse_model(f"{HEADER}\n{text}"))
