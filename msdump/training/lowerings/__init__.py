"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import (
    dense,
    dropout,
    elementwise,
    layer_norm,
    normalization,
    reductions,
    windows,
)

__all__ = [
    "dense",
    "dropout",
    "elementwise",
    "layer_norm",
    "normalization",
    "reductions",
    "windows",
]
