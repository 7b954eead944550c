"""One directory of tensors: its files, listed when they are first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msdump.errors import DumpReadError
from msdump.store import names, texts
from msdump.store.layouts import MAPPING, STATISTICS, Key
from msdump.store.records import Record
from msdump.store.standins import parse_mapping

FullName = Callable[[names.TensorName], str | None]
"""Gives the full scoped name of a tensor's operator where it is known."""


@dataclass(frozen=True)
class Iteration:
    """The tensors of one iteration, or the constants of a graph.

    Attributes:
        key: Its rank, network, graph and number.
        path: Its directory.
    """

    key: Key
    path: str
    _full_name: FullName = field(repr=False, compare=False)

    @property
    def number(self) -> int:
        """Number of the iteration."""
        return self.key.iteration or 0

    @property
    def records(self) -> tuple[Record, ...]:
        """Its tensors by timestamp, that is, in execution order.

        Raises:
            DumpReadError: The directory or its ``mapping.csv`` cannot be read.
        """
        return self._files.records

    @cached_property
    def parameters(self) -> tuple[Record, ...]:
        """Weights and graph inputs among its tensors; DumpReadError as in ``records``."""
        return tuple(record for record in self.records if record.is_parameter)

    @cached_property
    def statistics(self) -> tuple[dict[str, str], ...]:
        """Rows of ``statistic.csv``, cells as text by the titles of their columns.

        Raises:
            DumpReadError: It cannot be read or a row does not fit the header.
        """
        path = self._files.statistics
        return () if path is None else texts.read_statistics(path)

    @cached_property
    def kernel_args(self) -> Mapping[tuple[str, str], Any]:
        """Arguments of operators by op_type and op_name.

        Raises:
            DumpReadError: One of the files is not JSON.
        """
        return {key: texts.read_json(path) for key, path in self._files.kernel_args.items()}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths in its directory that belong to no dump."""
        return tuple(self._files.ignored)

    @cached_property
    def _files(self) -> _Files:
        return _list(self.path, self._full_name)

    def __repr__(self) -> str:
        """Return where it stands."""
        return f"<Iteration {self.number} of {self.key.net!r} graph {self.key.graph}: {self.path!r}>"


@dataclass(slots=True)
class _Files:
    records: tuple[Record, ...] = ()
    statistics: str | None = None
    kernel_args: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def _list(folder: str, full_name: FullName) -> _Files:
    files = _Files()
    others: list[str] = []
    records: list[Record] = []
    for name, path in _entries(folder, files):
        parsed = names.parse(name)
        if parsed is None:
            others.append(name)
        else:
            records.append(Record(parsed, path, full_name))
    records += _sort_out(folder, others, files, full_name)
    records.sort(key=lambda record: (record.name.timestamp, record.path))
    files.records = tuple(records)
    return files


def _sort_out(folder: str, others: list[str], files: _Files, full_name: FullName) -> list[Record]:
    """Return the tensors with stand-ins; note what is no tensor."""
    mapping = parse_mapping(texts.read_bytes(f"{folder}/{MAPPING}")) if MAPPING in others else {}
    records = []
    for name in others:
        path = f"{folder}/{name}"
        parsed = names.parse(mapping.get(name, ""))
        args = names.parse_kernel_args_name(mapping.get(name, name))
        if parsed is not None:
            records.append(Record(parsed, path, full_name))
        elif args is not None:
            files.kernel_args[args] = path
        elif name == STATISTICS:
            files.statistics = path
        elif name != MAPPING:
            files.ignored.append(path)
    return records


def _entries(folder: str, files: _Files) -> list[tuple[str, str]]:
    try:
        with os.scandir(folder) as entries:
            listed = [(entry.name, entry.path, entry.is_file()) for entry in entries]
    except OSError as error:
        raise DumpReadError(folder, error.strerror or str(error)) from error
    files.ignored += [path for _, path, is_file in listed if not is_file]
    return [(name, path) for name, path, is_file in listed if is_file]
