"""What the tests of ranks share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fresh(fresh):
    """Let each test begin as a new process, which ends with it."""
    yield
    fresh.close()
