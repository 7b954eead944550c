"""Conversions between memory formats, beside elements put in their places one by one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.convert import format as convert_format
from msdump.device import formats
from msdump.encode import TensorInfo, dump_message
from msdump.errors import ToolError
from tests.encode import dump_oracle

HALF = dtypes.from_name("float16")
IMAGE = (2, 20, 3, 4)
VOLUME = (1, 17, 2, 3, 4)
MATRIX = (2, 17, 33)
SHAPES = {
    "NCHW": (2, 20, 3, 4),
    "NHWC": (2, 3, 4, 20),
    "HWCN": (3, 4, 20, 2),
    "NC1HWC0": (2, 2, 3, 4, 16),
    "FRACTAL_Z": (24, 1, 16, 16),
    "NCDHW": VOLUME,
    "NDHWC": (1, 2, 3, 4, 17),
    "NDC1HWC0": (1, 2, 2, 3, 4, 16),
    "FRACTAL_NZ": (2, 3, 2, 16, 16),
    "ND": MATRIX,
}
PAIRS = """
    FRACTAL_NZ>NCHW FRACTAL_NZ>ND FRACTAL_NZ>NHWC FRACTAL_Z>HWCN FRACTAL_Z>NCHW
    HWCN>FRACTAL_Z HWCN>NCHW HWCN>NHWC NC1HWC0>HWCN NC1HWC0>NCHW NC1HWC0>NHWC
    NCHW>FRACTAL_Z NCHW>NHWC NDC1HWC0>NCDHW NDC1HWC0>ND NHWC>FRACTAL_Z NHWC>HWCN NHWC>NCHW
    NCHW>HWCN NCHW>NC1HWC0 NHWC>NC1HWC0 NC1HWC0>ND NC1HWC0>FRACTAL_Z FRACTAL_Z>NHWC FRACTAL_Z>NC1HWC0
    NDC1HWC0>NDHWC NCDHW>NDHWC NCDHW>NDC1HWC0 NDHWC>NCDHW
"""


def host_of(*names):
    """Return the host array that both sides of a conversion hold."""
    is_volume = {"NCDHW", "NDHWC", "NDC1HWC0"} & {*names}
    shape = MATRIX if "FRACTAL_NZ" in names else VOLUME if is_volume else IMAGE
    return np.arange(1, int(np.prod(shape)) + 1).astype("f2").reshape(shape)


def form(host, name):
    """Return the host array in a format, element by element."""
    if name in {"ND", "NCDHW"} or (host.ndim == 3 and name != "FRACTAL_NZ"):
        return host
    if name == "NDHWC":
        return host.transpose(0, 2, 3, 4, 1)
    return dump_oracle.laid_out(host, name, SHAPES[name])


def described(device, name, original, groups=0):
    """Return the header's entry of a tensor."""
    return TensorInfo(2, dump_message.FORMATS[name], device.shape, original, device.nbytes, sub_format=groups)


def converted(device, name, original, target, wanted=(), groups=0):
    """Return the array that a conversion gives, and its plan."""
    plan = convert_format.plan(described(device, name, original, groups), HALF, target, wanted)
    parts = [np.asarray(part) for part in plan.parts(device)]
    return np.concatenate([part.reshape(-1) for part in parts]).reshape(plan.shape), plan


@pytest.mark.parametrize("pair", PAIRS.split())
def test_every_pair(pair):
    """Each element of every pair of formats stands where the formats' index rules say."""
    source, target = pair.split(">")
    host = host_of(source, target)

    made, plan = converted(form(host, source), source, host.shape, target)

    expected = form(host, target)
    assert (expected.shape, target, False) == (plan.shape, plan.format, plan.is_kept)
    assert expected.tolist() == made.tolist()


ORIGINALS = {
    "NCHW": ((2, 20, 3, 4), (0, 1, 2, 3)),
    "NHWC": ((2, 3, 4, 20), (0, 2, 3, 1)),
    "HWCN": ((3, 4, 20, 2), (2, 3, 1, 0)),
    "CHWN": ((20, 3, 4, 2), (1, 2, 3, 0)),
}


@pytest.mark.parametrize("source", ["NC1HWC0", "FRACTAL_Z"])
@pytest.mark.parametrize("original", ORIGINALS)
def test_the_original_shape_may_be_in_any_layout(source, original):
    """An original shape in another layout than NCHW is understood, not taken for NCHW."""
    host = host_of("NCHW")

    made, _ = converted(form(host, source), source, ORIGINALS[original][0], "NHWC")

    assert host.transpose(0, 2, 3, 1).tolist() == made.tolist()


