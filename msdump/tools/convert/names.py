"""Names of converted files, as msaccucmp makes them.

F is the name of the dump file, T the section (input, output), N the tensor's number:

    npy, pt     F.T.N.npy                 converted to a format:  F.T.N.2x20x5x4.npy
    bin         F.T.N.640.float16.NC1HWC0.bin                     F.T.N.2_20_5_4.float16.NCHW.bin
    msnpy       Conv2D.Conv2D-op12.1.2.1612439563338030.T.N.NCHW.npy
    buffers     F.l1buffer.N.bin          workspaces  F.space.N.bin          overflow  F.output.N.json

A name of 255 bytes or more becomes a hash, and ``mapping.csv`` beside it tells what it stands for.
"""

from __future__ import annotations

import enum
import math
import os
import uuid
from dataclasses import dataclass
from typing import Final

FAILED_LIST: Final = "convert_failed_file_list.txt"
"""Lists the dump files that were not converted as a whole, in the directory of the results."""

LONGEST_NAME: Final = 254  # vendor: one less than file systems allow
_DUMP_FIELDS: Final = 5  # type, name, task, stream, timestamp


class OutputKind(enum.StrEnum):
    """Type of the files that converted tensors are written to (``-t``)."""

    NPY = "npy"
    BIN = "bin"
    MSNPY = "msnpy"
    PT = "pt"


@dataclass(frozen=True, slots=True)
class Tensor:
    """The fields of the name of a tensor's file.

    Attributes:
        section: ``input`` or ``output``.
        index: Number of the tensor in the section.
        shape: Shape of the elements that are written.
        dtype: numpy's name of their type.
        format: Name of their format.
        is_converted: Whether a target format was asked for.
    """

    section: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    format: str
    is_converted: bool


def of_tensor(dump: str, op_name: str, tensor: Tensor, kind: OutputKind) -> str:
    """Return the name of a tensor's file.

    >>> dump = "Conv2D.Default_Conv2D-op12.1.2.1612439563338030"
    >>> tensor = Tensor("output", 0, (2, 20, 5, 4), "float16", "NCHW", is_converted=True)
    >>> of_tensor(dump, "Default/Conv2D-op12", tensor, OutputKind.NPY)
    'Conv2D.Default_Conv2D-op12.1.2.1612439563338030.output.0.2x20x5x4.npy'
    >>> of_tensor(dump, "Default/Conv2D-op12", tensor, OutputKind.MSNPY)
    'Conv2D.Conv2D-op12.1.2.1612439563338030.output.0.NCHW.npy'

    Args:
        dump: Name of the dump file.
        op_name: Name of the operator, as the header has it.
        tensor: The tensor that is written.
        kind: Type of the file.
    """
    place = f"{tensor.section}.{tensor.index}"
    if kind is OutputKind.MSNPY:
        return f"{_with_plain_name(dump, op_name)}.{place}.{tensor.format}.npy"
    if kind is OutputKind.BIN:
        # vendor: without -f the shape in the name is that of the flat elements.
        sizes = tensor.shape if tensor.is_converted else (math.prod(tensor.shape),)
        return f"{dump}.{place}.{'_'.join(map(str, sizes))}.{tensor.dtype}.{tensor.format}.bin"
    dims = f".{'x'.join(map(str, tensor.shape))}" if tensor.is_converted else ""
    return f"{dump}.{place}{dims}.{kind}"


def of_block(dump: str, section: str, number: int, index: int) -> str:
    """Return the name of the file of a buffer or workspace.

    >>> of_block("Add.add.1.2.3", "space", 0, 1)
    'Add.add.1.2.3.space.1.bin'

    Args:
        dump: Name of the dump file.
        section: ``l1buffer`` or ``space``.
        number: Number of its type, 0 of an L1 buffer.
        index: Its number in the section.
    """
    is_other_buffer = section == "l1buffer" and number != 0
    return f"{dump}.{f'{number}buffer' if is_other_buffer else section}.{index}.bin"


def of_record(dump: str, index: int) -> str:
    """Return the name of the JSON file of an overflow record."""
    return f"{dump}.output.{index}.json"


def stand_in(name: str) -> str:
    """Return the name itself, or the hash with the same suffix that stands for one that is too long.

    >>> stand_in("Add.output.0.npy"), stand_in(f"{'x' * 300}.npy")
    ('Add.output.0.npy', '691bc0cab3063617ac0226a79780515d.npy')
    """
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    suffix = name.rpartition(".")[2]
    return f"{uuid.uuid3(uuid.NAMESPACE_DNS, name).hex}.{suffix}"


def _with_plain_name(dump: str, op_name: str) -> str:
    """Return the name of a dump file with the operator's name from the header, without its scope.

    >>> _with_plain_name("MatMul.Default_fc_MatMul-op0.1.2.3", "Default/fc/MatMul-op0")
    'MatMul.MatMul-op0.1.2.3'
    """
    # vendor: a name of more or less than five fields stays as it is.
    fields = dump.split(".")
    if len(fields) == _DUMP_FIELDS and op_name:
        fields[1] = op_name.rpartition("/")[2].replace("\0", "_")
    return ".".join(fields)
