"""A dump file to be converted."""

import pytest

from tests.judge import dumped


@pytest.fixture
def image(tmp_path):
    """Return the path of a dump file."""
    return dumped.image_file(tmp_path / "in" / dumped.NAME)
