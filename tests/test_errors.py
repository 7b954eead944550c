"""Errors as values."""

import pickle

import pytest

from msdump import errors
from msdump.errors import MsdumpError, Problem, keeping_stops

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


def test_a_stop_passes_generators():
    """A StopIteration that a generator turns into a RuntimeError is raised as it is; other errors stay."""
    for error in (StopIteration("told"), RuntimeError("told")):

        def generate(error=error):
            yield 1
            raise error

        with pytest.raises(type(error)) as caught, keeping_stops():
            list(generate())

        assert error is caught.value
