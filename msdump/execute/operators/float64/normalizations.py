"""Normalizations and softmax in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind

_SOFTMAX_ALONG_ONE_AXIS: Final = 13
_EPSILON: Final = 1e-5


def _channels(array: Array, rank: int) -> Array:
    """Return a vector of channels with the axes of images."""
    return array.reshape(-1, *[1] * (rank - 2))


def _batch_normalization(call: Call) -> tuple[Array, ...]:
    x, scale, bias, mean, variance = (call[slot] for slot in range(5))
    epsilon, rank = call.attribute("epsilon", _EPSILON), x.ndim
    running: tuple[Array, ...] = ()
    if call.attribute("training_mode", 0):
        axes = (0, *range(2, rank))
        momentum = call.attribute("momentum", 0.9)
        own_mean, own_variance = x.mean(axis=axes), x.var(axis=axes)
        running = (
            mean * momentum + own_mean * (1 - momentum),
            variance * momentum + own_variance * (1 - momentum),
        )
        mean, variance = own_mean, own_variance
    elif call.outputs > 1:
        raise NotImplementedError("BatchNormalization of old opsets with more than one output")
    mean, factor = _channels(mean, rank), _channels(scale / np.sqrt(variance + epsilon), rank)
    return ((x - mean) * factor + _channels(bias, rank), *running)


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    return (x - mean) * factor, mean, factor


def _layer_normalization(call: Call) -> tuple[Array, ...]:
    x = call[0]
    axis = call.attribute("axis", -1)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, factor = _standardized(x, axes, call.attribute("epsilon", _EPSILON))
    y = y * call[1]
    bias = call.optional(2)
    return (y if bias is None else y + bias, mean, factor)[: max(call.outputs, 1)]


def _rms_normalization(call: Call) -> tuple[Array]:
    x = call[0]
    axes = tuple(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    mean_square = np.mean(x * x, axis=axes, keepdims=True)
    return (x / np.sqrt(mean_square + call.attribute("epsilon", _EPSILON)) * call[1],)


def _instance_normalization(call: Call) -> tuple[Array]:
    x = call[0]
    y, _, _ = _standardized(x, tuple(range(2, x.ndim)), call.attribute("epsilon", _EPSILON))
    return (y * _channels(call[1], x.ndim) + _channels(call[2], x.ndim),)


def _group_normalization(call: Call) -> tuple[Array]:
    x, groups = call[0], call.attribute("num_groups")
    grouped = x.reshape(x.shape[0], groups, -1)
    y = _standardized(grouped, (2,), call.attribute("epsilon", _EPSILON))[0].reshape(x.shape)
    # until opset 20 there is one scale for each group
    scale, bias = (
        np.repeat(array, x.shape[1] // len(array)) if len(array) != x.shape[1] else array
        for array in (call[1], call[2])
    )
    return (y * _channels(scale, x.ndim) + _channels(bias, x.ndim),)


def _local_response(call: Call) -> tuple[Array]:
    x, size = call[0], call.attribute("size")
    before, behind = (size - 1) // 2, size // 2
    squares = np.pad(x * x, ((0, 0), (before, behind), *[(0, 0)] * (x.ndim - 2)))
    total = sum(squares[:, start : start + x.shape[1]] for start in range(size))
    alpha, beta, bias = (call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return (x / (bias + alpha / size * np.asarray(total)) ** beta,)


def _along(call: Call, x: Array) -> tuple[Array, Any]:
    """Return what a softmax sums along the last axis, and the shape to give back; see opset 13."""
    if call.opset >= _SOFTMAX_ALONG_ONE_AXIS:
        return x, call.attribute("axis", -1)
    axis = call.attribute("axis", 1) % max(x.ndim, 1)
    return x.reshape(math.prod(x.shape[:axis]), -1), -1


def _log_softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    shifted = x - x.max(axis=axis, keepdims=True)
    return ((shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).reshape(call[0].shape),)


def _softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return ((powers / powers.sum(axis=axis, keepdims=True)).reshape(call[0].shape),)


def _lp_normalization(call: Call) -> tuple[Array]:
    x, axis = call[0], call.attribute("axis", -1)
    norm = np.linalg.norm(x, ord=call.attribute("p", 2), axis=axis, keepdims=True)
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


def _last(call: Call) -> float:
    return float(call[0].shape[-1] if call[0].ndim else 1)


def _image(call: Call) -> float:
    return float(call[0].size / max(call[0].shape[1], 1))


def _behind(call: Call) -> float:
    x = call[0]
    return float(math.prod(x.shape[call.attribute("axis", -1) % x.ndim :]))


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "BatchNormalization": Definition(
        _batch_normalization,
        Kind.SMOOTH,
        lambda call: _image(call) if call.attribute("training_mode", 0) else 1.0,
    ),
    "LayerNormalization": Definition(_layer_normalization, Kind.SMOOTH, _behind),
    "RMSNormalization": Definition(_rms_normalization, Kind.SMOOTH, _behind),
    "InstanceNormalization": Definition(_instance_normalization, Kind.SMOOTH, _image),
    "GroupNormalization": Definition(_group_normalization, Kind.SMOOTH, _image),
    "LRN": Definition(_local_response, Kind.SMOOTH, lambda call: float(call.attribute("size"))),
    "LpNormalization": Definition(_lp_normalization, Kind.SMOOTH, _last),
    "Softmax": Definition(_softmax, Kind.SMOOTH, _last),
    "LogSoftmax": Definition(_log_softmax, Kind.SMOOTH, _last),
}
"""Operators that bring tensors to a scale."""
