"""What a report tells of the nodes of an ONNX model, as metadata that Netron shows beside a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msdump.errors import ToolError
from msdump.tools.export.metrics import of_operators
from msdump.tools.report.collecting import DumpReport
from msdump.tools.return_codes import ReturnCode

_PREFIX: Final = "msdump "


def properties(report: DumpReport) -> dict[str, dict[str, str]]:
    """Return texts by their names by the name of the ONNX node.

    A node that a fused operator was made of has the texts of that operator. Of several ranks and graphs with
    the node the first one counts.

    Raises:
        ToolError: No operator of the dump tells its node: the dump has no graph file.
    """
    told: dict[int, dict[str, str]] = {}
    for metric in of_operators(report):
        for place, value in metric.values.items():
            text = value if isinstance(value, str) else f"{value:.6g}"
            told.setdefault(place, {})[f"{_PREFIX}{metric.name}"] = text
    nodes: dict[str, dict[str, str]] = {}
    for place, operator in enumerate(report.operators):
        names = () if operator.described is None else operator.described.onnx_names
        for name in names:
            if place in told and name not in nodes:
                nodes[name] = {
                    f"{_PREFIX}operator": operator.name,
                    **told[place],
                    **_note(report, place),
                }
    if not nodes:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{report.dump}: no graph file tells which ONNX node an operator is; msdump's own dumps have one",
        )
    return nodes


def _note(report: DumpReport, place: int) -> Mapping[str, str]:
    verdict = report.verdicts.get(place)
    note = "" if verdict is None else verdict.worst.note
    return {f"{_PREFIX}note": note} if note else {}
