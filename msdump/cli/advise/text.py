"""What ``msdump diff --advise`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from msdump.cli import messages
from msdump.tools.advise.advice import Advice
from msdump.tools.advise.files import TypeSet, nameless

_SHOWN = 30  # operators; -v shows all


def lines(advice: Advice, mine: str, seconds: float) -> Iterator[str]:
    """Yield the lines of an answer: the operators, the errors, and whether the bound holds."""
    total = sum(candidate.size for candidate in advice.variants.candidates.values())
    yield f"{advice.variants.graph.source}: {mine} rounds {total} operators"
    if advice.kept is None:
        to = advice.variants.to.name
        yield f"no set of operators kept in {to} was found that brings every output below {advice.bound:g}"
        if max(error.after for error in advice.errors) > advice.bound:
            yield f"the bound is smaller than the error that {to} has itself"
    elif not advice.kept:
        yield f"nothing needs to be kept: every output is within {advice.bound:g}"
    else:
        yield f"keep {len(advice.nodes)} of them in {advice.variants.to.name}:"
        yield from _operators(advice)
    yield from _errors(advice)
    if advice.kept is not None:
        yield _confirmation(advice)
    yield f"{advice.runs:.0f} runs of the network, {seconds:.2f} s"


def _operators(advice: Advice) -> Iterator[str]:
    shown = len(advice.nodes) if messages.verbosity() else _SHOWN
    for node in advice.nodes[:shown]:
        yield f"  {node.name}  ({node.operator.full_name})"
    if len(advice.nodes) > shown:
        yield f"  ... and {len(advice.nodes) - shown} more (-v)"
    if count := nameless(advice.nodes):
        yield f"{count} of them have no name in the model, which no file can tell other tools"


def _errors(advice: Advice) -> Iterator[str]:
    width = max((len(error.example) for error in advice.errors), default=0)
    after = "with them kept" if advice.kept is not None else "with all kept"
    for error in advice.errors:
        mark = "  (not seen by the search)" if error.is_unseen else ""
        yield (
            f"{error.example:<{width}}  {error.output}: error {error.before:.3g},"
            f" {after} {error.after:.3g}{mark}"
        )


def _confirmation(advice: Advice) -> str:
    if advice.is_confirmed:
        return f"confirmed: within {advice.bound:g} on an input that the search has not seen"
    return f"not confirmed: on every other input that was tried an error exceeded {advice.bound:g}"


def types(types: TypeSet, advice: Advice) -> str:
    """Return what lists of operator types would keep instead."""
    names = ", ".join(types.types)
    return (
        f"by name {len(advice.nodes)} operators are kept, by type ({names}) {types.size}:"
        f" error {types.error:.3g}"
    )
