"""The layers that the sample networks share, under MindSpore's class names."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnxscript import OpBuilder, nn

from sample_nets.tracing import Initializer, parameter

_TRUNCATED_AT = 2  # sigma, as MindSpore's TruncatedNormal


def truncated_normal(sigma: float) -> Initializer:
    """Return an initializer: normal values; values beyond two sigma are drawn again."""

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values = generator.standard_normal(shape, np.float32)
        far = np.flatnonzero(np.abs(values) > _TRUNCATED_AT)
        while (far := far[np.abs(values.flat[far]) > _TRUNCATED_AT]).size:  # values within the limit stay
            values.flat[far] = generator.standard_normal(far.size, np.float32)
        return values * np.float32(sigma)

    return draw


def he_normal(fan_in: int, gain: float = 2.0) -> Initializer:
    """Return an initializer that keeps the variance of the activations through a ReLU."""
    sigma = np.float32((gain / fan_in) ** 0.5)
    return lambda generator, shape: generator.standard_normal(shape, np.float32) * sigma


def uniform(low: float, high: float) -> Initializer:
    """Return an initializer: uniform values between two limits."""
    return lambda generator, shape: generator.uniform(low, high, shape)


class Conv2d(nn.Module):
    """A convolution without bias; ``pad`` rows and columns of zeros on every side."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        weight_init: Initializer | None = None,
    ) -> None:
        """Make the weight (out, in / group, kernel, kernel)."""
        super().__init__()
        shape = (channels_out, channels_in // group, kernel, kernel)
        self.weight = parameter(shape, weight_init or he_normal(shape[1] * kernel * kernel))
        self.stride = [stride, stride]
        self.pads = [pad] * 4
        self.group = group

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Convolve (N, C, H, W)."""
        return op.Conv(x, self.weight, strides=self.stride, pads=self.pads, group=self.group)


class Dense(nn.Module):
    """A product with a weight (in, out) and a bias: MatMul and BiasAdd."""

    def __init__(self, size_in: int, size_out: int, init: Initializer | None = None) -> None:
        """Make the weight and the bias; the same initializer serves both, as in the AlexNet sample."""
        super().__init__()
        self.weight = parameter((size_in, size_out), init or he_normal(size_in))
        self.bias = parameter((size_out,), init or uniform(-0.1, 0.1))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map the last dimension."""
        x = op.MatMul(x, self.weight)
        return op.Add(x, self.bias)


class BatchNorm2d(nn.Module):
    """A batch normalisation with fixed, slightly uneven statistics."""

    def __init__(self, channels: int, *, gamma: float = 1.0) -> None:
        """Make scale (around ``gamma``), shift, mean and variance of every channel."""
        super().__init__()
        self.gamma = parameter((channels,), uniform(0.8 * gamma, 1.2 * gamma))
        self.beta = parameter((channels,), uniform(-0.1, 0.1))
        self.moving_mean = parameter((channels,), uniform(-0.1, 0.1))
        self.moving_variance = parameter((channels,), uniform(0.8, 1.2))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Normalise (N, C, H, W) per channel."""
        return op.BatchNormalization(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)


class LayerNorm(nn.Module):
    """A normalisation of the last dimension."""

    def __init__(self, size: int) -> None:
        """Make scale and shift."""
        super().__init__()
        self.gamma = parameter((size,), uniform(0.8, 1.2))
        self.beta = parameter((size,), uniform(-0.1, 0.1))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Normalise the last dimension."""
        return op.LayerNormalization(x, self.gamma, self.beta, axis=-1, epsilon=1e-12)


class Embedding(nn.Module):
    """A table of vectors, one per token."""

    def __init__(self, count: int, size: int) -> None:
        """Make the table (count, size)."""
        super().__init__()
        self.embedding_table = parameter((count, size), truncated_normal(0.02))

    def forward(self, op: OpBuilder, ids: Any) -> Any:
        """Look up int64 ids."""
        return op.Gather(self.embedding_table, ids, axis=0)


class ReLU(nn.Module):
    """Zero for everything negative."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Apply it to every element."""
        return op.Relu(x)


class ReLU6(nn.Module):
    """Between zero and six."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Apply it to every element."""
        return op.Clip(x, 0.0, 6.0)


class GELU(nn.Module):
    """The exact Gaussian error linear unit."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Apply it to every element."""
        return op.Gelu(x)


class MaxPool2d(nn.Module):
    """The largest value of each window."""

    def __init__(self, kernel_size: int, stride: int, pad: int = 0) -> None:
        """Keep the window."""
        super().__init__()
        self.kernel = [kernel_size, kernel_size]
        self.stride = [stride, stride]
        self.pads = [pad] * 4

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Pool (N, C, H, W)."""
        return op.MaxPool(x, kernel_shape=self.kernel, strides=self.stride, pads=self.pads)


class Flatten(nn.Module):
    """Everything but the first dimension in one."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Flatten (N, ...) to (N, M)."""
        return op.Flatten(x)


class SequentialCell(nn.Sequential):
    """Layers in a row."""


class CellList(nn.Sequential):
    """Layers in a row that all see the same further inputs."""

    def forward(self, op: OpBuilder, x: Any, *shared: Any) -> Any:
        """Pass ``x`` through every layer."""
        for layer in self:
            x = layer(op, x, *shared)
        return x
