"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import (
    attention,
    dense,
    dense_layers,
    dropout,
    elementwise,
    indexing,
    layer_norm,
    layouts,
    losses,
    normalization,
    recurrent,
    reductions,
    softmax,
    windows,
)

__all__ = [
    "attention",
    "dense",
    "dense_layers",
    "dropout",
    "elementwise",
    "indexing",
    "layer_norm",
    "layouts",
    "losses",
    "normalization",
    "recurrent",
    "reductions",
    "softmax",
    "windows",
]
