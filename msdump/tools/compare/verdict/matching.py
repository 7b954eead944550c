"""Which tensor of one directory is the counterpart of which of another, and in which order they ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msdump.errors import DumpReadError
from msdump.record import IO
from msdump.store import names, operator_names
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.identities import Identify, Identities, Identity
from msdump.tools.compare.verdict import replacements

Place = tuple[NamedFile, IO, int]
"""A tensor: its file, its side and its number."""


@dataclass(frozen=True, slots=True)
class OperatorExecution:
    """An execution of an operator, and where the counterparts of its tensors stand.

    Attributes:
        files: Its files; one, or one for each tensor.
        number: Which execution of its operator it is, from 0; None where there is only one.
        counterparts: By side and number; none for a tensor without a counterpart.
        replaces: The golden operator that stood in its place, "" where both have the same.
    """

    files: tuple[NamedFile, ...]
    number: int | None
    counterparts: dict[tuple[IO, int], Place]
    replaces: str = ""

    @property
    def name(self) -> str:
        """The operator as the names of files have it."""
        return self.files[-1].op_name

    @property
    def time(self) -> int:
        """When it ran: microseconds since the epoch, 0 where the names of its files do not tell."""
        return self.files[-1].timestamp


@dataclass(frozen=True, slots=True)
class Uneven:
    """An operator of a loop that ran more often on one side.

    Attributes:
        name: The operator as the names of files have it.
        dumped: How often it ran on the side that is examined.
        golden: How often on the other one.
    """

    name: str
    dumped: int
    golden: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The executions of one directory, and what the other one has beyond them.

    Attributes:
        executions: In the order in which they ran.
        missing: Golden operators of which no tensor is a counterpart, in the order of execution.
        unreadable: What is wrong with golden files that cannot be read.
        uneven: Operators that did not run equally often.
    """

    executions: tuple[OperatorExecution, ...]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    uneven: tuple[Uneven, ...] = ()


def match(dumped: Folder, golden: Folder, identities: Identities) -> Matched:
    """Return the executions of operators in the order in which they ran, with their counterparts.

    Where an operator ran several times, the executions of both sides belong together one by one. An
    operator that only one side has, and that stands where the other has one of its own, replaces it.

    Args:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        identities: Under which identity their tensors meet.
    """
    ours, theirs = _runs(dumped), _runs(golden)
    known = _Known(theirs, identities.golden)
    torn = {(run.name, run.number): run for run in theirs if run.fault}
    found = [_execution(run, known, identities.dumped, torn) for run in ours]
    uneven: tuple[Uneven, ...] = ()
    if FolderKind.GOLDEN not in {dumped.kind, golden.kind}:  # those have no order, and one pass is enough
        found = _with_replacements(found, theirs)
        uneven = tuple(_uneven(ours, theirs))
    used = {file.op_name for each in found for file, _, _ in each.counterparts.values()}
    missing = dict.fromkeys(
        run.name
        for run in theirs
        if run.tensors and run.name not in used and run.files[-1].op_type != names.PARAMETER
    )
    return Matched(tuple(found), tuple(missing), tuple(run.fault for run in theirs if run.fault), uneven)


@dataclass(frozen=True, slots=True)
class _Run:
    """An execution of an operator in one of the directories; no tensors where its file cannot be read."""

    files: tuple[NamedFile, ...]
    number: int | None
    tensors: tuple[Place, ...]
    fault: str = ""

    @property
    def name(self) -> str:
        """The operator as the names of files have it."""
        return self.files[-1].op_name


def _runs(folder: Folder) -> list[_Run]:
    """Return the executions of operators in the order in which they ran."""
    found: list[_Run] = []
    for files in folder.operators.values():
        if files[0].op_type == operator_names.OP_DEBUG.op_type:
            continue
        passes = _passes(files)
        found += (_run(folder, each, number if len(passes) > 1 else None) for number, each in passes.items())
    return sorted(found, key=lambda run: (run.files[-1].timestamp, run.files[-1].name))


def _passes(files: Iterable[NamedFile]) -> dict[int, tuple[NamedFile, ...]]:
    """Return the files of an operator by their pass."""
    found: dict[int, list[NamedFile]] = {}
    for file in files:
        found.setdefault(file.pass_number, []).append(file)
    return {number: tuple(each) for number, each in sorted(found.items())}


