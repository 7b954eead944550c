"""LSTM over a sequence, and its gradient."""

from __future__ import annotations

from typing import Any

from msdump.graph.primitives.body import Slots, Value, op, operator
from msdump.graph.primitives.call import ARGUMENTS, Call


def _weights(w: Value, hidden: int, width: int, has_bias: int) -> list[Value]:
    """Return the weights of input and state, (gates * hidden, ...), and the bias, of the packed weights."""
    flat, rows = op.Reshape(w, [-1]), 4 * hidden
    sizes = [rows * width, rows * hidden, *[rows] * has_bias]
    parts = op.Split(flat, sizes, axis=0, outputs=len(sizes))
    bias = parts[2] if has_bias else op.Expand(0.0, [rows])
    return [op.Reshape(parts[0], (rows, width)), op.Reshape(parts[1], (rows, hidden)), bias]


def _onnx_gates(value: Value) -> Value:
    """Return rows of the gates input, forget, cell, output in ONNX's order: input, output, forget, cell."""
    taken, kept, new, shown = op.Split(value, num_outputs=4, axis=0, outputs=4)
    return op.Unsqueeze(op.Concat(taken, shown, kept, new, axis=0), [0])


@operator("LSTM")
def lstm(
    x: Value, h: Value, c: Value, w: Value, *, hidden: int, width: int, has_bias: int
) -> tuple[Value, ...]:
    """Return the outputs of all steps, the last output and memory, and two workspaces, which are zero."""
    of_input, of_state, bias = (_onnx_gates(each) for each in _weights(w, hidden, width, has_bias))
    both = op.Concat(bias, bias * 0.0, axis=1)
    y, last, memory = op.LSTM(x, of_input, of_state, both, None, h, c, hidden_size=hidden, outputs=3)
    empty = op.Expand(0.0, (1, 1))
    return op.Squeeze(y, [1]), last, memory, empty, empty


@operator("LSTMGrad")
def lstm_grad(slot: Slots, *, hidden: int, width: int, has_bias: int, steps: int) -> tuple[Value, ...]:
    """Return the gradients of input, first output and memory, and packed weights."""
    of_input, of_state, bias = _weights(slot.w, hidden, width, has_bias)
    former = op.Concat(slot.h, op.Slice(slot.y, (0,), (-1,), (0,)), axis=0)
    sums = (
        op.MatMul(slot.x, op.Transpose(of_input, perm=[1, 0]))
        + op.MatMul(former, op.Transpose(of_state, perm=[1, 0]))
        + bias
    )
    taken, kept, new, shown = op.Split(sums, num_outputs=4, axis=2, outputs=4)
    gates = [op.Sigmoid(taken), op.Sigmoid(kept), op.Tanh(new), op.Sigmoid(shown)]
    rows = [_rows(each, steps) for each in gates]
    memories = [op.Squeeze(slot.c, [0])]
    for i, f, g, _ in zip(*rows, strict=True):
        memories.append(f * memories[-1] + i * g)
    dh, dc = op.Squeeze(slot.dlast, [0]), op.Squeeze(slot.dmemory, [0])
    parts: list[Value] = []
    for step, dout in reversed([*enumerate(_rows(slot.dy, steps))]):
        i, f, g, o = (each[step] for each in rows)
        out, dh = op.Tanh(memories[step + 1]), dh + dout
        dc = dc + dh * o * (1.0 - out * out)
        changes = (
            dc * g * i * (1.0 - i),
            dc * memories[step] * f * (1.0 - f),
            dc * i * (1.0 - g * g),
            dh * out * o * (1.0 - o),
        )
        parts.insert(0, op.Concat(*changes, axis=1))
        dh, dc = op.MatMul(parts[0], of_state), dc * f
    dsums = op.Concat(*(op.Unsqueeze(each, [0]) for each in parts), axis=0)
    flat = op.Reshape(dsums, (-1, 4 * hidden))
    dw = [
        op.Reshape(op.Gemm(flat, op.Reshape(each, (-1, size)), transA=1), [-1])
        for each, size in ((slot.x, width), (former, hidden))
    ]
    if has_bias:
        dw.append(op.ReduceSum(flat, [0], keepdims=0))
    packed = op.Reshape(op.Concat(*dw, axis=0), op.Shape(slot.w))
    return op.MatMul(dsums, of_input), op.Unsqueeze(dh, [0]), op.Unsqueeze(dc, [0]), packed


def _rows(value: Value, steps: int) -> list[Value]:
    parts = op.Split(value, num_outputs=steps, axis=0, outputs=steps)
    return [op.Squeeze(each, [0]) for each in (parts if steps > 1 else (parts,))]


def _arguments(call: Call) -> dict[str, Any]:
    for name, value in (("num_layers", 1), ("bidirectional", False), ("proj_size", 0)):
        if call.argument(name, value) != value:
            raise ValueError(f"the {name} {call.argument(name)}; {value} alone runs")
    found = {"hidden": call.argument("hidden_size"), "width": call.argument("input_size")}
    steps = {"steps": call.sizes()[0]} if call.op_type == "LSTMGrad" else {}
    return {**found, "has_bias": int(call.argument("has_bias", True)), **steps}


ARGUMENTS.update(LSTM=_arguments, LSTMGrad=_arguments)
