"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import (
    attention,
    dense,
    dropout,
    elementwise,
    indexing,
    layer_norm,
    layouts,
    losses,
    normalization,
    reductions,
    windows,
)

__all__ = [
    "attention",
    "dense",
    "dropout",
    "elementwise",
    "indexing",
    "layer_norm",
    "layouts",
    "losses",
    "normalization",
    "reductions",
    "windows",
]
