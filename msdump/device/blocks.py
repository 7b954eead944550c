"""Index rules of device formats: axes cut into blocks and put into another order.

A rule reads "N C H W -> C/c*H*W N/16 N%16 C%c". The left side names the host's
axes. Each word of the right side is one device axis; "*" merges axes, the last
one running fastest; "C/c" counts the blocks of C and "C%c" is the place within a
block. The letter c as a size is C0, which depends on the element type. "..." stands
for any number of axes, which stay as they are.

    >>> matrix = np.arange(6).reshape(2, 3)
    >>> Blocks("H W -> W H").encode(matrix, c0=2).tolist()
    [[0, 3], [1, 4], [2, 5]]
    >>> Blocks("H W -> W/c H W%c").encode(matrix, c0=2).tolist()  # blocks of two columns, the last one padded
    [[[0, 1], [3, 4]], [[2, 0], [5, 0]]]
    >>> Blocks("H W -> W/c*H*W%c").encode(matrix, c0=2).tolist()
    [0, 1, 3, 4, 2, 0, 5, 0]
    >>> Blocks("... W -> ... W/2 W%2").shape((7, 5, 3), c0=16)
    (7, 5, 2, 2)

Device shapes of recurrent networks' weights and biases; their bytes are not documented.

The rules are MindSpore's format conversion:

    >>> cell = Cell(input_size=13, hidden_size=30)
    >>> rnn_weight((43, 120), 16, cell)  # 13 and 30 rows in blocks of 16, four gates of 30 in blocks of C0
    (3, 8, 16, 16)
    >>> rnn_bias((120,), 16, cell)
    (128,)
    >>> lstm_weight((120, 43), 16, None)
    (3, 8, 16, 16)
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from msdump.errors import FormatError

Dims = tuple[int, ...]
"""Sizes of axes; -1 where a size is not known before the run."""

Transpose = Callable[[np.ndarray, Dims], np.ndarray]
"""Returns an array in C order with its axes permuted."""

DYNAMIC: Final = -1
_FASTER_FROM: Final = 1 << 15  # bytes; for smaller arrays calling ``transpose`` costs more than it saves
_LARGEST_ITEM: Final = 8  # bytes of an element that ``transpose`` takes


def numpy_transpose(array: np.ndarray, order: Dims) -> np.ndarray:
    """Return an array in C order with its axes permuted."""
    return np.array(array.transpose(order), order="C")


transpose: Transpose = numpy_transpose
"""Does the large conversions that move one axis and need no padding, such as NCHW to NC1HWC0.

Replaced where something faster than numpy is at hand. It is given C-ordered arrays
of unsigned integers of 1, 2, 4 or 8 bytes; their last axis does not stay the last.
"""


class Stage(Protocol):
    """One step of a conversion; arrays hold raw elements, padding is zero."""

    def shape(self, dims: Dims, c0: int) -> Dims:
        """Return the shape that the step makes of a shape."""

    def encode(self, array: np.ndarray, c0: int) -> np.ndarray:
        """Return the array after this step towards the device's layout."""

    def decode(self, array: np.ndarray, dims: Dims, c0: int) -> np.ndarray:
        """Undo ``encode`` for an array that had the shape ``dims``."""


