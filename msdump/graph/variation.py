"""Finds the operators whose outputs have sizes that depend on the contents of inputs, not on shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msdump.graph.bodies import LOOP_HEAD
from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import CONTROL_FLOW, MINDSPORE_DOMAIN, RANDOM
from msdump.graph.order import reads

# more inputs than any operator here has
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
    # MindSpore's: sizes are inputs
    "BroadcastTo": frozenset({1}),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv2DBackpropFilter", "UnsortedSegmentSum"), frozenset({2})),
    **dict.fromkeys(("Conv3DBackpropInput", "Conv3DBackpropFilter"), frozenset({2})),
    "StridedSlice": frozenset({1, 2, 3}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Pad": frozenset({1, 3}),
}
"""Inputs whose contents decide the sizes of outputs, by the operator's type in its domain."""

_KNOWN_DOMAINS: Final = frozenset({"", "ai.onnx.ml", "com.microsoft", MINDSPORE_DOMAIN})

_SHAPES: Final = frozenset({"Shape", "Size"})
"""Operators whose results depend on the shape of their input alone."""


def content_sized(graph: Graph, fed: Collection[str]) -> tuple[int, ...]:
    """Return the operators whose outputs may change size from run to run while all inputs keep their shapes.

    The sizes of all other outputs follow from the shapes of the graph's inputs and the sizes of these
    operators' outputs. Control flow is among them where an output inside it varies, and so are operators
    of unknown domains, unless their outputs have a fixed shape.

    Args:
        graph: The graph, with its branches and loops.
        fed: Names of what it is fed: inputs and overridden initializers.

    Returns:
        Their positions in the graph, ascending; none where shapes tell every size.
    """
    return tuple(_Walk(set(fed)).varying(graph))


class _Walk:
    """Follows the values that depend on the contents of a graph's inputs (``_dependent``)."""

    def __init__(self, fed: set[str]) -> None:
        self._dependent = fed

    def varying(self, graph: Graph) -> Iterator[int]:
        for position, node in enumerate(graph.nodes):
            varies = [self._node_varies(graph, part) for part in node.members]
            if any(varies):
                # Beyond a result that varies inside, even the contents of a Shape do.
                self._dependent.update(filter(None, node.outputs))
                yield position

    def _varies(self, graph: Graph) -> bool:
        return any(True for _ in self.varying(graph))

    def _node_varies(self, graph: Graph, node: Node) -> bool:
        slots = {slot for slot, name in enumerate(node.inputs) if name in self._dependent}
        if node.bodies:
            return self._control_varies(node, slots)
        if not self._dependent.isdisjoint(set(reads(node)) - set(node.inputs)):
            return True  # a graph inside an operator reads it
        # nothing is known of the operator but its declared output shapes
        if node.domain not in _KNOWN_DOMAINS:
            varies = bool(slots) and not all(_is_fixed(graph, name) for name in node.outputs)
        else:
            varies = not slots.isdisjoint(_SIZES_FROM.get(node.op_type, ()))
        # a Shape gives sizes: those that vary are listed with the operators that make them
        if (slots and node.op_type not in _SHAPES) or node.op_type in RANDOM:
            self._dependent.update(filter(None, node.outputs))
        return varies

    def _control_varies(self, node: Node, slots: set[int]) -> bool:
        """Tell whether contents decide which bodies run, how often, or which sizes their values have."""
        if not slots.isdisjoint(_DECISIVE.get(node.op_type, _ALL)):
            return True
        while True:  # each pass of a loop may make more of the values that it carries dependent
            count_before = len(self._dependent)
            for body in node.bodies.values():
                self._enter(node, body)
                if self._varies(body) or self._leave(node, body):
                    return True
            if len(self._dependent) == count_before:
                return False

    def _enter(self, node: Node, body: Graph) -> None:
        """Mark the body's inputs that dependent values reach: from outside, or from its last pass."""
        if node.op_type == "If":
            return
        inputs = [value.name for value in body.inputs if value.name not in body.outer]
        outputs = [value.name for value in body.outputs]
        if node.op_type == "Loop":  # a body gives its condition, and takes the number of the pass before it
            pairs = [*zip(node.inputs[LOOP_HEAD:], inputs[LOOP_HEAD:], strict=False)]
            pairs += zip(outputs[1:], inputs[LOOP_HEAD:], strict=False)
        else:
            states = len(node.inputs) - int(str(node.attributes["num_scan_inputs"]))
            pairs = [*zip(node.inputs, inputs, strict=False), *zip(outputs[:states], inputs, strict=False)]
        self._dependent.update(target for source, target in pairs if source in self._dependent)

    def _leave(self, node: Node, body: Graph) -> bool:
        """Mark the outputs that dependent values of a body reach; tell whether a loop's condition is one."""
        outputs = [value.name for value in body.outputs]
        if node.op_type == "Loop":
            condition, *outputs = outputs
            if condition in self._dependent:
                return True
        results = zip(node.outputs, outputs, strict=False)
        self._dependent.update(result for result, source in results if result and source in self._dependent)
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
