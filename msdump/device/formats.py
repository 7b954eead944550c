"""Memory formats of an Ascend device: codecs between the host's layout and the device's.

The rules are MindSpore's format conversion and CANN's dump tools. Padding
is zero. Arrays of packed types hold one element per item on both sides.

An image of one row of two pixels, with two channels (N, C, H, W = 1, 2, 1, 2):

    >>> image = np.array([[[[1, 2]], [[3, 4]]]], np.float16)
    >>> encode("NHWC", image).tolist()
    [[[[1.0, 3.0], [2.0, 4.0]]]]
    >>> encode("ChannelLast", image).tolist()
    [[[[1.0, 3.0], [2.0, 4.0]]]]
    >>> encode("HWCN", image).tolist()
    [[[[1.0], [3.0]], [[2.0], [4.0]]]]

NC1HWC0 puts C0 channels of a pixel beside each other, 16 of float16; four of them in NC1HWC0_C04:

    >>> device = encode("NC1HWC0", image)
    >>> device.shape
    (1, 1, 1, 2, 16)
    >>> device[0, 0, 0, :, :5].tolist()
    [[1.0, 3.0, 0.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0, 0.0]]
    >>> encode("NC1HWC0_C04", image).tolist()
    [[[[[1.0, 3.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0]]]]]
    >>> encode("NDC1HWC0", image.reshape(1, 2, 1, 1, 2)).shape  # N, D, C1, H, W, C0
    (1, 1, 1, 1, 2, 16)

FRACTAL_NZ cuts a matrix into blocks of 16 rows and C0 columns, stored one column of blocks after the other:

    >>> device = encode("FRACTAL_NZ", np.array([[1, 2], [3, 4]], np.float16))
    >>> device.shape
    (1, 1, 16, 16)
    >>> device[0, 0, :2, :3].tolist()
    [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
    >>> encode("FRACTAL_NZ", np.zeros((40, 20), np.float16)).shape
    (2, 3, 16, 16)

FRACTAL_Z does so with weights: a fractal has 16 outputs by C0 channels, one for each place of the window:

    >>> weight = np.array([[[[1, 2]]], [[[3, 4]]]], np.float16)  # two outputs, one channel, a 1x2 window
    >>> device = encode("FRACTAL_Z", weight)
    >>> device.shape  # C1 * H * W, N1, N0, C0
    (2, 1, 16, 16)
    >>> device[:, 0, :2, :2].tolist()
    [[[1.0, 0.0], [3.0, 0.0]], [[2.0, 0.0], [4.0, 0.0]]]
    >>> encode("FRACTAL_Z", weight, groups=2)[:, 0, :2, :2].tolist()  # each group in columns of its own
    [[[1.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [0.0, 4.0]]]
    >>> encode("FRACTAL_Z_3D", weight.reshape(2, 1, 1, 1, 2)).shape  # D * C1 * H * W, N1, N0, C0
    (2, 1, 16, 16)
    >>> encode("FRACTAL_Z_C04", weight)[0, 0, :2, :5].tolist()  # four channels of each place, in a row
    [[1.0, 0.0, 0.0, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0, 4.0]]

C1HWNCoC0 holds the channels of a block on a diagonal:

    >>> device = encode("C1HWNCoC0", image)
    >>> device.shape
    (1, 1, 2, 1, 16, 16)
    >>> device[0, 0, 0, 0, :2, :2].tolist()
    [[1.0, 0.0], [0.0, 3.0]]

Every codec has its inverse:

    >>> decode("FRACTAL_Z", encode("FRACTAL_Z", weight), weight.shape).tolist() == weight.tolist()
    True
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.device.blocks import (
    Blocks,
    Cell,
    Diagonal,
    Dims,
    Groups,
    ShapeRule,
    Stage,
    lstm_weight,
    rnn_bias,
    rnn_weight,
)
from msdump.dtypes import DType
from msdump.encode import dump_message
from msdump.errors import FormatError
from msdump.record import DEFAULT_FORMAT

NC1HWC0: Final = "NC1HWC0"
LAYOUTS: Final = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN", "DHWNC")}
"""Formats that are an order of named axes, by rank; the first is the host's."""

