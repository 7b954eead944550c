"""Products of matrices: dense layers, attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import DOUBLE, Ints, Slots, Value, op, operator, operators


@operator("MatMul")
def matmul_body(a: Value, b: Value, *, transpose_a: int, transpose_b: int, rank: int = 2) -> Value:
    """Multiply two matrices, each transposed first or not; or stacks or rows with a matrix."""
    if rank != 2:
        return op.MatMul(a, op.Transpose(b, perm=[1, 0]) if transpose_b else b)
    return op.Gemm(a, b, transA=transpose_a, transB=transpose_b)


@operator("Dense")
def dense(x: Value, weight: Value, bias: Value | None = None, *, rank: int, given: Ints) -> Value:
    """Multiply with a transposed weight, and add a bias if there is one."""
    product = matmul_body(x, weight, transpose_a=0, transpose_b=1, rank=rank)
    return op.Add(product, bias) if any(given[2:]) else product


@operator("BatchMatMul")
def batch_matmul_body(a: Value, b: Value, *, transpose_a: int, transpose_b: int, rank: int) -> Value:
    """Multiply stacks of matrices, each matrix transposed first or not."""
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    first = op.Transpose(a, perm=swapped) if transpose_a else a
    second = op.Transpose(b, perm=swapped) if transpose_b else b
    return op.MatMul(first, second)


@operator("Conv2DExt")
def conv_2d_ext(
    slot: Slots, *, stride: Ints, padding: Ints, dilation: Ints, groups: int, given: Ints, rank: int
) -> Value:
    """Convolve images; a single number of stride, padding or dilation is that of all axes."""
    strides, pads, dilations = (
        [*item, *item * (rank - 2 - len(item))] for item in (stride, padding, dilation)
    )
    window = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
    return op.Conv(slot.input, slot.weight, *([slot.bias] if given[2] else []), **window)


operators(
    {
        # the channels are the second axis
        "BiasAdd": lambda x, bias, *, rank: (
            x + (op.Reshape(bias, [-1, *(1,) * (rank - 2)]) if rank > 2 else bias)
        ),
        "BiasAddGrad": lambda dy, *, rank: op.ReduceSum(
            dy, [axis for axis in range(rank) if axis != 1], keepdims=0
        ),
        "Einsum": lambda *tensors, equation: op.Einsum(*tensors, equation=equation),
    }
)


@operator("EinsumGrad")
def einsum_grad(*tensors: Value, equation: str) -> tuple[Value, ...]:
    """Return the gradients of the operands: products of the others with the result's gradient."""
    *operands, dy = tensors
    left, _, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    found = []
    for place, term in enumerate(terms):
        others = [*terms[:place], *terms[place + 1 :], result]
        values = [*operands[:place], *operands[place + 1 :], dy]
        known = "".join(index for index in term if index in "".join(others))
        partial = op.Einsum(*values, equation=f"{','.join(others)}->{known}")
        # an index that only this operand has was summed: each of its elements has the same gradient
        axes = [axis for axis, index in enumerate(term) if index not in known]
        wide = op.Unsqueeze(partial, axes) if axes else partial
        found.append(op.Expand(wide, op.Shape(operands[place])))
    return tuple(found)


@operator("MatrixInverse")
def matrix_inverse(x: Value, *, rank: int, adjoint: int = 0) -> Value:
    """Return the inverse of matrices by Newton's iteration, Y = Y (2 - X Y), in float64."""
    order = [*range(rank - 2), rank - 1, rank - 2]
    matrix = op.Cast(x, to=DOUBLE)
    if adjoint:
        matrix = op.Transpose(matrix, perm=order)
    sizes = op.Abs(matrix)
    # from transposed X over the product of its norms the iteration converges for every X
    norms = [
        op.ReduceMax(op.ReduceSum(sizes, (axis,), keepdims=1), (-2, -1), keepdims=1) for axis in (-2, -1)
    ]
    inverse = op.Transpose(matrix, perm=order) / (norms[0] * norms[1])
    two = np.array(2.0)
    for _ in range(_ITERATIONS):
        inverse = inverse * two - op.MatMul(inverse, op.MatMul(matrix, inverse))
    return op.CastLike(inverse, x)


