"""``msdump report --watch``: the page of a run that goes on, written again when something was dumped."""

from __future__ import annotations

import time
from typing import Final, Never

from msdump.cli import messages
from msdump.cli.report import shown
from msdump.cli.report.gathering import gather
from msdump.cli.report.options import ReportOptions
from msdump.errors import DumpReadError, ToolError
from msdump.store.read.reader import open_dump
from msdump.tools.report import measured
from msdump.tools.report.measured import KnownDirectories, Stamp

_SECONDS: Final = 2.0  # between two looks at the dump
_RELOAD: Final = 5.0  # seconds between two looks of a browser at the page


def follow(dump: str, golden: str | None, asked: ReportOptions, *, is_opened: bool) -> Never:
    """Write the page whenever something was dumped, until the user ends it.

    A headline that changes is told. Directories that have not changed are not read again.

    Args:
        dump: The dump, which need not be there yet.
        golden: The dump that it is compared with, None for no comparison.
        asked: The options.
        is_opened: Whether the first page is shown in a browser.

    Raises:
        ToolError: The page cannot be written.
    """
    known: KnownDirectories = {}
    before: dict[str, Stamp] | None = None
    headline = ""
    while True:
        now = _stamps(dump)
        if now != before and now:
            before = now
            told = _written(dump, golden, asked, known, is_opened=is_opened and not headline)
            if told and told != headline:
                headline = told
                print(f"{headline}  ({asked.output})", flush=True)
        elif not now:
            messages.say_once(f"waiting for {dump}")
        time.sleep(_SECONDS)


def _stamps(dump: str) -> dict[str, Stamp]:
    try:
        return {each.path: measured.stamp(each.path) for each in open_dump(dump).all_iterations}
    except DumpReadError:  # nothing is there yet, or it has just been taken away
        return {}


def _written(
    dump: str, golden: str | None, asked: ReportOptions, known: KnownDirectories, *, is_opened: bool
) -> str:
    """Write the page and return its headline; "" where the dump changed too much while it was read."""
    try:
        report = gather(dump, golden, asked, known)
    except (DumpReadError, ToolError) as error:  # golden has no counterpart yet, a directory is gone
        messages.say_once(f"warning: {error}")
        return ""
    shown.write(report, asked.output, is_opened=is_opened, is_told=False, reload_seconds=_RELOAD)
    return report.headline
