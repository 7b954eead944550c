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
    losses,
    normalization,
    pooling,
    reductions,
    resize,
    shapes,
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
    "losses",
    "normalization",
    "pooling",
    "reductions",
    "resize",
    "shapes",
    "windows",
]