def _run(folder: Folder, files: tuple[NamedFile, ...], number: int | None) -> _Run:
    if folder.kind is not FolderKind.DUMPS:
        return _Run(files, number, tuple((file, file.io or IO.OUTPUT, file.slot) for file in files))
    try:
        found = operands.read(folder, files)
    except DumpReadError as error:
        return _Run(files, number, (), str(error))
    return _Run(files, number, tuple((files[-1], each.io, each.index) for each in found))


def _uneven(ours: Iterable[_Run], theirs: Iterable[_Run]) -> Iterator[Uneven]:
    dumped, golden = (Counter(run.name for run in runs) for runs in (ours, theirs))
    for name, count in dumped.items():
        if count != golden.get(name, count):
            yield Uneven(name, count, golden[name])


class _Known:
    """The golden tensors by identity, and how many of each were asked for."""

    def __init__(self, runs: Iterable[_Run], identify: Identify) -> None:
        self._tensors: dict[IO, dict[Identity, list[Place]]] = {io: {} for io in IO}
        for run in runs:
            for place in run.tensors:
                identity = identify(run.name, *place[1:])
                if identity is not None:
                    self._tensors[place[1]].setdefault(identity, []).append(place)
        self._asked: Counter[tuple[str, IO, int]] = Counter()

    def counterparts(self, run: _Run, identify: Identify) -> dict[tuple[IO, int], Place]:
        """Return where the counterparts of an execution's tensors stand, by side and number."""
        found = {}
        for _, io, slot in run.tensors:
            identity = identify(run.name, io, slot)
            counterpart = (
                None if identity is None else self._find(identity, io, self._asked[run.name, io, slot])
            )
            self._asked[run.name, io, slot] += 1
            if counterpart is not None:
                found[io, slot] = counterpart
        return found

    def _find(self, identity: Identity, io: IO, number: int) -> Place | None:
        """Return the tensor of an identity that came in its turn; one of the same side if there is one."""
        for side in (io, *(other for other in IO if other is not io)):
            places = self._tensors[side].get(identity, ())
            if len(places) == 1 and io is IO.INPUT:  # written once, read in every pass of a loop
                return places[0]
            if places:
                return places[number] if number < len(places) else None
        return None


def _execution(
    run: _Run, known: _Known, identify: Identify, torn: Mapping[tuple[str, int | None], _Run]
) -> OperatorExecution:
    """Return an execution; without counterparts its tensors meet a bad golden file of its name."""
    found = known.counterparts(run, identify)
    bad = torn.get((run.name, run.number))
    if bad is not None and not found:
        found = {(io, slot): (bad.files[-1], io, slot) for _, io, slot in run.tensors}
    return OperatorExecution(run.files, run.number, found)


def _with_replacements(
    executions: Sequence[OperatorExecution], golden: Sequence[_Run]
) -> list[OperatorExecution]:
    """Return executions of which some are compared with what stood in their place on the golden side."""
    positions = {file.path: position for position, run in enumerate(golden) for file in run.files}
    anchors = [_anchor(execution, positions) for execution in executions]
    ours, theirs = {each.name for each in executions}, {run.name for run in golden}
    taken = {positions[file.path] for each in executions for file, _, _ in each.counterparts.values()}
    alone = {
        place for place, each in enumerate(executions) if not each.counterparts and each.name not in theirs
    }
    free = {
        place
        for place, run in enumerate(golden)
        if place not in taken and run.name not in ours and run.tensors
    }
    found = list(executions)
    for place, other in replacements.pairs(anchors, alone, free):
        run = golden[other]
        counterparts = {(io, slot): (file, io, slot) for file, io, slot in run.tensors}
        found[place] = replace(found[place], counterparts=counterparts, replaces=run.name)
    return found


def _anchor(execution: OperatorExecution, positions: Mapping[str, int]) -> int | None:
    """Return the place of an execution's counterpart: where its outputs were written, or its inputs read."""
    for io in (IO.OUTPUT, IO.INPUT):
        found = [
            positions[file.path]
            for (own, _), (file, side, _) in execution.counterparts.items()
            if own is side is io
        ]
        if found:
            return max(found)
    return None
