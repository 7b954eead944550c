"""The versions of Python and of packages that msdump promises, and the script that tests them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


# Stands for Python 3.11: makes a .venv of itself and installs whatever it is told to.
PYTHON_3_11 = """#!/bin/bash
case "$2" in *print*) echo 3.11 ;; esac
if [ "$1 $2" = "-m venv" ]; then mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python"; fi
"""
BROKEN = """#!/bin/bash
exit 1
"""
STAND_INS = {"python3": PYTHON_3_11, "python3.11": PYTHON_3_11, "python3.12": BROKEN, "python3.13": BROKEN}


@pytest.fixture
def elsewhere(tmp_path):
    """Return a function that runs the script in a clone, with stand-ins for Python."""
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("scripts", "msdump/statistics/kernel"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "bin").mkdir()
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    surroundings = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYENV_ROOT": str(tmp_path)}

    def run(what, **variables):
        return subprocess.run(
            ["bash", str(tmp_path / "scripts/test_elsewhere.sh"), what],
            env=surroundings | variables,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


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
    """A requirement that promises no lowest version alone is refused with what it says."""
    project = {"project": {"dependencies": [requirement], "optional-dependencies": {"samples": []}}}

    with pytest.raises(ValueError, match=f"'{requirement}': must be a name, '>=' and the lowest version"):
        list(lowest.constraints(project, []))


def test_every_requirement_has_a_lower_bound():
    """What the project promises can be tested."""
    assert list(lowest.constraints(PROJECT, []))


def test_this_python_is_promised():
    """The classifiers name the Python that runs the tests."""
    version = "{}.{}".format(*sys.version_info)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_unknown_environment(elsewhere):
    """A name that is none is refused with those that are."""
    done = elsewhere("torchs")

    told = "test_elsewhere: 'torchs': must be torch, pythons or lowest\n"
    assert (2, told) == (done.returncode, done.stderr)


def test_pythons_that_are_absent_are_named(elsewhere):
    """Every promised version is tested or said not to be."""
    done = elsewhere("pythons")

    assert (
        "test_elsewhere: Python 3.11 is the one of .venv\n"
        "test_elsewhere: Python 3.12 is not on this machine: not tested\n"
        "test_elsewhere: Python 3.13 is not on this machine: not tested\n"
    ) == done.stdout
    assert 0 == done.returncode


@pytest.mark.parametrize(("variables", "code"), [({"CI": "true"}, 1), ({}, 0)], ids=["CI", "elsewhere"])
def test_pytorch_that_cannot_be_installed(elsewhere, variables, code):
    """Without PyTorch the door is not tested, which is told, and fails where CI is set."""
    done = elsewhere("torch", MSDUMP_PYTHON="python3.12", **variables)

    assert code == done.returncode
    assert done.stderr.endswith("PyTorch cannot be installed: the torchair door is not tested\n")
