"""Operators by family: MindSpore's bodies, what becomes of ONNX's, gradient rules.

Importing the room registers all of them.
"""

from msdump.training.operators import (  # noqa: F401 - they fill the tables
    activations,
    arithmetic,
    attention,
    dense,
    indexing,
    layouts,
    normalization,
    pooling,
    recurrent,
    reductions,
    resize,
    shapes,
    windows,
)
