"""Operators by family: lowerings of ONNX's operators, gradient rules.

Importing the room registers all of them.
"""

from msdump.training.operators import (  # noqa: F401 - they fill the tables
    attention,
    dense,
    elementwise,
    forms,
    indexing,
    normalization,
    recurrent,
    reductions,
    resize,
    shapes,
    windows,
)
