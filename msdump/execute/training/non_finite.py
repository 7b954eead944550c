"""The search for the operator that made the first value that is not finite, in a run of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.errors import MsdumpError
from msdump.execute import values
from msdump.execute.program import Program
from msdump.execute.runtime import OrtValue
from msdump.graph.graph import Graph
from msdump.observer import Array, Arrays

_FLOATS: Final = "fcV"  # kinds of numpy's types that have infinities; V: those that numpy lacks


def is_finite(array: Array) -> bool:
    """Tell whether a tensor has neither NaN nor infinities; what has no such values is finite."""
    if array is None or array.dtype.kind not in _FLOATS:
        return True
    return bool(np.isfinite(array).all())


def is_faulty_loss(output: Any) -> bool:
    """Tell whether an output of a step is one number that is NaN or an infinity."""
    return isinstance(output, np.ndarray) and output.size == 1 and not is_finite(output)


def first_fault(program: Program, feeds: Mapping[str, OrtValue | None]) -> str:
    """Return what made the first value that is not finite, in words.

    Args:
        program: The network; it is run once more, seen by nobody else.
        feeds: Everything that it was fed, variables included.
    """
    fed = {name: values.to_python(value) for name, value in feeds.items()}
    faulty = {
        name: item for name, item in fed.items() if isinstance(item, np.ndarray) and not is_finite(item)
    }
    told = f"{', '.join(map(repr, faulty))} held such values before the step"
    # infinities that the caller feeds may be meant, as those of a mask: then an operator is looked for first
    if any(name in program.graph.variables or np.isnan(item).any() for name, item in faulty.items()):
        return told
    search = _Search(program.graph)
    with contextlib.suppress(MsdumpError):  # what was found before the fault is told
        program.completed(feeds, search)
    if search.found:
        return search.found[0]
    return told if faulty else "a second run of the step made no such value"


@dataclass(slots=True)
class _Search:
    """Observes a run for the first operator whose output is not finite while all of its inputs are.

    Attributes:
        graph: The graph that runs.
        found: What the search has found, in words; the searches inside branches and loops share it.
    """

    graph: Graph
    found: list[str] = field(default_factory=list)
    wants_inputs: bool = True
    wants_outputs: bool = True
    holds_up: Sequence[bool] = ()

    @property
    def watched(self) -> tuple[bool, ...]:
        """Every operator is watched until one is found."""
        return (not self.found,) * len(self.graph.nodes)

    def starting(self, position: int, inputs: Arrays) -> None:
        """Ignore what is about to run."""

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> Any:
        """Look at an operator that has just run."""
        del saturated
        node = self.graph.nodes[position]
        if self.found or node.bodies:
            return
        # an input that the operator wrote in place shows its new value
        read = [array for slot, array in enumerate(inputs) if slot not in node.update.new_values]
        written = (inputs[slot] for slot in node.update.new_values)
        if all(map(is_finite, read)) and not all(map(is_finite, (*outputs, *written))):
            self.found.append(f"{node.operator.full_name} made the first one of finite inputs")

    def failed(self, position: int, inputs: Arrays) -> None:
        """Ignore an operator that fails."""

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop until something is found."""
        del body
        return not self.found

    def enter(self, body: Graph) -> _Search:
        """Return the search inside a branch or loop body."""
        return _Search(body, self.found)