FRACTAL_Z: Final = "FRACTAL_Z"
FRACTAL_NZ: Final = "FRACTAL_NZ"
C1HWNCOC0: Final = "C1HWNCoC0"
NDC1HWC0: Final = "NDC1HWC0"
FRACTAL_Z_3D: Final = "FRACTAL_Z_3D"
FRACTAL_Z_C04: Final = "FRACTAL_Z_C04"
FRACTAL_ZN_LSTM: Final = "FRACTAL_ZN_LSTM"
FRACTAL_ZN_RNN: Final = "FRACTAL_ZN_RNN"
ND_RNN_BIAS: Final = "ND_RNN_BIAS"

IMAGE: Final = 4
"""Rank of (N, C, H, W)."""

VOLUME: Final = 5
"""Rank of (N, C, D, H, W)."""


@dataclass(frozen=True, slots=True)
class Format:
    """One device format."""

    name: str  # its name in file names and attributes
    stages: tuple[Stage, ...] = ()  # steps from host array to device array; empty: both are equal
    pads_to: int = 0  # rank to which host shapes of a smaller rank are extended, 0: no extension
    least: int = 0
    most: int | None = None
    spelling: str = ""  # its name in .ir texts where it differs
    shape_rule: ShapeRule | None = None  # the shape of a format with undocumented bytes

    @property
    def number(self) -> int | None:
        """Its number in GE and in dump files, None where GE has no such format."""
        return dump_message.FORMATS.get(self.name)

    @property
    def ir(self) -> str:
        """Name in .ir texts."""
        return self.spelling or self.name


def _image(name: str, *stages: Stage, spelling: str = "") -> Format:
    return Format(name, stages, pads_to=IMAGE, most=IMAGE, spelling=spelling)


def _volume(name: str, rule: str) -> Format:
    return Format(name, (Blocks(rule),), pads_to=VOLUME, most=VOLUME)


_Z_RULE: Final = "N C H W -> C/c*H*W N/16 N%16 C%c"
# MindSpore counts ceil(N / C0) blocks of N, too few for int8 data (C0 is 32); CANN counts ceil(N / 16)
_Z_GROUPS_RULE: Final = "G N C H W -> G*C/c*H*W N/16 N%16 C%c"

FORMATS: Final = (
    # equal to the host's layout
    Format(DEFAULT_FORMAT),
    Format("ND"),
    Format("NCHW"),
    # permuted axes, nothing padded
    _image("NHWC", Blocks("N C H W -> N H W C")),
    _image("HWCN", Blocks("N C H W -> H W C N")),
    Format("ChannelLast", (Blocks("N C ... -> N ... C"),), least=2),
    # activations: C0 channels of a place beside each other, which the cube unit reads at once
    _image(NC1HWC0, Blocks("N C H W -> N C/c H W C%c")),
    _image("NC1HWC0_C04", Blocks("N C H W -> N C/4 H W C%4")),
    # weights: fractals of 16 outputs by C0 channels
    _image(FRACTAL_Z, Blocks(_Z_RULE), spelling="FracZ"),
    _image(FRACTAL_Z_C04, Blocks("N C H W -> N C/4*H*W*C%4"), Blocks("N K -> K/16 N/16 N%16 K%16")),
    # matrices: fractals of 16 rows by C0 columns, a column of fractals after the other
    Format(FRACTAL_NZ, (Blocks("... H W -> ... W/c H/16 H%16 W%c"),), least=1),
    _image(C1HWNCOC0, Blocks("N C H W -> C/c H W N C%c"), Diagonal()),
    # NC1HWC0 and FRACTAL_Z with a depth axis
    _volume(NDC1HWC0, "N C D H W -> N D C/c H W C%c"),
    _volume(FRACTAL_Z_3D, "N C D H W -> D*C/c*H*W N/16 N%16 C%c"),
    # recurrent networks: shapes only
    Format(FRACTAL_ZN_LSTM, least=2, most=IMAGE, shape_rule=lstm_weight),
    Format(FRACTAL_ZN_RNN, least=2, shape_rule=rnn_weight),
    Format(ND_RNN_BIAS, least=1, shape_rule=rnn_bias),
)

