"""Whether NaN and infinities that an operator makes reach an output of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import OperatorGraph
from msdump.tools.judge.findings import Finding
from msdump.tools.judge.verdicts import Verdict


def told(finding: Finding, findings: Sequence[Finding], graph: OperatorGraph | None) -> Finding:
    """Return the verdict on an operator; where NaN begin in it, with whether they reach an output.

    Args:
        finding: The verdict.
        findings: The verdicts on all operators of the run.
        graph: The graph that ran, None: the last operator stands for the outputs.
    """
    if finding.verdict is not Verdict.NONFINITE:
        return finding
    return replace(finding, reaches_output=_reaches(finding, findings, graph))


def _reaches(finding: Finding, findings: Sequence[Finding], graph: OperatorGraph | None) -> bool | None:
    holding = {each.place.full_name or each.place.name for each in findings if _is_struck(each)}
    if graph is None:
        last = max(findings, key=lambda each: each.place.time)
        return _is_struck(last)
    known = {each.place.full_name or each.place.name for each in findings}
    reached = {finding.place.full_name or finding.place.name}
    pending, is_certain = [*reached], True
    while pending:
        name = pending.pop()
        if graph.is_output(name):
            return True
        readers = {reader.full_name for reader in graph.used_by(name)}
        is_certain &= readers <= known  # an operator that was not compared may pass them on
        new = (readers & holding) - reached
        reached |= new
        pending += new
    return False if is_certain else None


def _is_struck(finding: Finding) -> bool:
    errors = (tensor.evidence.error for tensor in finding.of(IO.OUTPUT))
    return any(error is not None and error.misplaced > 0 for error in errors)
