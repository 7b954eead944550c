"""Device formats: shapes, index rules, round trips, refusals."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.device import blocks, formats
from msdump.device.blocks import Cell
from msdump.errors import FormatError

CODECS = [row.name for row in formats.FORMATS if row.shape_rule is None]

TYPES = ["?", "i1", "u1", "<f2", "<i2", "<f4", "<i4", "<f8", "<i8", "<c8", "<c16"]
TYPES += [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn]


def c0_of(array):
    """Return C0: 32 for one-byte integers, 64 for int4, 16 for everything else."""
    return {"int8": 32, "uint8": 32, "int4": 64}.get(array.dtype.name, 16)


def up(size, length):
    """Return how many blocks hold a size."""
    return (size + length - 1) // length


# The places of an element on the device as the documents write them, by C0 and sizes on the host.
PLACES = {
    "NHWC": lambda _length, _dims, n, c, h, w: (n, h, w, c),
    "HWCN": lambda _length, _dims, n, c, h, w: (h, w, c, n),
    "ChannelLast": lambda _length, _dims, n, c, *places: (n, *places, c),
    "NC1HWC0": lambda length, _dims, n, c, h, w: (n, c // length, h, w, c % length),
    "NC1HWC0_C04": lambda _length, _dims, n, c, h, w: (n, c // 4, h, w, c % 4),
    "FRACTAL_Z": lambda length, dims, n, c, h, w: in_fractal(
        (c // length * dims[2] + h) * dims[3] + w, n, c % length
    ),
    "FRACTAL_Z_C04": lambda _length, dims, n, c, h, w: in_fractal(
        4 * (h * dims[3] + w) // 16, n, (4 * (h * dims[3] + w) + c) % 16
    ),
    "FRACTAL_NZ": lambda length, _dims, *index: (
        *index[:-2],
        *in_fractal(index[-1] // length, index[-2], index[-1] % length),
    ),
    "C1HWNCoC0": lambda length, _dims, n, c, h, w: (c // length, h, w, n, c % length, c % length),
    "NDC1HWC0": lambda length, _dims, n, c, d, h, w: (n, d, c // length, h, w, c % length),
    "FRACTAL_Z_3D": lambda length, dims, n, c, d, h, w: in_fractal(
        ((d * up(dims[1], length) + c // length) * dims[3] + h) * dims[4] + w, n, c % length
    ),
}


def in_fractal(block, row, column):
    """Return the place in fractals of 16 rows."""
    return block, row // 16, row % 16, column


def laid_out(name, x):
    """Return an array as it lies on the device, element by element; padding is zero."""
    device = np.zeros(formats.shape(name, x.shape, dtypes.from_numpy(x.dtype)), x.dtype)
    for index in np.ndindex(*x.shape):
        device[PLACES[name](c0_of(x), x.shape, *index) if name in PLACES else index] = x[index]
    return device


def fractal_z_groups(x, length, groups):
    """Follow the flat index over [i//E, dci//C0, h, w, dco, dci%C0] for group i."""
    n_, c_, h_, w_ = x.shape
    co = n_ // groups
    e_ = min(math.lcm(math.lcm(c_, length) // c_, math.lcm(co, 16) // co), groups)
    ci_opt, co_opt = up(e_ * c_, length) * length, up(e_ * co, 16) * 16
    g_ = up(groups, e_)
    dev = np.zeros(g_ * ci_opt * h_ * w_ * co_opt, x.dtype)
    for i, n, c, h, w in itertools.product(*map(range, (groups, co, c_, h_, w_))):
        dci, dco = (i % e_) * c_ + c, (i % e_) * co + n
        index = (i // e_) * (ci_opt // length) + dci // length
        index = ((index * h_ + h) * w_ + w) * co_opt + dco
        dev[index * length + dci % length] = x[i * co + n, c, h, w]
    return dev.reshape(g_ * (ci_opt // length) * h_ * w_, co_opt // 16, 16, length)


HOSTS = {
    "DefaultFormat": [(), (5,), (3, 5, 2, 3)],
    "ND": [(3, 5, 2, 3, 2, 2)],
    "NCHW": [(3, 5), (3, 5, 2, 3)],
    "NHWC": [(3, 5, 2, 4)],
    "HWCN": [(3, 5, 2, 4)],
    "ChannelLast": [(3, 5), (3, 5, 4), (2, 3, 4, 5, 6)],
    "NC1HWC0": [(2, 5, 2, 3), (1, 32, 2, 2), (2, 35, 1, 3), (2, 65, 2, 1)],
    "NC1HWC0_C04": [(2, 3, 2, 3), (2, 9, 1, 3)],
    "FRACTAL_Z": [(3, 5, 2, 3), (16, 16, 1, 2), (32, 64, 1, 1), (17, 33, 2, 1)],
    "FRACTAL_Z_C04": [(3, 3, 2, 3), (17, 4, 3, 3), (16, 1, 2, 2)],
    "FRACTAL_NZ": [(5, 7), (16, 64), (17, 33), (2, 3, 17, 33)],
    "C1HWNCoC0": [(1, 5, 2, 3), (2, 35, 1, 2)],
    "NDC1HWC0": [(2, 5, 3, 2, 2), (1, 33, 2, 1, 2)],
    "FRACTAL_Z_3D": [(3, 5, 2, 2, 3), (17, 33, 2, 1, 1)],
}

ROWS = [(name, host) for name, hosts in HOSTS.items() for host in hosts]


def counted(shape, dtype):
    """Return an array of elements that differ as far as the type allows, none of them zero."""
    return (np.arange(math.prod(shape)) % 100 + 1).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["<f2", "i1", "<f4"])
@pytest.mark.parametrize(("name", "host"), ROWS, ids=[f"{name}-{host}" for name, host in ROWS])
def test_every_element_lies_where_the_index_rule_says(name, host, dtype):
    """Encoding equals the documented rule followed element by element, padding zero."""
    array = counted(host, dtype)
    expected = laid_out(name, array)

    device = formats.encode(name, array)

    assert (expected.dtype, expected.shape) == (device.dtype, device.shape)
    assert expected.tobytes() == device.tobytes()


@pytest.mark.parametrize("dtype", ["<f2", "i1"])
@pytest.mark.parametrize(
    ("host", "groups"),
    [
        ((8, 2, 3, 3), 4),
        ((96, 1, 1, 2), 96),
        ((6, 4, 1, 1), 3),
        ((20, 20, 1, 1), 2),
        ((64, 4, 1, 2), 8),
        ((64, 1, 2, 1), 64),
        ((10, 3, 2, 2), 5),
    ],
)
def test_grouped_weights_lie_where_the_index_rule_says(host, groups, dtype):
    """A grouped FRACTAL_Z equals the documented rule followed element by element."""
    array = counted(host, dtype)
    expected = fractal_z_groups(array, c0_of(array), groups)

    device = formats.encode("FRACTAL_Z", array, groups)

    assert expected.shape == device.shape
    assert expected.tobytes() == device.tobytes()
    assert array.tobytes() == formats.decode("FRACTAL_Z", device, host, groups).tobytes()


SHAPES = {
    "AlexNet conv3 x": ("NC1HWC0", (32, 256, 13, 13), "float16", 1, (32, 16, 13, 13, 16)),
    "AlexNet conv3 w": ("FRACTAL_Z", (384, 256, 3, 3), "float16", 1, (144, 24, 16, 16)),
    "AlexNet conv3 y": ("NC1HWC0", (32, 384, 13, 13), "float32", 1, (32, 24, 13, 13, 16)),
    "worked Z": ("FRACTAL_Z", (3, 5, 2, 3), "float32", 1, (6, 1, 16, 16)),
    "worked NZ": ("FRACTAL_NZ", (2, 3, 17, 33), "float32", 1, (2, 3, 3, 2, 16, 16)),
    "depthwise": ("FRACTAL_Z", (96, 1, 3, 3), "float16", 96, (54, 1, 16, 16)),
    "four groups": ("FRACTAL_Z", (8, 2, 3, 3), "float16", 4, (9, 1, 16, 16)),
    "trans_flag example": ("NC1HWC0", (1, 3, 3, 3), "float32", 1, (1, 1, 3, 3, 16)),
    "int8": ("NC1HWC0", (1, 33, 2, 2), "int8", 1, (1, 2, 2, 2, 32)),
    "uint8": ("FRACTAL_NZ", (17, 33), "uint8", 1, (2, 2, 16, 32)),
    "int4": ("NC1HWC0", (1, 33, 2, 2), "int4", 1, (1, 1, 2, 2, 64)),
    "bool": ("NC1HWC0", (1, 33, 2, 2), "bool", 1, (1, 3, 2, 2, 16)),
    "int64": ("FRACTAL_NZ", (17, 33), "int64", 1, (3, 2, 16, 16)),
    "NZ vector of one": ("FRACTAL_NZ", (1,), "float16", 1, (1,)),
    "NZ vector of full blocks": ("FRACTAL_NZ", (48,), "float16", 1, (48,)),
    "NZ vector": ("FRACTAL_NZ", (40,), "float16", 1, (3, 1, 16, 16)),
    "scalar padded": ("NC1HWC0", (), "float16", 1, (1, 1, 1, 1, 16)),
    "vector padded": ("NC1HWC0", (40,), "float16", 1, (1, 3, 1, 1, 16)),
    "matrix padded": ("NC1HWC0", (40, 7), "float16", 1, (1, 3, 7, 1, 16)),
    "cube padded": ("NC1HWC0", (40, 7, 9), "float16", 1, (1, 3, 7, 9, 16)),
    "vector padded to 3-D": ("NDC1HWC0", (40,), "float16", 1, (1, 1, 3, 1, 1, 16)),
    "matrix padded to 3-D": ("NDC1HWC0", (40, 2), "float16", 1, (1, 2, 3, 1, 1, 16)),
    "no elements": ("NC1HWC0", (0, 5, 2, 2), "float16", 1, (0, 1, 2, 2, 16)),
    "dynamic batch": ("NC1HWC0", (-1, 20, 7, 7), "float16", 1, (-1, 2, 7, 7, 16)),
    "dynamic channels": ("NC1HWC0", (1, -1, 7, 7), "float16", 1, (1, -1, 7, 7, 16)),
    "dynamic Z": ("FRACTAL_Z", (20, 20, -1, 3), "float16", 1, (-1, 2, 16, 16)),
    "dynamic groups": ("FRACTAL_Z", (-1, 2, 3, 3), "float16", 4, (-1, -1, 16, 16)),
    "dynamic NZ": ("FRACTAL_NZ", (-1, 768), "float16", 1, (48, -1, 16, 16)),
    "dynamic NZ vector": ("FRACTAL_NZ", (-1,), "float16", 1, (-1, 1, 16, 16)),
    "LSTM": ("FRACTAL_ZN_LSTM", (120, 43), "float16", 1, (3, 8, 16, 16)),
    "dynamic LSTM": ("FRACTAL_ZN_LSTM", (-1, 43), "float16", 1, (-1, -1, 16, 16)),
}


@pytest.mark.parametrize(("name", "host", "dtype", "groups", "device"), SHAPES.values(), ids=SHAPES)
def test_shape(name, host, dtype, groups, device):
    """Device shapes follow the documents; an unknown size stays unknown."""
    assert device == formats.shape(name, host, dtypes.from_name(dtype), groups)


RESHAPE_TYPES = {
    "C": ("NC1HWC0", (40,), "C", (1, 40, 1, 1)),
    "N": ("NC1HWC0", (40,), "N", (40, 1, 1, 1)),
    "NC": ("NC1HWC0", (40, 7), "NC", (40, 7, 1, 1)),
    "CH": ("FRACTAL_Z", (40, 7), "CH", (1, 40, 7, 1)),
    "NW": ("FRACTAL_Z", (40, 7), "NW", (40, 1, 1, 7)),
    "NCW": ("NC1HWC0", (2, 40, 7), "NCW", (2, 40, 1, 7)),
    "CDW": ("NDC1HWC0", (40, 3, 7), "CDW", (1, 40, 3, 1, 7)),
    "by default": ("NDC1HWC0", (40, 3, 7), "", (1, 40, 3, 7, 1)),
    "whole": ("NC1HWC0", (2, 3, 4, 5), "NC", (2, 3, 4, 5)),
    "not padded": ("FRACTAL_NZ", (2, 3), "NC", (2, 3)),
}


@pytest.mark.parametrize(("name", "host", "axes", "expected"), RESHAPE_TYPES.values(), ids=RESHAPE_TYPES)
def test_reshape_type(name, host, axes, expected):
    """A reshape type says which axes the dimensions of a small tensor are; C comes first by default."""
    assert expected == formats.padded(name, host, axes)


@pytest.mark.parametrize("axes", ["N", "NCH", "CN", "NX", "NN"])
def test_wrong_reshape_type(axes):
    """A reshape type names as many axes as there are dimensions, in their order."""
    with pytest.raises(FormatError, match=f"reshape type '{axes}' does not name 2 axes of NCHW"):
        formats.padded("NC1HWC0", (40, 7), axes)


@pytest.mark.parametrize(
    ("name", "host", "device"),
    [
        ("FRACTAL_ZN_RNN", (43, 120), (3, 8, 16, 16)),
        ("FRACTAL_ZN_RNN", (13, 30), (1, 2, 16, 16)),
        ("FRACTAL_ZN_RNN", (2, 30, 60), (2, 2, 4, 16, 16)),
        ("FRACTAL_ZN_RNN", (-1, -1), (-1, -1, 16, 16)),
        ("ND_RNN_BIAS", (120,), (128,)),
        ("ND_RNN_BIAS", (-1,), (-1,)),
    ],
)
def test_recurrent_shape(name, host, device):
    """Shapes of recurrent weights depend on the input size 13 and the hidden size 30."""
    assert device == formats.shape(name, host, dtypes.from_name("float16"), cell=Cell(13, 30))


@st.composite
def tensors(draw):
    """Draw a format, a tensor that it can hold, and groups."""
    name = draw(st.sampled_from(CODECS))
    row = formats.find(name)
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    rank = draw(st.integers(row.least, row.most or 5))
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 15, 16, 17, 33]), min_size=rank, max_size=rank))
    while math.prod(shape) > 20000:
        shape[shape.index(max(shape))] = 2
    padded = formats.padded(name, tuple(shape))
    if name == "FRACTAL_Z_C04" and padded[1] > 4:
        shape[1 if rank == 4 else 0] = draw(st.integers(1, 4))
    groups = 1
    if name == "FRACTAL_Z":
        groups = draw(st.sampled_from([g for g in range(1, padded[0] + 1) if padded[0] % g == 0] or [1]))
    return name, draw(arrays(dtype, tuple(shape))), groups


@st.composite
def arrays(draw, dtype, shape):
    """Draw an array of any bit patterns."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    if dtype == ml_dtypes.int4:
        return rng.integers(-8, 8, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)


@settings(max_examples=300, deadline=None)
@given(tensors())
def test_decoding_undoes_encoding(case):
    """Whatever the format, rank, element type, ragged size and groups, not a bit changes."""
    name, host, groups = case

    device = formats.encode(name, host, groups)
    back = formats.decode(name, device, host.shape, groups)

    assert formats.shape(name, host.shape, dtypes.from_numpy(host.dtype), groups) == device.shape
    assert device.flags.c_contiguous
    assert (host.dtype, host.shape) == (back.dtype, back.shape)
    assert host.tobytes() == back.tobytes()


def test_views_of_any_stride_are_encoded():
    """A transposed view of an array is encoded by its elements, not by its memory."""
    base = counted((3, 2, 20, 4), "<f2")
    view = base.transpose(3, 2, 1, 0)

    device = formats.encode("NC1HWC0", view)

    assert laid_out("NC1HWC0", view).tobytes() == device.tobytes()


def test_widened_arrays_are_decoded():
    """An int4 tensor that a file holds as int8 is decoded by the C0 of its shape."""
    host = counted((1, 70, 1, 2), "i1") % 8
    widened = formats.encode("NC1HWC0", host.astype(ml_dtypes.int4)).astype("i1")

    back = formats.decode("NC1HWC0", widened, host.shape)

    assert (1, 2, 1, 2, 64) == widened.shape
    assert host.tobytes() == back.tobytes()


@pytest.mark.parametrize(
    ("shape", "calls"),
    [((4, 64, 16, 16), 1), ((4, 65, 16, 16), 0), ((1, 16, 2, 2), 0)],
    ids=["large", "ragged", "small"],
)
def test_a_faster_transpose_does_large_full_conversions(monkeypatch, shape, calls):
    """The injected transpose gets raw elements of large tensors without padding, and no others."""
    seen = []

    def spy(array, order):
        seen.append((array.dtype, order))
        return blocks.numpy_transpose(array, order)

    monkeypatch.setattr(blocks, "transpose", spy)
    host = counted(shape, "<f2")

    device = formats.encode("NC1HWC0", host)

    assert [(np.dtype("<u2"), (0, 1, 3, 4, 2))] * calls == seen
    assert laid_out("NC1HWC0", host).tobytes() == device.tobytes()


REFUSALS = {
    "unknown": (
        "NC1HWC1",
        (1, 2, 3, 4),
        "<f2",
        1,
        r"unknown device format 'NC1HWC1'; known are DefaultFormat",
    ),
    "rank 5": ("NC1HWC0", (1, 2, 3, 4, 5), "<f2", 1, r"NC1HWC0 holds tensors of rank 4 or less, got shape"),
    "NZ scalar": ("FRACTAL_NZ", (), "<f2", 1, r"FRACTAL_NZ holds tensors of rank 1 or more, got shape \(\)"),
    "channel last": ("ChannelLast", (3,), "<f2", 1, r"rank 2 or more, got shape \(3,\)"),
    "groups": ("NC1HWC0", (4, 4, 1, 1), "<f2", 2, r"only FRACTAL_Z has groups, got 2 groups for NC1HWC0"),
    "odd groups": ("FRACTAL_Z", (5, 4, 1, 1), "<f2", 2, r"2 groups do not divide the 5 outputs"),
    "C04": ("FRACTAL_Z_C04", (5, 5, 1, 1), "<f2", 1, r"holds weights of 4 channels or less, got shape"),
    "bytes unknown": (
        "ND_RNN_BIAS",
        (8,),
        "<f2",
        1,
        r"only the shape of ND_RNN_BIAS is known, not its bytes",
    ),
    "text": ("NC1HWC0", (1, 2, 3, 4), "O", 1, r"tensors of text have no device format"),
}


@pytest.mark.parametrize(("name", "host", "dtype", "groups", "message"), REFUSALS.values(), ids=REFUSALS)
def test_impossible_pairs_are_refused(name, host, dtype, groups, message):
    """A format that cannot hold a tensor says why."""
    array = np.zeros(host, dtype)

    with pytest.raises(FormatError, match=message):
        formats.encode(name, array, groups)


def test_a_wrong_device_shape_is_refused():
    """The error has the given shape and the expected one."""
    device = np.zeros((1, 2, 3, 3, 16), "<f2")

    with pytest.raises(
        FormatError, match=r"float16 array of shape \(1, 2, 3, 3, 16\) is not the NC1HWC0 form"
    ):
        formats.decode("NC1HWC0", device, (1, 3, 3, 3))


@pytest.mark.parametrize(
    ("name", "host", "cell", "message"),
    [
        ("FRACTAL_ZN_LSTM", (43, 120), None, r"holds weights \(4 \* hidden, input \+ hidden\)"),
        ("FRACTAL_ZN_RNN", (43, 120), None, r"give its input and hidden size"),
        ("FRACTAL_ZN_RNN", (44, 120), Cell(13, 30), r"needs 13 \(input\), 30 \(hidden\) or their sum"),
        ("ND_RNN_BIAS", (121,), Cell(13, 30), r"multiple of the hidden size 30, got 121"),
    ],
)
def test_impossible_recurrent_shapes_are_refused(name, host, cell, message):
    """A weight that is no recurrent one has no such shape."""
    with pytest.raises(FormatError, match=message):
        formats.shape(name, host, dtypes.from_name("float16"), cell=cell)
