"""Dense layers and products: MatMul with flags, BiasAdd, BatchMatMul, Einsum.

MindSpore's ``nn.Dense`` and PyTorch's ``Linear`` keep their weight as (out, in). Exporters write such a
layer over more than two dimensions as Transpose of the weight, MatMul and Add.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.errors import GraphError
from msdump.graph import Graph, Node
from msdump.graph.primitives import op
from msdump.training.operators.shapes import as_matrix, is_fixed, reshaped, transposed, unbroadcast
from msdump.training.rules import Backward, Gradients, gradient, lowering, mindspore_gradient
from msdump.training.writer import Item, Shape, StepOperator, StepTensor


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A MatMul with a weight, together with the Add of a bias or the Transpose of the weight."""

    product: Node  # the MatMul
    last: Node  # the operator that writes the result: the Add, or the MatMul
    inputs: tuple[str, ...]  # names of input, weight and bias, if any
    parts: tuple[Node, ...]  # the operators in front of the last one
    is_transposed: bool  # whether the weight is (out, in)


def dense_layers(graph: Graph) -> Mapping[str, DenseLayer]:
    """Return the dense layers of a network, by the name of the operator that writes the result."""
    users = Counter(name for node in graph.nodes for name in node.inputs)
    users.update(value.name for value in graph.outputs)
    producers = {name: node for node in graph.nodes for name in node.outputs if users[name] == 1}
    layers = [layer for node in graph.nodes if (layer := _dense_layer(graph, node, producers)) is not None]
    covered = {part.name for layer in layers for part in layer.parts}
    return {layer.last.name: layer for layer in layers if layer.last.name not in covered}


def _dense_layer(graph: Graph, last: Node, producers: Mapping[str, Node]) -> DenseLayer | None:
    product, bias = _product_and_bias(graph, last, producers)
    if (
        product is None
        or not _shape_of(graph, last.outputs[0])
        or len(_shape_of(graph, product.inputs[0])) < 2
    ):
        return None
    x, weight = product.inputs
    parts: tuple[Node, ...] = () if product is last else (product,)
    turn = producers.get(weight)
    is_transposed = turn is not None and _is_transposed_weight(graph, turn)
    if turn is not None and is_transposed:
        weight, parts = turn.inputs[0], (turn, *parts)
    if len(_shape_of(graph, weight)) != 2 or not parts:
        return None
    return DenseLayer(product, last, (x, weight, *bias), parts, is_transposed)


def _product_and_bias(
    graph: Graph, last: Node, producers: Mapping[str, Node]
) -> tuple[Node | None, tuple[str, ...]]:
    if last.op_type == "MatMul" and not last.domain:
        return last, ()
    if last.operator.op_type == "BiasAdd" and last.op_type == "Add":
        for product, bias in zip(map(producers.get, last.inputs), reversed(last.inputs), strict=True):
            fits = _shape_of(graph, bias) == _shape_of(graph, last.outputs[0])[-1:]
            if product is not None and product.op_type == "MatMul" and fits:
                return product, (bias,)
    return None, ()


def _is_transposed_weight(graph: Graph, node: Node) -> bool:
    turns = list(node.attributes.get("perm", (1, 0))) == [1, 0]  # type: ignore[arg-type]
    return node.op_type == "Transpose" and node.inputs[0] in graph.weights and turns


def _shape_of(graph: Graph, name: str) -> tuple[int | str | None, ...]:
    return graph.type_of(name).shape or ()


BROADCAST_LIMIT: Final = 1 << 24
"""The most bytes that an operand is broadcast to, 16 MiB.

MindSpore's ``ops.matmul`` always writes one matrix for every matrix of the other operand. Up to this size
that costs a millisecond or two. For the weights of a language model it would cost as much as the product, and
more memory than there is (a head of 768 x 50257 for a batch of 8: 1.2 GB), so that larger operands stay as
they are; the product repeats their matrices itself.
"""


def matmul(
    a: StepTensor, b: StepTensor, out: StepTensor | None = None, *, ta: bool = False, tb: bool = False
) -> StepTensor:
    """Write MindSpore's product of two matrices."""
    rows, columns = a.shape[1 if ta else 0], b.shape[0 if tb else 1]
    return op.call(
        "MatMul",
        a,
        b,
        ta,
        tb,
        like=a.shaped((rows, columns)),
        outputs=[out],
        transpose_a=int(ta),
        transpose_b=int(tb),
    )


