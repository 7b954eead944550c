"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import (
    dense,
    dropout,
    elementwise,
    indexing,
    layer_norm,
    layouts,
    normalization,
    reductions,
    windows,
)

__all__ = [
    "dense",
    "dropout",
    "elementwise",
    "indexing",
    "layer_norm",
    "layouts",
    "normalization",
    "reductions",
    "windows",
]
