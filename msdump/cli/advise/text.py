"""What ``msdump diff --advise`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msdump.cli import messages
from msdump.cli.counts import plural
from msdump.tools.advise.advice import KeepAdvice, SearchEnd
from msdump.tools.advise.files import TypeSet
from msdump.tools.advise.model_names import names_in_file

_SHOWN = 30  # operators; -v shows all

_CONFIRMATIONS: Final = {
    SearchEnd.CONFIRMED: "confirmed: within {} on an input that the search has not seen",
    SearchEnd.UNCONFIRMED: "not confirmed: no input that the search has not seen stayed within {}",
}


def lines(advice: KeepAdvice, mine: str, seconds: float) -> Iterator[str]:
    """Yield the lines of an answer: the operators, the errors, and whether the bound holds."""
    total = sum(candidate.size for candidate in advice.variants.candidates.values())
    yield f"{advice.variants.graph.source}: {mine} rounds {plural(total, 'operator')}"
    if advice.kept is None:
        yield from _without_a_set(advice)
    elif not advice.kept:
        yield f"nothing needs to be kept: every output is within {advice.bound:g}"
    else:
        yield f"keep {len(advice.nodes)} of them in {advice.variants.to.name}:"
        yield from _operators(advice)
    yield from _errors(advice)
    if advice.outcome in _CONFIRMATIONS:
        yield _CONFIRMATIONS[advice.outcome].format(f"{advice.bound:g}")
    yield f"{advice.runs:.0f} runs of the network, {seconds:.2f} s"


def _without_a_set(advice: KeepAdvice) -> Iterator[str]:
    to = advice.variants.to.name
    if advice.outcome is SearchEnd.INTERRUPTED:
        yield "no set has been found yet"
        return
    yield f"no set of operators kept in {to} was found that brings every output below {advice.bound:g}"
    if max(error.after for error in advice.errors) > advice.bound:
        yield f"the bound is smaller than the error that {to} has itself"


def _operators(advice: KeepAdvice) -> Iterator[str]:
    shown = len(advice.nodes) if messages.verbosity() else _SHOWN
    for node in advice.nodes[:shown]:
        yield f"  {node.name}  ({node.operator.full_name})"
    if len(advice.nodes) > shown:
        yield f"  ... and {len(advice.nodes) - shown} more (-v)"
    known = names_in_file(advice.variants.graph)
    if known is not None and (count := sum(node.name not in known for node in advice.nodes)):
        yield f"{plural(count, 'name')} not in the model file: other tools will not find the operators"


def _errors(advice: KeepAdvice) -> Iterator[str]:
    width = max((len(error.example) for error in advice.errors), default=0)
    after = "with them kept" if advice.kept is not None else "with all kept"
    for error in advice.errors:
        mark = "  (not seen by the search)" if error.is_unseen else ""
        yield (
            f"{error.example:<{width}}  {error.output}: error {error.before:.3g},"
            f" {after} {error.after:.3g}{mark}"
        )


def types(types: TypeSet, advice: KeepAdvice) -> str:
    """Return what lists of operator types would keep instead."""
    names = ", ".join(types.types)
    return (
        f"by name {plural(len(advice.nodes), 'operator')} kept, by type ({names}) {types.size}:"
        f" error {types.error:.3g}"
    )
