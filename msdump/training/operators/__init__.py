"""Bodies of MindSpore's operators; importing the room registers all of them."""

from msdump.training.operators import dense, losses, normalization, optimizers, windows

__all__ = ["dense", "losses", "normalization", "optimizers", "windows"]