@lowering("Gemm")
def _lower_gemm(node: StepOperator) -> None:
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    x, out = node.x, node.y
    bias = node.optional(2)
    if x.rank > 2:
        _write_dense(node, bias)
        return
    ta, tb = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    plain = alpha == 1.0 and bias is None
    product = matmul(x, node.input(1), out if plain else None, ta=ta, tb=tb)
    if alpha != 1.0:
        product = op.Mul(product, alpha, outputs=[out] if bias is None else 1)
    if bias is None:
        return
    if beta != 1.0:
        bias = bias * beta
    if bias.rank == 1 and bias.shape == out.shape[1:]:
        op.call("BiasAdd", product, bias, outputs=[out], rank=out.rank)
    else:
        op.Add(product, bias, outputs=[out])


def _write_dense(node: StepOperator, bias: StepTensor | None) -> None:
    """Write a dense layer over more than two dimensions: as MindSpore, flattened to a matrix and back."""
    x, w, out = node.x, node.input(1), node.y
    is_transposed = bool(node.attributes["transB"])
    if is_fixed(out.shape):
        result = matmul(as_matrix(x), w, tb=is_transposed)
        if bias is not None:
            result = op.call("BiasAdd", result, bias, like=result, rank=2)
        reshaped(result, out, out)
        return
    weight = op.Transpose(w, perm=[1, 0]) if is_transposed else w
    product = multiplied(x, weight, out if bias is None else None)
    if bias is not None:
        op.emit("Add", (product, bias), {}, outputs=[out], primitive="Add")


@lowering("MatMul")
def _lower_matmul(node: StepOperator) -> None:
    a, b, out = node.x, node.input(1), node.y
    if a.rank == b.rank == 2:
        matmul(a, b, out)
    else:
        multiplied(a, b, out)


def multiplied(a: StepTensor, b: StepTensor, out: StepTensor | None) -> StepTensor:
    """Write MindSpore's ``ops.matmul`` of operands of any rank; gradient rules see a single MatMulExt."""
    with op.as_one("MatMulExt", a, b):
        first, second = as_matrices(a, b)
        if a.rank > 1 and b.rank > 1:
            return batch_matmul(first, second, out)
        product = batch_matmul(first, second)
        # the dimension of size 1 that a vector operand had gained is dropped
        shape = (*product.shape[:-2], *a.shape[:-1][-1:], *b.shape[1:][-1:])
        return reshaped(product, (shape), out)


def as_matrices(a: StepTensor, b: StepTensor) -> tuple[StepTensor, StepTensor]:
    """Return both operands of a product as matrices: a vector is a row on the left, a column on the right."""
    row = reshaped(a, ((1, *a.shape))) if a.rank == 1 else a
    column = reshaped(b, ((*b.shape, 1))) if b.rank == 1 else b
    return row, column


def batch_matmul(a: StepTensor, b: StepTensor, out: StepTensor | None = None) -> StepTensor:
    """Write BatchMatMul, with batch dimensions broadcast; MatMul for two matrices."""
    batch = _broadcast_shape(a.shape[:-2], b.shape[:-2])
    rank = len(batch) + 2
    if not batch:
        return matmul(a, b, out)
    slots: list[Item] = [_broadcast(a, batch), _broadcast(b, batch), False, False]
    return op.call(
        "BatchMatMul",
        *slots,
        like=a.shaped((*batch, a.shape[-2], b.shape[-1])),
        outputs=[out],
        transpose_a=0,
        transpose_b=0,
        rank=rank,
    )


def _broadcast_shape(a: Shape, b: Shape) -> Shape:
    """Return the broadcast of two shapes; two sizes other than 1, also free ones, count as equal."""
    length = max(len(a), len(b))
    pairs = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    return tuple(second if first == 1 else first for first, second in pairs)


def _broadcast(x: StepTensor, batch: Shape) -> StepTensor:
    """Return matrices broadcast to the batch dimensions; unchanged if free or larger than the limit."""
    shape = [size for size in (*batch, *x.shape[-2:]) if isinstance(size, int)]
    is_free = len(shape) < len(batch) + 2
    if x.shape[:-2] == batch or is_free or math.prod(shape) * x.dtype.numpy.itemsize > BROADCAST_LIMIT:
        return x
    return op.Expand(x, shape)


@lowering("Add")
def _lower_add(node: StepOperator) -> None:
    if node.primitive == "BiasAdd" and node.y.rank == 2:
        x, bias = node.inputs if node.input(1).rank == 1 else reversed(node.inputs)
        op.call("BiasAdd", x, bias, outputs=[node.y], rank=2)
    else:
        op.emit("Add", node.inputs, {}, outputs=node.outputs, primitive="Add")


