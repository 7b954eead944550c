"""Converts model files of MindSpore (.mindir) to ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msdump.convert.conversion import Conversion
from msdump.convert.file import FileResult
from msdump.errors import ToolError
from msdump.executors import file_size
from msdump.graph import loader
from msdump.return_codes import ReturnCode
from msdump.store.write import make_output
from msdump.training import write_step


def convert_models(paths: Sequence[str], output: str) -> Conversion:
    """Convert .mindir files to ``{name}.onnx`` in a directory, which is created.

    The operators are the CPU's. A model above 2 GiB has its weights in a file beside it.

    Raises:
        ToolError: Two models have one name, or there is no such directory.
        GraphError: A file is no .mindir, or cannot run here.
        DumpWriteError: A file cannot be written.
    """
    names = [f"{Path(path).stem}.onnx" for path in paths]
    if len(set(names)) < len(names):
        raise ToolError(ReturnCode.PARAMETER, f"two models of one name ({', '.join(sorted(names))})")
    conversion = Conversion(output)
    for path, name in zip(paths, names, strict=True):
        model = loader.standard(path)
        try:
            make_output(output)
        except OSError as error:
            fault = f"{output}: no directory to write to: {error.strerror or error}"
            raise ToolError(ReturnCode.PATH, fault) from error
        written = write_step(model, os.path.join(output, name))  # noqa: PTH118 - a text
        conversion.results.append(FileResult(path, len(written), sum(map(file_size, written))))
    return conversion
