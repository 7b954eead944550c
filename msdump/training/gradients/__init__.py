"""Gradient rules: importing the room registers all of them."""

from msdump.training.gradients import (
    arithmetic,
    dense,
    dropout,
    layer_norm,
    losses,
    normalization,
    reductions,
    shapes,
    windows,
)

__all__ = [
    "arithmetic",
    "dense",
    "dropout",
    "layer_norm",
    "losses",
    "normalization",
    "reductions",
    "shapes",
    "windows",
]
