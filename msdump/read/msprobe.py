"""Trees of msprobe: ``dump.json`` and the tensors of modules and calls, as iterations of ranks.

    {dump_path}/step{N}/{rank{R} | proc{pid} | rank}/dump.json
                                                     dump_tensor_data/Module.fc.Linear.forward.0.output.0.pt

An operator is a module or a call in one direction, under its name in the tree. A parameter is a
``Parameter`` by its path, ``fc.weight``. The timestamp of a tensor is the place of its operator.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msdump import dtypes
from msdump.encode import npy
from msdump.errors import DAMAGED, DumpReadError, cause_of
from msdump.read import files
from msdump.read.records import Directory, MeasuredRecord, Record
from msdump.read.tree import TreeListing
from msdump.record import IO
from msdump.statistics import BY_CATEGORY
from msdump.store import PARAMETER, Key, PathKind, TensorName

if TYPE_CHECKING:
    import numpy as np

    from msdump.read.statistic_table import Row

_log = logging.getLogger("msdump.store")

INDEX: Final = "dump.json"
TENSORS: Final = "dump_tensor_data"
_PARENTS: Final = "construct.json"
_STEP: Final = re.compile(r"step([0-9]{1,18})")
_PROCESS: Final = re.compile(r"(?:rank|proc)([0-9]{0,18})")
_GRADIENTS: Final = "parameters_grad"
_FILE: Final = re.compile(
    rf"(?P<name>.+)\.(?:(?P<side>input|output|parameters)|(?P<call>{_GRADIENTS}\.[0-9]+))"
    r"\.(?P<place>[^/]+)\.(?:pt|npy)"
)
_MODULE: Final = re.compile(
    rf"(?:Module|Cell)\.(?P<path>.+)\.(?P<kind>[^.]+)\."
    rf"(?:(?P<direction>forward|backward|{_GRADIENTS})\.)(?P<number>[0-9]{{1,9}})(?:\.(?P<parameter>[^.]+))?"
)
_FUNCTION: Final = re.compile(
    r"(?!Module\.|Cell\.)[^.]+\.(?:.+\.)?(?P<kind>[^.]+)\.(?P<number>[0-9]{1,9})\.(?P<direction>forward|backward)"
)
_SIDES: Final = {"input_args": IO.INPUT, "input_kwargs": IO.INPUT, "input": IO.INPUT, "output": IO.OUTPUT}
_STATISTICS: Final = {"Max": "max", "Min": "min", "Mean": "avg", "Norm": "l2norm"}


@dataclass(frozen=True, slots=True)
class CallName:
    """The name of a module or of a call in a tree, in its parts."""

    module: str  # path of a module, ``h.0.ln_1``; "" for the call of a function
    kind: str  # class of the module, or name of the function
    is_backward: bool = False  # whether it is of the backward pass
    number: int = 0
    parameter: str = ""  # name of the parameter that a gradient belongs to; "" for everything else


def parse_name(name: str) -> CallName | None:
    """Return the parts of a name in a tree, None for a name of another form.

    >>> parse_name("Module.h.0.ln_1.LayerNorm.forward.1")
    CallName(module='h.0.ln_1', kind='LayerNorm', is_backward=False, number=1, parameter='')
    >>> parse_name("Primitive.conv2d.Conv2D.0.backward").kind
    'Conv2D'
    """
    found = _MODULE.fullmatch(name) or _FUNCTION.fullmatch(name)
    if found is None:
        return None
    parts = found.groupdict()
    return CallName(
        parts.get("path", ""),
        parts["kind"],
        parts["direction"] != "forward",
        int(parts["number"]),
        parts.get("parameter") or "",
    )


@dataclass(frozen=True, slots=True)
class TreeRecord(Record):
    """A tensor in a ``.npy`` file, or a ``.pt`` file of PyTorch."""

    # whether the last two axes change places, as exporters store some weights
    is_transposed: bool = field(default=False, kw_only=True)

    @property
    def raw(self) -> np.ndarray:
        """The elements, as ``load_tensor`` returns them."""
        if self.path.endswith(".pt") and self._known is None:
            array = load_tensor(self.path)
        else:
            array = Record.raw.fget(self)  # type: ignore[attr-defined]  # super() has no cell: of slots
        is_read = self._known is None or isinstance(self._known, npy.Header)
        return array.swapaxes(-1, -2) if self.is_transposed and is_read else array

    @property
    def _head(self) -> np.ndarray | npy.Header:
        if self._known is not None:
            return self._known
        is_read = self.is_transposed or self.path.endswith(".pt")
        return self.raw if is_read else files.read_npy_header(self.path)


def transposed(record: Record) -> Record:
    """Return a tensor of a tree with its last two axes in the other order."""
    if isinstance(record, TreeRecord):
        return replace(record, is_transposed=True)
    assert isinstance(record, MeasuredRecord)
    sizes = (*record.shape[:-2], *record.shape[-2:][::-1])
    return replace(record, row={**record.row, "Shape": _shape_text(sizes)})


def load_tensor(path: str) -> np.ndarray:
    """Return the tensor in a ``.pt`` file; DumpReadError if there is none, or no PyTorch to read it."""
    try:
        import torch
    except ImportError as error:
        raise DumpReadError(
            path, "PyTorch reads .pt files, and is not installed; pip install 'msdump[torch]'"
        ) from error
    data = io.BytesIO(files.load_file(path))
    try:
        tensor = torch.load(data, map_location="cpu", weights_only=True).detach()
        if tensor.dtype is torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(dtypes.BFLOAT16.numpy)  # type: ignore[no-any-return]
        return tensor.numpy()  # type: ignore[no-any-return]
    except Exception as error:  # PyTorch raises errors of a dozen types for damaged files
        why = str(error).partition("\n")[0]
        raise DumpReadError(path, f"not a tensor of PyTorch: {type(error).__name__}: {why}") from error


def scan(folder: str) -> TreeListing | None:
    """Return the steps and ranks of a tree from its root, a step or a rank; None for another directory.

    Raises:
        DumpReadError: A directory cannot be listed.
    """
    own = Path(folder)
    if is_process(folder):
        steps = {own.parent: [own]}
    else:
        above = [own] if _STEP.fullmatch(own.name) else _folders(own, _STEP)
        steps = {step: [each for each in _folders(step, _PROCESS) if is_process(str(each))] for step in above}
    if not any(steps.values()):
        return None
    listing = TreeListing()
    for step, processes in steps.items():
        for path in processes:
            is_alone = len(processes) == 1 and path.name.startswith("proc")
            rank, iteration = 0 if is_alone else _number(_PROCESS, path), _number(_STEP, step)
            keys = [
                Key(PathKind.RANK, rank),
                Key(PathKind.NETWORK, rank, ""),
                Key(PathKind.GRAPH, rank, "", 0),
            ]
            for parent, key in zip([None, *keys], keys, strict=False):
                if key not in listing.paths:
                    listing.add(parent, key, folder)
            listing.add(keys[-1], Key(PathKind.ITERATION, rank, "", 0, iteration), str(path))
    return listing


def _folders(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if pattern.fullmatch(each.name) and each.is_dir())
    except OSError as error:
        raise DumpReadError(str(folder), cause_of(error)) from error


def _number(pattern: re.Pattern[str], path: Path) -> int:
    found = pattern.fullmatch(path.name)
    return int(found[1]) if found is not None and found[1] else 0


def read_parents(process: str) -> Mapping[str, str | None]:
    """Return the module around each module and call of a process, if known; DumpReadError if unreadable."""
    path = f"{process}/{_PARENTS}"
    found = files.read_json(path) if os.path.isfile(path) else None
    parents = found.items() if isinstance(found, dict) else ()
    return {name: around if isinstance(around, str) else None for name, around in parents}


def is_tree(folder: str) -> bool:
    """Return whether a directory is a tree of msprobe, one of its steps, or of their processes."""
    return os.path.isdir(folder) and scan(os.path.abspath(folder)) is not None  # noqa: PTH100 - as dumps


def is_process(folder: str) -> bool:
    """Return whether a directory holds the tensors of one process in one step."""
    return os.path.isfile(f"{folder}/{INDEX}") or os.path.isdir(f"{folder}/{TENSORS}")


def list_tensors(directory: Directory) -> tuple[tuple[Record, ...], tuple[Row, ...]]:
    """Return the tensors with files and the statistics of a step of one process, in execution order.

    Raises:
        DumpReadError: The directory cannot be listed, or ``dump.json`` cannot be read.
    """
    folder = f"{directory.path}/{TENSORS}"
    try:
        present = {each.name for each in Path(folder).iterdir()} if os.path.isdir(folder) else set()
    except OSError as error:
        raise DumpReadError(folder, cause_of(error)) from error
    index = f"{directory.path}/{INDEX}"
    # a program that was killed has written tensors, but no index
    is_whole = os.path.isfile(index)
    entries = _read(index) if is_whole else _of_files(folder, present)
    records: list[Record] = []
    rows: list[Row] = []
    parameters: set[str] = set()
    strange: list[Any] = []
    gone: list[Any] = []
    for place, (name, entry) in enumerate(entries.items(), start=1):
        for (op_type, op_name, side, slot), tensor in _tensors(name, entry):
            if op_type == PARAMETER:
                if op_name in parameters:  # a module that runs again has the same ones
                    continue
                parameters.add(op_name)
            dtype = str(tensor.get("dtype", "")).removeprefix("torch.").lower() or None
            known = TensorName(op_type, op_name, place, side, slot, dtype=dtype)
            if is_whole:
                shape = tensor.get("shape")
                sizes = shape if isinstance(shape, list) else []
                row: Row = {
                    "Op Type": known.op_type,
                    "Op Name": known.op_name,
                    "Timestamp": known.timestamp,
                    "IO": str(known.io),
                    "Slot": known.slot,
                    "Data Type": known.dtype or "",
                    "Shape": _shape_text(sizes),
                }
                for title, category in _STATISTICS.items():
                    number = tensor.get(title)
                    row[BY_CATEGORY[category].title] = number if isinstance(number, int | float) else None
                rows.append(row)
            file = tensor.get("data_name")
            if file in present:
                records.append(TreeRecord(known, f"{folder}/{file}", directory))
            elif file is not None:  # also a path that leads out of the tree
                (gone if isinstance(file, str) and "/" not in file else strange).append(file)
    for names, why in ((strange, "are no names of files"), (gone, f"have no file in {TENSORS}")):
        if names:
            _log.log(DAMAGED, "%s: %d tensors %s, such as %r", index, len(names), why, names[0])
    return tuple(records), tuple(rows)


def _read(path: str) -> Mapping[str, Any]:
    value = files.read_json(path)
    entries = value.get("data") if isinstance(value, dict) else None
    if not isinstance(entries, dict):
        raise DumpReadError(path, "not an index of msprobe: it has no object 'data'; dump again")
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _of_files(folder: str, present: set[str]) -> dict[str, dict[str, Any]]:
    """Return entries as of ``dump.json`` by the names of files, in the order in which they were written."""
    entries: dict[str, dict[str, Any]] = {}
    by_time = sorted(present, key=lambda name: (files.modified(f"{folder}/{name}"), name))
    for file in by_time:
        found = _FILE.fullmatch(file)
        if found is not None:
            name = f"{found['name']}.{found['call']}" if found["call"] else found["name"]
            side = entries.setdefault(name, {})
            side = side.setdefault(found["side"], {}) if found["side"] else side
            side[found["place"]] = {"type": "Tensor", "data_name": file}
    return entries


def _tensors(
    name: str, entry: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, str, IO, int], dict[str, Any]]]:
    """Yield type, name, side and number of each tensor of an entry; tensors of lists count on."""
    _, *path, op_type = name.split(".")[:-2] if name.count(".") > 1 else ["", name]
    if f".{_GRADIENTS}." in name:
        for parameter, values in entry.items():
            for slot, tensor in enumerate(_leaves(values)):
                yield (op_type, f"{name}.{parameter}", IO.OUTPUT, slot), tensor
        return
    slots = dict.fromkeys(IO, 0)
    for title, side in _SIDES.items():
        for tensor in _leaves(entry.get(title)):
            yield (op_type, name, side, slots[side]), tensor
            slots[side] += 1
    parameters = entry.get("parameters")
    for parameter, values in parameters.items() if isinstance(parameters, dict) else ():
        for tensor in _leaves(values):
            yield (PARAMETER, ".".join([*path, parameter]), IO.OUTPUT, 0), tensor


def _leaves(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tensors in an argument, in order."""
    ahead = [value]
    while ahead:
        value = ahead.pop()
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            if "Tensor" in value["type"] and ("shape" in value or "data_name" in value):
                yield value
        elif isinstance(value, dict | list):
            ahead += reversed([*(value.values() if isinstance(value, dict) else value)])


def _shape_text(sizes: Iterable[Any]) -> str:
    return f"({','.join(map(str, sizes))})"
