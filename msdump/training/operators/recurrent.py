"""Recurrent layers step by step, as MindSpore's dynamic cells compute them.

Each step of the sequence is written in operators that have gradients: products, biases, gates. A state that
the model does not give begins as zero, and its products are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.errors import GraphError
from msdump.graph.primitives import op
from msdump.training.operators.dense import matmul
from msdump.training.operators.shapes import cut
from msdump.training.rules import lowering
from msdump.training.writer import StepOperator, StepTensor

State = tuple["StepTensor | None", "StepTensor | None"]
"""The state of a cell between steps: its output and, for LSTM, its memory."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """Weights of one direction: w (gates x hidden, input), r of former outputs (gates x hidden, hidden)."""

    w: StepTensor
    r: StepTensor
    biases: tuple[StepTensor | None, StepTensor | None]


Cell = Callable[[StepOperator, _Direction, StepTensor, State], State]
"""Writes one step; returns the new state."""

_ACTIVATIONS: Final = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _product(value: StepTensor | None, weight: StepTensor, bias: StepTensor | None) -> StepTensor | None:
    """Return value * weight^T + bias; None (value, bias or result) means zero."""
    if value is None:
        return bias
    product = matmul(value, weight, tb=True)
    if bias is None:
        return product
    return op.call("BiasAdd", product, bias, like=product, rank=2)


def _sum_present(*parts: StepTensor | None) -> StepTensor:
    present = [part for part in parts if part is not None]
    total = present[0]
    for part in present[1:]:
        total = total + part
    return total


def _gates(value: StepTensor | None, count: int) -> Sequence[StepTensor | None]:
    """Return the part of each gate of a value (batch, gates x hidden) or a bias (gates x hidden)."""
    if value is None:
        return [None] * count
    width = value.sizes_from(-1)[0] // count
    return op.Split(value, [width] * count, axis=value.rank - 1, outputs=count)


def _products(side: _Direction, x: StepTensor, former: StepTensor | None) -> StepTensor:
    """Return the sum of the products of input and former output with their weights."""
    return _sum_present(_product(x, side.w, side.biases[0]), _product(former, side.r, side.biases[1]))


def _lstm(_node: StepOperator, side: _Direction, x: StepTensor, state: State) -> State:
    former, memory = state
    taken, shown, kept, new = _gates(_products(side, x, former), 4)
    added = op.Sigmoid(taken) * op.Tanh(new)
    cell = added if memory is None else op.Sigmoid(kept) * memory + added
    return (op.Sigmoid(shown) * op.Tanh(cell)), cell


def _gru(node: StepOperator, side: _Direction, x: StepTensor, state: State) -> State:
    former = state[0]
    inputs = _gates(_product(x, side.w, side.biases[0]), 3)
    if node.attribute("linear_before_reset", 0):
        products = _gates(_product(former, side.r, side.biases[1]), 3)
    else:
        size = side.r.sizes()[1]
        gates, own = cut(side.r, [2 * size, size], 0)
        bias = side.biases[1]
        parts = (None, None) if bias is None else cut(bias, [2 * size, size], 0)
        products = [*_gates(_product(former, gates, parts[0]), 2), None]
    kept, reset = (op.Sigmoid(_sum_present(inputs[gate], products[gate])) for gate in (0, 1))
    if node.attribute("linear_before_reset", 0):
        recurrent = None if products[2] is None else reset * products[2]
    else:
        recurrent = _product(None if former is None else reset * former, own, parts[1])
    new = op.Tanh(_sum_present(inputs[2], recurrent))
    fresh = (1.0 - kept) * new
    return (fresh if former is None else fresh + kept * former), None


def _rnn(_node: StepOperator, side: _Direction, x: StepTensor, state: State) -> State:
    return op.Tanh(_products(side, x, state[0])), None


_CELLS: Final[dict[str, Cell]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@lowering("LSTM", "GRU", "RNN")
def _lower_recurrent(node: StepOperator) -> None:
    _check(node)
    x = node.x
    steps = _parts(x, x.sizes_from(0, 1)[0])
    sequences, states = [], []
    for number, (side, state) in enumerate(_directions(node)):
        is_reverse = number == 1 or node.attribute("direction", "forward") == "reverse"
        outputs, last = _run(node, side, steps[::-1] if is_reverse else steps, state)
        sequences.append(outputs[::-1] if is_reverse else outputs)
        states.append(last)
    _write(node, sequences, states)


def _directions(node: StepOperator) -> list[tuple[_Direction, State]]:
    """Return the weights of each direction, and its first state."""
    count = node.input(1).sizes()[0]
    inputs = (*node.inputs, *(None,) * 7)
    weights, recurrences, biases, outputs, memories = (
        _parts(inputs[slot], count) for slot in (1, 2, 3, 5, 6)
    )
    directions = []
    for number, (w, r) in enumerate(zip(weights, recurrences, strict=True)):
        if w is None or r is None:
            raise GraphError(f"{node.place.path}/{node.op_type}: W and R are missing")
        bias = biases[number]
        of_input, of_output = (None, None) if bias is None else _gates(bias, 2)
        state = (outputs[number], memories[number])
        directions.append((_Direction(w, r, (of_input, of_output)), state))
    return directions


def _check(node: StepOperator) -> None:
    """Raise GraphError for options that the cells do not compute."""
    count = 2 if node.attribute("direction", "forward") == "bidirectional" else 1
    reasons = {
        "lengths of sequences": node.optional(4) is not None,
        "peepholes": node.optional(7) is not None,
        "other activations": tuple(node.attribute("activations", _ACTIVATIONS[node.op_type] * count))
        != _ACTIVATIONS[node.op_type] * count,
        "a clip": node.attribute("clip", None) is not None,
        "coupled gates": bool(node.attribute("input_forget", 0)),
        "the batch as first axis": bool(node.attribute("layout", 0)),
    }
    present = [reason for reason, is_there in reasons.items() if is_there]
    if present:
        raise GraphError(f"{node.place.path}/{node.op_type}: with {', '.join(present)} it has no gradient")


def _parts(value: StepTensor | None, count: int) -> list[StepTensor | None]:
    """Split a value into slices of its first axis, which is removed; Nones for an absent value."""
    if value is None:
        return [None] * count
    slices = [value] if count == 1 else op.Split(value, [1] * count, axis=0, outputs=count)
    return [op.Squeeze(part, (0,)) for part in slices]


def _run(
    node: StepOperator, side: _Direction, steps: Sequence[StepTensor | None], state: State
) -> tuple[list[StepTensor], State]:
    """Write one direction; return the output of each step, and the last state."""
    outputs = []
    for x in steps:
        assert x is not None, "the sequence is no optional input"
        state = _CELLS[node.op_type](node, side, x, state)
        assert state[0] is not None, "a cell gives an output"
        outputs.append(state[0])
    return outputs, state


def _write(node: StepOperator, sequences: list[list[StepTensor]], states: list[State]) -> None:
    """Write the outputs that the model has: Y of all steps, Y_h and Y_c of the last step."""
    whole = node.output(0)
    if whole is not None:
        sides = [
            op.Concat(*(op.Unsqueeze(item, (0, 1)) for item in outputs), axis=0) for outputs in sequences
        ]
        op.Concat(*sides, axis=1, outputs=[whole])
    for slot in (1, 2):
        last = node.output(slot)
        if last is not None:
            sides = [op.Unsqueeze(state[slot - 1], (0,)) for state in states]
            op.Concat(*sides, axis=0, outputs=[last])
