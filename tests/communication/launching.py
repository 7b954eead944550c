"""Starts Python programs as ranks of MPI, on this machine alone."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.world import ROOT

_BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun")

needs_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpi4py or mpirun is not installed: pip install 'msdump[mpi]'",
)

PYTHON = sys.executable  # of the ranks

LONGEST = 100  # seconds of any launch; a rank's own limits are far shorter

# a process more than there are cores is allowed, root as well, and nothing leaves the machine
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_pml": "ob1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONPATH": str(ROOT),
    # with its folder in memory, one launcher of dozens hung after MPI_ABORT
    "TMPDIR": "/tmp",  # noqa: S108 - it makes a folder of its own there
}


class Launch:
    """A program that runs as several ranks.

    Attributes:
        process: The launcher.
        began: When it was started.
    """

    def __init__(self, command, folder, **variables):
        """Start a command line as a leader of its own process group."""
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | SETTINGS | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for_line(self):
        """Return the next line that a rank prints."""
        return self.process.stdout.readline()

    def end(self):
        """Wait for the end; return exit code, standard output and standard error."""
        try:
            out, err = self.process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"the ranks did not end within {LONGEST} s:\n{out}\n{err}")
        return self.process.returncode, out, err


def python(ranks, code, folder, *arguments, **variables):
    """Start Python code as several ranks of MPI."""
    program = [PYTHON, "-c", code, *map(str, arguments)]
    return Launch([MPIRUN, "-n", str(ranks), *program], folder, **variables)


def msdump(ranks, folder, *arguments, **variables):
    """Start the program msdump as several ranks of MPI."""
    program = [PYTHON, "-m", "msdump", *map(str, arguments)]
    return Launch([MPIRUN, "-n", str(ranks), *program], folder, **variables)
