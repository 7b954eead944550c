"""Numbers with their nouns."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "tensor"), plural(2000, "tensor")
    ('1 tensor', '2,000 tensors')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"
