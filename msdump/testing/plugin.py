"""The pytest plugin: the fixture ``msdump_compare``.

pytest loads this module at every start if msdump is installed. So the module imports msdump, numpy and onnx
only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from msdump.testing.comparison import ModelComparison


@pytest.fixture
def msdump_compare(tmp_path: Path) -> Callable[..., ModelComparison]:
    """Return ``msdump.testing.compare`` as a check that fails with the verdicts if the model differs."""
    from msdump.testing.comparison import compare

    count = 0

    def check(model: Any, inputs: Any = None, **wanted: Any) -> ModelComparison:
        nonlocal count
        count += 1
        folder = tmp_path / f"msdump_compare_{count}"
        compared = compare(model, inputs, **({"folder": folder} | wanted))
        if not compared.agrees:
            pytest.fail(f"{compared.title}\n{compared.text}", pytrace=False)
        return compared

    return check
