"""Which operators of two networks of one model belong together: those that write the same value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump.analysis import Fact
from msdump.graph import Graph, Node, model_names
from msdump.observer import Array, Arrays

_SCALED: Final[Mapping[str, tuple[int, int]]] = {
    "QuantizeLinear": (1, 2),
    "QLinearConv": (6, 7),
    "QLinearMatMul": (6, 7),
    "QLinearAdd": (6, 7),
    "QLinearMul": (6, 7),
    "QGemm": (7, 8),
    "QLinearConcat": (0, 1),
    "QLinearSigmoid": (3, 4),
    "QLinearLeakyRelu": (3, 4),
    "QLinearSoftmax": (3, 4),
    "QLinearAveragePool": (3, 4),
    "QLinearGlobalAveragePool": (3, 4),
    "QLinearReduceMean": (3, 4),
}
"""Inputs that tell scale and zero point of the output, by operator; of ONNX and of onnxruntime's domain."""

_ARRANGING: Final = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth"}
)
_CHOOSING: Final = frozenset({"Slice", "Split", "Gather", "Expand", "Tile", "MaxPool", "Relu", "Clip"})
_MOVING: Final = _ARRANGING | _CHOOSING
"""Operators whose results are elements of their first input, and so have its scale."""

_OTHERS: Final = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul"}
)


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How the integers of a tensor stand for real numbers.

    Attributes:
        scale: What one step is.
        zero: The integer that stands for 0.
    """

    scale: float
    zero: int

    def real(self, array: np.ndarray) -> np.ndarray:
        """Return the numbers that integers stand for, as float32.

        >>> Quantisation(0.5, 128).real(np.uint8([128, 129, 126])).tolist()
        [0.0, 0.5, -1.0]
        """
        return (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)


def is_quantised(graph: Graph) -> bool:
    """Tell whether a model, or a branch or body in it, computes with quantised numbers."""
    return any(
        node.op_type in _OTHERS or node.op_type in _SCALED for inner in graph.walk() for node in inner.nodes
    )


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return how the quantised values of a graph stand for real numbers, by name.

    Values whose scale is not a weight of one element are left out.
    """
    known: dict[str, Quantisation] = {}
    for node in graph.nodes:
        found = _of_output(graph, node, known)
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


def _of_output(graph: Graph, node: Node, known: Mapping[str, Quantisation]) -> Quantisation | None:
    if node.op_type in _MOVING:
        return known.get(node.inputs[0])
    slots = _SCALED.get(node.op_type)
    if slots is None:
        return None
    scale, zero = (
        graph.weights.get(node.inputs[slot]) if slot < len(node.inputs) else None for slot in slots
    )
    if scale is None or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    return Quantisation(float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0]))


