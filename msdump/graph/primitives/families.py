"""The bodies of all operators: importing the families registers them."""

from msdump.graph.primitives import (  # noqa: F401 - they fill the table
    dense,
    elementwise,
    indexing,
    losses,
    normalization,
    plain,
    recurrent,
    reductions,
    sampling,
    shapes,
    special,
    updates,
    windows,
)
from msdump.graph.primitives.body import OPERATORS
from msdump.graph.primitives.call import ARGUMENTS, PLAIN

__all__ = ["ARGUMENTS", "OPERATORS", "PLAIN"]