_BY_NAME: Final = {row.name: row for row in FORMATS}

_AXES: Final = {IMAGE: "NCHW", VOLUME: "NCDHW"}

# CANN's platform files (DtypeMKN) and MindSpore agree: 32 bytes a block of small integers, but 16 elements of
# every other type, so that a float32 block has twice the bytes of a float16 one.
_C0: Final = {"int8": 32, "uint8": 32, "int4": 64}
_C0_OF_OTHERS: Final = 16
_C04: Final = 4

# numpy copies ml_dtypes' types one by one, at less than half the speed of integers of their size
_RAW: Final = {np.dtype(code).itemsize: np.dtype(code) for code in ("u1", "<u2", "<u4", "<u8", "<c16")}


def find(name: str) -> Format:
    """Return a format by its name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise FormatError(f"unknown device format {name!r}; known are {', '.join(_BY_NAME)}") from None


def c0(dtype: DType | None) -> int:
    """Return C0, the length of the innermost block: 32 of int8 and uint8, 64 of int4, 16 of any other type.

    >>> c0(dtypes.from_name("int8")), c0(dtypes.from_name("float32")), c0(None)
    (32, 16, 16)
    """
    return _C0.get(dtype.name, _C0_OF_OTHERS) if dtype else _C0_OF_OTHERS


def shape(
    name: str, host_shape: Dims, dtype: DType | None, groups: int = 1, *, cell: Cell | None = None
) -> Dims:
    """Return the device shape of a host shape; unknown dimensions are -1 on both sides.

    >>> float16 = dtypes.from_name("float16")
    >>> shape("NC1HWC0", (32, 256, 13, 13), float16), shape("FRACTAL_Z", (384, 256, 3, 3), float16)
    ((32, 16, 13, 13, 16), (144, 24, 16, 16))
    >>> shape("FRACTAL_NZ", (-1, 20), float16)
    (2, -1, 16, 16)

    Raises:
        FormatError: The format cannot hold such a tensor.
    """
    row, length = find(name), c0(dtype)
    if row.shape_rule is not None:
        return row.shape_rule(padded(name, host_shape), length, cell)
    return _conversion(name, host_shape, length, groups).shapes[-1]


def encode(name: str, array: np.ndarray, groups: int = 1) -> np.ndarray:
    """Return the device array of a host array, maybe itself; FormatError if the format cannot hold it."""
    length = c0(dtypes.from_numpy(array.dtype))
    conversion = _conversion(name, array.shape, length, groups)
    if not conversion.stages:
        return array
    raw = np.asarray(_raw(array), order="C").reshape(conversion.shapes[0])
    for stage in conversion.stages:
        raw = stage.encode(raw, length)
    return raw.view(array.dtype)


def decode(name: str, array: np.ndarray, host_shape: Dims, groups: int = 1) -> np.ndarray:
    """Return the host array of a device array; the same array where the format changes nothing.

    C0 is the array's last dimension, so that widened arrays (int4 as int8) can be read too.

    Raises:
        FormatError: The array is not in the format's form of the host shape.
    """
    length = _length(array.shape)
    stages, shapes = _conversion(name, host_shape, length, groups)
    if shapes[-1] != array.shape:
        expected_shape = shape(name, host_shape, dtypes.from_numpy(array.dtype), groups)
        split = f" in {groups} groups" if groups > 1 else ""
        raise FormatError(
            f"a {array.dtype} array of shape {array.shape} is not the {name} form of {host_shape}{split};"
            f" that has shape {expected_shape}"
        )
    if not stages:
        return array
    raw = np.asarray(_raw(array), order="C")
    for stage, before in zip(reversed(stages), reversed(shapes[:-1]), strict=True):
        raw = stage.decode(raw, before, length)
    return raw.reshape(host_shape).view(array.dtype)


def is_form(name: str, device_shape: Dims, host_shape: Dims, groups: int) -> bool:
    """Return whether an array of a device shape can be decoded to a host shape."""
    try:
        return _conversion(name, host_shape, _length(device_shape), groups).shapes[-1] == device_shape
    except FormatError:
        return False


def padded(name: str, host_shape: Dims, axes: str = "") -> Dims:
    """Return the host shape with as many axes as the format has, new ones of size 1 (MindSpore's rule).

    >>> padded("NC1HWC0", (5, 7)), padded("NC1HWC0", (5, 7), "NC"), padded("FRACTAL_Z_3D", (5,))
    ((1, 5, 7, 1), (5, 7, 1, 1), (1, 5, 1, 1, 1))

    Args:
        name: Name of the format.
        host_shape: Dimensions on the host.
        axes: Reshape type: which axes of NCHW or NCDHW the dimensions are, "NC" for (a, b, 1, 1);
            by default C and its followers. Whole ranks need none, and other formats ignore it.

    Raises:
        FormatError: The format has no place for the rank, or the axes do not fit it.
    """
    row, rank = find(name), len(host_shape)
    if rank < row.least:
        raise FormatError(f"{name} holds tensors of rank {row.least} or more, got shape {host_shape}")
    if row.most is not None and rank > row.most:
        raise FormatError(f"{name} holds tensors of rank {row.most} or less, got shape {host_shape}")
    if rank >= row.pads_to:
        return host_shape
    whole = _AXES[row.pads_to]
    axes = axes or whole[1 : rank + 1]
    if len(axes) != rank or axes != "".join(axis for axis in whole if axis in axes):
        raise FormatError(f"reshape type {axes!r} does not name {rank} axes of {whole} in their order")
    sizes = dict(zip(axes, host_shape, strict=True))
    return tuple(sizes.get(axis, 1) for axis in whole)


def _length(device_shape: Dims) -> int:
    # a tensor without elements may have a last dimension of 0
    return device_shape[-1] if device_shape and device_shape[-1] else _C0_OF_OTHERS


class _Conversion(NamedTuple):
    """The stages of a conversion, and the shapes before each stage and after the last one."""

    stages: tuple[Stage, ...]
    shapes: tuple[Dims, ...]


# Cached: a network has few shapes, and each step lays all of them out.
@functools.lru_cache(maxsize=1024)
def _conversion(name: str, host_shape: Dims, length: int, groups: int) -> _Conversion:
    row = find(name)
    dims, stages = padded(name, host_shape), row.stages
    if row.shape_rule is not None:
        raise FormatError(f"only the shape of {name} is known, not its bytes; use another format")
    if groups != 1:
        if row.name != FRACTAL_Z:
            raise FormatError(f"only {FRACTAL_Z} has groups, got {groups} groups for {row.name}")
        if groups < 1 or (dims[0] >= 0 and dims[0] % groups):
            raise FormatError(
                f"{groups} groups do not divide the {dims[0]} outputs of a weight of shape {dims}"
            )
        stages = (Groups(groups), Blocks(_Z_GROUPS_RULE))
    elif name == FRACTAL_NZ and len(dims) == 1:
        # MindSpore leaves a vector of one element, or of a multiple of C0, as it is; others become a row
        is_whole = dims[0] == 1 or (dims[0] >= 0 and dims[0] % length == 0)
        stages, dims = ((), dims) if is_whole else (stages, (1, *dims))
    # MindSpore's shape of this format ignores further blocks of channels, so their data would have no room
    elif name == FRACTAL_Z_C04 and dims[1] > _C04:
        raise FormatError(f"{name} holds weights of {_C04} channels or less, got shape {dims}")
    shapes = [dims]
    for stage in stages:
        shapes.append(stage.shape(shapes[-1], length))
    return _Conversion(stages, tuple(shapes))


def _raw(array: np.ndarray) -> np.ndarray:
    """Return the array as integers of its item size, which numpy copies faster."""
    if array.dtype.kind in "OUS":
        raise FormatError("tensors of text have no device format")
    raw: np.ndarray = array.view(_RAW[array.dtype.itemsize])
    return raw
