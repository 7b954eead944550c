"""Checks that every file of a tree is whole, whatever happened to the run that wrote it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from msdump.encode import dump_data

HEADERS = {
    "statistic.csv": b"Op Type,Op Name,",
    "ms_execution_order_graph_0.csv": b"NodeExecutionOrder-FullNameWithScope\n",
}


def violations(root, *, may_leave_names=False):
    """Return the faults of the files below a directory, a line each.

    Args:
        root: The directory.
        may_leave_names: Whether temporary names are allowed, as after a killed run.
    """
    found = []
    for path in sorted(Path(root).rglob("*")):
        if path.is_file() and not path.is_symlink():
            fault = _fault(path, may_leave_names=may_leave_names)
            if fault:
                found.append(f"{path}: {fault}")
    return found


def _fault(path, *, may_leave_names):
    if path.name.startswith(".msdump-"):
        return None if may_leave_names else "a temporary name is left"
    if path.stat().st_size == 0:
        return "empty"
    try:
        is_operator = path.suffix[1:].isdigit()  # the names of CANN's dump files end in a time
        check = _operator_file if is_operator else CHECKS.get(path.suffix)
        return check(path) if check else None
    except Exception as error:  # noqa: BLE001 - whatever a reader says of a torn file
        return f"{type(error).__name__}: {error}"


def _npy(path):
    array = np.load(path)
    header = path.stat().st_size - array.nbytes
    return None if header % 64 == 0 else f"{header} bytes beside the elements"


def _csv(path):
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        return "the last row is torn"
    if not data.startswith(HEADERS.get(path.name, b"")):
        return "no header"
    if path.name == "statistic.csv":
        title, *lines = csv.reader(data.decode().splitlines())
        widths = {len(row) for row in lines}  # every row but the title ends with a comma
        return None if widths <= {len(title), len(title) + 1} else f"rows of {sorted(widths)} cells"
    return None


def _json(path):
    json.loads(path.read_bytes())


def _ir(path):
    return None if path.read_bytes().endswith(b"}\n") else "the text has no end"


def _operator_file(path):
    data = memoryview(path.read_bytes())
    header, offset = dump_data.read_header(data, str(path))
    end = max((block.end for block in dump_data.blocks(header, offset)), default=offset)
    return None if end == len(data) else f"{len(data)} bytes, the header says {end}"


CHECKS = {".npy": _npy, ".csv": _csv, ".json": _json, ".ir": _ir}
