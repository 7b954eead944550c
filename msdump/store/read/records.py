"""One dumped tensor: the fields of its file name, and its elements, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from msdump import dtypes, reading
from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store.layouts import Key
from msdump.store.names import PARAMETER, TensorName
from msdump.store.read import mapped
from msdump.store.read.cells import Row
from msdump.store.read.measured.measurements import Measurements
from msdump.store.read.operators import DumpedOperator, Surroundings

if TYPE_CHECKING:
    import numpy as np


_PREFIX: Final = 4096  # bytes in which the header of nearly every .npy file ends


class Directory(Surroundings, Protocol):
    """The directory that a tensor stands in, and what the dump tells of it."""

    @property
    def key(self) -> Key:
        """What its path says: rank, network, graph or model, and iteration."""

    @property
    def rank(self) -> int:
        """Number of the rank that dumped it; of the device, in trees of compiled graphs."""

    def full_name(self, name: TensorName) -> str | None:
        """Return the full scoped name of a tensor's operator, None where the dump does not tell it."""

    def row_of(self, record: Record) -> Row | None:
        """Return the row of ``statistic.csv`` that measures a tensor, None where there is none."""


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor file.

    Nothing is read before ``shape``, ``dtype`` or ``array`` is asked for, and
    nothing is kept: each access reads or maps the file again.

    Attributes:
        name: The fields of its name; of the original name where the file has a stand-in.
        path: The file; "" of a tensor of which only a row of ``statistic.csv`` was saved.
        directory: The directory that it stands in.
        execution: Which execution of the network it is of, from 0: two programs may have written into
            one directory.
        pass_number: Which run of its operator within that execution, from 0: the pass of a loop, or the
            call of an operator that is called alone; where several operators share the name (``classic``
            names have no scope), they count on in the order of their times.
    """

    name: TensorName
    path: str
    directory: Directory = field(repr=False, compare=False)
    execution: int = field(default=0, kw_only=True)
    pass_number: int = field(default=0, kw_only=True)

    @property
    def op_type(self) -> str:
        """Operator type, ``Parameter`` for weights, graph inputs and constants."""
        return self.name.op_type

    @property
    def op_name(self) -> str:
        """Operator name as files spell it."""
        return self.name.op_name

    @property
    def full_name(self) -> str | None:
        """Full scoped name of the operator, a parameter's plain name; None where the dump tells neither."""
        return self.directory.full_name(self.name)

    @property
    def scope(self) -> str:
        """Scope of its operator, ``Default/conv1-Conv2d``; "" where the dump does not tell it."""
        return (self.full_name or "").rpartition("/")[0]

    @property
    def operator(self) -> DumpedOperator:
        """The operator that read or wrote it, or the parameter that it is, with its neighbours in the graph.

        Raises:
            DumpReadError: The graph file cannot be read.
        """
        graph = self.directory.operator_graph
        node = None if graph is None or self.is_parameter else graph.find(self.full_name or self.op_name)
        full_name = self.full_name or (self.op_name if node is None else node.full_name)
        place = self.execution, self.pass_number, self.directory
        return DumpedOperator(full_name, self.op_type, node, *place)

    @property
    def source(self) -> str:
        """The user's own line that made its operator, ``net.py:12: x = self.fc(x)``, "" where it is unknown.

        ``operator.node.source`` has all lines, from the outermost call to the innermost one.
        """
        return self.operator.source

    @property
    def inputs_from(self) -> tuple[DumpedOperator, ...]:
        """What gives an input; for an output what gives the inputs of its operator.

        Operators, weights and graph inputs, also those of which nothing was dumped; empty where the dump has
        no graph file.
        """
        operator = self.operator
        if self.io is IO.OUTPUT or operator.node is None:
            return operator.inputs_from
        return tuple(
            each
            for source in operator.node.inputs[self.slot : self.slot + 1]
            for each in operator.giver(source)
        )

    @property
    def used_by(self) -> tuple[DumpedOperator, ...]:
        """The operators that read it; for an input the operator that it is an input of."""
        operator = self.operator
        if self.is_parameter or self.io is IO.OUTPUT:
            return operator.readers(self.slot)
        return (operator,)

    @property
    def rank(self) -> int:
        """Number of the rank that dumped it; of the device, in trees of compiled graphs."""
        return self.directory.rank

    @property
    def iteration(self) -> int:
        """Number of its iteration, of which ``dump_step`` and ``iteration`` of a configuration speak."""
        return self.directory.key.iteration or 0

    @property
    def io(self) -> IO:
        """Input or output."""
        return self.name.io

    @property
    def slot(self) -> int:
        """Index among the operator's inputs or outputs."""
        return self.name.slot

    @property
    def format(self) -> str:
        """Memory format."""
        return self.name.format

    @property
    def timestamp(self) -> int:
        """Microseconds since the epoch; increases in execution order."""
        return self.name.timestamp

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight, a graph input or a constant."""
        return self.name.op_type == PARAMETER

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the original element type, ``bfloat16``.

        From the file name, else from the file: a bfloat16 tensor without the
        field in its name reads as ``float32``, as it was saved.

        Raises:
            DumpReadError: The file must be read and cannot be.
        """
        if self.name.dtype is None:
            return dtypes.from_numpy(self._header().dtype).name
        try:
            return dtypes.from_name(self.name.dtype).name
        except FormatError:  # a type that msdump lacks, in a dump of MindSpore's own
            return self.name.dtype.lower()

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements.

        Raises:
            DumpReadError: The file is missing or its header is corrupt.
        """
        return self._header().shape

    @property
    def array(self) -> np.ndarray:
        """The elements; large files are mapped, read-only; raw bfloat16 is widened to float32.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        return npy.decode(mapped.load(self.path), self.path)

    @property
    def host(self) -> np.ndarray:
        """The elements in the host's layout, which a .npy file keeps unless its format says otherwise."""
        return self.array

    @property
    def raw(self) -> np.ndarray:
        """The elements as stored, raw bfloat16 in ml_dtypes' type; DumpReadError as in ``array``."""
        return npy.decode_raw(mapped.load(self.path), self.path)

    @property
    def stats(self) -> Measurements:
        """What is known of all its elements: what was saved in ``statistic.csv``, the rest from the elements.

        Raises:
            DumpReadError: A file must be read and cannot be.
        """
        return Measurements(self.directory.row_of(self), lambda: self.raw if self.path else None)

    def _header(self) -> npy.Header:
        return npy.read_header(_load_header(self.path), self.path)

    def __str__(self) -> str:
        """Return ``Conv2D Default_conv1_Conv2D-op0 output 0``."""
        return f"{self.op_type} {self.full_name or self.op_name} {self.io} {self.slot}"


def _load_header(path: str) -> bytes:
    try:
        with reading.open_file(path) as file:
            start = file.read(_PREFIX)
            missing = npy.header_size(start, path) - len(start)
            return start + file.read(missing) if missing > 0 else start
    except DumpReadError:
        raise
    except OSError as error:
        raise mapped.unreadable(path, error) from error