def test_a_shape_that_is_given_is_in_the_targets_layout():
    """-s beats the original shape and names the axes of the target format."""
    host = host_of("NCHW")
    device = form(host, "NC1HWC0")

    made, _ = converted(device, "NC1HWC0", (2, 32, 3, 4), "HWCN", wanted=(3, 4, 18, 2))

    assert host[:, :18].transpose(2, 3, 1, 0).tolist() == made.tolist()


def test_a_shape_that_is_given_cuts_a_layout():
    """Between layouts -s takes the first part of every axis."""
    host = host_of("NCHW")

    made, _ = converted(host, "NCHW", host.shape, "NHWC", wanted=(1, 2, 4, 5))

    assert host.transpose(0, 2, 3, 1)[:1, :2, :4, :5].tolist() == made.tolist()


@pytest.mark.parametrize(
    ("name", "shape", "unsliced"),
    [("NC1HWC0", (2, 2, 3, 4, 16), (2, 32, 3, 4)), ("NDC1HWC0", (1, 2, 2, 3, 4, 16), (1, 32, 2, 3, 4))],
)
def test_without_an_original_shape_the_padding_stays(name, shape, unsliced):
    """Blocks of channels that nothing counts are converted whole."""
    device = np.arange(int(np.prod(shape))).astype("f2").reshape(shape)

    made, plan = converted(device, name, (), "ND")

    assert unsliced == plan.shape == made.shape


def test_the_same_format_stays_as_it_is():
    """A tensor that has the format already keeps its device shape, or takes the shape that is given."""
    device = form(host_of("NCHW"), "NC1HWC0")

    same, plan = converted(device, "NC1HWC0", IMAGE, "NC1HWC0")
    flat, _ = converted(device, "NC1HWC0", IMAGE, "NC1HWC0", wanted=(2, 384))

    assert not plan.is_kept
    assert device.tolist() == same.tolist()
    assert device.reshape(2, -1).tolist() == flat.tolist()


@pytest.mark.parametrize(
    ("name", "shape"), [("ND", (3,)), ("NCHW", (2, 3)), ("HWCN", (1, 2, 3)), ("NCDHW", (1, 2, 3, 4))]
)
def test_nd_is_kept(name, shape):
    """A tensor of ND, and one of a layout that its rank does not fit, stays as it is and is counted."""
    device = np.arange(int(np.prod(shape))).astype("f2").reshape(shape)

    made, plan = converted(device, name, shape, "NHWC")

    assert (True, "ND") == (plan.is_kept, plan.format)
    assert device.tolist() == made.tolist()


GROUPED = [(8, 4, 2, 2, 4), (6, 3, 3, 2, 2), (64, 4, 1, 3, 8), (64, 1, 1, 1, 64)]


@pytest.mark.parametrize(("n", "c", "h", "w", "groups"), GROUPED)
def test_grouped_weights(n, c, h, w, groups):
    """The weight of a grouped convolution is converted back from FRACTAL_Z, and to it."""
    host = np.arange(1, n * c * h * w + 1).astype("f4").reshape(n, c, h, w)
    device = formats.encode("FRACTAL_Z", host, groups)

    back, _ = converted(device, "FRACTAL_Z", host.shape, "HWCN", groups=groups)
    made, _ = converted(host, "NCHW", host.shape, "FRACTAL_Z", groups=groups)

    assert host.transpose(2, 3, 1, 0).tolist() == back.tolist()
    assert device.tolist() == made.tolist()


