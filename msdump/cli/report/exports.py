"""The options of ``msdump report`` that write it for other programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from msdump.cli.counts import plural
from msdump.cli.options import gathered
from msdump.errors import ToolError
from msdump.graph import annotation
from msdump.tools import reports
from msdump.tools.export import event_files, netron
from msdump.tools.export import model_explorer as explorer
from msdump.tools.report.collecting import DumpReport
from msdump.tools.return_codes import ReturnCode


@dataclass(frozen=True, slots=True)
class WantedExports:
    """What is written besides the page.

    Attributes:
        model_explorer: Folder of files for Model Explorer, None for none.
        annotate: A model, and the file of its copy with texts beside the nodes; None for none.
        tensorboard: Folder of a run for TensorBoard, None for none.
        tensorboard_tensors: Most tensors that it tells.
    """

    model_explorer: str | None = None
    annotate: tuple[str, str] | None = None
    tensorboard: str | None = None
    tensorboard_tensors: int = event_files.MOST_TENSORS

    def __bool__(self) -> bool:
        """Tell whether anything is written."""
        return any((self.model_explorer, self.annotate, self.tensorboard))


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what is written for other programs; it gets them as ``exports``."""
    return gathered("exports", WantedExports, _OPTIONS, command)


_OPTIONS: Final = (
    click.option(
        "--model-explorer",
        type=click.Path(),
        metavar="DIR",
        help="Write the graphs, and data of their nodes by metric, for Model Explorer.",
    ),
    click.option(
        "--annotate",
        type=(click.Path(), click.Path()),
        default=None,
        metavar="MODEL.onnx OUT.onnx",
        help="Write the model with verdicts and statistics beside its nodes, for Netron.",
    ),
    click.option(
        "--tensorboard", type=click.Path(), metavar="DIR", help="Write statistics over iterations as a run."
    ),
    click.option(
        "--tensorboard-tensors",
        type=click.IntRange(min=1),
        default=event_files.MOST_TENSORS,
        show_default=True,
        metavar="N",
        help="Most tensors of it; those with NaN or inf come first.",
    ),
)


def write(report: DumpReport, wanted: WantedExports) -> list[str]:
    """Write a report for other programs; return a line on each that was written.

    Raises:
        NotAvailableError: The package tensorboard is not installed.
        GraphError: The model cannot be annotated.
        ToolError: A file cannot be written, or no node is known.
    """
    lines = []
    if wanted.model_explorer is not None:
        paths = [reports.write(wanted.model_explorer, *file) for file in _texts(report)]
        lines.append(f"{os.path.dirname(paths[0])}: {plural(len(paths), 'file')}")  # noqa: PTH120 - a text
    if wanted.annotate is not None:
        lines.append(_annotate(report, *wanted.annotate))
    if wanted.tensorboard is not None:
        points = [*event_files.scalars(report, wanted.tensorboard_tensors)]
        spread = [*event_files.histograms(report)]
        count = event_files.write(wanted.tensorboard, points, spread)
        told, known = event_files.chosen(report, wanted.tensorboard_tensors), event_files.known(report)
        left_out = f" ({len(known) - len(told):,} more tensors: --tensorboard-tensors)"
        rest = left_out if len(told) < len(known) else ""
        lines.append(f"{wanted.tensorboard}: {plural(count, 'event')} of {plural(len(told), 'tensor')}{rest}")
    return lines


def _texts(report: DumpReport) -> list[tuple[str, list[str]]]:
    return [(name, [text]) for name, text in explorer.files(report)]


def _annotate(report: DumpReport, model: str, output: str) -> str:
    folder, name = os.path.split(os.path.abspath(output))  # noqa: PTH100 - pathlib keeps ".." components
    contents, count = annotation.annotated(model, netron.properties(report), folder)
    if not count:
        raise ToolError(
            ReturnCode.PARAMETER, f"{model}: no node is called as one of {report.dump}; is it that model?"
        )
    path = reports.write_bytes(folder, name, (contents,))
    return f"{path}: {plural(count, 'node')} with texts"
