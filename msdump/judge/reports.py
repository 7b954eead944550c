"""Writes the result files of commands: readable by their owner only, complete or not there."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from msdump.convert import shorten_name
from msdump.errors import ToolError
from msdump.record import Buffer
from msdump.return_codes import ReturnCode
from msdump.store import MAPPING
from msdump.store.write import DUMP_MODE, DiskFiles, make_output


def stamped(prefix: str, suffix: str) -> str:
    """Return a file name with the local time, ``result_20240131120000.csv``."""
    return f"{prefix}_{datetime.now().astimezone():%Y%m%d%H%M%S}{suffix}"


def write(folder: str, name: str, parts: Iterable[str]) -> str:
    """Write a text file and return its path.

    The folder is created with mode 0700, below one that exists; the file has mode 0600, as msaccucmp's. A
    name of 255 bytes or more becomes a hash, and ``mapping.csv`` beside it gets a line "hash,name".

    Raises:
        ToolError: The file cannot be written.
    """
    return write_bytes(folder, name, (part.encode() for part in parts))


def write_bytes(folder: str, name: str, parts: Iterable[Buffer]) -> str:
    """Write a file of bytes and return its path, as ``write`` does."""
    place, _, name = name.rpartition("/")
    directory = os.path.join(os.path.realpath(folder), place).rstrip("/")  # noqa: PTH118
    stand_in = shorten_name(name)
    path = f"{directory}/{stand_in}"
    files = DiskFiles(DUMP_MODE)
    try:
        make_output(folder)
        files.stream(directory, stand_in, parts, DUMP_MODE)
        if stand_in != name:  # vendor: mapping.csv has no header
            files.append(directory, MAPPING, f"{stand_in},{name}\n".encode(), b"")
    except OSError as error:
        raise ToolError(ReturnCode.WRITE, f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        files.close()
    return path


SCRIPT: Final = "run.py"

RESULTS: Final = ".npz"
"""Suffix of a file with results in the place of a model."""

_SCRIPT: Final = '''"""Run {title}
on one input, and print their distance.
An .npz file has results that are given, or of an arithmetic that no model can express, such as float64."""
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).parent
inputs, results = dict(np.load(here / "{inputs}")), []
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
for file in (here / "{files[0]}", here / "{files[1]}"):
    if file.suffix == ".npz":
        results.append([np.load(file)[name] for name in {outputs}])
        continue
    session = onnxruntime.InferenceSession(file, options)
    results.append(session.run({outputs}, {{each.name: inputs[each.name] for each in session.get_inputs()}}))
for name, mine, golden in zip({outputs}, *results, strict=True):
    mine, golden = mine.astype(np.float64), golden.astype(np.float64)
    print(f"{{name}}: largest difference {{np.abs(mine - golden).max(initial=0):.3g}}, relative distance "
          f"{{np.linalg.norm(mine - golden) / (np.linalg.norm(golden) or 1):.3g}}")
'''


def write_script(folder: str, title: str, inputs: str, files: tuple[str, str], outputs: list[str]) -> str:
    """Write a program that runs two models, or compares one with results in a file; return its path."""
    title = title.replace("\\", "/").replace('"', "'")
    text = _SCRIPT.format(title=title, inputs=inputs, files=files, outputs=repr(outputs))
    return write(folder, SCRIPT, [text])


def csv_lines(rows: Iterable[Iterable[object]], end: str = "\n") -> Iterator[str]:
    """Yield a csv table line by line."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator=end)
    for row in rows:
        writer.writerow(row)
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def check_empty(folder: str) -> None:
    """Refuse a directory that has files."""
    if os.path.isdir(folder) and os.listdir(folder):  # noqa: PTH208
        raise ToolError(ReturnCode.PATH, f"{folder}: holds files already; remove them first")
