"""What holds for all gradient rules: each has a case, and works in every element type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper, shape_inference
from onnxruntime.capi import onnxruntime_pybind11_state

from msdump.training import step_graph
from msdump.training.losses import LOSSES
from msdump.training.lowering import LOWERINGS
from msdump.training.rules import RULES, constant_zero
from tests.training import tables
from tests.training.differences import OPSET, WEIGHTED, one_operator, outputs_of, session_of

_CASES = tables.operator_cases()
_FIRST = {tables.kind(arguments): name for name, arguments in reversed(_CASES.items())}
"""The first case of each operator."""

_PRECISION = {np.float16: 1e-2, np.float64: 1e-5}


def test_every_rule_has_a_case(monkeypatch):
    """There is a case for every rule, under the operator itself or one that is lowered to it."""
    used = {tables.kind(arguments) for arguments in _CASES.values()} | tables.covered()
    expected = {key for key, rule in RULES.items() if rule is not constant_zero}
    for key, rule in RULES.items():

        def recorded(op, back, key=key, rule=rule):
            used.add(key)
            return rule(op, back)

        monkeypatch.setitem(RULES, key, recorded)
    for arguments in _CASES.values():
        if tables.kind(arguments) in LOWERINGS:
            step_graph(one_operator(*arguments), WEIGHTED)
    for loss in sorted(set(LOSSES) - {"none"}):  # that is a loss in the model
        step_graph(one_operator("Gemm", [np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)], {}), loss)

    assert set() == expected - used


def _retyped(model: onnx.ModelProto, dtype: type) -> onnx.ModelProto:
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


def _gradients(step: onnx.ModelProto) -> list[np.ndarray]:
    """Return the gradient of every parameter where that of the output is one."""
    label = step.graph.input[0].type.tensor_type
    ones = np.ones(
        [size.dim_value for size in label.shape.dim], helper.tensor_dtype_to_np_dtype(label.elem_type)
    )
    bindings = {entry.key: entry.value for entry in step.training_info[0].update_binding}
    names = [value for key, value in bindings.items() if key.startswith("moments.")]
    return outputs_of(step, names, {"inputs0": ones}) if names else []


def _check_types(model: onnx.ModelProto) -> None:
    """Raise where an operator does not take the types that it is given."""
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _is_valid(model: onnx.ModelProto) -> bool:
    """Tell whether every operator takes the types that it is given."""
    try:
        _check_types(model)
    except shape_inference.InferenceError:
        return False
    return True


def _has_kernels(model: onnx.ModelProto) -> bool:
    """Tell whether onnxruntime has kernels for a model."""
    try:
        session_of(model, [])
    except onnxruntime_pybind11_state.NotImplemented:
        return False
    return True


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("case", [name for kind, name in _FIRST.items() if not kind[0]])
def test_other_element_types(case, dtype):
    """No rule and no body forces float32 on others, and the gradients are those of float32."""
    model = one_operator(*_CASES[case])
    other = _retyped(model, dtype)
    if not _is_valid(other):
        return  # ONNX has not the operator in this type
    step = step_graph(other, WEIGHTED)
    _check_types(step)
    if not _has_kernels(other):
        return  # the types are right, and that is all that can be known of an operator that does not run
    gradients = _gradients(step)

    for expected, gradient in zip(_gradients(step_graph(model, WEIGHTED)), gradients, strict=True):
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