_ITERATIONS = 60
"""Newton's iterations: two for each doubling of the condition number, and some to converge."""


@operator("Cdist")
def cdist(x: Value, y: Value, *, p: float) -> Value:
    """Return the distances of the rows of two matrices in the p-norm."""
    distances = op.Abs(op.Unsqueeze(x, [-2]) - op.Unsqueeze(y, [-3]))
    if math.isinf(p):
        return op.ReduceMax(distances, [-1], keepdims=0)
    if p == 0:
        return op.ReduceSum(op.CastLike(distances > 0.0, x), [-1], keepdims=0)
    return op.Pow(op.ReduceSum(op.Pow(distances, float(p)), [-1], keepdims=0), 1 / p)


@operator("Cross")
def cross(x: Value, y: Value, *, dim: int, input_shape: Ints) -> Value:
    """Return the cross product along an axis of three elements, by default the first such."""
    axis = input_shape.index(3) if dim == _ANY_AXIS else dim
    (x1, x2), (y1, y2) = (
        [op.Gather(item, order, axis=axis) for order in ((1, 2, 0), (2, 0, 1))] for item in (x, y)
    )
    return x1 * y2 - x2 * y1


_ANY_AXIS = -65530


ROW_COPIES = 8
"""How often MindSpore's operator repeats the maximum and the sum of each row."""

