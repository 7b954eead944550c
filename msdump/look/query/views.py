"""Views as rows with the columns of their place: of dumps, and of results of comparisons."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from msdump import dtypes, reading
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.look.query import engine
from msdump.look.query.columns import column_of
from msdump.look.query.engine import Table, first_names, tables_of
from msdump.read import Dump, Execution, Iteration, OperatorGraph, Record, locate, read_json
from msdump.statistics import STATISTICS
from msdump.store import Key, OperatorName, PathKind, TensorName, layouts, names

Row = dict[str, Any]
"""Cells by the names of columns; a column that it lacks is NULL."""


@dataclass
class OpenedDump:
    """A dump with its label."""

    label: str  # value of the column dump
    path: str  # its directory, as the user names it
    dump: Dump
    faults: dict[str, None]  # messages about unreadable parts, to which views add

    def fault(self, message: str) -> None:
        """Add a message to the faults; a repeated one is kept once."""
        self.faults[message] = None

    def iterations(self) -> Iterator[Iteration]:
        """Yield a new object for each iteration: its cached lists and tensors are freed with it."""
        return map(replace, self.dump.all_iterations)

    def place(self, directory: Iteration) -> Row:
        """Return the columns of a directory of tensors: dump, rank, network, graph, iteration, directory."""
        return self.place_of(directory.key) | {"directory": self.below(directory.path)}

    def place_of(self, key: Key) -> Row:
        """Return the columns dump, rank, network, graph and iteration of a place in a dump's tree."""
        is_model = key.net is None
        return {
            "dump": self.label,
            "rank": key.device if key.rank is None else key.rank,
            "network": key.model if is_model else key.net,
            "graph": key.model_id if is_model and key.graph is None else key.graph,
            "iteration": None if key.kind is PathKind.CONSTANTS else key.iteration,
        }

    def below(self, path: str) -> str:
        """Return a path relative to the dump's directory."""
        return os.path.relpath(path, self.dump.path)


def tensor_rows(opened: OpenedDump) -> Iterator[Row]:
    """Yield a row for each tensor that was saved, execution by execution, in their order."""
    for directory in (*opened.iterations(), *map(replace, opened.dump.constants)):
        place = opened.place(directory)
        for execution in executions(directory, opened.fault):
            for record in execution.records:
                yield place | tensor_row(record, opened.fault)
    for file in opened.dump.failures:  # exception dumps of failing operators
        below = opened.below(file.path.rpartition("/")[0])
        place = opened.place_of(file.directory.key) | {"directory": below}
        try:
            for record in file.records:
                yield place | tensor_row(record, opened.fault)
        except DumpReadError as error:
            opened.fault(str(error))


def executions(directory: Iteration, fault: Callable[[str], object]) -> tuple[Execution, ...]:
    """Return the executions with files in a directory; none, and report a fault, for an unreadable one."""
    try:
        return directory.file_executions
    except DumpReadError as error:
        fault(str(error))
        return ()


def tensor_row(record: Record, fault: Callable[[str], object]) -> Row:
    """Return the columns of a tensor; a torn file has no shape, and is a fault."""
    dtype, shape, size = None, None, None
    try:
        dtype, shape = record.dtype, record.shape
        size = dtypes.from_name(dtype).packed_size(math.prod(shape))  # small types packed as on a device
    except FormatError:  # texts, and unknown types
        pass
    except DumpReadError as error:
        fault(str(error))
    return _name_columns(record.name) | {
        "io": str(record.io),
        "slot": record.slot,
        "full_name": record.full_name,
        "scope": record.scope or None,
        "execution": record.execution,
        "pass": record.pass_number,
        "dtype": dtype,
        "shape": shape,
        "format": record.format,
        "bytes": size,
        "path": record.path,
    }


def _name_columns(name: TensorName | OperatorName) -> Row:
    fields = ("op_type", "op_name", "task_id", "stream_id", "timestamp")
    return {field: getattr(name, field) for field in fields}


