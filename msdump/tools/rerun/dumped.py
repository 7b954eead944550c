"""Dumped operators as re-execution reads them, whatever files they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.record import IO
from msdump.store import names

INPUTS: Final = frozenset({names.PARAMETER, "Data"})
"""Types of what files show as operators and what are the inputs and weights of a graph."""

Place = tuple[IO, int]
"""Which tensor of an operator: input or output, and its number."""


@dataclass(frozen=True, slots=True)
class RerunTensor:
    """A tensor of a dumped operator.

    Attributes:
        io: Input or output.
        slot: Its number.
        dtype: Name of its element type on the device.
        size: Number of its elements, 0 where it is not known before it is read.
        host_shape: Its shape on the host where the file tells it, else ().
        has_host_layout: Whether its elements lie as on the host.
        load: Returns the elements in the host's layout, given the host's shape and the groups of the
            convolution that reads a weight; raises DumpReadError or FormatError.
    """

    io: IO
    slot: int
    dtype: str
    size: int = 0
    host_shape: tuple[int, ...] = ()
    has_host_layout: bool = True
    load: Callable[[tuple[int, ...], int], np.ndarray] = field(
        default=lambda _shape, _groups: np.empty(0), repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class RerunOperator:
    """One execution of a dumped operator.

    Attributes:
        name: The operator as the names of files have it.
        op_type: Its type.
        iteration: Number of the iteration, None where it is not known.
        tensors: Its tensors.
        golden: Their counterparts, as far as there are some.
        partner: Name of the golden operator of its type that matching found to be the same one; "" for none.
        sources: Names of what wrote its inputs, and the numbers of their outputs, by input; as the dump's
            graph or the elements of its files tell.
        is_inserted: Whether the device inserted it, and numbered it with others of its kind.
        replaces: Name of the golden operator in whose place it stands, "" for none.
    """

    name: str
    op_type: str
    iteration: int | None
    tensors: Mapping[Place, RerunTensor]
    golden: Mapping[Place, RerunTensor] = field(default_factory=dict)
    partner: str = ""
    sources: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    is_inserted: bool = False
    replaces: str = ""
