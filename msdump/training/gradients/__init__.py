"""Gradient rules: importing the room registers all of them."""

from msdump.training.gradients import (
    activations,
    arithmetic,
    attention,
    dense,
    dropout,
    einsum,
    functions,
    indexing,
    layer_norm,
    losses,
    normalization,
    pooling,
    reductions,
    shapes,
    softmax,
    windows,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "dense",
    "dropout",
    "einsum",
    "functions",
    "indexing",
    "layer_norm",
    "losses",
    "normalization",
    "pooling",
    "reductions",
    "shapes",
    "softmax",
    "windows",
]
