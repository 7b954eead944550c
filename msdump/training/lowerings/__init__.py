"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import dense, dropout, layer_norm, normalization, windows

__all__ = ["dense", "dropout", "layer_norm", "normalization", "windows"]
