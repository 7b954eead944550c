"""The folder of a repro: a model, inputs and outputs as .npz files, and a script that runs them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msdump.record import IO
from msdump.tools import reports
from msdump.tools.extract.dumped_operator import OperatorRun
from msdump.tools.extract.repro import Repro
from msdump.tools.extract.without_model import KeptTensor
from msdump.tools.preview import archives

MODEL: Final = "model.onnx"
INPUTS: Final = "inputs.npz"
OUTPUTS: Final = "outputs.npz"
SCRIPT: Final = "run.py"
DESCRIPTION: Final = "operator.json"

_SCRIPT: Final = '''"""Run {what} again, and print how far its dumped outputs are off."""
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).parent
inputs, dumped = (dict(np.load(here / name)) for name in ("{inputs}", "{outputs}"))
results = onnxruntime.InferenceSession(here / "{model}").run(list(dumped), inputs)
for name, result in zip(dumped, results, strict=True):
    mine, golden = dumped[name].astype(np.float64), result.astype(np.float64)
    print(f"{{name}}: largest difference {{np.abs(mine - golden).max(initial=0):.3g}}, relative distance "
          f"{{np.linalg.norm(mine - golden) / (np.linalg.norm(golden) or 1):.3g}}")
'''


def write_tensors(run: OperatorRun, tensors: Sequence[KeptTensor], reason: str, folder: str) -> list[str]:
    """Write the tensors of an operator that has no model; return the paths of the files.

    Args:
        run: The run of the operator.
        tensors: Its tensors.
        reason: Why there is no model.
        folder: The folder; made where it is missing, files of these names in it are replaced.

    Raises:
        ToolError: A file cannot be written.
        DumpWriteError: An .npz file cannot be written.
    """
    paths = []
    for name, io in ((INPUTS, IO.INPUT), (OUTPUTS, IO.OUTPUT)):
        paths.append(str(Path(folder).resolve() / name))
        archives.write(paths[-1], {each.name: each.array for each in tensors if each.io is io})
    told = {
        "operator": run.name,
        "type": run.first.op_type,
        "run": run.place,
        "source": run.first.source,
        "model": None,
        "reason": reason,
        "tensors": {
            each.name: {"shape": each.array.shape, "dtype": each.dtype, "layout": each.layout or "host"}
            for each in tensors
        },
    }
    paths.append(reports.write(folder, DESCRIPTION, [json.dumps(told, indent=2), "\n"]))
    return paths


def write_folder(repro: Repro, folder: str) -> list[str]:
    """Write a repro; return the paths of its files.

    Args:
        repro: What reproduces an operator.
        folder: The folder; made where it is missing, files of these names in it are replaced.

    Raises:
        ToolError: A file cannot be written.
        DumpWriteError: An .npz file cannot be written.
    """
    paths = [reports.write_bytes(folder, MODEL, [repro.model])]
    for name, arrays in ((INPUTS, repro.inputs), (OUTPUTS, repro.outputs)):
        paths.append(str(Path(folder).resolve() / name))
        archives.write(paths[-1], arrays)
    what = f"{repro.name} ({repro.op_type}; {repro.place})".replace("\\", "/").replace('"', "'")
    script = _SCRIPT.format(what=what, inputs=INPUTS, outputs=OUTPUTS, model=MODEL)
    paths.append(reports.write(folder, SCRIPT, [script]))
    return paths
