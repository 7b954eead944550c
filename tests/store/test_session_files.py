"""Files that a session of the runtime writes, beside those that the encoder makes of the same values."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from msdump import dtypes
from msdump.device.precision import rounded
from msdump.encode import npy
from msdump.execute import values
from msdump.execute.runtime import SessionUse, runtime
from msdump.graph.kernel.measuring import ADDRESSES, add_saves
from msdump.statistics import compiled
from msdump.statistics.insession import SAVE
from msdump.store.clock import Clock
from msdump.store.session_files import NameParts, SessionFiles, WantedFile, WantedFiles, takes
from msdump.store.write.files import FILE_MODE
from msdump.store.write.place import OpenDirectory

TYPES = tuple(row.name for row in dtypes.DTYPES if row.onnx and takes(row))
NAME = NameParts("ä.Neg-op0.".encode(), b".output.0.npy")
FILE = WantedFile(NAME)

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
    return runtime().session(model.SerializeToString(), use=SessionUse(looks=True))


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

    results, files = _written(_session(dtype.onnx), array, folder, [FILE, None], clock)

    expected = b"".join(npy.encode(array))
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
    bits=st.lists(st.integers(0, 2**32 - 1), max_size=60),
    count=st.sampled_from([0, 1, 20_000]),
)
def test_values_are_those_of_the_device(held, bits, count, folder):
    """A float32 that the device holds in a smaller type has the values that it has there."""
    dtype, saturates = dtypes.from_name(held[0]), held[1]
    array = np.array(bits, np.uint32).view(np.float32)
    array[np.isnan(array)] = np.nan  # which bits of a NaN are kept is not promised
    rest = np.random.default_rng(len(bits)).standard_normal(count).astype(np.float32)
    array = np.concatenate([EDGES, array, rest * 1e4])

    _written(_session(TensorProto.FLOAT), array, folder, [WantedFile(NAME, dtype, saturates), None])

    (path,) = folder.iterdir()
    assert rounded(array, dtype, saturates=saturates).astype(np.float32).tobytes() == np.load(path).tobytes()
    path.unlink()


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
    names = WantedFiles([FILE, WantedFile(NameParts(b"x" * 250, b""))])
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
