"""Debian's chromium, as playwright drives it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable():
    """Return the path of a chromium, None where there is none; $MSDUMP_CHROMIUM names another."""
    named = os.environ.get("MSDUMP_CHROMIUM")
    found = (shutil.which(name) for name in ((named,) if named else NAMES))
    return next(filter(None, found), None)


def launched():
    """Return a context with a browser.

    Raises:
        ImportError: Playwright is not installed.
        OSError: There is no chromium.
    """
    from playwright.sync_api import sync_playwright

    path = executable()
    if path is None:
        raise FileNotFoundError("no chromium; on Debian: apt-get install chromium")
    return _started(sync_playwright, path)


@contextmanager
def _started(sync_playwright, path) -> Iterator:
    # the sandbox needs rights that root in a container lacks; the page is one's own
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
