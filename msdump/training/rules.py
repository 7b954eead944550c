"""The tables of gradient rules and of forward operators in MindSpore's form, and the backward pass.

ONNX and MindSpore cut some layers differently: a Gemm is a MatMul and a BiasAdd, a convolution with bias a
Conv2D and a BiasAdd, a BatchNormalization computes with the statistics of its batch. A forward operator
without a lowering stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np

from msdump.errors import UnsupportedOpError
from msdump.graph import MINDSPORE_DOMAIN
from msdump.graph.primitives import op
from msdump.training.writer import ROOT, StepOperator, StepTensor

Gradients = StepTensor | Sequence[StepTensor | None]
"""The gradient of each input, None for none; may end early. A single value: the first input's."""


@dataclass(frozen=True, slots=True)
class Backward(StepOperator):
    """The argument of a gradient rule: the forward operator with its incoming gradients."""

    # gradient of each output, None where the loss does not depend on it
    dys: tuple[StepTensor | None, ...] = ()
    wants: tuple[bool, ...] = ()  # whether the gradient of each input is needed

    @property
    def dy(self) -> StepTensor:
        """The gradient of the first output."""
        gradient = self.dys[0]
        assert gradient is not None, "a rule with several outputs looks at dys"
        return gradient


Rule = Callable[[Backward], Gradients]

RULES: Final[dict[tuple[str, str], Rule]] = {}
"""By domain and type of the forward operator; the modules of ``operators`` fill it."""


_Entry = TypeVar("_Entry")


def _registering(
    table: dict[tuple[str, str], _Entry], op_types: Iterable[str], domain: str
) -> Callable[[_Entry], _Entry]:
    def register(entry: _Entry) -> _Entry:
        table.update({(domain, op_type): entry for op_type in op_types})
        return entry

    return register


def gradient(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register the gradient rule of some forward operators; domain "" is ONNX's own."""
    return _registering(RULES, op_types, domain)


def mindspore_gradient(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the rule of some of MindSpore's operators."""
    return gradient(*op_types, domain=MINDSPORE_DOMAIN)


def gradients(table: Mapping[str, Rule], domain: str = "") -> None:
    """Register gradient rules of one expression, by type of the forward operator."""
    RULES.update({(domain, op_type): rule for op_type, rule in table.items()})


def constant_zero(*_: object) -> Gradients:
    """Return no gradient: the operator is constant almost everywhere."""
    return ()


Lowering = Callable[[StepOperator], None]
"""Writes an operator's replacement; the last operators of it write the outputs of the original."""

LOWERINGS: Final[dict[tuple[str, str], Lowering]] = {}
"""By domain and type; the modules of ``operators`` fill it."""


def lowering(*op_types: str) -> Callable[[Lowering], Lowering]:
    """Register the replacement of some forward operators."""
    return _registering(LOWERINGS, op_types, "")


def keep(node: StepOperator) -> None:
    """Write a forward operator as it is."""
    op.emit(
        node.op_type,
        node.inputs,
        node.attributes,
        outputs=[node.output(slot) for slot in range(len(node.outputs) + len(node.absent))],
        domain=node.domain,
        primitive=node.primitive,
    )


def lower(node: StepOperator) -> None:
    """Write a forward operator as a training step has it."""
    LOWERINGS.get((node.domain, node.op_type), keep)(node)


class BackwardPass:
    """Writes the gradients of a loss.

    A tensor with several readers has a gradient from each; an AddN in its producer's scope sums them.
    """

    def __init__(self, parameters: Iterable[str]) -> None:
        """Find the values in all operators so far that depend on parameters, by name."""
        operators = tuple(op.operators)
        self._operators = operators
        self._producers = {out.name: node for node in operators for out in node.outputs}
        self._wanted = set(parameters)
        self._first_users = {
            item.name: node for node in reversed(operators) for item in node.inputs if item is not None
        }
        for node in operators:
            if any(item is not None and item.name in self._wanted for item in node.inputs):
                self._wanted.update(out.name for out in node.outputs if out.is_float)
        self._turns: Mapping[str, int] = {}
        self._gradients: dict[str, list[tuple[int, StepTensor]]] = {}

    def run(self, loss: StepTensor, seed: StepTensor) -> None:
        """Write all gradients; UnsupportedOpError if an operator before the loss has no rule."""
        self._turns = _turns(loss, self._producers)
        with op.at(ROOT):
            self._gradients[loss.name] = [(0, _filled(loss, seed))]
        for node in reversed(self._operators):
            if not any(out.name in self._wanted for out in node.outputs):
                continue
            dys = tuple(self.gradient(out) for out in node.outputs)
            if any(dy is not None for dy in dys):
                self._differentiate(node, dys)

    def _differentiate(self, node: StepOperator, dys: tuple[StepTensor | None, ...]) -> None:
        rule = RULES.get((node.domain, node.op_type))
        if rule is None:
            kind = f"{node.domain or 'ai.onnx'}.{node.op_type}".removeprefix(f"{MINDSPORE_DOMAIN}.")
            raise UnsupportedOpError(
                f"{node.place.path}/{node.primitive}: {kind} has no gradient rule{node.place.source}; leave"
                " the parameters before it out of training (trainable), or add a rule (msdump.training.rules)"
            )
        wants = tuple(item is not None and item.name in self._wanted for item in node.inputs)
        place = node.place.gradients(node.name).inside((f"Grad_{node.primitive}", ""))
        own: dict[str, Any] = {part.name: getattr(node, part.name) for part in fields(node)}
        with op.at(place):
            gradients = rule(Backward(**own, dys=dys, wants=wants))
        each = (gradients,) if isinstance(gradients, StepTensor) else gradients
        for item, is_wanted, gradient in zip(node.inputs, wants, each, strict=False):
            if is_wanted and gradient is not None and item is not None:
                self._gradients.setdefault(item.name, []).append((self._turns[node.name], gradient))

    def gradient(self, tensor: StepTensor) -> StepTensor | None:
        """Return the gradient of a value, None where the loss does not depend on it."""
        parts = self._gradients.get(tensor.name, [])
        if len(parts) > 1:
            home = self._producers.get(tensor.name) or self._first_users[tensor.name]
            with op.at(home.place.gradients()):
                total = op.Sum(*(gradient for _, gradient in sorted(parts, key=itemgetter(0))))
            parts = self._gradients[tensor.name] = [(0, total)]
        return parts[0][1] if parts else None


def _turns(loss: StepTensor, producers: Mapping[str, StepOperator]) -> Mapping[str, int]:
    """Return the numbers of operators by name, in MindSpore's order.

    It walks from the loss to the producers of the operands, one operand after the other, and numbers each
    operator behind them.
    """
    turns: dict[str, int] = {}
    path = [producers[loss.name]] if loss.name in producers else []
    while path:
        operands = (producers.get(item.name) for item in path[-1].inputs if item is not None)
        ahead = next((node for node in operands if node is not None and node.name not in turns), None)
        if ahead is None:
            turns[path.pop().name] = len(turns)
        else:
            path.append(ahead)
    return turns


def _filled(loss: StepTensor, number: StepTensor) -> StepTensor:
    """Return a tensor of one number in the shape of the loss."""
    if not loss.is_fixed:
        return op.call("OnesLike", loss, like=loss) * number
    if number.value is not None:
        return op.constant(np.full(loss.sizes(), number.value))
    return op.constant(np.ones(loss.sizes(), loss.dtype.numpy)) * number