def run_rows(opened: OpenedDump) -> Iterator[Row]:
    """Yield a row for each execution that left tensors in a directory, and for each directory without any."""
    for directory in opened.iterations():
        key = directory.key
        rank = None if key.rank is None else opened.dump.ranks.get(key.rank)
        device, config = None, None
        try:
            device, config = (None, None) if rank is None else (rank.device, rank.config)
        except DumpReadError as error:
            opened.fault(str(error))
        known = device if isinstance(device, dict) else {}
        place = opened.place(directory) | {
            "step": key.step,
            "time": key.time,
            "device_target": known.get("device_target"),
            "version": known.get("ms_version"),
            "config": None if config is None else json.dumps(config),
            "path": directory.path,
        }
        saved = [each for each in executions(directory, opened.fault) if each.records]
        for execution in saved:
            times = [record.timestamp for record in execution.records]
            span = {"started": moment(min(times)), "ended": moment(max(times)), "tensors": len(times)}
            yield place | {"execution": execution.number, "is_whole": execution.is_whole} | span
        if not saved:
            yield place | {"tensors": 0}


def moment(microseconds: int) -> str:
    """Return a time of UTC as SQL has it.

    >>> moment(1795219089580885)
    '2026-11-20T23:58:09.580885'
    """
    return (datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()  # noqa: DTZ001 - UTC


def file_rows(opened: OpenedDump) -> Iterator[Row]:
    """Yield a row for each file below a dump, sorted by directory and name."""
    top = opened.dump.path
    place = locate(top)
    root = top if place is None else place[0]

    def note(error: OSError) -> None:
        opened.fault(f"{error.filename}: {error.strerror or error}")

    for folder, _, listed in reading.walk(top, note):
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else f"{below}/"
        directory = None if not prefix else layouts.parse(below, is_directory=True)
        where = {"dump": opened.label} if directory is None else opened.place_of(directory)
        where["directory"] = opened.below(folder)
        for name in listed:
            path, key = f"{folder}/{name}", layouts.parse(prefix + name, is_directory=False)
            known = {} if key is None else opened.place_of(key)
            row = where | {column: cell for column, cell in known.items() if cell is not None}
            row |= {"kind": "foreign" if key is None else key.kind.name.lower(), "name": name, "path": path}
            try:
                status = os.lstat(path)
                row |= {"bytes": status.st_size, "modified": moment(status.st_mtime_ns // 1000)}
            except OSError as error:  # a run in progress may have replaced it
                opened.fault(f"{path}: {error.strerror or error}")
            yield row


def operator_rows(opened: OpenedDump) -> Iterator[Row]:
    """Yield a row for each operator of the graph files; without one, of the execution order's names."""
    for rank in opened.dump.ranks.values():
        graphs = {
            number: graph for network in rank.networks.values() for number, graph in network.graphs.items()
        }
        # a graph without a dump belongs to the rank's network if there is only one
        only = next(iter(rank.networks)) if len(rank.networks) == 1 else None
        for number in rank.compiled_graphs:
            dumped = graphs.get(number)
            network = only if dumped is None else dumped.network
            place = {"dump": opened.label, "rank": rank.number, "network": network, "graph": number}
            spelled = _names_in_files(() if dumped is None else dumped.iterations.values())
            if number in rank.operator_graphs:
                yield from _graph_rows(rank.operator_graphs[number], place, spelled)
            else:
                for position, full_name in enumerate(rank.order_unless_damaged(number) or ()):
                    yield place | {"execution_order": position} | _named(full_name, spelled)
    for model in (*opened.dump.all_models, *opened.dump.captured):
        place = {"dump": opened.label, "rank": model.device, "network": model.name, "graph": model.model_id}
        if (graph := model.operator_graph) is not None:
            yield from _graph_rows(graph, place, _names_in_files(model.iterations))


def _names_in_files(iterations: Iterable[Iteration]) -> frozenset[str]:
    """Return names of operators as the files of the first readable iteration spell them."""
    for iteration in iterations:
        try:
            in_files = frozenset(name.op_name for name, _ in iteration.named_files)
            return in_files or frozenset(first_names(iteration.statistic_files.values()))
        except DumpReadError:  # reported by the view of tensors
            continue
    return frozenset()


def _named(full_name: str, spelled: frozenset[str]) -> Row:
    """Return the columns of an operator's names; ``op_name`` is the name that files have."""
    scope, _, last = full_name.rpartition("/")
    full, last = names.sanitize(full_name), names.sanitize(last)
    op_name = last if full not in spelled and last in spelled else full
    return {"full_name": full_name, "scope": scope, "op_name": op_name}


def _graph_rows(graph: OperatorGraph, place: Row, spelled: frozenset[str]) -> Iterator[Row]:
    for position, operator in enumerate(graph.operators.values()):
        yield (
            place
            | _named(operator.full_name, spelled)
            | {
                "execution_order": position,
                "caller": graph.caller or None,
                "op_type": operator.op_type,
                "source": operator.source_line or None,
                "inputs": [source.name for source in operator.inputs],
                "input_kinds": [str(source.kind) for source in operator.inputs],
                "input_slots": [source.slot for source in operator.inputs],
                "output_dtypes": [form.dtype for form in operator.outputs],
                "onnx_name": operator.onnx_name or None,
                "attributes": operator.attributes or None,
            }
        )


def statistic_tables(opened: OpenedDump, memory: engine.MemoryFiles) -> Iterator[Table]:
    """Yield the files of statistics of a dump."""
    for directory in opened.iterations():
        place = opened.place(directory)
        try:
            paths = directory.statistic_files
        except DumpReadError as error:
            opened.fault(str(error))
            continue
        for operator, path in paths.items():
            columns = {} if operator is None else _name_columns(operator)
            yield from tables_of(path, place | columns | {"path": path}, memory, opened.fault)


def measured_rows(
    opened: OpenedDump, executor: ExecutorChoice, progress: Callable[[int], object]
) -> Iterator[Row]:
    """Yield a row for each tensor without a row of statistics, which reads its file."""
    directories = opened.dump.all_iterations
    everything = map_items(
        _measured,
        map(replace, directories),
        size=lambda each: directory_size(each.path),
        executor=executor,
        name=lambda each: each.path,
        paths=(opened.path,),
        progress=progress,
    )
    for directory, (rows, faults) in zip(directories, everything, strict=True):
        opened.faults |= faults
        place = opened.place(directory)
        yield from (place | row for row in rows)


def _measured(directory: Iteration) -> tuple[list[Row], dict[str, None]]:
    """Return rows of measured tensors, and faults; called in worker processes."""
    rows: list[Row] = []
    faults: dict[str, None] = {}
    for execution in executions(directory, faults.setdefault):
        for record in execution.records:
            try:
                if directory.row_of(record) is None:
                    numbers = {column_of(each): record.stats.get(each.category) for each in STATISTICS}
                    rows.append(tensor_row(record, faults.setdefault) | numbers)
            except DumpReadError as error:
                faults.setdefault(str(error))
    return rows, faults


_OF_OPERATOR: Final = (
    "rank iteration execution pass_number=pass order=execution_order op_type operator=full_name scope source"
    " verdict=operator_verdict note=operator_note directory"
)
_OF_TENSOR: Final = "verdict dtype golden_dtype shape limit=error_limit note"
_OF_ERROR: Final = "distance cosine largest=max_error scaled=scaled_error ulps masked"
"""Fields of a document's operators, tensors and errors; ``field=column`` where the view's name differs."""


def comparison_rows(path: str, label: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each compared tensor, and for each operator that one side lacks."""
    try:
        for operator in read_json(path)["operators"]:
            cells = {"comparison": label} | _renamed(operator, _OF_OPERATOR)
            cells["op_name"] = names.sanitize(operator["operator"])
            own = {f"output:{each['output']}": each["error"]["distance"] for each in operator["own"]}
            tensors = (*operator["inputs"], *operator["outputs"])
            for tensor in tensors:
                error = _renamed(tensor["error"] or {}, _OF_ERROR)
                numbers = {"own_distance": own.get(tensor["tensor"])} | error
                io, _, slot = tensor["tensor"].partition(":")
                yield cells | numbers | _renamed(tensor, _OF_TENSOR) | {"io": io, "slot": int(slot)}
            if not tensors:
                yield cells | {"verdict": operator["verdict"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DumpReadError(path, "no result of msdump compare: its --json document is needed") from error


def _renamed(fields: Mapping[str, Any], columns: str) -> dict[str, Any]:
    pairs = (each.partition("=") for each in columns.split())
    return {column or name: fields[name] for name, _, column in pairs if name in fields}
