"""Files that a session of the runtime writes, beside those that the encoder makes of the same values."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from msdump import dtypes
from msdump.device import formats, rounded
from msdump.encode import npy
from msdump.errors import FormatError
from msdump.execute import Runtime, cpu_runtime, values
from msdump.execute.runtime import SessionUse
from msdump.graph.kernel import ADDRESSES
from msdump.graph.kernel.linked import add_saves
from msdump.statistics import SAVE, compiled
from msdump.store import Clock, NameParts, SessionFiles, WantedFile, WantedFiles
from msdump.store.session_files import layout, takes
from msdump.store.write import FILE_MODE
from msdump.store.write.place import OpenDirectory

TYPES = tuple(row.name for row in dtypes.DTYPES if row.onnx and takes(row))
NAME = NameParts("ä.Neg-op0.".encode(), b".output.0.npy")
FLOAT16 = dtypes.from_name("float16")
FLOAT32 = dtypes.from_name("float32")
FILE = WantedFile(NAME, FLOAT32, FLOAT32)

pytestmark = pytest.mark.skipif(
    compiled.KERNEL is None or not hasattr(os, "O_TMPFILE"), reason="no session writes files here"
)


def _session(kind):
    """Return a session that writes ``y``, a copy of ``x``, then ``z``, a copy of ``y``, and gives both."""
    nodes = [
        helper.make_node("Identity", ["x"], ["y"], name="0"),
        helper.make_node("Identity", ["y"], ["z"], name="1"),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in "yz"]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, None)], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    add_saves(model, {"y": 0, "z": 1})
    return cpu_runtime().session(model.SerializeToString(), use=SessionUse(looks=True))


def _written(session, array, folder, wanted, clock=None):
    """Return what a session gives of an array, and its files; they are closed where it fails, too."""
    place = OpenDirectory(str(folder))
    files = SessionFiles(WantedFiles(wanted), place.for_session(FILE_MODE), clock or Clock())
    try:
        feeds = {"x": values.owned(array), ADDRESSES[SAVE]: values.owned(files.addresses)}
        results = session.run_with_ort_values(feeds, ["y~", "z~"], None)
        return [values.to_array(each) for each in results], files
    finally:
        files.close()
        place.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give the folder of all examples, which leave it empty."""
    return tmp_path_factory.mktemp("files")


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(TYPES),
    shape=st.lists(st.integers(1, 4), max_size=7),
    long=st.lists(st.integers(0, 3000), max_size=1),
)
def test_files_are_those_of_the_encoder(name, shape, long, folder):
    """A file has the bytes that the encoder gives for the array, its mode, and a name with its time."""
    shape = shape[:4] + long + shape[4:] if math.prod(shape) < 100 else shape
    dtype = dtypes.from_name(name)
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype.numpy)
    clock = Clock()
    before = clock.now()

    wanted = WantedFile(NAME, dtype, dtypes.from_numpy(dtype.saved))
    results, files = _written(_session(dtype.onnx), array, folder, [wanted, None], clock)

    expected = b"".join(npy.encode(dtypes.widen(array, dtype)))
    left = {path.name: path for path in folder.iterdir()}
    if array.size:
        ((written, path),) = left.items()
        time = int(written.removeprefix(NAME.head.decode()).removesuffix(NAME.tail.decode()))
        assert expected == path.read_bytes()
        assert FILE_MODE == path.stat().st_mode & 0o777
        assert before < time == clock.last
        assert ((1, len(expected)), 0) == (files.written, files.empty)
        path.unlink()
    else:
        assert ({}, (0, 0), 1) == (left, files.written, files.empty)
    assert [array.tobytes()] * 2 == [each.tobytes() for each in results]
    assert [(array.dtype, array.shape)] * 2 == [(each.dtype, each.shape) for each in files.stand_ins()]


HALVES = [
    ("float16", False),
    ("float16", True),
    ("bfloat16", False),
]
EDGES = np.array(
    [
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x32FFFFFF, 0x33000000, 0x33000001, 0x387FFFFF),
        *(0x38800000, 0x38801000, 0x38803000, 0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x477FEFFF),
        *(0x477FF000, 0xC77FF000, 0x47800000, 0x7F7F7FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000),
        *(0xFFC00000,),
    ],
    np.uint32,
).view(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    held=st.sampled_from(HALVES),
    is_host=st.booleans(),
    bits=st.lists(st.integers(0, 2**32 - 1), max_size=60),
    count=st.sampled_from([0, 1, 20_000]),
)
def test_values_are_those_of_the_device(held, is_host, bits, count, folder):
    """A float32 that the device holds in a smaller type has the values that it has there, in either type."""
    dtype, saturates = dtypes.from_name(held[0]), held[1]
    saved = FLOAT32 if is_host else dtypes.from_numpy(dtype.saved)
    array = np.array(bits, np.uint32).view(np.float32)
    array[np.isnan(array)] = np.nan  # which bits of a NaN are kept is not promised
    rest = np.random.default_rng(len(bits)).standard_normal(count).astype(np.float32)
    array = np.concatenate([EDGES, array, rest * 1e4])

    wanted = WantedFile(NAME, FLOAT32, saved, dtype, saturates)
    _written(_session(TensorProto.FLOAT), array, folder, [wanted, None])

    (path,) = folder.iterdir()
    assert rounded(array, dtype, saturates=saturates).astype(saved.numpy).tobytes() == np.load(path).tobytes()
    path.unlink()


