"""Which tensor of one directory is the counterpart of which of another, and in which order they ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msdump.errors import DumpReadError
from msdump.record import IO
from msdump.store import names
from msdump.tools import operands
from msdump.tools.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.identities import Identify, Identities, Identity

Place = tuple[NamedFile, IO, int]
"""A tensor: its file, its side and its number."""


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of an operator, and where the counterparts of its tensors stand.

    Attributes:
        files: Its files; one, or one for each tensor.
        counterparts: By side and number; none for a tensor without a counterpart.
    """

    files: tuple[NamedFile, ...]
    counterparts: dict[tuple[IO, int], Place]


def executions(mine: Folder, golden: Folder, identities: Identities) -> list[Execution]:
    """Return the executions of operators in the order in which they ran, with their counterparts.

    Where an operator ran several times, the executions of both sides belong together one by one.

    Args:
        mine: The directory that is examined.
        golden: The directory that it is compared with.
        identities: Under which identity their tensors meet.
    """
    known = _Known(golden, identities.golden)
    return [known.execution(files, identities.mine, mine) for files in _executions(mine)]


def _executions(folder: Folder) -> list[tuple[NamedFile, ...]]:
    """Return the files of each execution of each operator, in the order of the executions."""
    found: list[tuple[NamedFile, ...]] = []
    for files in folder.operators.values():
        if files[0].op_type != names.OP_DEBUG.op_type:
            found += _split(files)
    return sorted(found, key=lambda files: (files[-1].timestamp, files[-1].name))


def _split(files: Iterable[NamedFile]) -> list[tuple[NamedFile, ...]]:
    """Split the files of an operator where one of its tensors comes again."""
    found: list[dict[tuple[IO | None, int], NamedFile]] = []
    counts: dict[tuple[IO | None, int], int] = {}
    for file in files:
        place = (file.io, file.slot)
        number = counts[place] = counts.get(place, -1) + 1
        if number == len(found):
            found.append({})
        found[number][place] = file
    return [tuple(each.values()) for each in found]


class _Known:
    """The golden tensors by identity, and how many of each were asked for."""

    def __init__(self, folder: Folder, identify: Identify) -> None:
        self._outputs: dict[Identity, list[Place]] = {}
        self._inputs: dict[Identity, list[Place]] = {}
        for files in _executions(folder):
            for file, io, slot in _tensors(folder, files):
                identity = identify(file.op_name, io, slot)
                if identity is not None:
                    known = self._outputs if io is IO.OUTPUT else self._inputs
                    known.setdefault(identity, []).append((file, io, slot))
        self._asked: dict[tuple[str, IO, int], int] = {}

    def execution(self, files: tuple[NamedFile, ...], identify: Identify, folder: Folder) -> Execution:
        """Return where the counterparts of an execution's tensors stand."""
        found = {}
        for file, io, slot in _tensors(folder, files):
            place = (file.op_name, io, slot)
            number = self._asked[place] = self._asked.get(place, -1) + 1
            identity = identify(*place)
            counterpart = None if identity is None else self._find(identity, io, number)
            if counterpart is not None:
                found[io, slot] = counterpart
        return Execution(files, found)

    def _find(self, identity: Identity, io: IO, number: int) -> Place | None:
        """Return the tensor of an identity that came in its turn; one of the same side if there is one."""
        sides = (self._outputs, self._inputs) if io is IO.OUTPUT else (self._inputs, self._outputs)
        for known in sides:
            files = known.get(identity, ())
            if files:
                return files[min(number, len(files) - 1)] if io is IO.INPUT else _nth(files, number)
        return None


def _nth(files: Sequence[Place], number: int) -> Place | None:
    return files[number] if number < len(files) else None


def _tensors(folder: Folder, files: Iterable[NamedFile]) -> Iterator[Place]:
    """Yield file, side and number of each tensor of an execution; none of a file that cannot be read."""
    if folder.kind is not FolderKind.DUMPS:
        yield from ((file, file.io or IO.OUTPUT, file.slot) for file in files)
        return
    for file in files:
        try:
            yield from ((file, each.io, each.index) for each in operands.read(folder, (file,)))
        except DumpReadError:
            return
