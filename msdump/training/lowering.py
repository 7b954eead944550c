"""Forward operators in the form that they have in a MindSpore training step.

ONNX and MindSpore cut some layers differently: a Gemm is a MatMul and a BiasAdd, a convolution with bias a
Conv2D and a BiasAdd, a BatchNormalization computes with the statistics of its batch. One table holds them;
an operator without an entry stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msdump.training.writer import StepOperator, StepTensor, StepWriter

Lowering = Callable[[StepWriter, StepOperator], None]
"""Writes an operator's replacement; the last operators of it write the outputs of the original."""


def matmul(
    op: StepWriter, a: StepTensor, b: StepTensor, *, ta: bool, tb: bool, out: StepTensor | None = None
) -> StepTensor:
    """Write MindSpore's product of two matrices."""
    outputs = None if out is None else [out]
    result: StepTensor = op.call(
        "MatMul", a, b, ta, tb, outputs=outputs, transpose_a=int(ta), transpose_b=int(tb)
    )
    return result


def _gemm(op: StepWriter, node: StepOperator) -> None:
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    has_bias = len(node.inputs) > 2 and node.inputs[2] is not None  # noqa: PLR2004 - the third input
    plain = alpha == 1.0 and not has_bias
    ta, tb = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    out = node.outputs[0]
    product = matmul(op, node.input(0), node.input(1), ta=ta, tb=tb, out=out if plain else None)
    if alpha != 1.0:
        (product,) = op.emit("Mul", (product, alpha), {}, outputs=1 if has_bias else [out])
    if not has_bias:
        return
    bias = node.input(2)
    if beta != 1.0:
        bias = op.Mul(bias, beta)
    if bias.rank == 1 and bias.shape == out.shape[1:]:
        op.call("BiasAdd", product, bias, 0, outputs=[out], rank=out.rank)
    else:
        op.emit("Add", (product, bias), {}, outputs=[out])


def _matmul(op: StepWriter, node: StepOperator) -> None:
    a, b = node.input(0), node.input(1)
    if a.rank == b.rank == 2:  # noqa: PLR2004 - matrices
        matmul(op, a, b, ta=False, tb=False, out=node.outputs[0])
    else:
        _kept(op, node)


def _add(op: StepWriter, node: StepOperator) -> None:
    if node.primitive == "BiasAdd" and node.outputs[0].rank == 2:  # noqa: PLR2004 - matrices
        x, bias = node.inputs if node.input(1).rank == 1 else reversed(node.inputs)
        op.call("BiasAdd", x, bias, 0, outputs=[node.outputs[0]], rank=2)
    else:
        op.emit("Add", node.inputs, {}, outputs=node.outputs, primitive="Add")


def _conv(op: StepWriter, node: StepOperator) -> None:
    out = node.outputs[0]
    if len(node.inputs) < 3 or node.inputs[2] is None:  # noqa: PLR2004 - the third input
        _kept(op, node)
        return
    (product,) = op.emit("Conv", node.inputs[:2], node.attributes)
    op.call("BiasAdd", product, node.input(2), 0, outputs=[out], rank=out.rank)


def _batch_norm(op: StepWriter, node: StepOperator) -> None:
    x, gamma, beta, mean, variance = (node.input(slot) for slot in range(5))
    epsilon, momentum = node.attribute("epsilon", 1e-5), node.attribute("momentum", 0.9)
    *_, new_mean, new_variance = op.call(
        "BatchNorm",
        *(x, gamma, beta, mean, variance, True, float(epsilon), 1.0 - momentum, 0),
        like=[node.outputs[0], *[mean] * 6],
        outputs=[node.outputs[0]],
        rank=x.rank,
    )
    op.bindings[mean.name] = new_mean
    op.bindings[variance.name] = new_variance


def _kept(op: StepWriter, node: StepOperator) -> None:
    op.emit(
        node.op_type,
        node.inputs,
        node.attributes,
        outputs=node.outputs,
        domain=node.domain,
        primitive=node.primitive,
    )


LOWERINGS: Final[Mapping[str, Lowering]] = {
    "Add": _add,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
"""By ONNX's type."""


def lower(op: StepWriter, node: StepOperator) -> None:
    """Write a forward operator as a training step has it."""
    (_kept if node.domain else LOWERINGS.get(node.op_type, _kept))(op, node)
