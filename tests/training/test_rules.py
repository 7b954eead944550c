"""Contract of all gradient rules: each has a case, is right, and works in every element type."""

import functools

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper, shape_inference
from onnxruntime.capi import onnxruntime_pybind11_state

from msdump.training import LOSSES, step_graph
from msdump.training.rules import LOWERINGS, RULES, constant_zero
from tests.training import tables
from tests.training.differences import OPSET, WEIGHTED, check, gradients_of, label, one_operator, session_of

_CASES = tables.operator_cases()
_FIRST = {tables.kind(arguments): name for name, arguments in reversed(_CASES.items())}
"""The first case of each operator."""

_PRECISION = {np.float16: 1e-2, np.float64: 1e-5}


def test_every_rule_has_a_case(monkeypatch):
    """There is a case for every rule, under the operator itself or one that is lowered to it."""
    used = {tables.kind(arguments) for arguments in _CASES.values()} | tables.covered()
    expected = {key for key, rule in RULES.items() if rule is not constant_zero}
    for key, rule in RULES.items():

        def recorded(back, key=key, rule=rule):
            used.add(key)
            return rule(back)

        monkeypatch.setitem(RULES, key, recorded)
    for arguments in _CASES.values():
        if tables.kind(arguments) in LOWERINGS:
            step_graph(one_operator(*arguments), WEIGHTED)
    for loss in sorted(set(LOSSES) - {"none"}):  # that is a loss in the model
        step_graph(one_operator("Gemm", [np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)], {}), loss)

    assert set() == expected - used


def _retyped(model, dtype):
    """Return a model with its float32 initializers and outputs in another element type."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for tensor in other.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in other.graph.output:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return other


STEPS = {
    "attention-CASES": (1 / 64, 1e-3),
    "attention-ROTATIONS": (0.5, 2e-5),
    "convolutions-CASES": (0.5, 2e-5),
    "convolutions-TRANSPOSED": (0.5, 2e-5),
    "convolutions-POOLING": (1 / 32, 5e-4),
    "grid_sample-CASES": (1 / 512, 2e-3),
    "normalization-BY_RUNTIME": (1 / 128, 1e-3),
    "recurrent-CASES": (1 / 64, 1e-3),
    "resize-CASES": (0.5, 2e-5),
}
"""Steps and tolerances of tables of operators for onnxruntime, not the reference evaluator."""


RUNTIME = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Resize"), (0.5, 2e-5)),
    **dict.fromkeys(("GlobalAveragePool",), (1 / 32, 5e-4)),
    **dict.fromkeys(("GroupNormalization",), (1 / 128, 1e-3)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (1 / 64, 1e-3)),
}
"""The same for ONNX's own cases, by operator."""


@pytest.mark.parametrize(
    "case",
    [name for name, entry in tables.entries().items() if isinstance(entry[0], str)] + [*tables.onnx_cases()],
)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    table = case.rpartition("-")[0]
    steps, key = (RUNTIME, _CASES[case][0]) if table == "onnx" else (STEPS, table)
    step, tolerance = steps.get(key, (None, 2e-5))
    options = {"trainable": ["p0"]} if case.startswith("losses") else {}

    check(one_operator(*_CASES[case]), step=step, tolerance=tolerance, **options)


def _check_types(model):
    """Raise where an operator does not take the types that it is given."""
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _is_valid(model):
    """Tell whether every operator takes the types that it is given."""
    try:
        _check_types(model)
    except shape_inference.InferenceError:
        return False
    return True


def _has_kernels(model):
    """Tell whether onnxruntime has kernels for a model."""
    try:
        session_of(model, [])
    except onnxruntime_pybind11_state.NotImplemented:
        return False
    return True


@functools.cache
def _plain_gradients(case):
    """Return the gradients of a case in float32."""
    step = step_graph(one_operator(*_CASES[case]), WEIGHTED)
    return gradients_of(step, {"inputs0": label(step)})


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("case", [name for kind, name in _FIRST.items() if not kind[0]])
def test_other_element_types(case, dtype):
    """No rule and no body forces float32 on others, and the gradients equal float32's."""
    model = one_operator(*_CASES[case])
    other = _retyped(model, dtype)
    if not _is_valid(other):
        return  # ONNX has not the operator in this type
    step = step_graph(other, WEIGHTED)
    _check_types(step)
    if not _has_kernels(other):
        return  # the types are right, and that is all that can be known of an operator that does not run
    gradients = gradients_of(step, {"inputs0": label(step)})

    for name, expected in _plain_gradients(case).items():
        gradient = gradients[name]
        assert dtype == gradient.dtype
        scale = max(float(np.abs(expected).max()), 1.0)
        np.testing.assert_allclose(expected, gradient, rtol=0, atol=scale * _PRECISION[dtype])


@pytest.mark.parametrize("opset", [18, 24])
def test_other_opsets(opset):
    """The step of every operator runs in the oldest and the newest operators of ONNX."""
    for name in _FIRST.values():
        op_type, *given = arguments = _CASES[name]
        has_own_opset = len(arguments) > 4 and arguments[4] != OPSET
        if has_own_opset or not defs.has(op_type, opset, tables.kind(arguments)[0]):
            continue
        model = one_operator(op_type, *given[:3], opset=opset)

        step = step_graph(model, WEIGHTED)

        if _has_kernels(model):
            session_of(step, [])