def as_real(names: Sequence[str], arrays: Arrays, known: Mapping[str, Quantisation]) -> list[Array]:
    """Return tensors, of quantised ones the numbers that they stand for.

    Args:
        names: Their names.
        arrays: The tensors, None for what is absent.
        known: How quantised values stand for real numbers, by name.
    """
    return [
        known[name].real(array) if array is not None and name in known and array.dtype.kind in "iu" else array
        for name, array in zip(names, arrays, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class GraphPairing:
    """What belongs together in a graph, or a body, of the leading side and in its counterpart.

    Attributes:
        partners: Name of the counterpart of each operator and control flow node that has one, by name.
        values: The common name of each value of the leading side.
        golden_values: The common name of each value of the other side.
        golden_weights: Common names of the other side's weights.
        kernels: Full name of the golden kernel that hides the results of an operator without counterpart.
        weights: Of two models the weights that belong together, by the leading side's names: its array, and
            that of the other side, as the models have them.
        casts: Of two models, the common name of what a cast reads that the other model lacks, by the name of
            what it writes.
        origins: Of two models, the value that a quantised product was made of, by the names of its integers
            and of what scales them.
    """

    partners: Mapping[str, str]
    values: Mapping[str, str]
    golden_values: Mapping[str, str]
    golden_weights: frozenset[str]
    kernels: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def forms(self) -> Mapping[str, str]:
        """The common name of each value of the leading side in any element type."""
        return {**self.values, **self.casts}


@dataclass(frozen=True, slots=True)
class Pairing:
    """What belongs together in two networks.

    Attributes:
        graphs: The graph and the bodies that have a counterpart, by the leading side's index.
        bodies: Index of the golden body that belongs to each body.
        missing: Golden operators that have no counterpart, and are no part of one.
        is_one_model: Whether both sides are forms of one model: weights of one name are one array, and
            operators without a counterpart were fused, folded or added.
        alike: Of two models, where kernels are fused: the golden model compiled as the leading side is, and
            what belongs together in that and in the leading side's graph.
        quantised: Of two models, how values of the leading side stand for real numbers, by which they are
            compared: by index of the graph and name.
        golden_quantised: The same of the other side.
        facts: Of two models, what their graphs say differs.
        networks: Of two models, in words, that they are two networks; nothing but outputs is compared then.
    """

    graphs: Mapping[int, GraphPairing]
    bodies: Mapping[int, int]
    missing: tuple[Node, ...] = ()
    is_one_model: bool = True
    alike: tuple[Graph, Pairing] | None = None
    quantised: Mapping[int, Mapping[str, Quantisation]] = field(default_factory=dict)
    golden_quantised: Mapping[int, Mapping[str, Quantisation]] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    networks: str = ""

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the golden operators that are the counterpart of one."""
        return frozenset(name for graph in self.graphs.values() for name in graph.partners.values())


def pair_variants(mine: Graph, golden: Graph) -> Pairing:
    """Return what belongs together in two compiled forms of one model.

    A value keeps its name wherever it still is: operators pair that write one. What compilation hides
    inside a kernel, or computed beforehand, has no counterpart, and is no fault.

    Args:
        mine: The leading side's graph.
        golden: The other one.
    """
    return _CompiledPairing(None).result(mine, golden)


def pair_compiled(models: Pairing, mine: Graph, golden: Graph) -> Pairing:
    """Return what belongs together in the compiled forms of two models.

    Args:
        models: What belongs together in the models as they are.
        mine: The leading side's graph.
        golden: The other one.
    """
    return _CompiledPairing(models).result(mine, golden)


class _CompiledPairing:
    """Pairs compiled graphs by the values of their models that they still write."""

    def __init__(self, models: Pairing | None) -> None:
        self._models = models
        self._graphs: dict[int, GraphPairing] = {}
        self._bodies: dict[int, int] = {}

    def result(self, mine: Graph, golden: Graph) -> Pairing:
        """Return the pairs of two graphs, and of the bodies in them."""
        self._pair(mine, golden)
        if self._models is None:
            return Pairing(self._graphs, self._bodies)
        return replace(self._models, graphs=self._graphs, bodies=self._bodies)

    def _pair(self, mine: Graph, golden: Graph) -> None:
        names, golden_names = model_names(mine), model_names(golden)
        model = None if self._models is None else self._models.graphs.get(mine.index)
        common = names
        known = names if model is None else model.forms
        if model is not None:
            common = {form: known.get(name, name) for form, name in names.items()}
        own = [node for node in golden.nodes if not node.is_added]
        by_name = {node.name: node for node in own}
        makers = {golden_names[name]: node for node in own for name in node.outputs if name}
        hidden = {name: node for node in own for part in node.parts for name in part.outputs}
        partners, kernels = {}, {}
        for node in mine.nodes:
            written = [
                common[name]
                for name in node.outputs
                if name and names[name] in known and not _only_casts(node, model)
            ]
            partner = next((makers[name] for name in written if name in makers), None)
            kernel = next((hidden[name].operator.full_name for name in written if name in hidden), None)
            if model is not None:
                if partner is None and node.bodies:
                    partner = by_name.get(model.partners.get(node.name, ""))
                kernel = kernel or model.kernels.get(node.name)
            if partner is not None and (model is not None or partner.bodies.keys() == node.bodies.keys()):
                partners[node.name] = partner.name
                for name in node.bodies.keys() & partner.bodies.keys():
                    self._bodies[node.bodies[name].index] = partner.bodies[name].index
                    self._pair(node.bodies[name], partner.bodies[name])
            elif kernel is not None:
                kernels[node.name] = kernel
        weights = frozenset(golden_names[name] for name in golden.weights)
        pair = GraphPairing(partners, common, golden_names, weights, kernels)
        self._graphs[mine.index] = pair if model is None else _with_models(pair, names, model)


def _only_casts(node: Node, model: GraphPairing | None) -> bool:
    """Tell whether a kernel only casts, for the device or as the other model does not."""
    if model is None or node.is_added:
        return node.is_added
    return all(model.casts.keys() >= set(part.outputs) for part in node.members)


def _with_models(pair: GraphPairing, names: Mapping[str, str], model: GraphPairing) -> GraphPairing:
    """Return the pairs of compiled graphs with what is known of the graphs of their models."""
    weights = {form: model.weights[name] for form, name in names.items() if name in model.weights}
    return replace(pair, weights=weights, origins=model.origins)
