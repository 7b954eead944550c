"""The networks that the reference trained, as modules under the reference's class names."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx import numpy_helper
from onnxscript import nn

from sample_nets.layers import Flatten, MaxPool2d, ReLU
from sample_nets.tracing import parameter, trace


def zeros(*shape):
    """Return a parameter; its values come from the reference."""
    return parameter(shape, lambda _, size: np.zeros(size))


def ones(*shape):
    """Return a parameter of ones."""
    return parameter(shape, lambda _, size: np.ones(size))


class Dense(nn.Module):
    """A product with a weight (out, in), a bias, an activation."""

    def __init__(self, size_in, size_out, activation=None):
        """Make the parameters."""
        super().__init__()
        self.weight, self.bias = zeros(size_out, size_in), zeros(size_out)
        self.activation = activation

    def forward(self, op, x):
        """Map (N, in) to (N, out)."""
        x = op.Gemm(x, self.weight, self.bias, transB=1)
        return self.activation(op, x) if self.activation else x


class Tanh(nn.Module):
    """The hyperbolic tangent."""

    def forward(self, op, x):
        """Apply it to every element."""
        return op.Tanh(x)


class GELU(nn.Module):
    """The Gaussian error linear unit, approximated by a hyperbolic tangent."""

    def forward(self, op, x):
        """Apply it to every element."""
        return op.Gelu(x, approximate="tanh")


class Conv2d(nn.Module):
    """A convolution of 3x3 that keeps the size, or halves it."""

    def __init__(self, channels_in, channels_out, stride=1, *, has_bias=False):
        """Make the parameters."""
        super().__init__()
        self.weight = zeros(channels_out, channels_in, 3, 3)
        self.bias = zeros(channels_out) if has_bias else None
        self.stride = [stride, stride]

    def forward(self, op, x):
        """Convolve (N, C, H, W)."""
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return op.Conv(*inputs, strides=self.stride, auto_pad="SAME_UPPER")


class BatchNorm2d(nn.Module):
    """A normalisation by the batch."""

    def __init__(self, channels):
        """Make the parameters and the moving statistics."""
        super().__init__()
        self.gamma, self.beta = ones(channels), zeros(channels)
        self.moving_mean, self.moving_variance = zeros(channels), ones(channels)

    def forward(self, op, x):
        """Normalise (N, C, H, W) per channel."""
        return op.BatchNormalization(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)


class LayerNorm(nn.Module):
    """A normalisation of the last dimension."""

    def __init__(self, size, epsilon=1e-7):
        """Make the parameters."""
        super().__init__()
        self.gamma, self.beta, self.epsilon = ones(size), zeros(size), epsilon

    def forward(self, op, x):
        """Normalise the last dimension."""
        return op.LayerNormalization(x, self.gamma, self.beta, axis=-1, epsilon=self.epsilon)


class Dropout(nn.Module):
    """Zero for a share of the elements."""

    def __init__(self, p):
        """Keep the share."""
        super().__init__()
        self.p = p

    def forward(self, op, x):
        """Apply it."""
        return op.Dropout(x, self.p, True)


class Embedding(nn.Module):
    """A table of vectors."""

    def __init__(self, count, size):
        """Make the table."""
        super().__init__()
        self.embedding_table = zeros(count, size)

    def forward(self, op, ids):
        """Look up ids (N, M)."""
        vectors = op.Gather(self.embedding_table, op.Reshape(ids, [-1]), axis=0)
        return op.Reshape(vectors, [2, 5, 8])


class Softmax(nn.Module):
    """Shares that sum to one."""

    def forward(self, op, x):
        """Apply it to the last dimension."""
        return op.Softmax(x, axis=-1)


class MLP(nn.Module):
    """Layers in a row, under names of their own."""

    def __init__(self, *, is_cast=False, **layers):
        """Keep the layers, and whether the network itself casts its result to float32."""
        super().__init__()
        self.is_cast = is_cast
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.order = tuple(layers)

    def forward(self, op, x):
        """Pass ``x`` through every layer."""
        for name in self.order:
            x = getattr(self, name)(op, x)
        return op.Cast(x, to=ir.DataType.FLOAT) if self.is_cast else x


class ConvNet(nn.Module):
    """Two convolutions, the first one normalised, and a dense layer."""

    def __init__(self):
        """Make the layers; both convolutions share the activation."""
        super().__init__()
        self.conv1, self.bn1 = Conv2d(1, 4), BatchNorm2d(4)
        self.relu, self.pool = ReLU(), MaxPool2d(kernel_size=2, stride=2)
        self.conv2 = Conv2d(4, 5, stride=2, has_bias=True)
        self.flatten, self.fc = Flatten(), Dense(20, 3)

    def forward(self, op, x):
        """Map images (N, 1, 8, 8) to scores (N, 3)."""
        x = self.pool(op, self.relu(op, self.bn1(op, self.conv1(op, x))))
        x = self.relu(op, self.conv2(op, x))
        return self.fc(op, self.flatten(op, x))


class Attention(nn.Module):
    """Attention of one head, with one weight for queries and keys."""

    def __init__(self, width):
        """Make the weights."""
        super().__init__()
        self.wqk, self.wv = zeros(width, width), zeros(width, width)
        self.softmax, self.scale = Softmax(), 1 / math.sqrt(width)

    def forward(self, op, x):
        """Map (N, sequence, width)."""
        query = op.MatMul(x, self.wqk)
        value = op.MatMul(x, self.wv)
        scores = op.Mul(op.MatMul(query, op.Transpose(x, perm=[0, 2, 1])), self.scale)
        return op.MatMul(self.softmax(op, scores), value)


class Classifier(nn.Module):
    """Embedding, attention, normalisation, mean, dense layer."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.embed, self.attn = Embedding(10, 8), Attention(8)
        self.norm, self.head = LayerNorm(8, epsilon=1e-5), Dense(8, 3)

    def forward(self, op, ids):
        """Map ids (N, sequence) to scores (N, 3)."""
        x = self.embed(op, ids)
        x = self.norm(op, op.Add(x, self.attn(op, x)))
        return self.head(op, op.ReduceMean(x, [1], keepdims=0))


NETWORKS = {
    "momentum": lambda: MLP(fc1=Dense(8, 16), relu=ReLU(), fc2=Dense(16, 4)),
    "convbn": ConvNet,
    "adam": lambda: MLP(
        fc1=Dense(6, 8),
        gelu=GELU(),
        norm=LayerNorm(8),
        fc2=Dense(8, 8, activation=Tanh()),
        drop=Dropout(0.3),
        fc3=Dense(8, 2),
    ),
    "attention": Classifier,
    "fixedscale": lambda: MLP(fc1=Dense(8, 6), norm=LayerNorm(6), relu=ReLU(), fc2=Dense(6, 4)),
    "lossscale": lambda: MLP(is_cast=True, fc1=Dense(8, 6), relu=ReLU(), fc2=Dense(6, 4)),
    "datasink": lambda: Dense(6, 3),
}
"""By the golden's name."""


def model(name, data, weights):
    """Return a network with the reference's first weights.

    Args:
        name: One of ``NETWORKS``.
        data: A batch of its input.
        weights: Arrays by the names of the parameters.
    """
    kind = ir.DataType.from_numpy(data.dtype)
    made = ir.to_proto(trace(NETWORKS[name](), [ir.val("x", kind, data.shape)], name=name))
    for tensor in made.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return made
