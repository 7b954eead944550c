"""The warning of a dump path that MindSpore refuses: below a folder with a dot every test would meet it."""

import contextlib
import logging
import re

from msdump.config.grammar import foreign_characters

_WARNING = "MindSpore refuses a path with {!r}"
_START = 20  # characters of a folder that a message shows at least
_LOGGER = logging.getLogger("msdump.config")


def without(text, folder):
    """Return a program's output without the warnings that come from the folder of the tests."""
    warning = re.escape(_WARNING.format(foreign_characters(str(folder))))
    return re.sub(rf".*: {warning}\n", "", text)


@contextlib.contextmanager
def silenced(folder):
    """Let no warning be logged, as long as the context lasts, that only the folder brings about."""
    warning = _WARNING.format(foreign_characters(str(folder)))

    def is_kept(record):
        return not (record.getMessage().endswith(warning) and str(folder)[:_START] in record.getMessage())

    _LOGGER.addFilter(is_kept)
    try:
        yield
    finally:
        _LOGGER.removeFilter(is_kept)
