"""Gradients by numerical differences: what a rule gives must agree with how a loss really changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from msdump.training import step_graph
from msdump.training.losses import Loss
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

OPSET = 20
STEP = 1e-5


def _weighted(op: StepWriter, output: StepTensor, weights: StepTensor) -> StepTensor:
    """Sum an output, each element times a weight of its own, so that no error can cancel."""
    result: StepTensor = op.ReduceSum(op.Mul(output, weights), list(range(output.rank)), keepdims=0)
    return result


class Erf(OpRun):
    """The error function in float64; onnx's own rounds to float32."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.vectorize(math.erf, otypes=[np.float64])(x),)


class Gelu(OpRun):
    """GELU in float64; onnx's own rounds to float32."""

    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str | None = None) -> tuple[np.ndarray]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))),)


WEIGHTED = Loss("Weighted", lambda output: (output.dtype, output.shape), _weighted)
"""A loss whose gradient with respect to the output is any tensor: that of the labels."""


def one_operator(
    op_type: str,
    arrays: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any],
    outputs: int = 1,
    opset: int = OPSET,
    domain: str = "",
) -> onnx.ModelProto:
    """Return a model of one operator whose inputs are all initializers."""
    names = [f"p{slot}" if array is not None else "" for slot, array in enumerate(arrays)]
    node = helper.make_node(
        op_type,
        names,
        [f"y{slot}" for slot in range(outputs)],
        name="layer/node",
        domain=domain,
        **attributes,
    )
    initializers = [
        numpy_helper.from_array(array, name)
        for name, array in zip(names, arrays, strict=True)
        if array is not None
    ]
    results = [helper.make_empty_tensor_value_info("y0")]
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    graph = helper.make_graph([node], "one", [], results, initializers)
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def analytic(model: onnx.ModelProto, weights: np.ndarray, **options: Any) -> dict[str, np.ndarray]:
    """Return the gradient of the weighted sum of the first output for every parameter that is trained.

    The first step of Momentum leaves the gradient itself in the accumulation.
    """
    step = step_graph(model, WEIGHTED, "momentum:0.0,0.9", **options)
    bindings = {entry.key: entry.value for entry in step.training_info[0].update_binding}
    names = [name for name in bindings if name.startswith("moments.")]
    kind = helper.tensor_dtype_to_np_dtype(step.graph.input[0].type.tensor_type.elem_type)
    results = outputs_of(step, [bindings[name] for name in names], {"inputs0": weights.astype(kind)})
    return {name.removeprefix("moments."): array for name, array in zip(names, results, strict=True)}


def session_of(step: onnx.ModelProto, names: Sequence[str]) -> onnxruntime.InferenceSession:
    """Return a session of a step graph as it stands, that gives any values of it."""
    shown = onnx.ModelProto()
    shown.CopyFrom(step)
    declared = {value.name for value in step.graph.output}
    shown.graph.output.extend(value for value in step.graph.value_info if value.name in {*names} - declared)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(shown.SerializeToString(), settings)


def outputs_of(
    step: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Return values of one run of a step graph."""
    arrays: list[np.ndarray] = session_of(step, names).run(list(names), dict(feeds))
    return arrays


def numerical(model: onnx.ModelProto, weights: np.ndarray, name: str) -> np.ndarray:
    """Return the same by central differences, with the forward operators in float64."""
    wide = {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
        if tensor.data_type == onnx.TensorProto.FLOAT
        else numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
    }
    evaluator = ReferenceEvaluator(_fed(model, onnx.TensorProto.DOUBLE), new_ops=[Erf, Gelu])
    return _differences(lambda values: evaluator.run(None, values)[0], wide, weights, name, STEP)


def numerical_by_runtime(model: onnx.ModelProto, weights: np.ndarray, name: str, step: float) -> np.ndarray:
    """Return the same by differences of onnxruntime's results, in float32: the step must be large."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    fed = _fed(model, onnx.TensorProto.FLOAT)
    session = onnxruntime.InferenceSession(fed.SerializeToString(), settings)
    return _differences(lambda feeds: session.run(["y0"], feeds)[0], values, weights, name, step)


def _differences(
    run: Callable[[dict[str, np.ndarray]], Any],
    values: dict[str, np.ndarray],
    weights: np.ndarray,
    name: str,
    step: float,
) -> np.ndarray:
    gradient = np.zeros(values[name].shape)
    for index in np.ndindex(gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = values[name].copy()
            moved[index] += sign * step
            sides.append(float(np.sum(np.asarray(run({**values, name: moved}), np.float64) * weights)))
        gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradient


def _fed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Return a model whose initializers are inputs, those of float32 of a type."""
    fed = onnx.ModelProto()
    fed.CopyFrom(model)
    del fed.graph.initializer[:]
    for tensor in model.graph.initializer:
        own = kind if tensor.data_type == onnx.TensorProto.FLOAT else tensor.data_type
        fed.graph.input.append(helper.make_tensor_value_info(tensor.name, own, list(tensor.dims)))
    return fed


def check(
    model: onnx.ModelProto,
    shape: Sequence[int] | None = None,
    tolerance: float = 2e-5,
    step: float | None = None,
    **options: Any,
) -> None:
    """Assert that all gradients of a model agree with numerical differences.

    Args:
        model: Its parameters are float32 initializers.
        shape: Shape of its first output; None: what it is.
        tolerance: Largest error relative to the largest element: float32 against float64.
        step: Size of differences of onnxruntime's results, exact where an operator is linear in its inputs;
            None: tiny ones by the reference evaluator in float64.
        options: Arguments of ``step_graph``.
    """
    if shape is None:
        shape = np.shape(ReferenceEvaluator(model).run(None, {})[0])
    weights = np.random.default_rng(7).uniform(0.5, 1.5, tuple(shape)).astype(np.float32)
    gradients = analytic(model, weights, **options)
    assert gradients, "nothing is trained"
    for name, gradient in gradients.items():
        expected = (
            numerical(model, weights, name)
            if step is None
            else numerical_by_runtime(model, weights, name, step)
        )
        assert expected.shape == gradient.shape, name
        error = float(np.abs(expected - gradient).max()) / max(float(np.abs(expected).max()), 1e-3)
        assert error <= tolerance, f"{name}: {error:.2e}\n{expected}\n{gradient}"
