"""Gradients of whole networks against PyTorch's autograd."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch")

import msdump  # noqa: E402 - torch first
from msdump.training import step_graph  # noqa: E402
from sample_nets import data  # noqa: E402
from sample_nets.bert import net as bert  # noqa: E402
from sample_nets.lenet import net as lenet  # noqa: E402
from sample_nets.mobilenetv2 import net as mobilenetv2  # noqa: E402
from sample_nets.resnet50 import net as resnet50  # noqa: E402
from sample_nets.tracing import trace  # noqa: E402
from scripts.bench import torch_networks  # noqa: E402

LARGEST_ERROR = 1e-4  # of float32, relative to the largest element of the parameter's gradient
ZERO = 1e-6  # share of the network's largest gradient: the rounding error of a zero
BATCH = 4
BERT = bert.BertConfig(vocabulary=50, sequence=8, hidden=16, heads=2, layers=3)
ACTIVATIONS = ("Relu", "ReLU6")


@dataclass(frozen=True)
class Case:
    """A network, here and in PyTorch.

    Attributes:
        module: Makes the network.
        inputs: Its inputs in order.
        twin: Returns its first output from weights, branches and inputs.
        outputs: Names of the outputs; the loss is one over the last.
    """

    module: Any
    inputs: dict[str, np.ndarray]
    twin: Any
    outputs: tuple[str, ...] = ("output",)

    def model(self):
        """Return its ONNX model."""
        values = [
            ir.val(name, ir.DataType.from_numpy(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        model = ir.to_proto(trace(self.module(), values, name="network", outputs=self.outputs))
        model.graph.output.reverse()
        return model


CASES = {
    "lenet": Case(lenet.network, {"x": data.digits(0, BATCH, 32)}, torch_networks.lenet),
    "resnet50": Case(resnet50.network, {"x": data.photos(0, BATCH, 64)}, torch_networks.resnet50),
    "mobilenetv2": Case(mobilenetv2.network, {"x": data.photos(0, BATCH, 64)}, torch_networks.mobilenetv2),
    "bert": Case(
        lambda: bert.network(BERT),
        data.texts(0, BATCH, BERT.sequence, BERT.vocabulary),
        functools.partial(torch_networks.bert, heads=BERT.heads, layers=BERT.layers),
        bert.OUTPUTS,
    ),
}
LABELS = np.arange(BATCH, dtype=np.int32)


def trained(model, inputs):
    """Return the loss of a step, the outputs of its activations, and all gradients.

    The first step of Momentum leaves the gradients in the accumulations.
    """
    step = step_graph(model, optimizer="momentum:0.0,0.9")
    kinds = {info.name: info for info in step.graph.value_info}
    step.graph.output.extend(kinds[node.output[0]] for node in step.graph.node if node.op_type in ACTIVATIONS)
    network = msdump.load(step)
    results = network.train_step(*inputs, LABELS)
    loss, *activations = results if isinstance(results, tuple) else (results,)
    gradients = {
        name.removeprefix("moments."): array
        for name, array in network.state().items()
        if name.startswith("moments.")
    }
    return loss, activations, gradients


def differentiated(case, model, activations):
    """Return the loss and all gradients of PyTorch's autograd in float64."""
    weights = {
        tensor.name: torch.tensor(
            numpy_helper.to_array(tensor), dtype=torch.float64, requires_grad="moving_" not in tensor.name
        )
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    tensors = [torch.tensor(array) for array in case.inputs.values()]
    wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]
    branches = torch_networks.Branches([torch.tensor(array) for array in activations])
    output = case.twin(torch_networks.Weights(weights), branches, *wide)
    loss = torch.nn.functional.cross_entropy(output, torch.tensor(LABELS).long())
    loss.backward()
    gradients = {name: weight.grad.numpy() for name, weight in weights.items() if weight.grad is not None}
    return loss.item(), gradients


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients(case):
    """The gradient of every parameter is that of PyTorch's autograd, but for the rounding of float32."""
    model = case.model()

    loss, activations, gradients = trained(model, case.inputs.values())

    expected_loss, expected = differentiated(case, model, activations)
    assert abs(expected_loss - float(loss)) <= 1e-5 * expected_loss
    assert expected.keys() == gradients.keys()
    scale = max(np.abs(gradient).max() for gradient in expected.values())
    errors = {
        name: np.abs(gradient - gradients[name]).max()
        / max(np.abs(gradient).max(), ZERO / LARGEST_ERROR * scale)
        for name, gradient in expected.items()
    }
    assert {} == {name: error for name, error in errors.items() if error > LARGEST_ERROR}
