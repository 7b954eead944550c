"""LSTM, GRU and RNN in float64: lengths of sequences, clipping and activations included.

ONNX's reference evaluator ignores ``sequence_lens``, ``clip``, ``input_forget`` and ``activations``, and
onnxruntime has no float64 kernels of these operators, so neither can judge a correct kernel. The formulas
follow ONNX's operator documents; a reversed direction reads each sequence from its own end, as
onnxruntime does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.execute.float64 import Array, Call, Compute, sigmoid

_Activation = Callable[[Array], Array]
_Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]
"""Returns the next states, the hidden one first, from an input times its weights and the states."""

_PLAIN: Final[Mapping[str, _Activation]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(0, x),
}
_SCALED: Final[Mapping[str, tuple[Callable[[Array, float, float], Array], float | None, float | None]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "leakyrelu": (lambda x, alpha, _: np.where(x >= 0, x, alpha * x), 0.01, None),
    "thresholdedrelu": (lambda x, alpha, _: np.where(x > alpha, x, 0), 1.0, None),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "elu": (lambda x, alpha, _: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), 1.0, None),
}
"""Activations with parameters: the function, and the defaults of alpha and beta, None where it takes none."""


def _activations(call: Call, defaults: Sequence[str], directions: int) -> Iterator[_Activation]:
    """Yield the activation functions of all directions, with parameters taken from alpha and beta."""
    alphas, betas = (iter(call.attribute(f"activation_{each}", ())) for each in ("alpha", "beta"))
    for text in call.attribute("activations") or [*defaults] * directions:
        name = (text.decode() if isinstance(text, bytes) else text).lower()
        if name in _PLAIN:
            yield _PLAIN[name]
            continue
        if name not in _SCALED:
            raise NotImplementedError(name)
        function, alpha, beta = _SCALED[name]
        first = 0.0 if alpha is None else float(next(alphas, alpha))
        second = 0.0 if beta is None else float(next(betas, beta))
        yield lambda x, f=function, a=first, b=second: f(x, a, b)  # type: ignore[misc]


def _clipped(call: Call) -> _Activation:
    limit = call.attribute("clip")
    return (lambda x: x) if limit is None else (lambda x: np.clip(x, -limit, limit))


def _lstm(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    f, g, h = functions
    clip, is_coupled = _clipped(call), call.attribute("input_forget", 0)
    recurrent, (bias, inner) = call[2][direction].T, _biases(call, direction, 4)
    peep = call.optional(7)
    hidden = recurrent.shape[0]
    peeps = np.zeros((3, hidden)) if peep is None else peep[direction].reshape(3, hidden)

    def step(product: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        before, cell = states
        i, o, forget, c = np.split(product + before @ recurrent + bias + inner, 4, -1)
        i = f(clip(i + peeps[0] * cell))
        forget = 1 - i if is_coupled else f(clip(forget + peeps[2] * cell))
        cell = forget * cell + i * g(clip(c))
        return f(clip(o + peeps[1] * cell)) * h(cell), cell  # vendor: onnxruntime does not clip the cell

    return step


def _gru(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    f, g = functions
    clip, is_before = _clipped(call), call.attribute("linear_before_reset", 0)
    hidden = call[2].shape[-1]
    recurrent, (bias, inner) = call[2][direction].T, _biases(call, direction, 3)
    gates, last = slice(0, 2 * hidden), slice(2 * hidden, None)

    def step(product: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        (before,) = states
        summed = product[:, gates] + before @ recurrent[:, gates] + bias[gates] + inner[gates]
        z, r = np.split(f(clip(summed)), 2, -1)
        if is_before:
            passed = r * (before @ recurrent[:, last] + inner[last])
        else:
            passed = (r * before) @ recurrent[:, last] + inner[last]
        return ((1 - z) * g(clip(product[:, last] + passed + bias[last])) + z * before,)

    return step


def _rnn(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    clip, recurrent, (bias, inner) = _clipped(call), call[2][direction].T, _biases(call, direction, 1)
    return lambda product, states: (functions[0](clip(product + states[0] @ recurrent + bias + inner)),)


def _biases(call: Call, direction: int, gates: int) -> tuple[Array, Array]:
    bias = call.optional(3)
    size = gates * call[2].shape[-1]
    if bias is None:
        return np.zeros(size), np.zeros(size)
    return bias[direction][:size], bias[direction][size:]


def _recurrent(
    make: Callable[[Call, int, Sequence[_Activation]], _Step], activations: Sequence[str], states: int
) -> Compute:
    """Return a function that computes the outputs (steps, directions, batch, hidden) and the last states."""

    def compute(call: Call) -> tuple[Array, ...]:
        is_batch_first = call.attribute("layout", 0)
        x = np.swapaxes(call[0], 0, 1) if is_batch_first else call[0]
        steps, batch, hidden = *x.shape[:2], call[2].shape[-1]
        direction: Any = call.attribute("direction", "forward")
        direction = direction.decode() if isinstance(direction, bytes) else direction
        reversed_ = {"forward": (False,), "reverse": (True,)}.get(direction, (False, True))
        functions = [*_activations(call, activations, len(reversed_))]
        count = len(functions) // len(reversed_)
        given = call.optional(4)
        lengths = np.full(batch, steps) if given is None else given
        y = np.zeros((steps, len(reversed_), batch, hidden))
        last = np.zeros((states, len(reversed_), batch, hidden))
        for number in range(states):
            initial = call.optional(5 + number)
            if initial is not None:
                last[number] = np.swapaxes(initial, 0, 1) if is_batch_first else initial
        for at, is_reversed in enumerate(reversed_):
            step = make(call, at, functions[at * count : (at + 1) * count])
            products = x @ call[1][at].T
            for time in range(steps):
                (running,) = np.nonzero(time < lengths)
                row = lengths[running] - 1 - time if is_reversed else np.full(len(running), time)
                found = step(products[row, running], tuple(last[:, at, running]))
                last[:, at, running] = found
                y[row, at, running] = found[0]
        if is_batch_first:
            return y.transpose(2, 0, 1, 3), *last.transpose(0, 2, 1, 3)
        return y, *last

    return compute


_TANH: Final = "tanh"
RECURRENT: Final[Mapping[str, Compute]] = {
    "LSTM": _recurrent(_lstm, ("sigmoid", _TANH, _TANH), 2),
    "GRU": _recurrent(_gru, ("sigmoid", _TANH), 1),
    "RNN": _recurrent(_rnn, (_TANH,), 1),
}
"""By operator type."""