HELD_BY_OUTPUTS = ("NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z_3D")
CUT = (
    *(*HELD_BY_OUTPUTS, "NC1HWC0_C04", "C1HWNCoC0", "FRACTAL_Z_C04"),
    *("FRACTAL_ZN_RNN", "NHWC", "HWCN", "ChannelLast"),
)
SIZES = st.sampled_from([1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 48, 100])


@st.composite
def _shapes(draw):
    """Return shapes of up to five dimensions, of not too many elements."""
    shape = []
    for _ in range(draw(st.integers(0, 5))):
        shape.append(draw(SIZES if math.prod(shape) < 300 else st.integers(1, 3)))
    return tuple(draw(st.permutations(shape)))


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(TYPES), format_name=st.sampled_from(CUT), shape=_shapes(), is_held=st.booleans())
def test_images_are_those_of_the_device(name, format_name, shape, is_held, folder):
    """A file that a session writes in a device's format is what the encoder makes of the device's image."""
    dtype = dtypes.from_name(name)
    held = FLOAT16 if is_held and dtype is FLOAT32 else dtype
    array = (np.arange(math.prod(shape)) % 120 + 1).reshape(shape) / (1 if dtype.numpy.kind in "iu" else 3)
    array = array.astype(dtype.numpy)
    order = layout(format_name, len(shape), formats.c0(dtype))
    try:
        image = dtypes.widen(formats.encode(format_name, rounded(array, held)), held)
    except FormatError:
        assert order is None
        return
    if order is None:
        assert format_name not in {*HELD_BY_OUTPUTS}
        return
    wanted = WantedFile(
        NAME, dtype, dtypes.from_numpy(image.dtype), None if held is dtype else held, layout=order
    )

    _, files = _written(_session(dtype.onnx), array, folder, [wanted, None])

    (path,) = folder.iterdir()
    expected = b"".join(npy.encode(image))
    assert expected == path.read_bytes()
    assert (1, len(expected)) == files.written
    path.unlink()


@pytest.mark.parametrize(
    ("format_name", "shape"),
    [
        ("NC1HWC0", (2, 40, 61, 67)),
        ("NC1HWC0", (1, 3, 300, 300)),
        ("NC1HWC0", (3, 3000, 1, 1)),
        ("FRACTAL_NZ", (3, 130, 700)),
        ("FRACTAL_NZ", (70000,)),
        ("FRACTAL_NZ", (70001,)),
        ("FRACTAL_Z", (70, 90, 3, 3)),
        ("NDC1HWC0", (1, 40, 5, 41, 43)),
        ("FRACTAL_Z_3D", (20, 33, 3, 3, 3)),
    ],
)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "int64"])
def test_large_images_are_made_a_part_at_a_time(format_name, shape, name, tmp_path):
    """An image that is larger than what is made of it at once has the bytes of one that is made whole."""
    dtype = dtypes.from_name(name)
    array = np.random.default_rng(2).integers(-99, 99, shape).astype(dtype.numpy)
    order = layout(format_name, len(shape), formats.c0(dtype))
    wanted = WantedFile(NAME, dtype, dtypes.from_numpy(dtype.saved), layout=order)

    _written(_session(dtype.onnx), array, tmp_path, [wanted, None])

    (path,) = tmp_path.iterdir()
    assert b"".join(npy.encode(dtypes.widen(formats.encode(format_name, array), dtype))) == path.read_bytes()


@pytest.mark.parametrize(
    "wanted",
    [
        WantedFile(NAME, FLOAT32, FLOAT32, layout=layout("NC1HWC0", 4, 16)),
        WantedFile(NAME, FLOAT32, FLOAT32, layout=layout("FRACTAL_NZ", 1, 16)),
        WantedFile(NAME, dtypes.BFLOAT16, FLOAT32),
    ],
)
def test_a_value_that_is_not_as_foretold_fails_the_run(wanted, tmp_path):
    """A value of another type or rank than its file is described for fails the session and leaves nothing."""
    with pytest.raises(Exception, match="a file cannot be written"):
        _written(_session(TensorProto.FLOAT), np.ones((4, 4), np.float32), tmp_path, [wanted, None])

    assert [] == [*tmp_path.iterdir()]


def test_times_that_are_taken_are_passed_over(tmp_path):
    """No two files get one time: none that the clock gave before, nor one of a name that stands there."""
    clock = Clock()
    later = clock.now() + 10**9
    clock.pass_over(later)
    taken = tmp_path / f"{NAME.head.decode()}{later + 1}{NAME.tail.decode()}"
    taken.write_bytes(b"mine")

    _written(_session(TensorProto.FLOAT), np.ones(3, np.float32), tmp_path, [FILE, FILE], clock)

    times = sorted(int(path.name.split(".")[2]) for path in tmp_path.iterdir())
    assert [later + 1, later + 2, later + 3] == times
    assert b"mine" == taken.read_bytes()
    assert later + 3 == clock.last


