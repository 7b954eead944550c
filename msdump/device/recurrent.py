"""Device shapes of recurrent networks' weights and biases; their bytes are not documented.

The rules are those of MindSpore's format conversion:

    >>> cell = Cell(input_size=13, hidden_size=30)
    >>> rnn_weight((43, 120), 16, cell)  # 13 and 30 rows in blocks of 16, four gates of 30 in blocks of C0
    (3, 8, 16, 16)
    >>> rnn_bias((120,), 16, cell)
    (128,)
    >>> lstm_weight((120, 43), 16, None)
    (3, 8, 16, 16)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.device.blocks import DYNAMIC, Dims, blocks, product
from msdump.errors import FormatError

_CUBE: Final = 16
_GATES: Final = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """The sizes of a recurrent operator that the shapes of its weights depend on.

    Attributes:
        input_size: Features of its input.
        hidden_size: Features of its state.
        is_transposed: Whether the host holds weights as (..., k * hidden, input or hidden), as ONNX does.
    """

    input_size: int
    hidden_size: int
    is_transposed: bool = False


def onnx_cell(
    weight: Sequence[int | str | None] | None, state: Sequence[int | str | None] | None
) -> Cell | None:
    """Return the sizes of an ONNX LSTM, GRU or RNN from the shapes of its W and R; None where unknown."""
    # the last axis of W, (directions, gates of the state, input), and of R, (directions, gates, hidden)
    sizes = [shape[-1] if shape else None for shape in (weight, state)]
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return None
    return Cell(sizes[0], sizes[1], is_transposed=True)


ShapeRule = Callable[[Dims, int, Cell | None], Dims]
"""Returns the device shape of a host shape, C0 and the sizes of the operator."""


def lstm_weight(dims: Dims, _c0: int, _cell: Cell | None) -> Dims:
    """Return the FRACTAL_ZN_LSTM shape of a weight (4 * hidden, input + hidden)."""
    if min(dims[:2]) < 0:
        return (DYNAMIC, DYNAMIC, _CUBE, _CUBE)
    hidden, remainder = divmod(dims[0], _GATES)
    if remainder or dims[1] < hidden:
        raise FormatError(f"FRACTAL_ZN_LSTM holds weights (4 * hidden, input + hidden), got shape {dims}")
    rows = blocks(dims[1] - hidden, _CUBE) + blocks(hidden, _CUBE)
    return (rows, _GATES * blocks(hidden, _CUBE), _CUBE, _CUBE)


def rnn_weight(dims: Dims, c0: int, cell: Cell | None) -> Dims:
    """Return the FRACTAL_ZN_RNN shape of a weight (..., input or hidden or both, k * hidden)."""
    cell = _required("FRACTAL_ZN_RNN", cell)
    # MindSpore's rule is for weights (input, gates * hidden)
    rows, columns = reversed(dims[-2:]) if cell.is_transposed else dims[-2:]
    return (*dims[:-2], _rows(rows, cell), _gates(columns, c0, cell), _CUBE, c0)


def rnn_bias(dims: Dims, c0: int, cell: Cell | None) -> Dims:
    """Return the ND_RNN_BIAS shape of a bias (..., k * hidden)."""
    cell = _required("ND_RNN_BIAS", cell)
    return (*dims[:-1], product((_gates(dims[-1], c0, cell), c0)))


def _rows(size: int, cell: Cell) -> int:
    if size < 0 or size in (cell.input_size, cell.hidden_size):
        return blocks(size, _CUBE)
    # a joined weight: the rows of the input and those of the state each begin a block
    if size == cell.input_size + cell.hidden_size:
        return blocks(cell.input_size, _CUBE) + blocks(cell.hidden_size, _CUBE)
    raise FormatError(
        f"FRACTAL_ZN_RNN needs {cell.input_size} (input), {cell.hidden_size} (hidden) or their sum as the"
        f" last dimension but one, got {size}"
    )


def _gates(size: int, c0: int, cell: Cell) -> int:
    if size < 0:
        return DYNAMIC
    if size % cell.hidden_size:
        raise FormatError(
            f"the last dimension must be a multiple of the hidden size {cell.hidden_size}, got {size}"
        )
    # each gate begins a block
    return size // cell.hidden_size * blocks(cell.hidden_size, c0)


def _required(name: str, cell: Cell | None) -> Cell:
    if cell is None or cell.hidden_size < 1:
        raise FormatError(f"the shape of {name} depends on the operator: give its input and hidden size")
    return cell
