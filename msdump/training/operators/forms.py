"""Operators of ONNX's with the inputs that MindSpore's operators have: attributes of ONNX's are inputs there.

A form returns the inputs that MindSpore's kernel reads, in the order of ``msdump.graph.primitives.SLOTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from msdump.training.operators.resize import reading, sampling
from msdump.training.operators.shapes import cuts_of, paddings, strided_slice, whole_pads
from msdump.training.operators.windows import pool_settings
from msdump.training.writer import FORMS, Form, Item, StepOperator

Given = Sequence[Item | str] | None


def _split(node: StepOperator) -> Given:
    sizes = {part.shape[node.attribute("axis", 0)] for part in node.outputs}
    # MindSpore's Split cuts equal parts
    return (node.x, node.attribute("axis", 0), len(node.outputs)) if len(sizes) == 1 else None


def _strided_slice(node: StepOperator) -> Given:
    cuts = cuts_of(node)
    return None if cuts is None else (node.x, *strided_slice(node.x, cuts))


def _pad(node: StepOperator) -> Given:
    pads = whole_pads(node)
    if pads is None:
        return None
    if node.attribute("mode", "constant") != "constant":
        return node.x, paddings(pads)
    return node.x, paddings(pads), 0.0 if node.optional(2) is None else node.input(2)


def _one_hot(node: StepOperator) -> Given:
    values = node.constant(2)
    if values is None:
        return None
    return node.x, values[1:].reshape(()), values[:1].reshape(()), node.attribute("axis", -1)


def _triangle(node: StepOperator) -> Given:
    diagonal = 0 if node.optional(1) is None else node.constant(1)
    if diagonal is None:
        return None
    return (node.x, diagonal) if node.primitive == "Triu" else (node.x,)


def _reduction(node: StepOperator) -> Given:
    axes = () if node.optional(1) is None else node.constant(1)
    if axes is None or (not len(axes) and node.attribute("noop_with_empty_axes", 0)):
        return None
    return node.x, axes, bool(node.attribute("keepdims", 1))


def _cumulated(node: StepOperator) -> Given:
    axis = node.constant(1)
    flags = (bool(node.attribute(name, 0)) for name in ("exclusive", "reverse"))
    return node.x, node.input(1) if axis is None else axis, *flags


def _scatter(node: StepOperator) -> Given:
    reduction = str(node.attribute("reduction", "none"))
    if reduction not in {"none", "add"}:
        return None
    return node.x, node.input(1), node.input(2), node.attribute("axis", 0), reduction


def _resize(node: StepOperator) -> Given:
    sizes: Any = node.y.shape[2:]
    is_aligned, is_half = sampling(node)
    if node.primitive == "ResizeBilinearV2":
        return node.x, is_aligned, is_half
    if node.primitive.startswith("Upsample"):
        return (node.x,) if "Nearest" in node.primitive else (node.x, is_aligned)
    return (node.x, sizes, is_aligned, is_half) if node.y.is_fixed else None


_FORMS: Final[dict[str, Any]] = {
    "AveragePool": lambda node: (node.x, *pool_settings(node)),
    "Concat": lambda node: (*node.inputs, node.attributes["axis"]),
    "Split": _split,
    "Slice": _strided_slice,
    "Pad": _pad,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), lambda node: (node.x,)),
    **dict.fromkeys(("Elu", "Celu"), lambda node: (node.x, float(node.attribute("alpha", 1.0)))),
    "Shrink": lambda node: (node.x, float(node.attribute("lambd", 0.5))),
    "Round": lambda node: (node.x,),
    "Clip": lambda node: (node.x,),
    "Trilu": _triangle,
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"), _reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda node: (node.x, node.attribute("axis", 0), "int64")),
    "TopK": lambda node: (node.x, node.constant(1)) if node.constant(1) is not None else None,
    "CumSum": _cumulated,
    "Softmax": lambda node: (node.x, [node.attribute("axis", -1)]),
    "LogSoftmax": lambda node: (node.x, node.attribute("axis", -1)),
    "Gather": lambda node: (node.x, node.input(1), node.attribute("axis", 0) % node.x.rank),
    "GatherElements": lambda node: (node.x, node.attribute("axis", 0), node.input(1)),
    "ScatterElements": _scatter,
    "OneHot": _one_hot,
    "ConstantOfShape": lambda node: (node.x, node.attribute("value", np.zeros(1, np.float32)).reshape(())),
    "Resize": _resize,
    "GridSample": lambda node: (node.x, node.input(1), *reading(node)),
}

FORMS.update(dict[str, Form](_FORMS))