def test_a_file_that_cannot_be_written_fails_the_run(tmp_path):
    """A name that no file can have fails the session; what was written before is told, and can be removed."""
    session = _session(TensorProto.FLOAT)
    place = OpenDirectory(str(tmp_path))
    names = WantedFiles([FILE, WantedFile(NameParts(b"x" * 250, b""), FLOAT32, FLOAT32)])
    files = SessionFiles(names, place.for_session(FILE_MODE), Clock())
    array = np.ones(3, np.float32)
    feeds = {"x": values.owned(array), ADDRESSES[SAVE]: values.owned(files.addresses)}

    with pytest.raises(Exception, match="a file cannot be written"):
        session.run_with_ort_values(feeds, ["z~"], None)

    assert ([True, False], (1, 140)) == (files.seen.tolist(), files.written)
    assert 1 == len([*tmp_path.iterdir()])
    files.remove(0)
    assert ([False, False], (0, 0), []) == (files.seen.tolist(), files.written, [*tmp_path.iterdir()])
    files.close()
    place.close()


_SIZES = st.sampled_from([0, 1, 5000, 16_384, 70_000, 200_000])


def _together(sizes, waiting, runtime):
    """Return a session of operators in a row that writes what each makes, and gives nothing of it."""
    nodes, names = [], {}
    for number in range(len(sizes)):
        nodes.append(helper.make_node("Identity", [f"x{number}"], [f"y{number}"], name=str(number)))
        names[f"y{number}"] = number
    nodes.append(helper.make_node("Shape", ["x0"], ["end"], name="end"))
    inputs = [
        helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, None) for number in range(len(sizes))
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("end")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    add_saves(model, names, waiting=waiting)
    use = SessionUse(looks=True, in_order=True)
    return runtime.session(model.SerializeToString(), use=use)


_OF_TWO = Runtime(2)
_OPEN = Path("/proc/self/fd")


@contextmanager
def _writing(sizes, waiting, folder, wanted):
    """Give values of some sizes, what becomes of their files, and a function that writes them."""
    place = OpenDirectory(str(folder))
    files = SessionFiles(WantedFiles(wanted), place.for_session(FILE_MODE), Clock())
    arrays = [np.full(size, number, np.float32) for number, size in enumerate(sizes)]
    feeds = {f"x{number}": values.owned(array) for number, array in enumerate(arrays)}
    feeds[ADDRESSES[SAVE]] = values.owned(files.addresses)
    session = _together(sizes, waiting, _OF_TWO)
    yield arrays, files, lambda: session.run_with_ort_values(feeds, ["end"], None)
    files.close()
    place.close()


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(_SIZES, min_size=1, max_size=9), waiting=st.sets(st.integers(0, 8)))
def test_files_that_are_written_together(sizes, waiting, folder):
    """Whichever files are written together, each has the bytes of its value, and times go up by slot."""
    wanted = [
        WantedFile(NameParts(b"op%d." % number, b".npy"), FLOAT32, FLOAT32) for number in range(len(sizes))
    ]

    with _writing(sizes, waiting, folder, wanted) as (arrays, files, write):
        write()

    left = sorted(folder.iterdir(), key=lambda path: int(path.name.split(".")[1]))
    expected = {
        f"op{number}": b"".join(npy.encode(array)) for number, array in enumerate(arrays) if array.size
    }
    assert [*expected] == [path.name.split(".")[0] for path in left]
    assert [*expected.values()] == [path.read_bytes() for path in left]
    assert (len(expected), sum(map(len, expected.values()))) == files.written
    for path in left:
        path.unlink()


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("waiting", [(), range(6)])
def test_one_of_several_files_cannot_be_written(waiting, size, tmp_path):
    """Where one file fails the session does, and what it tells of the others is so: no file is left open."""
    names = [b"x" * 250 if number == 3 else b"op%d." % number for number in range(6)]
    wanted = [WantedFile(NameParts(name, b".npy"), FLOAT32, FLOAT32) for name in names]

    with _writing([size] * 6, waiting, tmp_path, wanted) as (_, files, write):
        before = len([*_OPEN.iterdir()])
        with pytest.raises(Exception, match="a file cannot be written"):
            write()
        assert before == len([*_OPEN.iterdir()])

    assert [True] * 3 + [False] * 3 == files.seen.tolist()
    assert ["op0", "op1", "op2"] == sorted(path.name.split(".")[0] for path in tmp_path.iterdir())


def test_a_place_without_nameless_files_is_none(tmp_path, monkeypatch):
    """A directory whose file system has no files without names is none for a session."""
    monkeypatch.setattr("msdump.store.write.place._NAMELESS", 0)
    place = OpenDirectory(str(tmp_path))

    assert place.for_session(FILE_MODE) is None
    place.close()


def test_names_around_the_time():
    """A name is put together from its parts, with the time in between."""
    names = WantedFiles([None, FILE])

    assert "ä.Neg-op0.17.output.0.npy" == names.name(1, 17).decode()
