"""CPU time of short programs, in milliseconds; their modules are compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.case import Case
from tests.bench.measure import Figure

_RUNS = 9
_WARM_UPS = 2
_IMPORT = """
import time
before = time.process_time()
import msdump
print(1000 * (time.process_time() - before))
"""


def importing(case: Case) -> Figure:
    """``import msdump``, without the start of Python."""
    command = [sys.executable, "-c", _IMPORT]
    environment = compiled(case.folder)
    runs = [
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for _ in range(_WARM_UPS + _RUNS)
    ]
    return Figure.of([float(run.stdout) for run in runs[_WARM_UPS:]])


def helping(case: Case) -> Figure:
    """``msdump --help``, with the start of Python."""
    return _command(case, "--help")


def checking(case: Case) -> Figure:
    """``msdump check`` of a small model, with the start of Python."""
    root = Path.cwd()  # where the measured msdump lies
    configuration, model = root / "sample_nets/mini/data_dump.json", root / "graphs/mini.onnx"
    return _command(case, "check", str(configuration), "--model", str(model))


def _command(case: Case, *arguments: str) -> Figure:
    environment = {
        **compiled(case.folder),
        "MS_DIAGNOSTIC_DATA_PATH": str(case.folder / "out"),
        "DEVICE_TARGET": "Ascend",
    }
    runs = [_milliseconds(arguments, environment) for _ in range(_WARM_UPS + _RUNS)]
    return Figure.of(runs[_WARM_UPS:])


def _milliseconds(arguments: tuple[str, ...], environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-m", "msdump", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments}: exit code {process.returncode}")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def compiled(folder: Path) -> dict[str, str]:
    """Return an environment in which Python keeps compiled modules, as those of installed packages are."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
