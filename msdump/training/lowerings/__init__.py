"""Forward operators in MindSpore's form; importing the room registers all of them."""

from msdump.training.lowerings import dense, normalization, windows

__all__ = ["dense", "normalization", "windows"]
