"""CPU time of short programs, in milliseconds; their modules are compiled before."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import MSDUMP, compiled, run

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
    environment = compiled(case.folder)
    runs = [run(sys.executable, "-c", _IMPORT, environment=environment) for _ in range(_WARM_UPS + _RUNS)]
    return Figure.of([float(each.printed) for each in runs[_WARM_UPS:]])


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
    runs = [run(*MSDUMP, *arguments, environment=environment) for _ in range(_WARM_UPS + _RUNS)]
    return Figure.of([1000 * each.cpu for each in runs[_WARM_UPS:]])