@settings(max_examples=40)
@given(
    st.sampled_from(["NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "C1HWNCoC0"]),
    st.sampled_from(["NCHW", "NHWC", "HWCN", "CHWN", "ND"]),
    st.tuples(*[st.integers(1, 5)] * 2, *[st.integers(1, 4)] * 2),
    st.sampled_from(["float32", "int8", "bfloat16", "complex128", "bool", "int4"]),
)
def test_blocked_formats_come_back(source, target, shape, name):
    """Whatever the type and the sizes, the host array comes back in the target's layout."""
    dtype = dtypes.from_name(name)
    shape = (shape[0], shape[1] * 7, *shape[2:])
    host = (np.arange(int(np.prod(shape))) % 7).astype("f4").astype(dtype.numpy).reshape(shape)
    device = formats.encode(source, host)

    made, _ = converted(device, source, shape, target)

    axes = ["NCHW".index(axis) for axis in target] if target != "ND" else range(4)
    assert host.transpose(axes).astype("c16").tolist() == made.astype("c16").tolist()


def test_many_samples_are_converted_in_parts(monkeypatch):
    """A large batch is converted some samples at a time."""
    monkeypatch.setattr(convert_format, "_CHUNK", 1000)
    host = np.arange(5 * 20 * 3 * 4).astype("f2").reshape(5, 20, 3, 4)
    device = formats.encode("NC1HWC0", host)
    info = described(device, "NC1HWC0", host.shape)

    plan = convert_format.plan(info, HALF, "NHWC")
    parts = list(plan.parts(device))

    assert [1] * 5 == [len(part) for part in parts]
    assert host.transpose(0, 2, 3, 1).tolist() == np.concatenate(parts).tolist()


def test_int8_has_blocks_of_32():
    """FRACTAL_Z and NC1HWC0 of int8 have 32 channels in a block."""
    host = np.ones((2, 20, 3, 4), "i1")
    info = dataclasses.replace(described(host, "NCHW", host.shape), data_type=3)

    plan = convert_format.plan(info, dtypes.from_name("int8"), "NC1HWC0")

    assert (2, 1, 3, 4, 32) == plan.shape == next(plan.parts(host)).shape


REFUSED = {
    "unknown source": ("NC1KHKWHWC0", (1, 1, 1), (1,), "NCHW", (), 22, "no conversion from NC1KHKWHWC0"),
    "source without bytes": ("FRACTAL_ZN_LSTM", (1, 1, 16, 16), (4, 4), "ND", (), 22, "no conversion from"),
    "unknown target": ("NCHW", IMAGE, IMAGE, "FRACTAL_ZZ", (), 22, "from NCHW to FRACTAL_ZZ"),
    "target of another rank": ("NCHW", IMAGE, IMAGE, "NDC1HWC0", (), 22, "from NCHW to NDC1HWC0"),
    "matrix to HWCN": ("FRACTAL_NZ", (1, 1, 16, 16), (3, 4), "HWCN", (), 22, "from FRACTAL_NZ to HWCN"),
    "ND with a shape": ("ND", (6,), (6,), "NCHW", (2, 3), 22, "from ND to NCHW"),
    "matrix without shape": ("FRACTAL_NZ", (1, 1, 16, 16), (), "ND", (), 6, "without an original shape"),
    "matrix of another shape": ("FRACTAL_NZ", (1, 1, 16, 16), (17, 3), "ND", (), 34, "is not the FRACTAL_NZ"),
    "weight without shape": ("FRACTAL_Z", (24, 1, 16, 16), (), "NCHW", (), 26, "needs -s"),
    "original shape of another tensor": (
        "NC1HWC0",
        (2, 2, 3, 4, 16),
        (2, 33, 3, 4),
        "NCHW",
        (),
        40,
        "give -s",
    ),
    "given shape of another tensor": ("NC1HWC0", (2, 2, 3, 4, 16), IMAGE, "NCHW", (2, 3), 23, "of -s (2, 3)"),
    "given shape too large": ("NCHW", IMAGE, IMAGE, "NHWC", (2, 3, 4, 21), 23, "is not a part of the shape"),
    "given shape of another size": ("NCHW", IMAGE, IMAGE, "NCHW", (2, 3), 23, "another number of elements"),
    "vector as an image": ("NC1HWC0", (1, 1, 1, 1, 16), (3,), "NHWC", (), 23, "has no NHWC form"),
    "channels of C04": ("NCHW", IMAGE, IMAGE, "FRACTAL_Z_C04", (), 23, "4 channels or less"),
}


@pytest.mark.parametrize(
    ("source", "shape", "original", "target", "wanted", "code", "message"), REFUSED.values(), ids=REFUSED
)
def test_impossible_conversions_are_refused(source, shape, original, target, wanted, code, message):
    """An impossible conversion is an error with msaccucmp's code and the reason."""
    info = TensorInfo(2, dump_message.FORMATS[source], shape, original, 0)

    with pytest.raises(ToolError) as caught:
        convert_format.plan(info, HALF, target, wanted)

    assert code == caught.value.code
    assert message in str(caught.value)


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(dump_message.FORMATS)),
    st.sampled_from(sorted(dump_message.FORMATS)),
    st.lists(st.sampled_from([0, 1, 2, 3, 16, 32, 2**62]), max_size=7).map(tuple),
    st.lists(st.sampled_from([0, 1, 2, 3, 16, 32, 2**62]), max_size=7).map(tuple),
    st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1]),
)
def test_any_header_has_a_plan_or_none(source, target, shape, original, groups):
    """Any header gives a plan with a result no larger than its padding, or a ToolError."""
    info = TensorInfo(2, dump_message.FORMATS[source], shape, original, 0, sub_format=groups)

    try:
        plan = convert_format.plan(info, HALF, target)
    except ToolError:
        return

    if plan.format != source and convert_format.source_of(info) not in convert_format.LAYOUTS[4]:
        assert np.prod(plan.shape, dtype=object) <= 256 * max(1, np.prod(shape, dtype=object))
