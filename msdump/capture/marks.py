"""Marks of ``set_dump`` for ``dump_mode`` 2: operators of a network, and names in a process."""

from __future__ import annotations

from collections import deque


class Marks:
    """The operators of one network that are marked; any thread may change them."""

    def __init__(self) -> None:
        """Mark no operator yet."""
        self._marked: set[str] = set()
        self._changes: deque[tuple[tuple[str, ...], bool]] = (
            deque()
        )  # any thread appends, a run pops: both are atomic

    def change(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators by their full names, or take their marks away.

        A run that goes on ends as it began: the next one takes the change.
        """
        self._changes.append((full_names, enabled))

    def take(self) -> frozenset[str] | None:
        """Return the full names that are marked now; None where nothing has changed since the last call."""
        if not self._changes:
            return None
        while self._changes:
            full_names, enabled = self._changes.popleft()
            change = self._marked.update if enabled else self._marked.difference_update
            change(full_names)
        return frozenset(self._marked)


class NamedMarks:
    """The names that ``set_dump`` was given: they mark operators and scopes of every network of a process."""

    def __init__(self) -> None:
        """Start without names."""
        self._enabled: dict[str, bool] = {}
        self._met: set[str] = set()
        self._hints: dict[str, str] = {}  # by name: what may have been meant

    def add(self, name: str, *, enabled: bool) -> None:
        """Add a name, of which the last call counts; networks that are loaded later take it, too."""
        self._enabled[name] = enabled

    def all(self) -> tuple[tuple[str, bool], ...]:
        """Return every name and whether it is to be dumped, in the order of their first calls."""
        return tuple(self._enabled.items())

    def meet(self, name: str) -> None:
        """Note that some network has an operator or a scope of the name."""
        self._met.add(name)

    def miss(self, name: str, hint: str) -> None:
        """Note what may have been meant by a name that a network does not have, "" where nothing is close."""
        self._hints[name] = hint

    def unmet(self) -> list[str]:
        """Return the names that no network has, sorted, each with what may have been meant."""
        return [f"{name}{self._hints.get(name, '')}" for name in sorted(self._enabled.keys() - self._met)]
