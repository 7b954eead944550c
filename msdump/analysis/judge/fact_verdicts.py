"""Verdicts that follow from facts: a difference of the graphs is at fault where the outputs differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump.analysis import Fact, FactKind
from msdump.analysis.judge.evidence import OperatorPlace, TensorVerdict, Verdict, joined
from msdump.analysis.judge.findings import Finding

_VERDICTS: Final = {
    FactKind.ATTRIBUTE: Verdict.OWN,
    FactKind.WIRING: Verdict.OWN,
    FactKind.EXTRA: Verdict.REPLACED,
    FactKind.REPLACED: Verdict.REPLACED,
    FactKind.MISSING: Verdict.MISSING,
    FactKind.DTYPE: Verdict.DTYPE,
}
"""Verdict on the operator of a fact; of other kinds the tensors themselves tell."""

_DRIFTING: Final = frozenset({Verdict.ACCUMULATED, Verdict.AMPLIFIED})

_ELSEWHERE: Final = frozenset({FactKind.EXTRA, FactKind.REPLACED, FactKind.MISSING})
"""Facts on an operator other than the one whose outputs show them."""


def accuse(
    findings: Sequence[Finding],
    facts: Sequence[Fact],
    place_of: Callable[[Fact], OperatorPlace],
    nodes: Mapping[str, str],
    *,
    outputs_differ: bool,
    is_one_arithmetic: bool = False,
) -> list[Finding]:
    """Return the verdicts of one run together with the facts about its graphs.

    Args:
        findings: The verdicts on its operators, in the order of execution.
        facts: Differences of the graphs.
        place_of: Returns the place of an operator that is missing, or has no verdict.
        nodes: Names of the model's nodes by full names, for operators that are fused.
        outputs_differ: Whether the network's outputs differ.
        is_one_arithmetic: Whether both sides compute alike, so that no rounding explains another result.
    """
    judged = _Judged(findings, nodes)
    for fact in facts:
        if fact.kind not in _VERDICTS:
            continue
        readers = [place for name in fact.readers for place in judged.places(name)]
        is_type = fact.kind is FactKind.DTYPE  # it is wrong whatever comes of it
        showing = [place for place in readers if is_type or _differs(judged.findings[place])]
        if showing or (not readers and outputs_differ):
            judged.accuse(fact, showing, place_of)
    found = judged.result()
    return [*map(_unrounded, found)] if is_one_arithmetic else found


def _differs(finding: Finding) -> bool:
    return finding.verdict in _DRIFTING or any(each.is_bad for each in finding.outputs)


class _Judged:
    def __init__(self, findings: Sequence[Finding], nodes: Mapping[str, str]) -> None:
        self.findings = [*findings]
        self._nodes = nodes
        self._added: dict[int, list[Finding]] = {}
        self._places: dict[str, list[int]] = {}
        for place, finding in enumerate(findings):
            names = {finding.place.full_name, *finding.place.onnx_name.split("+")} - {""}
            for name in names:
                self._places.setdefault(name, []).append(place)

    @property
    def _first_bad(self) -> int:
        bad = (place for place, each in enumerate(self.findings) if any(out.is_bad for out in each.outputs))
        return next(bad, len(self.findings))

    def places(self, name: str) -> list[int]:
        return self._places.get(name) or self._places.get(self._nodes.get(name, ""), [])

    def accuse(self, fact: Fact, showing: Sequence[int], place_of: Callable[[Fact], OperatorPlace]) -> None:
        """Set the verdicts on the operator of a fact, and on operators that show it."""
        is_missing = fact.kind is FactKind.MISSING  # another operator may bear its name
        own = [
            place
            for place in self.places(fact.operator)
            if is_missing is (self.findings[place].verdict is Verdict.MISSING)
        ]
        for place in own:
            finding = self.findings[place]
            # a weight that is read in another order is no other weight
            is_kept = finding.is_accused and {fact.kind, finding.verdict} != {FactKind.WIRING, Verdict.WEIGHT}
            verdict = finding.verdict if is_kept else _VERDICTS[fact.kind]
            # the fact names the replaced operator, too
            told = finding.note if finding.is_accused and verdict is not Verdict.REPLACED else ""
            note = told if fact.text in told else joined(fact.text, told)
            self.findings[place] = replace(finding, verdict=verdict, note=note)
        if not own and self.findings:  # missing, or control flow
            first = min(showing, default=self._first_bad)
            at = self.findings[min(first, len(self.findings) - 1)].place
            where = replace(place_of(fact), iteration=at.iteration, order=at.order, time=at.time)
            self._added.setdefault(first, []).append(Finding(where, _VERDICTS[fact.kind], note=fact.text))
        if fact.kind in _ELSEWHERE:
            for place in set(showing) - set(own):
                self._excuse(place, f"{fact.operator} before it is {_WORDS[fact.kind]}")

    def _excuse(self, place: int, note: str) -> None:
        """INHERITED for an operator that reads a wrong operator's output."""
        finding = self.findings[place]
        is_explained = all(each.is_explained for each in finding.own)
        if finding.verdict in {Verdict.OWN, Verdict.ACCUMULATED, Verdict.AMPLIFIED} and is_explained:
            self.findings[place] = replace(finding, verdict=Verdict.INHERITED, note=note)

    def result(self) -> list[Finding]:
        """Return the verdicts; operators without tensors stand in front of the first one that shows them."""
        found: list[Finding] = []
        for place, finding in enumerate(self.findings):
            found += [*self._added.get(place, ()), finding]
        return [*found, *self._added.get(len(self.findings), ())]


_WORDS: Final = {
    FactKind.EXTRA: "not in golden",
    FactKind.REPLACED: "another one",
    FactKind.MISSING: "missing",
}


def _unrounded(finding: Finding) -> Finding:
    """Return a verdict; OWN if golden's kernel repeats it in all bits on the same inputs.

    No rounding adds up then: the graphs do not do the same.
    """
    is_exact = finding.own and all(each.error.is_same for each in finding.own)
    inputs = {each.verdict for each in finding.inputs}
    if finding.verdict is not Verdict.ACCUMULATED or not is_exact or inputs != {TensorVerdict.EQUAL}:
        return finding
    return replace(finding, verdict=Verdict.OWN, note="golden reads the same, and something else comes of it")