_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class _Attention:
    """Common parts of the bodies of attention and its gradient: heads, scores, masks."""

    input_layout: str  # ``BNSD`` (batch, heads, places, elements), or ``BSH`` with heads side by side
    head_num: int  # heads of the query
    kv_head_num: int  # heads of key and value, each of which serves several of the query's
    head_size: int  # elements of a head of the query and the key
    value_size: int  # elements of a head of the value
    has_shift: int  # whether a tensor is added to the products of query and key, after ``softcap``
    has_mask: int  # whether a mask excludes places
    is_causal: int  # whether a place attends to no later place
    softcap: float  # smooth limit of the products; 0 for none

    def split(self, value: Value, heads: int) -> Value:
        """Return a value (batch, heads, places, elements)."""
        if self.input_layout == "BNSD":
            return value
        return op.Transpose(op.Reshape(value, (0, 0, heads, -1)), perm=[0, 2, 1, 3])

    def joined(self, value: Value) -> Value:
        """Return a value (batch, heads, places, elements) in the layout of the inputs."""
        if self.input_layout == "BNSD":
            return value
        return op.Reshape(op.Transpose(value, perm=[0, 2, 1, 3]), (0, 0, -1))

    def parts(self, query: Value, key: Value, value: Value) -> tuple[Value, Value, Value]:
        """Return query, key and value, the last two with a head for each of the query's."""
        q = self.split(query, self.head_num)
        return q, self._repeated(key, self.head_size), self._repeated(value, self.value_size)

    def _repeated(self, value: Value, size: int) -> Value:
        value = self.split(value, self.kv_head_num)
        if self.head_num == self.kv_head_num:
            return value
        copies = (1, 1, self.head_num // self.kv_head_num, 1, 1)
        return op.Reshape(op.Tile(op.Unsqueeze(value, (2,)), copies), (0, self.head_num, -1, size))

    def summed(self, gradient: Value, size: int) -> Value:
        """Return the gradient of key or value, summed over its copies."""
        if self.head_num != self.kv_head_num:
            groups = (0, self.kv_head_num, self.head_num // self.kv_head_num, -1, size)
            gradient = op.ReduceSum(op.Reshape(gradient, groups), (2,), keepdims=0)
        return self.joined(gradient)

    def scores(self, q: Value, k: Value, shift: Value, mask: Value) -> tuple[Value, Value | None]:
        """Return the scores, and the derivative of their soft limit (None without ``softcap``)."""
        scores, slope = op.MatMul(q, _turned(k)), None
        if self.softcap:
            level = op.Tanh(scores / self.softcap)
            scores, slope = level * self.softcap, 1.0 - level * level
        if self.has_shift:
            scores = scores + shift
        return self.masked(scores, mask, _LOWEST), slope

    def masked(self, scores: Value, mask: Value, number: float) -> Value:
        """Return scores, or their gradient, with a number at masked places."""
        masks = [mask] if self.has_mask else []
        if self.is_causal:
            rows, columns = (
                op.Range(0, op.Squeeze(op.Shape(scores, start=axis, end=axis + 1), (0,)), 1)
                for axis in (2, 3)
            )
            masks.append(op.Unsqueeze(columns, (0,)) > op.Unsqueeze(rows, (1,)))
        for each in masks:
            scores = op.Where(each, number, scores)
        return scores


def _turned(matrices: Value) -> Value:
    return op.Transpose(matrices, perm=[0, 1, 3, 2])


@operator("FlashAttentionScore")
def flash_attention_score(slot: Slots, *, scale_value: float, **structure: Any) -> tuple[Value, ...]:
    """Return softmax(scale query key^T + shift) value.

    The other results are the maximum and the sum of each row, eight times, and one that the vendor's kernel
    does not use. ``attn_mask`` is true where nothing is attended to. A row that attends to no place is zero,
    as ONNX defines it, and the vendor's kernel with ``inner_precise`` 2. Its maximum is 0 and its sum 1 here,
    so that its gradient is zero, too.
    """
    heads = _Attention(**structure)
    q, k, v = heads.parts(slot.query, slot.key, slot.value)
    scores, _ = heads.scores(q * scale_value, k, slot.real_shift, slot.attn_mask)
    highest = op.ReduceMax(scores, (-1,), keepdims=1)
    is_empty = op.LessOrEqual(op.Cast(highest, to=FLOAT32.onnx), np.array(_LOWEST, np.float32))
    highest = op.Where(is_empty, 0.0, highest)
    powers = op.Exp(scores - highest)
    total = op.Where(is_empty, 1.0, op.ReduceSum(powers, (-1,), keepdims=1))
    attention = heads.joined(op.MatMul(powers / total, v))
    copies = (1, 1, 1, ROW_COPIES)
    return op.Tile(highest, copies), op.Tile(total, copies), op.Expand(0.0, (1,)), attention


@operator("FlashAttentionScoreGrad")
def flash_attention_score_grad(slot: Slots, *, scale_value: float, **structure: Any) -> tuple[Value, ...]:
    """Return the gradients of query, key and value, and of the shift where there is one."""
    heads = _Attention(**structure)
    q, k, v = heads.parts(slot.query, slot.key, slot.value)
    scores, slope = heads.scores(q * scale_value, k, slot.pse_shift, slot.attn_mask)
    highest, total = (op.Slice(item, (0,), (1,), (3,)) for item in (slot.softmax_max, slot.softmax_sum))
    shares = op.Exp(scores - highest) / total
    dattention, out = (heads.split(item, heads.head_num) for item in (slot.dy, slot.attention_in))
    dshares = op.MatMul(dattention, _turned(v))
    level = op.ReduceSum(dattention * out, (-1,), keepdims=1)
    dshift = heads.masked(shares * (dshares - level), slot.attn_mask, 0.0)
    dscores = dshift if slope is None else dshift * slope
    dq = op.MatMul(dscores, k) * scale_value
    dk = op.MatMul(_turned(dscores), q) * scale_value
    dv = op.MatMul(_turned(shares), dattention)
    results = (heads.joined(dq), heads.summed(dk, heads.head_size), heads.summed(dv, heads.value_size))
    return (*results, dshift) if heads.has_shift else results
