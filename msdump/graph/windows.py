"""Windows of convolutions and pools in MindSpore's terms: extents, strides, paddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msdump.graph.graph import UNKNOWN, Graph, Node

PadMode = Literal["valid", "same", "pad"]

_AUTOMATIC: Final[dict[Any, PadMode]] = {"VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same"}


def window(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the extents: the attribute, or the last dimensions of the weight; None where unknown."""
    kernel_shape = _ints(node, "kernel_shape")
    if kernel_shape is not None:
        return kernel_shape
    # ONNX infers a missing kernel_shape from the weight (N, C, *extents)
    shape = weight_shape(node, graph)
    return None if shape is None else shape[2:]


def weight_shape(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the shape of the second input where every dimension is known."""
    shape = graph.type_of(node.inputs[1]).shape if len(node.inputs) > 1 else None
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return sizes if shape and len(sizes) == len(shape) else None


def axes(node: Node, graph: Graph) -> int:
    """Return the number of spatial axes: of the window, else of the data, else 2."""
    extents = window(node, graph)
    if extents is not None:
        return len(extents)
    shape = _data_shape(node, graph)
    return 2 if shape is None else max(0, len(shape) - 2)


def spread(attribute: str) -> Callable[[Node, Graph], tuple[int, ...]]:
    """Return a function that reads an attribute as (1, 1, *numbers), batch and channel first; default 1."""

    def value(node: Node, graph: Graph) -> tuple[int, ...]:
        numbers = _ints(node, attribute)
        return (1, 1, *((1,) * axes(node, graph) if numbers is None else numbers))

    return value


def pad_mode(node: Node, _graph: Graph) -> PadMode:
    """Return valid, same or pad; explicit paddings of 0 are what MindSpore calls valid."""
    automatic = _AUTOMATIC.get(node.attributes.get("auto_pad"))
    if automatic is not None:
        return automatic
    # NOTSET, the default of auto_pad, leaves the padding to the attribute pads
    return "pad" if any(_ints(node, "pads") or ()) else "valid"


def asked_pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the paddings that the attribute states, axis by axis (top, bottom, left, right); else zeros."""
    pads = _ints(node, "pads") if pad_mode(node, graph) == "pad" else None
    if pads is None:
        return (0,) * (2 * axes(node, graph))
    # ONNX: all begins, then all ends; MindSpore: begin and end of each axis
    half = len(pads) // 2
    return tuple(side for pair in zip(pads[:half], pads[half:], strict=False) for side in pair)


def real_pads(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the paddings that take place, axis by axis; None where they depend on unknown sizes."""
    return _same_pads(node, graph) if pad_mode(node, graph) == "same" else asked_pads(node, graph)


def _same_pads(node: Node, graph: Graph) -> tuple[int, ...] | None:
    extents, shape = window(node, graph), _data_shape(node, graph)
    if extents is None or shape is None or len(shape) != len(extents) + 2:
        return None
    ones = (1,) * len(extents)
    steps = _ints(node, "strides") or ones
    gaps = _ints(node, "dilations") or ones
    sides: list[int] = []
    # not strict: a faulty model is the runtime's to refuse
    for size, extent, step, gap in zip(shape[2:], extents, steps, gaps, strict=False):
        if not isinstance(size, int):
            return None
        # SAME: ceil(size / stride) windows, padded by what the last one reaches beyond the data
        total = max(0, (-(-size // step) - 1) * step + (extent - 1) * gap + 1 - size)
        sides += _halves(total, larger_first=node.attributes.get("auto_pad") == "SAME_LOWER")
    return tuple(sides)


def _halves(total: int, *, larger_first: bool) -> tuple[int, int]:
    small, large = total // 2, total - total // 2
    return (large, small) if larger_first else (small, large)


def _data_shape(node: Node, graph: Graph) -> tuple[int | str | None, ...] | None:
    data = graph.type_of(node.inputs[0]) if node.inputs else UNKNOWN
    return data.shape


def _ints(node: Node, attribute: str) -> tuple[int, ...] | None:
    value: Any = node.attributes.get(attribute)
    return None if value is None else tuple(value)
