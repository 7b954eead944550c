"""Errors as values."""

from __future__ import annotations

import pickle

import pytest

from msdump import errors
from msdump.errors import MsdumpError, Problem

ARGUMENTS = {
    "ConfigError": ("dump.json", (Problem("path", "is missing"),)),
    "AclError": (100000, "no such model"),
    "ExecutionError": ("Default/Add-op0", "no memory"),
    "RankError": ("Default/AllReduce-op0", "rank 1 has died", 1),
    "WatchHitError": ("nan", "Default/Add-op0", 3, "a NaN"),
    "DumpReadError": ("a.npy", "breaks off", 128),
    "ToolError": (3, "no such file"),
}
KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, MsdumpError)]


@pytest.mark.parametrize("kind", KINDS)
def test_error_travels_between_processes(kind):
    """Every error comes out of a process with its words and attributes."""
    names = (each.__name__ for each in kind.__mro__)
    error = kind(*next((ARGUMENTS[name] for name in names if name in ARGUMENTS), ("told",)))

    travelled = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made

    assert (kind, str(error), vars(error)) == (type(travelled), str(travelled), vars(travelled))
