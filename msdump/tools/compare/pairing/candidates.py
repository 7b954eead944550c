"""Which operators of a graph the files of a directory may belong to, told by what the files hold."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property

from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store.read.graphs.operator_graph import (
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.tools.compare.pairing import content_graph, dump_folder, operands
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.pairing.operands import DumpedOperand

_Place = tuple[IO, int]
"""Side and number of a tensor of an operator."""


class DumpedTensors:
    """The tensors that the operators of a directory read and wrote in their first run."""

    def __init__(self, folder: Folder) -> None:
        """Read no file yet."""
        self._folder = folder
        self._tensors: dict[str, dict[_Place, DumpedOperand]] = {}
        self._types: dict[str, dict[_Place, str]] = {}
        self._keys: dict[tuple[str, _Place], Hashable | None] = {}

    def fits(self, name: str, graph: OperatorGraph, operator: GraphOperator) -> bool:
        """Tell whether files may be those of an operator, by element types and sizes; none are of nobody."""
        forms = {
            **{(IO.INPUT, slot): graph.form_of(each) for slot, each in enumerate(operator.inputs)},
            **{(IO.OUTPUT, slot): each for slot, each in enumerate(operator.outputs)},
        }
        tensors = self._of(name)
        return bool(tensors) and all(
            _is_form(forms.get(place, ValueForm()), self._types[name].get(place, ""), math.prod(each.shape))
            for place, each in tensors.items()
        )

    def key(self, name: str, io: IO, slot: int) -> Hashable | None:
        """Return what tensors of the same bits have in common; None where few bits tell nothing, or none."""
        place = io, slot
        if (name, place) not in self._keys:
            tensor = self._of(name).get(place)
            is_telling = tensor is not None and math.prod(tensor.shape) > 1
            self._keys[name, place] = content_graph.tensor_key(tensor) if is_telling and tensor else None
        return self._keys[name, place]

    def _of(self, name: str) -> Mapping[_Place, DumpedOperand]:
        if name not in self._tensors:
            files = [file for file in self._folder.operators.get(name, ()) if not file.pass_number]
            self._types[name] = {
                (file.io or IO.OUTPUT, file.slot): (file.dtype or "").lower() for file in files
            }
            try:
                tensors = operands.read(self._folder, files)
            except (DumpReadError, FormatError):  # said where the tensors themselves are compared
                tensors = ()
            self._tensors[name] = {(each.io, each.index): each for each in tensors}
        return self._tensors[name]


def _is_form(form: ValueForm, dtype: str, count: int) -> bool:
    if form.dtype and dtype and form.dtype != dtype:
        return False
    return form.shape is None or -1 in form.shape or math.prod(form.shape) == count


class Candidates:
    """Files that operators may have, of which more are found the more are known.

    An operator's files are those that alone fit it, or that hold, beside files that are known already, the
    bits that the graph says: what it reads was written so, and what it wrote is read so.

    Attributes:
        chosen: The name of the files of each operator whose files are found, by its full name.
    """

    def __init__(self, graph: OperatorGraph, tensors: DumpedTensors, groups: Mapping[str, set[str]]) -> None:
        """Find what is told by types and sizes, and then by contents.

        Args:
            graph: The graph that ran.
            tensors: What was dumped.
            groups: Names of files that each operator may have, by its full name.
        """
        self._graph = graph
        self._tensors = tensors
        self._fits = {
            name: {each for each in files if tensors.fits(each, graph, graph.operators[name])}
            for name, files in groups.items()
        }
        self.chosen: dict[str, str] = {}
        self._choose_single()
        while found := dict(self._told_by_contents()):
            self.chosen |= found
            self._choose_single()

    def _left(self, name: str) -> set[str]:
        return self._fits[name] - {*self.chosen.values()}

    def _choose_single(self) -> None:
        """Choose files that alone fit an operator that alone fits them."""
        while True:
            left = {name: self._left(name) for name in self._fits if name not in self.chosen}
            counts = Counter(file for files in left.values() for file in files)
            single = {name: min(files) for name, files in left.items() if len(files) == 1}
            found = {name: file for name, file in single.items() if counts[file] == 1}
            if not found:
                return
            self.chosen |= found

    def _told_by_contents(self) -> Iterator[tuple[str, str]]:
        """Yield operators and files each of which agrees best with the other one."""
        scores: dict[str, dict[str, int]] = {}
        of_files: dict[str, dict[str, int]] = defaultdict(dict)
        for name in self._fits:
            if name not in self.chosen:
                scores[name] = {file: self._links(name, file) for file in self._left(name)}
                for file, score in scores[name].items():
                    of_files[file][name] = score
        for name, own in scores.items():
            chosen = _best(own)
            if chosen is not None and _best(of_files[chosen]) == name:
                yield name, chosen

    def _links(self, name: str, file: str) -> int:
        """Return how many of the tensors that files and known ones share by the graph have the same bits."""
        operator = self._graph.operators[name]
        reads = (
            self._has_written(source, self._tensors.key(file, IO.INPUT, slot))
            for slot, source in enumerate(operator.inputs)
        )
        read = (
            self._tensors.key(self.chosen[reader], IO.INPUT, slot)
            == self._tensors.key(file, IO.OUTPUT, output)
            is not None
            for reader, slot, output in self._readers.get(name, ())
            if reader in self.chosen
        )
        return sum(reads) + sum(read)

    def _has_written(self, source: ValueSource, read: Hashable | None) -> bool:
        """Tell whether a known operator, a weight or an input of the graph has the bits that were read."""
        if read is None or source.kind is SourceKind.CONSTANT:
            return False
        known = self.chosen.get(source.name, "" if source.name in self._fits else source.name)
        return bool(known) and self._tensors.key(dump_folder.key(known), IO.OUTPUT, source.slot) == read

    @cached_property
    def _readers(self) -> Mapping[str, list[tuple[str, int, int]]]:
        """Reader, number of its input and of the output, by full name of the operator that is read."""
        readers: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for operator in self._graph.operators.values():
            for slot, source in enumerate(operator.inputs):
                if source.kind is SourceKind.OPERATOR:
                    readers[source.name].append((operator.full_name, slot, source.slot))
        return readers


def _best(scores: Mapping[str, int]) -> str | None:
    """Return what has more than none, and more than everything else; None where nothing has."""
    most = max(scores.values(), default=0)
    best = [each for each, score in scores.items() if score == most]
    return best[0] if most and len(best) == 1 else None
