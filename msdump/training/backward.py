"""The backward pass: gradient rules applied to the forward operators, the last one first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msdump.errors import UnsupportedOpError
from msdump.graph.operator_types import MINDSPORE_DOMAIN
from msdump.training.rules import RULES, Backward
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter


class BackwardPass:
    """Writes the gradients of a loss.

    A tensor with several users has as many gradients, which an AddN in its producer's place sums.
    """

    def __init__(
        self, writer: StepWriter, operators: Sequence[StepOperator], parameters: Iterable[str]
    ) -> None:
        """Find out which values depend on the parameters.

        Args:
            writer: Writes the step graph.
            operators: The forward operators, the loss included, in order.
            parameters: Names of the values that gradients are wanted of.
        """
        self._writer = writer
        self._operators = operators
        self._producers = {out.name: node for node in operators for out in node.outputs}
        self._wanted = set(parameters)
        self._first_users = {
            name: node
            for node in reversed(operators)
            for name in (item.name for item in node.inputs if item is not None)
        }
        for node in operators:
            if any(item is not None and item.name in self._wanted for item in node.inputs):
                self._wanted.update(out.name for out in node.outputs if out.is_float)
        self._gradients: dict[str, list[StepTensor]] = {}

    def run(self, loss: StepTensor, seed: StepTensor) -> None:
        """Write all gradients.

        Args:
            loss: What is differentiated, a scalar.
            seed: Its own gradient: 1, or the loss scale.

        Raises:
            UnsupportedOpError: An operator between the loss and a parameter has no rule.
        """
        self._gradients[loss.name] = [seed]
        for node in reversed(self._operators):
            if not any(out.name in self._wanted for out in node.outputs):
                continue
            dys = tuple(self.gradient(out) for out in node.outputs)
            if any(dy is not None for dy in dys):
                self._differentiate(node, dys)

    def _differentiate(self, node: StepOperator, dys: tuple[StepTensor | None, ...]) -> None:
        rule = RULES.get((node.domain, node.op_type))
        if rule is None:
            raise UnsupportedOpError(_no_rule(node))
        wants = tuple(item is not None and item.name in self._wanted for item in node.inputs)
        place = node.place.gradients(node.name).inside((f"Grad_{node.primitive}", ""))
        with self._writer.at(place):
            gradients = rule(self._writer, Backward(node, dys, wants))
        for item, is_wanted, gradient in zip(node.inputs, wants, gradients, strict=False):
            if is_wanted and gradient is not None and item is not None:
                self._gradients.setdefault(item.name, []).append(gradient)

    def gradient(self, tensor: StepTensor) -> StepTensor | None:
        """Return the gradient of a value, None where the loss does not depend on it."""
        parts = self._gradients.get(tensor.name, [])
        if len(parts) > 1:
            home = self._producers.get(tensor.name) or self._first_users[tensor.name]
            with self._writer.at(home.place.gradients()):
                # MindSpore's order: that of the user which ran first is the first
                (total,) = self._writer.emit("Sum", parts[::-1], {})
            parts = self._gradients[tensor.name] = [total]
        return parts[0] if parts else None


def _no_rule(node: StepOperator) -> str:
    kind = node.op_type if node.domain == MINDSPORE_DOMAIN else f"{node.domain or 'ai.onnx'}.{node.op_type}"
    return (
        f"{node.place.path}/{node.primitive}: {kind} has no gradient rule{node.place.source}; exclude what "
        "it leads to from training (trainable), or add a rule (msdump.training.rules)"
    )
