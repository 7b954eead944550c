"""Inputs for tests: small, and the same in every run."""

import numpy as np


def small(graph):
    """Return small inputs of a graph: free dimensions have size 2, integers and booleans are 0 or 1."""
    rng = np.random.default_rng(3)
    return {value.name: _tensor(rng, value.type) for value in graph.inputs}


def _tensor(rng, kind):
    shape, dtype = [size if isinstance(size, int) else 2 for size in kind.shape], kind.dtype.numpy
    if dtype.hasobject:
        return np.full(shape, "a b", object)
    if dtype.kind in "fV":
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
