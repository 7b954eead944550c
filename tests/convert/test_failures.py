"""Dump files that cannot be converted, and options that are refused."""

import dataclasses
import errno
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.convert import OutputKind, Source, Target, convert_file, convert_files, find_sources
from msdump.encode import TensorInfo, dump_data
from msdump.errors import ToolError
from msdump.store import FAILED_LIST
from msdump.store.write import DiskFiles, FileRange, files
from tests.judge import dumped
from tests.judge.dumped import IMAGE, NAME, NC1HWC0, convert, names

MSNPY = "Conv2D.Conv2D-op12.1.2.1612439563338030"


def broken(size, tensor, **changes):
    """Return the bytes of a file with a wrong header."""
    info, data = tensor
    header = dump_data.header(
        dump_data.DumpData("a/b", 1, outputs=(dataclasses.replace(info, size=len(data), **changes),))
    )
    return (header + data)[:size]


HALVES = dumped.tensor(np.arange(4, dtype="f2"))
FAILURES = {
    "no dump file": (b"hello, world", Target(), "", 11, "not a dump file: the header should"),
    "empty": (b"", Target(), "", 11, "not a dump file: 0 bytes"),
    "truncated": (broken(-1, HALVES), Target(), "", 11, "truncated: the tensors have 8 bytes"),
    "too few bytes": (
        broken(None, HALVES, shape=(5,)),
        Target(),
        "output:0",
        11,
        "needs 10 bytes, the tensor",
    ),
    "endless but empty": (broken(None, HALVES, shape=(2**63, 0)), Target(), "output:0", 11, "is impossible"),
    "text": (broken(None, HALVES, data_type=13), Target(), "output:0", 21, "elements of DT_STRING cannot be"),
    "unknown format": (
        broken(None, HALVES, format=17),
        Target("NCHW"),
        "output:0",
        22,
        "no conversion from NC1K",
    ),
    "index": (broken(None, HALVES), Target("NCHW", only=("output", 1)), "", 12, "output 1 is out of range"),
    "no record": (broken(None, HALVES), Target(), "output:0", 11, "not an overflow record"),
}


@pytest.mark.parametrize(("data", "target", "tensor", "code", "message"), FAILURES.values(), ids=FAILURES)
def test_failures(tmp_path, request, data, target, tensor, code, message):
    """A tensor that cannot be converted is reported with msaccucmp's code, listed, and leaves no file."""
    is_record = request.node.callspec.id == "no record"
    path = tmp_path / ("Opdebug.Node_OpDebug.1.2.3" if is_record else NAME)
    path.write_bytes(data)

    done = convert([path], tmp_path / "out", target)

    (failure,) = done.results[0].failures
    listed = (tmp_path / "out" / FAILED_LIST).read_text()
    assert (code, tensor) == (done.code, failure.tensor)
    assert message in failure.message
    assert f"{path}{',' if tensor else ''}{tensor}\n" == listed
    assert [FAILED_LIST] == names(tmp_path / "out")


def test_the_rest_of_a_file_is_converted(tmp_path):
    """One tensor that fails does not keep the others from their files."""
    text = (TensorInfo(13, 2, (1,), (1,), 2), b"ab")
    path = dumped.file(tmp_path / NAME, dumped.tensor(np.zeros(2)), text, inputs=[text])

    done = convert([path], tmp_path / "out")

    assert [f"{NAME}.output.0.npy", FAILED_LIST] == names(tmp_path / "out")
    assert f"{path},input:0,output:1\n" == (tmp_path / "out" / FAILED_LIST).read_text()
    assert [21, 21] == [failure.code for failure in done.results[0].failures]


def test_the_list_of_failures_is_of_this_conversion(tmp_path):
    """A list that an earlier conversion left goes away."""
    (tmp_path / "bad").write_bytes(b"bad")
    path = dumped.file(tmp_path / NAME, dumped.tensor(np.zeros(2)))

    convert([tmp_path / "bad"], tmp_path / "out")
    convert([path], tmp_path / "out")

    assert [f"{NAME}.output.0.npy"] == names(tmp_path / "out")


def test_msnpy_keeps_what_cannot_be_converted(tmp_path):
    """With MindSpore's names a tensor that fails is saved in its own format, and listed."""
    path = dumped.file(tmp_path / NAME, dumped.tensor(np.zeros((1, 1, 16, 16)), "FRACTAL_Z", ()))

    done = convert([path], tmp_path / "out", Target("NCHW", OutputKind.MSNPY))

    assert [f"{MSNPY}.output.0.FRACTAL_Z.npy", FAILED_LIST] == names(tmp_path / "out")
    assert done.code == 26


def test_unreadable_files_are_failures(tmp_path, image):
    """A file that vanished, or that cannot be opened, has the code of opening."""
    found = find_sources([str(image)], str(tmp_path / "out"))
    image.unlink()

    done = convert_files(found, str(tmp_path / "out"), Target())

    assert done.code == 7
    assert "No such file" in done.failed[0].failures[0].message


def test_a_full_disk_leaves_no_torn_file(tmp_path, image, monkeypatch):
    """Where writing fails, the error names file and reason and nothing is left."""

    def fail(fd, buffers):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", fail)
        file = convert_file(Target(), Source(str(image), str(tmp_path / "out")))

    assert file.code == 19
    assert "cannot be written: No space left on device" in file.failures[0].message
    assert [] == names(tmp_path / "out")


