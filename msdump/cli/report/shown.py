"""The page: written, and shown in a browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

from msdump.cli import messages
from msdump.tools import reports
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.page.rendering import page


def write(
    report: DumpReport,
    output: str,
    *,
    is_opened: bool,
    is_told: bool = True,
    reload_seconds: float = 0.0,
) -> str:
    """Write the page of a report and return its path.

    Args:
        report: The report.
        output: The page's file, which is replaced.
        is_opened: Whether it is shown in a browser.
        is_told: Whether its path is printed.
        reload_seconds: Seconds after which the page loads itself again, 0: never.

    Raises:
        ToolError: The file cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(output))  # noqa: PTH100 - pathlib keeps ".." components
    path = reports.write(folder, name, page(report, folder, reload_seconds=reload_seconds))
    if is_told:
        print(f"written   {path}")
    if is_opened:
        _open(path)
    return path


def _open(path: str) -> None:
    try:
        is_shown = webbrowser.open_new_tab(Path(path).as_uri())
    except webbrowser.Error:
        is_shown = False
    if not is_shown:
        messages.say(f"warning: no browser could be started; open {path}")
