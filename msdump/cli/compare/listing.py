"""Which operators of a comparison are listed, and how: in order, by their own error, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msdump.cli import messages
from msdump.cli.compare import text
from msdump.errors import ToolError
from msdump.tools.judge import grouping
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.grouping import Arrangement
from msdump.tools.return_codes import ReturnCode

_SHOWN: Final = 30  # operators; of more only those that differ are listed
_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """What of a comparison is listed.

    Attributes:
        by: How operators are arranged, None: in the order of execution.
        scope: The scope or module path to which the list is limited, "" for none.
        top: Largest number of rows, those of the largest own errors; None: all that differ.
    """

    by: Arrangement | None = None
    scope: str = ""
    top: int | None = None


def show(report: Report, view: ComparisonView) -> int:
    """Print a table of operators or of their groups; return the number of operators in it.

    Raises:
        ToolError: No operator lies in the scope.
    """
    findings = report.below(view.scope) if view.scope else report.findings
    if view.scope and not findings:
        raise ToolError(
            ReturnCode.PARAMETER, f"no operator lies in the scope {view.scope}; there are {_scopes(report)}"
        )
    if view.by in {Arrangement.SCOPE, Arrangement.TYPE}:
        text.print_groups(grouping.groups(findings, view.by)[: view.top], view.by)
        return len(findings)
    shown = _chosen(findings, view)
    if shown:
        text.print_table(shown, has_labels=any(finding.place.label for finding in report.findings))
    return len(shown)


def _chosen(findings: Sequence[Finding], view: ComparisonView) -> list[Finding]:
    if view.by is Arrangement.OWN:
        return grouping.by_own(findings)[: view.top]
    if view.top is not None:
        return grouping.top(findings, view.top)
    if len(findings) > _SHOWN and not messages.verbosity():
        bad = (finding for finding in findings if finding.is_bad)
        return sorted(bad, key=lambda finding: finding.place.time)[:_SHOWN]
    return list(findings)


def _scopes(report: Report) -> str:
    scopes = sorted({finding.place.scope for finding in report.findings if finding.place.scope})
    more = " and more" if len(scopes) > _EXAMPLES else ""
    return f"{', '.join(scopes[:_EXAMPLES])}{more}" if scopes else "none, as no graph file tells them"
