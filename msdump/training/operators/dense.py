"""Dense layers: matrix products, biases, shapes, and their gradients."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("MatMul")
def matmul(op: Body, a: str, b: str, _ta: str, _tb: str, *, transpose_a: int, transpose_b: int) -> str:
    """Multiply two matrices, each transposed first or not."""
    return str(op.Gemm(a, b, transA=transpose_a, transB=transpose_b))


@operator("BatchMatMul")
def batch_matmul(
    op: Body, a: str, b: str, _ta: str, _tb: str, *, transpose_a: int, transpose_b: int, rank: int
) -> str:
    """Multiply stacks of matrices, each matrix transposed first or not."""
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    first = op.Transpose(a, perm=swapped) if transpose_a else a
    second = op.Transpose(b, perm=swapped) if transpose_b else b
    return str(op.MatMul(first, second))


@operator("BiasAdd")
def bias_add(op: Body, x: str, bias: str, _format: str, *, rank: int) -> str:
    """Add a bias to the channels, which are the second axis."""
    return str(op.Add(x, op.Reshape(bias, [-1, *(1,) * (rank - 2)]) if rank > 2 else bias))


@operator("BiasAddGrad")
def bias_add_grad(op: Body, dy: str, _format: str, *, rank: int) -> str:
    """Sum a gradient over all axes but the channels'."""
    return str(op.ReduceSum(dy, [axis for axis in range(rank) if axis != 1], keepdims=0))


@operator("Reshape")
def reshape(op: Body, x: str, *, shape: tuple[int, ...]) -> str:
    """Give a tensor another shape."""
    return str(op.Reshape(x, shape))
