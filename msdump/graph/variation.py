"""Whether the sizes of a graph's tensors follow from the shapes of what it is fed, or from the contents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msdump.graph.bodies import LOOP_HEAD
from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import CONTROL_FLOW, RANDOM
from msdump.graph.order import reads

_ALL: Final = frozenset(range(16))

_SIZES_FROM: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("NonMaxSuppression", "Range", "Unique", "MelWeightMatrix"), _ALL),
    **dict.fromkeys(CONTROL_FLOW, _ALL),  # those that run as one operator
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", "Tokenizer"), _ALL),
    **dict.fromkeys(("NonZero", "ConstantOfShape", "ImageDecoder"), frozenset({0})),
    **dict.fromkeys(("StringNormalizer", "StringSplit"), frozenset({0})),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), frozenset({0})),
    **dict.fromkeys(("Reshape", "Expand", "ExpandDims", "TopK", "OneHot", "Upsample"), frozenset({1})),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Split", "SplitToSequence"), frozenset({1})),
    **dict.fromkeys(("SequenceAt", "SequenceErase", "Compress"), frozenset({1})),
    **dict.fromkeys(("AffineGrid", "CenterCropPad"), frozenset({1})),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), frozenset({1})),
    **dict.fromkeys(
        ("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), frozenset({1})
    ),
    **dict.fromkeys(("Tile", "DFT", "Col2Im"), frozenset({1, 2})),
    **dict.fromkeys(("SequenceInsert", "MaxUnpool", "ConvTransposeWithDynamicPads"), frozenset({2})),
    **dict.fromkeys(("Resize", "STFT", "CropAndResize"), frozenset({1, 2, 3})),
    "Slice": frozenset({1, 2, 3, 4}),
    "Pad": frozenset({1, 3}),
}
"""Inputs whose contents tell the sizes of outputs, by the operator's type in ONNX."""

_KNOWN_DOMAINS: Final = frozenset({"", "ai.onnx.ml", "com.microsoft"})

_SHAPES: Final = frozenset({"Shape", "Size"})
"""Operators whose results depend on the shape of their input alone."""


def content_sized(graph: Graph, fed: Collection[str]) -> tuple[int, ...]:
    """Return the operators whose results may have other sizes though everything fed has the same shape.

    The sizes of all other results follow from the shapes of what is fed and from the sizes of theirs. Control
    flow counts where a result inside it varies. Operators that nothing is known about count as such,
    unless their results have a fixed shape.

    Args:
        graph: The graph, with its branches and loops.
        fed: Names of what it is fed: inputs and overridden initializers.

    Returns:
        Their positions in the graph, ascending; none where shapes tell every size.
    """
    return tuple(_Walk(set(fed)).varying(graph))


class _Walk:
    """Follows what depends on the contents that a graph is fed."""

    def __init__(self, told: set[str]) -> None:
        self._told = told

    def varying(self, graph: Graph) -> Iterator[int]:
        for position, node in enumerate(graph.nodes):
            varies = [self._node_varies(graph, part) for part in node.members]
            if any(varies):
                # Beyond a result that varies inside, even the contents of a Shape do.
                self._told.update(filter(None, node.outputs))
                yield position

    def _varies(self, graph: Graph) -> bool:
        return any(True for _ in self.varying(graph))

    def _node_varies(self, graph: Graph, node: Node) -> bool:
        told = {slot for slot, name in enumerate(node.inputs) if name in self._told}
        if node.bodies:
            return self._control_varies(node, told)
        if not self._told.isdisjoint(set(reads(node)) - set(node.inputs)):
            return True  # a graph inside an operator reads it
        if node.domain not in _KNOWN_DOMAINS:
            varies = bool(told) and not all(_is_fixed(graph, name) for name in node.outputs)
        else:
            varies = not told.isdisjoint(_SIZES_FROM.get(node.op_type, ()))
        if (told and node.op_type not in _SHAPES) or node.op_type in RANDOM:
            self._told.update(filter(None, node.outputs))
        return varies

    def _control_varies(self, node: Node, told: set[int]) -> bool:
        """Tell whether it varies which bodies run, how often, or what they make."""
        if not told.isdisjoint(_DECISIVE.get(node.op_type, _ALL)):
            return True
        while True:  # what a body carries from one pass to the next depends on ever more
            known = len(self._told)
            for body in node.bodies.values():
                self._enter(node, body)
                if self._varies(body) or self._leave(node, body):
                    return True
            if len(self._told) == known:
                return False

    def _enter(self, node: Node, body: Graph) -> None:
        """Hand on to a loop's body what it is given from outside, and by its last pass."""
        if node.op_type == "If":
            return
        given = [value.name for value in body.inputs if value.name not in body.outer]
        made = [value.name for value in body.outputs]
        if node.op_type == "Loop":  # a body gives its condition, and takes the number of the pass before it
            pairs = [*zip(node.inputs[LOOP_HEAD:], given[LOOP_HEAD:], strict=False)]
            pairs += zip(made[1:], given[LOOP_HEAD:], strict=False)
        else:
            states = len(node.inputs) - int(str(node.attributes["num_scan_inputs"]))
            pairs = [*zip(node.inputs, given, strict=False), *zip(made[:states], given, strict=False)]
        self._told.update(taken for source, taken in pairs if source in self._told)

    def _leave(self, node: Node, body: Graph) -> bool:
        """Take what a body gives; tell whether what it is fed decides how often it runs."""
        made = [value.name for value in body.outputs]
        if node.op_type == "Loop":
            decides, *made = made
            if decides in self._told:
                return True
        results = zip(node.outputs, made, strict=False)
        self._told.update(result for result, source in results if result and source in self._told)
        return False


_DECISIVE: Final[Mapping[str, frozenset[int]]] = {
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "Scan": frozenset(),
}
"""Inputs of control flow that say which bodies run, and how often."""


def _is_fixed(graph: Graph, name: str) -> bool:
    if not name:
        return True
    shape = graph.type_of(name).shape
    return shape is not None and all(isinstance(dim, int) for dim in shape)
