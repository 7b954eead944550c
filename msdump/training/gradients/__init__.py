"""Gradient rules: importing the room registers all of them."""

from msdump.training.gradients import (
    arithmetic,
    dense,
    losses,
    normalization,
    reductions,
    shapes,
    windows,
)

__all__ = ["arithmetic", "dense", "losses", "normalization", "reductions", "shapes", "windows"]
