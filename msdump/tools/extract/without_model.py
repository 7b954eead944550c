"""The tensors of a dumped operator of which nothing tells how it computes: no model can be made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from msdump.errors import InputError
from msdump.record import IO
from msdump.store.read.records import Record
from msdump.tools.extract.dumped_operator import OperatorRun
from msdump.tools.extract.tensors import host_array


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor that an operator read or wrote.

    Attributes:
        name: What it is called, ``input_0`` or ``output_0``.
        io: Input or output.
        dtype: Its element type on the device.
        layout: How its elements lie, "" as on a host.
        array: Its elements.
    """

    name: str
    io: IO
    dtype: str
    layout: str
    array: np.ndarray


def tensors_of(run: OperatorRun) -> tuple[KeptTensor, ...]:
    """Return the tensors of a run of an operator, inputs first.

    Raises:
        InputError: No input or no output of it was dumped, or a tensor holds text.
        DumpReadError: A file cannot be read.
    """
    for io in IO:
        if not run.of(io):
            raise InputError(
                f"{run.directory.path}: no {io} of {run.name} was dumped, and nothing tells what it was"
            )
    return tuple(_kept(run))


def _kept(run: OperatorRun) -> Iterator[KeptTensor]:
    for io in (IO.INPUT, IO.OUTPUT):
        for slot, record in sorted(run.of(io).items()):
            array, layout = _array(record)
            yield KeptTensor(f"{io}_{slot}", io, record.dtype, layout, array)


def _array(record: Record) -> tuple[np.ndarray, str]:
    """Return the elements of a tensor, and how they lie where nothing tells the host's shape."""
    try:
        return host_array(record, None), ""
    except InputError:
        array = record.array
        if array.dtype.kind in "OUS":
            raise
        return (array if array.dtype.isbuiltin == 1 else array.astype(np.float32)), record.format