def blocks(size: int, length: int) -> int:
    """Return how many blocks of a length hold a size, -1 for an unknown size.

    >>> blocks(33, 16), blocks(-1, 16)
    (3, -1)
    """
    return DYNAMIC if size < 0 else -(-size // length)


def product(sizes: Iterable[int]) -> int:
    """Return the product of sizes, -1 if one of them is unknown.

    >>> product((2, 3)), product((2, -1)), product(())
    (6, -1, 1)
    """
    factors = tuple(sizes)
    return DYNAMIC if min(factors, default=1) < 0 else math.prod(factors)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The stage that follows an index rule."""

    rule: str

    def shape(self, dims: Dims, c0: int) -> Dims:
        """Return the device shape of a host shape."""
        return _layout(self.rule, dims, c0).shape

    def encode(self, array: np.ndarray, c0: int) -> np.ndarray:
        """Return the device array of a host array."""
        return _layout(self.rule, array.shape, c0).encode(array)

    def decode(self, array: np.ndarray, dims: Dims, c0: int) -> np.ndarray:
        """Return the host array of a device array."""
        return _layout(self.rule, dims, c0).decode(array)


@dataclass(frozen=True, slots=True)
class Diagonal:
    """The stage that spreads the last axis over the diagonal of two."""

    def shape(self, dims: Dims, c0: int) -> Dims:
        """Return the shape with the last axis doubled."""
        return (*dims, c0)

    def encode(self, array: np.ndarray, c0: int) -> np.ndarray:
        """Return the array with the elements on the diagonal, zero elsewhere."""
        device = np.zeros((*array.shape, c0), array.dtype)
        # einsum gives a view of the diagonal that can be written through
        np.einsum("...ii->...i", device)[...] = array
        return device

    def decode(self, array: np.ndarray, dims: Dims, c0: int) -> np.ndarray:  # noqa: ARG002 - a Stage
        """Return the diagonal."""
        return np.array(np.einsum("...ii->...i", array), order="C")


@dataclass(frozen=True, slots=True)
class Groups:
    """The stage that puts the groups of a convolution's weight on block diagonals.

    A weight (N, C, H, W), C counted per group, becomes (G, E * N / groups, E * C, H, W):
    E groups share a block, chosen so that they fill the 16 x C0 fractals best.
    """

    count: int  # number of groups; it divides N

    def shape(self, dims: Dims, c0: int) -> Dims:
        """Return the shape of the blocks."""
        outputs, channels, *window = dims
        if outputs < 0 or channels < 0:
            return (DYNAMIC, DYNAMIC, DYNAMIC, *window)
        shared = self._shared(dims, c0)
        return (blocks(self.count, shared), shared * outputs // self.count, shared * channels, *window)

    def encode(self, array: np.ndarray, c0: int) -> np.ndarray:
        """Return the weight of a grouped convolution as the device's blocks of channels."""
        dims = array.shape
        # beside the groups' own channels a block is zero
        device = np.zeros(self.shape(dims, c0), array.dtype)
        groups = array.reshape(self._split(dims))
        for block, members in self._places(dims, c0):
            device[block] = groups[members]
        return device

    def decode(self, array: np.ndarray, dims: Dims, c0: int) -> np.ndarray:
        """Return the weight."""
        groups = np.empty(self._split(dims), array.dtype)
        for block, members in self._places(dims, c0):
            groups[members] = array[block]
        return groups.reshape(dims)

    def _split(self, dims: Dims) -> Dims:
        return (self.count, dims[0] // self.count, *dims[1:])

    def _places(self, dims: Dims, c0: int) -> Iterator[tuple[tuple[slice, slice, slice], slice]]:
        shared, outputs, channels = self._shared(dims, c0), dims[0] // self.count, dims[1]
        for first in range(shared):
            rows = slice(first * outputs, (first + 1) * outputs)
            columns = slice(first * channels, (first + 1) * channels)
            yield (slice(blocks(self.count - first, shared)), rows, columns), slice(first, None, shared)

    def _shared(self, dims: Dims, c0: int) -> int:
        """Return E of MindSpore and CANN: min(lcm(lcm(C, C0) / C, lcm(N / g, 16) / (N / g)), g)."""
        outputs, channels = max(1, dims[0] // self.count), max(1, dims[1])
        # the fewest groups with channels and outputs that fill whole fractals
        fills = math.lcm(math.lcm(channels, c0) // channels, math.lcm(outputs, 16) // outputs)
        return min(fills, self.count)


_TERM: Final = re.compile(r"(?P<axis>[A-Z]|\d+)(?:(?P<part>[/%])(?P<size>c|\d+))?")

_Index = tuple[slice | int, ...]


# Parsing a rule costs more than laying out a small tensor: a network has few rules and shapes.
@functools.lru_cache(maxsize=1024)
def _layout(rule: str, dims: Dims, c0: int) -> _Layout:
    left, right = (side.split() for side in rule.split("->"))
    free = [str(number) for number in range(len(dims) - len(left) + ("..." in left))]
    axes, words = (
        [part for word in side for part in (free if word == "..." else [word])] for side in (left, right)
    )
    host_sizes = dict(zip(axes, dims, strict=True))
    lengths: dict[str, int] = {}
    # sub-axes as (axis, part): a host axis, or the two that a cut one becomes, "/" the block, "%" the place
    device_axes: list[list[tuple[str, str | None]]] = []
    for word in words:
        terms = [term for term in map(_TERM.fullmatch, word.split("*")) if term is not None]
        device_axes.append([(term["axis"], term["part"]) for term in terms])
        lengths |= {
            term["axis"]: c0 if term["size"] == "c" else int(term["size"]) for term in terms if term["part"]
        }
    host_order: list[tuple[str, str | None]] = []
    sizes: dict[tuple[str, str | None], int] = {}
    for axis, size in host_sizes.items():
        length = lengths.get(axis)
        halves = {None: size} if length is None else {"/": blocks(size, length), "%": length}
        host_order += [(axis, part) for part in halves]
        sizes |= {(axis, part): number for part, number in halves.items()}
    device_order = [sub_axis for device_axis in device_axes for sub_axis in device_axis]
    cuts = (_cuts(size, lengths.get(axis)) for axis, size in host_sizes.items())
    return _Layout(
        dims,
        shape=tuple(product(map(sizes.__getitem__, device_axis)) for device_axis in device_axes),
        host_sizes=tuple(map(sizes.__getitem__, host_order)),
        device_sizes=tuple(map(sizes.__getitem__, device_order)),
        to_device=tuple(map(host_order.index, device_order)),
        to_host=tuple(map(device_order.index, host_order)),
        unfilled=tuple(
            (slice(None),) * host_order.index((axis, "/")) + (-1,)
            for axis, length in lengths.items()
            if host_sizes[axis] % length
        ),
        pieces=tuple(
            (tuple(span for span, _ in choice), tuple(index for _, indices in choice for index in indices))
            for choice in itertools.product(*cuts)
        ),
    )


def _cuts(size: int, length: int | None) -> Iterator[tuple[slice, tuple[slice, ...]]]:
    """Yield (slice of the host axis, slices of block and place) of the full blocks, then of the last one."""
    everything = slice(None)
    if length is None:
        yield everything, (everything,)
        return
    full, remainder = divmod(size, length)
    if full:
        yield slice(size - remainder), (slice(full), everything)
    if remainder:
        yield slice(size - remainder, size), (slice(full, full + 1), slice(remainder))


@dataclass(frozen=True, slots=True)
class _Layout:
    """An index rule for one host shape and one C0.

    A conversion is a reshape to sub-axes (a cut axis counts twice: first the block, then the place in
    it), a permutation of these, and a reshape that merges them to the axes of the other side.
    """

    dims: Dims  # shape on the host
    shape: Dims  # shape on the device
    host_sizes: Dims  # sizes of the sub-axes in the host's order
    device_sizes: Dims  # the same in the device's order
    to_device: Dims  # permutation of the sub-axes from the host's order to the device's
    to_host: Dims  # the inverse permutation
    # places of blocks that the tensor does not fill, in sub-axes of the host; none: no padding
    unfilled: tuple[_Index, ...]
    # matching parts of the host's array and, in sub-axes of the host, of the device's
    pieces: tuple[tuple[_Index, _Index], ...]

    def encode(self, host: np.ndarray) -> np.ndarray:
        # nothing is padded: one permutation of the reshaped array
        if not self.unfilled:
            device = _moved(host.reshape(self.host_sizes), self.to_device)
        else:
            # np.pad would copy the whole tensor once more: blocks are written where they end up, and only
            # blocks that the tensor does not fill are cleared.
            device = np.empty(self.device_sizes, host.dtype)
            device_in_host_order = device.transpose(self.to_host)
            # contiguous blocks clear faster than their padding alone
            for unfilled in self.unfilled:
                device_in_host_order[unfilled] = 0
            for part, place in self._matching(host, device_in_host_order):
                _assign(place, part)
        return device.reshape(self.shape)

    def decode(self, device: np.ndarray) -> np.ndarray:
        source = device.reshape(self.device_sizes)
        if not self.unfilled:
            return _moved(source, self.to_host).reshape(self.dims)
        host = np.empty(self.dims, device.dtype)
        for part, place in self._matching(host, source.transpose(self.to_host)):
            _assign(part, place)
        return host

    def _matching(self, host: np.ndarray, device: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for span, indices in self.pieces:
            place = device[indices]
            # reshaping only splits axes, so the part stays a view through which decode writes
            yield host[span].reshape(place.shape), place


def _moved(array: np.ndarray, order: Dims) -> np.ndarray:
    """Return a C-ordered array with its axes permuted, by the fastest method for the permutation."""
    if order[-1] == len(order) - 1:  # rows stay whole, which _assign copies in one piece each
        device = np.empty([array.shape[axis] for axis in order], array.dtype)
        _assign(device, array.transpose(order))
        return device
    # for smaller arrays ``transpose`` costs more than it saves
    is_worth_it = array.nbytes >= _FASTER_FROM and array.itemsize <= _LARGEST_ITEM
    return (transpose if is_worth_it and _moves_one(order) else numpy_transpose)(array, order)


@functools.lru_cache(maxsize=256)
def _moves_one(order: Dims) -> bool:
    """Return whether a permutation only moves one axis elsewhere."""
    others = range(len(order) - 1)
    return any(
        tuple(other - (other > axis) for other in order if other != axis) == tuple(others) for axis in order
    )


def _assign(target: np.ndarray, source: np.ndarray) -> None:
    """Copy elements; rows that both sides hold in one piece go as one item, which is twice as fast."""
    size = target.itemsize
    if target.ndim and target.size and (target.strides[-1], source.strides[-1]) == (size, size):
        row = np.dtype((np.void, size * target.shape[-1]))
        target, source = target.view(row), source.view(row)
    target[...] = source


_CUBE: Final = 16
_GATES: Final = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """The sizes of a recurrent operator that the shapes of its weights depend on."""

    input_size: int  # features of its input
    hidden_size: int  # features of its state
    # whether the host holds weights as (..., k * hidden, input or hidden), as ONNX does
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
    # a joined weight: rows of the input and rows of the state each begin a block
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
