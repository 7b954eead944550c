"""The table of gradient rules, by forward operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.graph.operator_types import MINDSPORE_DOMAIN
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

Gradients = Sequence[StepTensor | None]
"""The gradient of each input, None where it has none or nobody wants it; may end early."""


@dataclass(frozen=True, slots=True)
class Backward:
    """What a rule is asked for.

    Attributes:
        node: The forward operator.
        dys: The gradient of each output, None where nothing depends on it.
        wants: Whether the gradient of each input is asked for.
    """

    node: StepOperator
    dys: tuple[StepTensor | None, ...]
    wants: tuple[bool, ...]

    @property
    def dy(self) -> StepTensor:
        """The gradient of the first output, which alone counts for most operators."""
        gradient = self.dys[0]
        assert gradient is not None, "a rule with several outputs looks at dys"
        return gradient


Rule = Callable[[StepWriter, Backward], Gradients]

RULES: Final[dict[tuple[str, str], Rule]] = {}
"""By domain and type of the forward operator; the modules of ``gradients`` fill it."""


def gradient(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register the rule of some forward operators.

    Args:
        op_types: Their types.
        domain: Their domain: "" is ONNX's own.
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            RULES[domain, op_type] = rule
        return rule

    return register


def mindspore_gradient(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the rule of some of MindSpore's operators."""
    return gradient(*op_types, domain=MINDSPORE_DOMAIN)


def constant_zero(*_: object) -> Gradients:
    """Give no gradient: the operator is constant almost everywhere."""
    return ()
