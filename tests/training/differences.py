"""Gradients by numerical differences: a rule must agree with the real change of a loss."""

import math

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from msdump.graph.primitives import op
from msdump.training import step_graph
from msdump.training.losses import Loss
from msdump.training.writer import StepTensor

OPSET = 20
STEP = 1e-5
_DIRECTIONS = 16


def _weighted(output, weights):
    """Sum an output, each element times a weight of its own, so that no error can cancel."""
    result: StepTensor = op.ReduceSum(output * weights, list(range(output.rank)), keepdims=0)
    return result


class Erf(OpRun):
    """The error function in float64; onnx's own rounds to float32."""

    op_domain = ""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[np.float64])(x),)


class Gelu(OpRun):
    """GELU in float64; onnx's own rounds to float32."""

    op_domain = ""

    def _run(self, x, approximate=None):
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))),)


WEIGHTED = Loss("Weighted", lambda output: (output.dtype, output.shape), _weighted)
"""A loss with the labels as its gradient with respect to the output."""


def normals(random):
    """Return a function that gives normally distributed float32 numbers of a shape."""
    return lambda *shape: random.standard_normal(shape).astype(np.float32)


def ints(*values):
    """Return integers of int64."""
    return np.array(values, np.int64)


def number(value):
    """Return a float32 number."""
    return np.array(value, np.float32)


def one_operator(op_type, arrays, attributes, outputs=1, opset=OPSET, domain=""):
    """Return a model of one operator with initializers as inputs."""
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


def bindings_of(step):
    """Return the new value of every variable of a step graph."""
    return {entry.key: entry.value for entry in step.training_info[0].update_binding}


def gradients_of(step, feeds):
    """Return the gradient of every parameter that a step graph trains.

    The first step of Momentum leaves the gradient itself in the accumulation.
    """
    moments = {
        name.removeprefix("moments."): value
        for name, value in bindings_of(step).items()
        if name.startswith("moments.")
    }
    return dict(zip(moments, outputs_of(step, [*moments.values()], feeds), strict=True)) if moments else {}


def label(step, place=0):
    """Return ones of the shape and type of the labels of a step graph, an input of it."""
    kind = step.graph.input[place].type.tensor_type
    return np.ones(
        [size.dim_value for size in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type)
    )


def analytic(model, weights, **options):
    """Return the gradient of the weighted sum of the first output for every parameter that is trained."""
    step = step_graph(model, WEIGHTED, "momentum:0.0,0.9", **options)
    return gradients_of(step, {"inputs0": weights.astype(label(step).dtype)})


def session_of(step, names):
    """Return a session of a step graph as it stands, that gives any values of it."""
    shown = onnx.ModelProto()
    shown.CopyFrom(step)
    declared = {value.name for value in step.graph.output}
    shown.graph.output.extend(value for value in step.graph.value_info if value.name in {*names} - declared)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(shown.SerializeToString(), settings)


def outputs_of(step, names, feeds):
    """Return values of one run of a step graph."""
    arrays: list[np.ndarray] = session_of(step, names).run(list(names), dict(feeds))
    return arrays


def forward(model, *, by_runtime=False):
    """Return a function that gives the first output for values of the parameters, and these values.

    Operators run in float64 by the reference evaluator, or in float32 by onnxruntime.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    if by_runtime:
        session = session_of(_fed(model, onnx.TensorProto.FLOAT), [])
        return (lambda feeds: session.run(["y0"], feeds)[0]), values
    evaluator = ReferenceEvaluator(_fed(model, onnx.TensorProto.DOUBLE), new_ops=[Erf, Gelu])
    wide = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in values.items()
    }
    return (lambda feeds: evaluator.run(None, feeds)[0]), wide


def numerical(forward_of, weights, name, directions, step):
    """Return the changes of the weighted sum with a parameter in some directions, by central differences.

    Args:
        forward_of: Function of the parameters, and their values.
        weights: Factors of the elements of the first output.
        name: Name of the parameter.
        directions: Arrays of the parameter's shape.
        step: Size of the differences.
    """
    run, values = forward_of
    sums = (
        float(
            np.sum(np.asarray(run({**values, name: moved.astype(values[name].dtype)}), np.float64) * weights)
        )
        for direction in directions
        for moved in (values[name] + step * direction, values[name] - step * direction)
    )
    return np.array([(above - below) / (2 * step) for above, below in zip(sums, sums, strict=True)])


def directions_of(shape, *, one_by_one):
    """Return the directions in which a parameter is moved: each element alone, or all of many at once.

    Each of the latter moves every element as far, up or down, so that an error of one shows in all of them.
    """
    size = math.prod(shape)
    if one_by_one or size <= _DIRECTIONS:
        return np.eye(size).reshape(size, *shape)
    return np.random.default_rng(11).choice([-1.0, 1.0], (_DIRECTIONS, *shape))


def _fed(model, kind):
    """Return a model with its initializers as inputs, float32 ones in another type."""
    fed = onnx.ModelProto()
    fed.CopyFrom(model)
    del fed.graph.initializer[:]
    for tensor in model.graph.initializer:
        own = kind if tensor.data_type == onnx.TensorProto.FLOAT else tensor.data_type
        fed.graph.input.append(helper.make_tensor_value_info(tensor.name, own, list(tensor.dims)))
    return fed


def check(model, *, tolerance=2e-5, step=None, **options):
    """Assert that all gradients of a model agree with numerical differences.

    Args:
        model: Its parameters are float32 initializers.
        tolerance: Largest error relative to the largest element: float32 against float64.
        step: Size of differences of onnxruntime's results, exact where an operator is linear in its inputs;
            None: tiny ones by the reference evaluator in float64.
        options: Arguments of ``step_graph``.
    """
    run, values = forward_of = forward(model, by_runtime=step is not None)
    weights = np.random.default_rng(7).uniform(0.5, 1.5, np.shape(run(values))).astype(np.float32)
    gradients = analytic(model, weights, **options)
    assert gradients, "nothing is trained"
    for name, gradient in gradients.items():
        assert values[name].shape == gradient.shape, name
        directions = directions_of(gradient.shape, one_by_one=step is not None)
        expected = numerical(forward_of, weights, name, directions, step or STEP)
        found = np.array([np.sum(direction * gradient) for direction in directions])
        error = float(np.abs(expected - found).max()) / max(float(np.abs(gradient).max()), 1e-3)
        assert error <= tolerance, f"{name}: {error:.2e}\n{expected}\n{found}"
