"""Modules of known networks train through the backend as in eager execution."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from msdump import torchair  # noqa: E402 - torch first
from msdump.errors import GraphError  # noqa: E402
from scripts.conformance.modules import MISSING, MODULES, step  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    """Start each test with nothing compiled."""
    torch._dynamo.reset()


@pytest.mark.parametrize("name", [name for name in MODULES if name not in MISSING])
def test_module(name):
    """A module's outputs, its gradients and its buffers are eager's."""
    expected = step(MODULES[name], None)

    made = step(MODULES[name], torchair.get_npu_backend())

    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MISSING)
def test_missing_operators_are_named(name):
    """A module with an operator that nothing translates is refused with that operator."""
    with pytest.raises(GraphError, match=MISSING[name].replace(".", r"\.")):
        step(MODULES[name], torchair.get_npu_backend())
