"""Wrong kernels: an operator keeps its name, type and attributes, and computes something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.execute import KernelFactory
from msdump.graph import Node
from msdump.graph.kernel import Rounding, onenode

FLOAT16, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Step:
    """An ONNX operator on a kernel's result, with further inputs and attributes."""

    op_type: str
    constants: tuple[np.ndarray, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()


Steps = tuple[Step, ...]


def scaled(error: float) -> Steps:
    """Return steps that enlarge every element by a share."""
    return (Step("Mul", (np.float32(1 + error),)),)


def noisy(noise: np.ndarray) -> Steps:
    """Return steps that multiply every element by one plus its own noise."""
    return (Step("Mul", (np.float32(1) + noise.astype(np.float32),)),)


def shifted(offset: np.ndarray) -> Steps:
    """Return a step that adds a tensor."""
    return (Step("Add", (offset.astype(np.float32),)),)


def replaced(kept: np.ndarray, other: np.ndarray) -> Steps:
    """Return steps that replace the elements where ``kept`` is 0."""
    return (Step("Mul", (kept.astype(np.float32),)), *shifted(other))


def half() -> Steps:
    """Return steps that round to float16."""
    return (Step("Cast", (), (("to", FLOAT16),)), Step("Cast", (), (("to", FLOAT),)))


def overflowing(scale: float) -> Steps:
    """Return steps with a float16 intermediate that is so many times larger than the result."""
    return (Step("Mul", (np.float32(scale),)), *half(), Step("Mul", (np.float32(1 / scale),)))


@contextmanager
def injected(wrong: Mapping[str, Steps], source: str = ""):
    """Let the kernels of some nodes apply further steps to their first output, in fused kernels as well.

    ``source`` is the file of the model with these kernels, "" for any.
    """
    build = onenode.build

    def built(graph, node, bindings, limits, roundings=None):
        if source and graph.source != source:
            return build(graph, node, bindings, limits, roundings)
        members = [changed for part in node.members for changed in _changed(part, wrong.get(part.name, ()))]
        if len(members) == len(node.members):
            return build(graph, node, bindings, limits, roundings)
        if roundings is not None:
            per_part = zip(node.members, roundings, strict=True)
            roundings = [each for part, own in per_part for each in _roundings(part, own, wrong)]
        return build(graph, replace(node, parts=tuple(members)), bindings, limits, roundings)

    # an operator in a session with others is built elsewhere
    onenode.build, KernelFactory.joins = built, False
    try:
        yield
    finally:
        onenode.build, KernelFactory.joins = build, True


def _roundings(part: Node, own: Rounding, wrong: Mapping[str, Steps]) -> list[Rounding]:
    added = sum(1 + len(step.constants) for step in wrong.get(part.name, ()))
    return [own] + [Rounding()] * added


def _changed(part: Node, steps: Steps) -> Sequence[Node]:
    """Return an operator with a renamed first output, and the steps from that to the output."""
    if not steps:
        return [part]
    final = part.proto.output[0]
    proto = onnx.NodeProto()
    proto.CopyFrom(part.proto)
    proto.output[0] = f"{final}/sound"
    nodes, value = [_with(part, proto)], proto.output[0]
    for number, step in enumerate(steps):
        constants = []
        for at, array in enumerate(step.constants):
            constants.append(f"{final}/constant{number}_{at}")
            tensor = numpy_helper.from_array(np.asarray(array))
            nodes.append(_with(part, helper.make_node("Constant", [], [constants[-1]], value=tensor)))
        result = final if number == len(steps) - 1 else f"{final}/step{number}"
        made = helper.make_node(step.op_type, [value, *constants], [result], **dict(step.attributes))
        nodes.append(_with(part, made))
        value = result
    return nodes


def _with(part: Node, proto: onnx.NodeProto) -> Node:
    return replace(
        part,
        proto=proto,
        op_type=proto.op_type,
        domain=proto.domain,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        parts=(),
    )
