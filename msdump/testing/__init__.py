"""Numerical regression tests of models: a function that compares, and its fixture for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msdump.testing.comparison import ComparisonError, ModelComparison, compare

__all__ = ["ComparisonError", "ModelComparison", "compare"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pytest imports this package whenever it starts."""
    if name not in __all__:
        raise AttributeError(f"module 'msdump.testing' has no attribute {name!r}")
    from msdump.testing import comparison

    return getattr(comparison, name)
