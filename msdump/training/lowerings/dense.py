"""Dense layers as MindSpore has them: MatMul with flags, and BiasAdd."""

from __future__ import annotations

from msdump.training.lowering import keep, lowering
from msdump.training.writer import StepOperator, StepTensor, StepWriter


def matmul(
    op: StepWriter, a: StepTensor, b: StepTensor, *, ta: bool, tb: bool, out: StepTensor | None = None
) -> StepTensor:
    """Write MindSpore's product of two matrices."""
    outputs = None if out is None else [out]
    result: StepTensor = op.call(
        "MatMul", a, b, ta, tb, outputs=outputs, transpose_a=int(ta), transpose_b=int(tb)
    )
    return result


@lowering("Gemm")
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


@lowering("MatMul")
def _matmul(op: StepWriter, node: StepOperator) -> None:
    a, b = node.input(0), node.input(1)
    if a.rank == b.rank == 2:  # noqa: PLR2004 - matrices
        matmul(op, a, b, ta=False, tb=False, out=node.outputs[0])
    else:
        keep(op, node)


@lowering("Add")
def _add(op: StepWriter, node: StepOperator) -> None:
    if node.primitive == "BiasAdd" and node.outputs[0].rank == 2:  # noqa: PLR2004 - matrices
        x, bias = node.inputs if node.input(1).rank == 1 else reversed(node.inputs)
        op.call("BiasAdd", x, bias, 0, outputs=[node.outputs[0]], rank=2)
    else:
        op.emit("Add", node.inputs, {}, outputs=node.outputs, primitive="Add")