def test_a_file_that_shrinks_is_a_failure(tmp_path):
    """A file that becomes shorter while it is copied gives no result."""
    path = tmp_path / "short"
    path.write_bytes(b"abc")

    with pytest.raises(OSError, match="became shorter"):
        DiskFiles().stream(str(tmp_path / "out"), "x", FileRange(str(path), 1, 3))
    with pytest.raises(OSError, match="became shorter"):
        DiskFiles().stream(str(tmp_path / "out"), "x", (FileRange(str(path), 1, 3),))

    assert [] == names(tmp_path / "out")


def _refusing(source, target, count):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _stopping(source, target, count):
    return os.copy_file_range(source, target, min(count, 1000)) if count > 400_000 else 0


@pytest.mark.parametrize(
    "system",
    [getattr(os, "copy_file_range", None), None, _refusing, _stopping],
    ids=["whole", "without", "refusing", "stopping"],
)
def test_what_the_system_does_not_copy_is_read(monkeypatch, tmp_path, system):
    """A range of a file is copied whole behind earlier pieces, however much of it the system copies."""
    monkeypatch.setattr("msdump.store.write.buffers._IN_SYSTEM", system)
    data = np.random.default_rng(0).bytes(600_000)
    path = tmp_path / "source"
    path.write_bytes(data)

    size = DiskFiles().stream(
        str(tmp_path / "out"), "x", (b"head", FileRange(str(path), 11, 500_000), b"tail")
    )

    assert 500_008 == size
    assert b"head" + data[11:500_011] + b"tail" == (tmp_path / "out" / "x").read_bytes()


def test_large_tensors_take_little_memory(tmp_path):
    """A tensor is never in memory as a whole where it is only copied or widened."""
    large = (TensorInfo(27, 2, (1 << 25,), (1 << 25,), 1 << 26), bytes(1 << 26))
    path = dumped.file(tmp_path / NAME, large, (dataclasses.replace(large[0], data_type=2), large[1]))
    del large
    tracemalloc.start()

    done = convert([path], tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (2, 0) == (done.files, done.code)
    assert peak < 24 << 20


REFUSED = {
    "unknown format": (Target("NCWH"), 1, 6, "unknown format 'NCWH'; did you mean 'NCHW'?"),
    "no format like it": (Target("x"), 1, 6, "known are NCHW, NHWC, ND, "),
    "shape without format": (Target(shape=(1, 2)), 1, 6, "-s takes effect only with -f"),
    "index without format": (Target(only=("input", 0)), 1, 6, "-o and -i takes effect only with -f"),
    "scripts without format": (Target(scripts="x"), 1, 6, "-c takes effect only with -f"),
    "shape for two": (Target("ND", shape=(1, 2)), 2, 6, "-s is for one dump file, 2"),
    "index for two": (Target("ND", only=("input", 0)), 2, 6, "-o and -i is for one dump file"),
    "short shape": (Target("ND", shape=(3,)), 1, 23, "must have two or more dimensions"),
    "zero in a shape": (Target("ND", shape=(3, 0)), 1, 23, "each greater than 0"),
    "no scripts": (Target("ND", scripts="/nowhere"), 1, 3, "has no folder format_convert"),
}


@pytest.mark.parametrize(("target", "count", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_options_that_exclude_each_other(tmp_path, image, target, count, code, message):
    """Wrong options are errors with msaccucmp's code and a reason; nothing is written."""
    other = dumped.file(tmp_path / "in" / "Add.a.1.2.3", dumped.tensor(np.zeros(1)))

    with pytest.raises(ToolError) as caught:
        convert([image, other][:count], tmp_path / "out", target)

    assert code == caught.value.code
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


UNUSABLE = {
    "nothing": (["other"], "out", 6, "no dump file to convert; 1 other files were skipped"),
    "no such path": (["nowhere"], "out", 3, "nowhere: no such file or directory"),
    "an output in no directory": (["a"], "no/out", 3, "there is no directory '.*/no'"),
    "an output that is a file": (["a"], "other/a.csv", 3, "no directory to write to"),
    "results of one name": (
        [f"a/{NAME}", f"b/{NAME}"],
        "out",
        None,
        "would have results with the same names",
    ),
}


@pytest.mark.parametrize(("paths", "output", "code", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_paths_that_cannot_be_used(tmp_path, paths, output, code, message):
    """Paths without dump files, and results that cannot be written, are errors before any work."""
    for place in "ab":
        dumped.file(tmp_path / place / NAME, dumped.tensor(np.zeros(1)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.csv").write_text("x", encoding="utf-8")

    with pytest.raises(ToolError, match=message) as caught:
        convert([tmp_path / path for path in paths], tmp_path / output)

    assert code in (None, caught.value.code)


FUZZED = dump_data.header(
    dump_data.DumpData(
        "a/b",
        1,
        inputs=(TensorInfo(2, 3, NC1HWC0.shape, IMAGE.shape, NC1HWC0.nbytes),),
        outputs=(
            TensorInfo(27, 4, (2, 1, 16, 16), (16, 3, 1, 2), 1024, sub_format=1),
            TensorInfo(29, 2, (9,), (9,), 2),
        ),
    )
)


@settings(max_examples=150)
@given(
    st.lists(st.integers(0, len(FUZZED) * 8 - 1), max_size=3),
    st.sampled_from(["", "NCHW", "HWCN", "ND", "NC1HWC0", "FRACTAL_Z"]),
)
def test_flipped_bits_never_raise(tmp_path_factory, bits, form):
    """Whatever a damaged header says, there are files or failures, and never another error."""
    data = bytearray(FUZZED + NC1HWC0.tobytes() + bytes(1026))
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / NAME
    path.write_bytes(data)

    result = convert_file(Target(form, OutputKind.MSNPY), Source(str(path), str(folder / "out")))

    assert result.files + len(result.failures) >= 1
    for written in (folder / "out").glob("*.npy"):
        np.load(written, allow_pickle=False)
