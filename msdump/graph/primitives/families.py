"""The bodies of all operators: importing the families registers them."""

from msdump.graph.primitives import (  # noqa: F401 - they fill the table
    dense,
    elementwise,
    losses,
    normalization,
    sampling,
    shapes,
    updates,
    windows,
)
from msdump.graph.primitives.body import OPERATORS

__all__ = ["OPERATORS"]
