"""Types of values that ONNX's shape inference does not reach, and of what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnx import helper

from msdump.errors import GraphError
from msdump.graph.graph import Node
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

_ONNXRUNTIME: Final = "com.microsoft"

_LIKE_FIRST: Final[Mapping[tuple[str, str], tuple[int, ...]]] = {
    ("", "GroupNormalization"): (0,),
    ("", "MeanVarianceNormalization"): (0,),
    ("", "SimplifiedLayerNormalization"): (0,),
    (_ONNXRUNTIME, "BiasGelu"): (0,),
    (_ONNXRUNTIME, "FastGelu"): (0,),
    (_ONNXRUNTIME, "Gelu"): (0,),
    (_ONNXRUNTIME, "QuickGelu"): (0,),
    (_ONNXRUNTIME, "RotaryEmbedding"): (0,),
    (_ONNXRUNTIME, "SkipLayerNormalization"): (0, 3),
    (_ONNXRUNTIME, "SkipSimplifiedLayerNormalization"): (0, 3),
}
"""Outputs that have the type of the first input."""


def inferred(
    op: StepWriter, node: Node, inputs: Sequence[StepTensor | None], names: Sequence[str]
) -> tuple[StepTensor, ...]:
    """Return the outputs of an operator from what its inputs are.

    Args:
        op: Infers the types of ONNX's own operators.
        node: The operator.
        inputs: Its inputs.
        names: The outputs that are there.

    Raises:
        GraphError: The rank of one cannot be known.
    """
    slots = _LIKE_FIRST.get((node.domain, node.op_type), ())
    present = {slot for slot, name in enumerate(node.outputs) if name}
    if present <= set(slots) and inputs[0] is not None:
        return tuple(StepTensor(name, inputs[0].dtype, inputs[0].shape) for name in names)
    width = _attention_width(node, inputs)
    if width is not None and inputs[0] is not None:
        return tuple(StepTensor(name, inputs[0].dtype, (*inputs[0].shape[:-1], width)) for name in names)
    if node.domain:
        raise GraphError(
            f"{node.operator.full_name}: what {node.domain}.{node.op_type} writes is of unknown type, "
            "but gradients need it"
        )
    given = ["" if item is None else item.name for item in inputs]
    attributes: dict[str, Any] = dict(node.attributes)
    alone = helper.make_node(node.op_type, given, list(names), domain=node.domain, **attributes)
    return op.infer(alone, inputs)


def _attention_width(node: Node, inputs: Sequence[StepTensor | None]) -> int | str | None:
    """Return how many elements each place of an attention of onnxruntime has; None for another operator."""
    if node.domain != _ONNXRUNTIME:
        return None
    if node.op_type == "MultiHeadAttention" and inputs[2] is not None:
        return inputs[2].shape[-1]
    if node.op_type == "Attention" and inputs[1] is not None:
        sizes: Any = node.attributes.get("qkv_hidden_sizes", (inputs[1].sizes()[1] // 3,) * 3)
        return int(sizes[2])
    return None
