"""Bodies of MindSpore's operators; importing the room registers all of them."""

from msdump.training.operators import dense, dropout, layer_norm, losses, normalization, optimizers, windows

__all__ = ["dense", "dropout", "layer_norm", "losses", "normalization", "optimizers", "windows"]
