"""The functions that a call in a MindIR file may run, and loops: functions that lead back to themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msdump.errors import UnsupportedOpError
from msdump.graph.mindir.backend import FileGraph
from msdump.graph.mindir.kernels import Constant, Function, Kernel, Operand, source

Target = tuple[str, Sequence[Operand]]
"""A function and its arguments."""


def targets(call: Kernel) -> list[Target]:
    """Return the functions that a call may run: two, for true and false, where a Switch chooses."""
    chosen = source(call.inputs[0])
    options = [chosen]
    if isinstance(chosen, Kernel) and chosen.op_type == "Switch":
        options = [source(item) for item in chosen.inputs[1:]]
    return [_target(item, call.inputs[1:]) for item in options]


def _target(function: Operand, arguments: Sequence[Operand]) -> Target:
    if isinstance(function, Kernel) and function.op_type == "Partial":
        return _target(source(function.inputs[0]), [*function.inputs[1:], *arguments])
    if isinstance(function, Constant) and isinstance(function.value, Function):
        return function.value.name, arguments
    raise UnsupportedOpError(
        "the function of a call is computed; only functions that the call or its Switch names can run"
    )


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: a function that decides whether the body runs, which calls it again as its last step."""

    header: str  # the function that decides
    members: frozenset[str]  # it and the functions that lead back to it
    # the functions that run behind the loop, one of them each time (``break`` and ``return`` have their
    # own), with the arguments that the header gives; None where other members leave it, too
    exits: Mapping[str, Sequence[Operand] | None]


def loop_of(graphs: Mapping[str, FileGraph], header: str, around: Collection[str]) -> Loop | None:
    """Return the loop that begins with a function, None where the function does not lead back to itself.

    ``around``: headers of the loops around it. A recursion that is no loop raises an UnsupportedOpError.
    """
    reached = functions_from(graphs, header, around)
    if header not in reached:
        return None
    members = frozenset(name for name in reached if header in functions_from(graphs, name, around))
    exits: dict[str, Sequence[Operand] | None] = {}
    for name in sorted(members):
        tail = graphs[name].tail
        if tail is None:
            raise UnsupportedOpError(
                f"function {name!r} leads back to {header!r}, but not as its last step: recursion cannot run"
            )
        for target, arguments in targets(tail):
            if target not in members:
                exits[target] = arguments if name == header and target not in exits else None
    if not exits:
        raise UnsupportedOpError(f"the loop of function {header!r} has no end")
    return Loop(header, members, exits)


def functions_from(graphs: Mapping[str, FileGraph], start: str, closed: Collection[str]) -> frozenset[str]:
    """Return the functions to which calls lead from one of them, none of them by way of the closed ones."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graphs[waiting.pop()].callees - found - {*closed}
        found |= new
        waiting += new
    return frozenset(found)
