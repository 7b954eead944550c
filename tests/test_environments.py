"""The versions of Python and of packages that msdump promises, and the script that tests them."""

import sys
import tomllib

import pytest

from scripts import lowest
from tests.world import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_lowest_versions():
    """Constraints are the lower bounds of msdump, its samples and MPI, and the locked pytest and pip."""
    project = {
        "project": {
            "dependencies": ["numpy>=2.0"],
            "optional-dependencies": {"samples": ["pillow>=10"], "mpi": ["mpi4py>=4.1"]},
        }
    }
    locked = ["# made", "import-linter==2.16", "numpy==2.4.6", "pip==26.3", "pytest==9.2.0"]

    assert ["numpy==2.0", "pillow==10", "mpi4py==4.1", "pip==26.3", "pytest==9.2.0"] == list(
        lowest.constraints(project, locked)
    )


@pytest.mark.parametrize("requirement", ["numpy", "numpy<3", "numpy>=2,<3"])
def test_requirement_without_a_lower_bound(requirement):
    """A requirement that promises no lowest version alone is refused with its text."""
    project = {"project": {"dependencies": [requirement], "optional-dependencies": {"samples": []}}}

    with pytest.raises(ValueError, match=f"'{requirement}': must be a name, '>=' and the lowest version"):
        list(lowest.constraints(project, []))


def test_every_requirement_has_a_lower_bound():
    """The promised versions can be tested."""
    assert list(lowest.constraints(PROJECT, []))


def test_this_python_is_promised():
    """The classifiers name the Python that runs the tests."""
    version = "{}.{}".format(*sys.version_info)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
