"""Finds one run of an operator in a dump, and its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from msdump.errors import InputError, name_hint
from msdump.iterations import IterationSet
from msdump.record import IO
from msdump.store import names
from msdump.store.read.reader import Dump
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which run of an operator is asked for.

    Attributes:
        operator: Its full name, the name that files have, its last component, or its name in the model.
        iteration: Number of the iteration, None: the last one that has the operator.
        rank: Number of the rank, None: the first one that has it.
        pass_number: Which of its runs in the iteration, None: the first one.
    """

    operator: str
    iteration: int | None = None
    rank: int | None = None
    pass_number: int | None = None


@dataclass(frozen=True)
class OperatorRun:
    """One run of an operator, as its files tell.

    Attributes:
        directory: The iteration that it ran in.
        records: Its tensors.
        passes: How many runs of it the iteration has.
    """

    directory: Iteration
    records: tuple[Record, ...] = field(repr=False)
    passes: int = 1

    @property
    def first(self) -> Record:
        """One of its tensors."""
        return self.records[0]

    @property
    def name(self) -> str:
        """Its full name, or the one that files have."""
        return self.first.full_name or self.first.op_name

    @property
    def place(self) -> str:
        """Which run of the operator it is, in words."""
        passes = f", pass {self.first.pass_number}" if self.passes > 1 else ""
        return f"iteration {self.first.iteration}, rank {self.first.rank}{passes}"

    def of(self, io: IO) -> dict[int, Record]:
        """Return its inputs or outputs by slot."""
        return {record.slot: record for record in self.records if record.io is io}


def find(dump: Dump, wanted: Wanted) -> OperatorRun:
    """Return a run of an operator.

    Raises:
        InputError: The dump has no such operator, or several that the name may mean; or it has none of the
            iteration, rank or pass.
        DumpReadError: The dump cannot be read.
    """
    folders = [
        folder
        for folder in dump.iterations
        if wanted.rank in {None, folder.rank} and wanted.iteration in {None, folder.key.iteration}
    ]
    if not folders:
        raise InputError(f"{dump.path}: {_numbers(dump, wanted)}")
    known = {folder.path: _by_name(folder) for folder in folders}
    name = _name(wanted.operator, (name for listed in known.values() for name in listed), folders)
    having = [folder for folder in folders if name in known[folder.path]]
    rank = min(folder.rank for folder in having)
    directory = max(
        (folder for folder in having if folder.rank == rank), key=lambda each: each.key.iteration or 0
    )
    passes = _passes(known[directory.path][name])
    number = min(passes) if wanted.pass_number is None else wanted.pass_number
    if number not in passes:
        raise InputError(f"{directory.path}: {name} has no pass {number}, but {_ranges(passes)}")
    return OperatorRun(directory, tuple(passes[number]), len(passes))


def sibling(run: OperatorRun, name: str) -> OperatorRun | None:
    """Return the run of another operator in the same pass of the same iteration, None without one.

    Args:
        run: A run of an operator.
        name: Full name of the other one, or of a parameter.
    """
    return _run_in(run.directory, name, run.first.pass_number)


def before(run: OperatorRun, dump: Dump) -> OperatorRun | None:
    """Return the run of the same operator one iteration earlier, None where that was not dumped."""
    key = run.directory.key
    wanted = replace(key, iteration=(key.iteration or 0) - 1)
    folder = next((folder for folder in dump.iterations if folder.key == wanted), None)
    return None if folder is None else _run_in(folder, run.name, run.first.pass_number)


def _run_in(folder: Iteration, name: str, number: int) -> OperatorRun | None:
    spelled = _spelled(name)
    passes = _passes(
        record
        for record in folder.records
        if record.path and (record.full_name == name or _spelled(record.op_name) == spelled)
    )
    if not passes:
        return None
    # what ran once, outside of a loop, has but one pass
    return OperatorRun(folder, tuple(passes.get(number) or passes[max(passes)]), len(passes))


def _passes(records: Iterable[Record]) -> dict[int, list[Record]]:
    passes: dict[int, list[Record]] = {}
    for record in records:
        passes.setdefault(record.pass_number, []).append(record)
    return passes


def _by_name(folder: Iteration) -> dict[str, list[Record]]:
    """Return the tensors of operators by name; those of which only statistics were saved are none."""
    by_name: dict[str, list[Record]] = {}
    for record in folder.records:
        if not record.is_parameter and record.path:
            by_name.setdefault(record.full_name or record.op_name, []).append(record)
    return by_name


def _name(asked: str, listed: Iterable[str], folders: Iterable[Iteration]) -> str:
    """Return the operator's name in the dump.

    Raises:
        InputError: There is none, or several.
    """
    known = dict.fromkeys(listed)
    if asked in known:
        return asked
    spelled = {_spelled(name): name for name in known}
    if _spelled(asked) in spelled:
        return spelled[_spelled(asked)]
    onnx_names = {each: name for folder in folders for each, name in _onnx_names(folder) if name in known}
    if asked in onnx_names:
        return onnx_names[asked]
    ends = [name for name in known if _spelled(name).endswith(f"_{_spelled(asked)}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise InputError(f"operator {asked!r} may be any of {', '.join(ends[:10])}; give its full name")
    raise InputError(
        f"the dump has no tensors of an operator {asked!r}{name_hint(asked, (*known, *onnx_names))}"
    )


def _onnx_names(folder: Iteration) -> Iterator[tuple[str, str]]:
    graph = folder.operator_graph
    for operator in graph.operators.values() if graph is not None else ():
        for name in (operator.onnx_name, *operator.onnx_names):
            yield name, operator.full_name


def _spelled(name: str) -> str:
    return names.sanitize(name)


def _numbers(dump: Dump, wanted: Wanted) -> str:
    ranks = {folder.rank for folder in dump.iterations}
    iterations = {folder.key.iteration or 0 for folder in dump.iterations}
    if wanted.rank is not None and wanted.rank not in ranks:
        return f"the dump has no rank {wanted.rank}, but {_ranges(ranks)}"
    return f"the dump has no iteration {wanted.iteration}, but {_ranges(iterations)}"


def _ranges(numbers: Iterable[int]) -> str:
    return str(IterationSet.of([(number, number) for number in sorted(numbers)])) or "none"
