"""What the operators of two models compute in, when some of one stand in the other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msdump.execute.kernels import KernelFactory, RoundingsOf, as_the_model_says
from msdump.execute.variants.mixed_kernels import mixed_kernels
from msdump.execute.variants.wide_kernels import Float64Kernels
from msdump.graph.cutting.splice import CAST, is_taken
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import Rounding
from msdump.tools.diff.sides import Side
from msdump.tools.diff.variants import Engine


@dataclass(frozen=True, slots=True)
class OperatorArithmetic:
    """What the operators of a model compute in.

    Attributes:
        roundings: The emulated device's casts.
        kernels: What compiles them.
    """

    roundings: RoundingsOf = as_the_model_says
    kernels: type[KernelFactory] = KernelFactory

    @property
    def is_wide(self) -> bool:
        """Whether they compute in float64."""
        return self.kernels is Float64Kernels


AS_THE_MODEL_SAYS: Final = OperatorArithmetic()

ArithmeticPair = tuple[OperatorArithmetic, OperatorArithmetic]
"""What the examined model, and the other one, compute in."""


def of_side(side: Side) -> tuple[Graph, OperatorArithmetic]:
    """Return the graph whose operators compute by themselves, and what they compute in.

    Compiled graphs (O1, O2) give the bits of their models, operator by operator; what onnxruntime optimised
    is a model of its own.
    """
    if side.variant.engine is Engine.OPTIMISED:
        return side.graph, AS_THE_MODEL_SAYS
    is_wide = side.variant.engine is Engine.FLOAT64
    return side.model, OperatorArithmetic(side.arithmetic, Float64Kernels if is_wide else KernelFactory)


def mixed(computed_in: ArithmeticPair) -> OperatorArithmetic:
    """Return what the other model computes in with operators of the examined one in it.

    Args:
        computed_in: What the two compute in.
    """
    mine, golden = computed_in

    def roundings(node: Node) -> Sequence[Rounding] | None:
        if node.name.startswith(CAST):
            return None
        return (mine if is_taken(node) else golden).roundings(node)

    if mine.is_wide is golden.is_wide:
        return OperatorArithmetic(roundings, mine.kernels)

    def is_wide(node: Node) -> bool:
        # a value at the edge gets its other element type before it is rounded for what reads it
        return node.name.startswith(CAST) or (mine if is_taken(node) else golden).is_wide

    return OperatorArithmetic(roundings, mixed_kernels(is_wide))
