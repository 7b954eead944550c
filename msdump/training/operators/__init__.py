"""Bodies of MindSpore's operators; importing the room registers all of them."""

from msdump.training.operators import (
    activations,
    arithmetic,
    attention,
    convolutions,
    dense,
    dropout,
    indexing,
    layer_norm,
    losses,
    normalization,
    optimizers,
    overflow,
    pooling,
    reductions,
    resize,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "convolutions",
    "dense",
    "dropout",
    "indexing",
    "layer_norm",
    "losses",
    "normalization",
    "optimizers",
    "overflow",
    "pooling",
    "reductions",
    "resize",
]
