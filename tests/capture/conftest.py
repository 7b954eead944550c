"""The door of whole dumps: device memory is followed while networks run."""

from tests.dump.conftest import door

__all__ = ["door"]