@mindspore_gradient("MatMul")
def _matmul(back: Backward) -> Gradients:
    a, b = back.x, back.input(1)
    ta, tb = (bool(back.attributes[f"transpose_{side}"]) for side in "ab")
    dy = back.dy
    db = da = None
    if back.wants[0]:
        da = matmul(b, dy, ta=tb, tb=True) if ta else matmul(dy, b, tb=not tb)
    if back.wants[1]:
        # w (out, in) of a Dense layer: dy^T x, which needs no transposed copy
        db = matmul(dy, a, ta=True, tb=ta) if tb else matmul(a, dy, ta=not ta, tb=False)
    return da, db


@mindspore_gradient("MatMulExt")
def _matmul_ext(back: Backward) -> Gradients:
    """Return products of the gradient and the other operand, transposed; sums over broadcast dimensions.

    The gradient of a single matrix (a weight) is one product over the rows of all matrices.
    """
    a, b = back.x, back.input(1)
    first, second = as_matrices(a, b)
    dy = reshaped(back.dy, _matrix_shape(back.dy, a, b))
    da = db = None
    if back.wants[0]:
        product = batch_matmul(dy, transposed(second))
        da = reshaped(unbroadcast(product, first), a)
    if back.wants[1] and second.rank == 2 < first.rank:
        rows = transposed(as_matrix(first))
        db = reshaped(matmul(rows, as_matrix(dy)), b)
    elif back.wants[1]:
        product = batch_matmul(transposed(first), dy)
        db = reshaped(unbroadcast(product, second), b)
    return da, db


def _matrix_shape(dy: StepTensor, a: StepTensor, b: StepTensor) -> Shape:
    """Return the shape of a gradient as matrices: with size 1 for the dimension that a vector lacks."""
    shape = dy.shape if b.rank > 1 else (*dy.shape, 1)
    return shape if a.rank > 1 else (*shape[:-1], 1, shape[-1])


@mindspore_gradient("BiasAdd")
def _bias_add(back: Backward) -> Gradients:
    dy, bias = back.dy, back.input(1)
    db = op.call("BiasAddGrad", dy, back.input(2), like=bias, rank=dy.rank) if back.wants[1] else None
    return dy, db


@gradient("Einsum")
def _einsum(back: Backward) -> Gradients:
    operands = [back.input(slot) for slot in range(len(back.inputs))]
    terms, result = spelled_out(back.attributes["equation"], [item.rank for item in operands])
    if any(len(set(term)) < len(term) for term in terms):
        raise GraphError(f"{back.place.path}/{back.primitive}: a diagonal has no gradient")
    gradients: list[StepTensor | None] = []
    for slot, is_wanted in enumerate(back.wants):
        others = [other for other in range(len(operands)) if other != slot]
        fed = [back.dy, *(operands[other] for other in others)]
        names = [result, *(terms[other] for other in others)]
        gradients.append(_einsum_gradient(fed, names, operands[slot], terms[slot]) if is_wanted else None)
    return gradients


def spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the terms of the operands and of the result, an ellipsis written out as letters.

    Without an arrow the result has every letter that occurs once.

    >>> spelled_out("...ij,jk->...ik", [3, 2])
    (['Aij', 'jk'], 'Aik')
    >>> spelled_out("ij,jk", [2, 2])
    (['ij', 'jk'], 'ik')
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in equation]
    lengths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    dots = "".join(free[: max(lengths)]) if "..." in left else ""
    if not arrow:
        letters = "".join(terms).replace(".", "")
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        result = ("..." if dots else "") + "".join(once)
    written = [
        term.replace("...", dots[len(dots) - length :]) for term, length in zip(terms, lengths, strict=True)
    ]
    return written, result.replace("...", dots)


def _einsum_gradient(fed: Sequence[StepTensor], terms: Sequence[str], x: StepTensor, term: str) -> StepTensor:
    """Return the gradient of operand ``x``; ``fed``: gradient of the result, then the other operands."""
    known = set("".join(terms))
    # dimensions of size 1, which may be broadcast, are summed over like axes that the term lacks
    kept = [letter for letter, size in zip(term, x.shape, strict=True) if letter in known and size != 1]
    summed = op.Einsum(*fed, equation=f"{','.join(terms)}->{''.join(kept)}")
    if len(kept) == x.rank:
        return summed.typed(x)
    # along letters that only this operand has, which are summed, the gradient is constant
    wide = tuple(size if letter in kept else 1 for letter, size in zip(term, x.shape, strict=True))
    spread = reshaped(summed, (wide))
    if wide == x.shape:
        return spread
    return op.Expand(spread, op.Shape(x)).typed(x)
