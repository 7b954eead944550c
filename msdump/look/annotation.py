"""Numbers of a report as texts of the nodes of an ONNX model, which Netron shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from msdump.errors import ToolError
from msdump.look.report import DumpReport, TensorState
from msdump.record import IO
from msdump.return_codes import ReturnCode

_PREFIX: Final = "msdump "


def node_texts(report: DumpReport) -> dict[str, dict[str, str]]:
    """Return texts by their names by the name of the ONNX node.

    A node that a fused operator was made of has the texts of that operator. Of several ranks and graphs with
    the node the first one counts.
    """
    verdicts = {place: verdict for place, verdict in report.verdicts.items() if place >= 0}
    states = np.bitwise_or.reduce(report.series.of_operators(len(report.operators)), axis=1, initial=0)
    words = {place: TensorState(state).words for place, state in enumerate(states.tolist()) if state}
    metrics: dict[str, Mapping[int, float | str]] = {
        "verdict": {place: str(each.worst.verdict) for place, each in verdicts.items()},
        "note": {place: each.worst.note for place, each in verdicts.items() if each.worst.note},
        "distance": {place: each.distance for place, each in verdicts.items()},
        "own error": {place: each.own_error for place, each in verdicts.items()},
        "state": {place: " and ".join(each).lower() or "finite" for place, each in words.items()},
    }
    # of the outputs over all iterations: the smallest min, of everything else the largest finite number
    for name, table in report.series.numbers.items():
        known: dict[int, list[float]] = defaultdict(list)
        for numbers, tensor in zip(table, report.series.tensors, strict=True):
            if tensor.io is IO.OUTPUT:
                known[tensor.operator] += numbers[np.isfinite(numbers)].tolist()
        join = min if name == "min" else max
        metrics[name] = {place: join(numbers) for place, numbers in known.items() if numbers}
    texts: dict[int, dict[str, str]] = defaultdict(dict)
    for name, values in metrics.items():
        for place, value in values.items():
            if isinstance(value, str) or np.isfinite(value):
                texts[place][f"{_PREFIX}{name}"] = value if isinstance(value, str) else f"{value:.6g}"
    nodes: dict[str, dict[str, str]] = {}
    for place, operator in enumerate(report.operators):
        for name in () if operator.described is None else operator.described.onnx_names:
            if place in texts:
                nodes.setdefault(name, {f"{_PREFIX}operator": operator.name, **texts[place]})
    if not nodes:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{report.dump}: no graph file names the ONNX nodes; the dumps of msdump have such a file",
        )
    return nodes
