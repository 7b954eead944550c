"""Dump files converted to arrays."""

import io
import json
import stat
import uuid
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from msdump import executors
from msdump.convert import OutputKind, Target, convert_files, find_sources
from msdump.encode import RawInfo, TensorInfo, dump_data, dump_message, op_debug
from msdump.executors import ExecutorChoice
from tests.judge import dumped
from tests.judge.dumped import IMAGE, NAME, NC1HWC0, convert, names

MSNPY = "Conv2D.Conv2D-op12.1.2.1612439563338030"
NAMES = {
    "npy": (OutputKind.NPY, "", [f"{NAME}.input.0.npy", f"{NAME}.input.1.npy", f"{NAME}.output.0.npy"]),
    "bin": (
        OutputKind.BIN,
        "",
        [
            f"{NAME}.input.0.1280.float16.NC1HWC0.bin",
            f"{NAME}.input.1.3.int64.ND.bin",
            f"{NAME}.output.0.1.float32.ND.bin",
        ],
    ),
    "msnpy": (
        OutputKind.MSNPY,
        "",
        [f"{MSNPY}.input.0.NC1HWC0.npy", f"{MSNPY}.input.1.ND.npy", f"{MSNPY}.output.0.ND.npy"],
    ),
    "npy, converted": (
        OutputKind.NPY,
        "NCHW",
        [f"{NAME}.input.0.2x20x5x4.npy", f"{NAME}.input.1.3.npy", f"{NAME}.output.0..npy"],
    ),
    "bin, converted": (
        OutputKind.BIN,
        "NCHW",
        [
            f"{NAME}.input.0.2_20_5_4.float16.NCHW.bin",
            f"{NAME}.input.1.3.int64.ND.bin",
            f"{NAME}.output.0..float32.ND.bin",
        ],
    ),
    "msnpy, converted": (
        OutputKind.MSNPY,
        "NCHW",
        [f"{MSNPY}.input.0.NCHW.npy", f"{MSNPY}.input.1.ND.npy", f"{MSNPY}.output.0.ND.npy"],
    ),
}


@pytest.mark.parametrize(("kind", "form", "expected"), NAMES.values(), ids=NAMES)
def test_names(image, tmp_path, kind, form, expected):
    """Results have the names that msaccucmp gives, and the bytes that numpy.save writes, header included."""
    done = convert([image], tmp_path / "out", Target(form, kind))

    first = (tmp_path / "out" / expected[0]).read_bytes()
    array, saved = IMAGE if form else NC1HWC0, io.BytesIO()
    np.save(saved, array)
    assert expected == names(tmp_path / "out")
    assert first == (array.tobytes() if kind is OutputKind.BIN else saved.getvalue())
    assert (3, 0 if not form else 2, 0) == (done.files, done.kept, done.code)


def test_shapes_are_the_devices(image, tmp_path):
    """Without a format the arrays have the device's shapes, a scalar none."""
    convert([image], tmp_path / "out")

    loaded = [np.load(tmp_path / "out" / f"{NAME}.{slot}.npy") for slot in ("input.0", "input.1", "output.0")]
    assert [(2, 2, 5, 4, 16), (3,), ()] == [array.shape for array in loaded]
    assert [0, 1, 2] == loaded[1].tolist()
    assert loaded[2] == 3.5


def test_other_names_of_msnpy(tmp_path):
    """A name of more fields, or an operator without a name, keeps the dump file's name."""
    more = f"{NAME}.4.1.2.0"
    dumped.file(tmp_path / "in" / more, dumped.tensor(np.zeros(2)))
    dumped.file(tmp_path / "in" / NAME, dumped.tensor(np.zeros(2)), op_name="")

    convert([tmp_path / "in"], tmp_path / "out", Target(kind=OutputKind.MSNPY))

    assert [f"{NAME}.4.1.2.0.output.0.ND.npy", f"{NAME}.output.0.ND.npy"] == names(tmp_path / "out")


TYPES = {
    "float32": ("<f4", "<f4"),
    "float64": ("<f8", "<f8"),
    "bool": ("?", "|b1"),
    "uint16": ("<u2", "<u2"),
    "complex64": ("<c8", "<c8"),
    "bfloat16": (ml_dtypes.bfloat16, "<f4"),
    "float8_e5m2": (ml_dtypes.float8_e5m2, "<f4"),
    "int4": (ml_dtypes.int4, "|i1"),
    "uint1": (ml_dtypes.uint1, "|u1"),
}


@pytest.mark.parametrize("form", ["", "NCHW"])
@pytest.mark.parametrize(("dtype", "saved"), TYPES.values(), ids=TYPES)
def test_types_that_numpy_lacks_are_widened(tmp_path, dtype, saved, form):
    """Elements are saved in a type that numpy.load reads, with their values."""
    array = (np.arange(2 * 3 * 5 * 7) % 2).astype(dtype).reshape(2, 3, 5, 7)
    path = dumped.file(tmp_path / NAME, dumped.tensor(array, "NCHW" if form else "ND"))

    convert([path], tmp_path / "out", Target("NHWC" if form else "", OutputKind.NPY))

    (found,) = names(tmp_path / "out")
    loaded = np.load(tmp_path / "out" / found)
    expected = array.transpose(0, 2, 3, 1) if form else array
    assert saved == loaded.dtype.str
    assert expected.astype("c8").tolist() == loaded.astype("c8").tolist()


def test_undefined_tensors_are_bytes(tmp_path):
    """A tensor without a type becomes int8 of its size, whatever shape and format it claims."""
    info = TensorInfo(0, 3, (2, 2), (2, 2), 3)
    path = dumped.file(tmp_path / NAME, (info, b"\x01\xff\x02"))

    convert([path], tmp_path / "plain")
    done = convert([path], tmp_path / "nchw", Target("NCHW"))

    assert [1, -1, 2] == np.load(tmp_path / "plain" / f"{NAME}.output.0.npy").tolist()
    assert [1, -1, 2] == np.load(tmp_path / "nchw" / f"{NAME}.output.0.3.npy").tolist()
    assert done.kept == 1


def test_padding_is_cut(tmp_path):
    """Bytes of a tensor behind its elements are left out, with and without a format."""
    path = dumped.file(tmp_path / NAME, dumped.tensor(NC1HWC0, "NC1HWC0", IMAGE.shape, size=4096))

    convert([path], tmp_path / "plain")
    convert([path], tmp_path / "nchw", Target("NCHW"))

    assert NC1HWC0.tolist() == np.load(tmp_path / "plain" / f"{NAME}.output.0.npy").tolist()
    assert IMAGE.tolist() == np.load(tmp_path / "nchw" / f"{NAME}.output.0.2x20x5x4.npy").tolist()


def test_buffers_and_workspaces(tmp_path):
    """Buffers and workspaces are written as they are."""
    path = dumped.file(
        tmp_path / NAME,
        buffers=[(RawInfo(3), b"abc"), (RawInfo(1, 7), b"x")],
        spaces=[(RawInfo(2), b"de"), (RawInfo(0), b"")],
    )

    convert([path], tmp_path / "out", Target("NCHW"))

    read = {
        name.removeprefix(f"{NAME}."): (tmp_path / "out" / name).read_bytes()
        for name in names(tmp_path / "out")
    }
    assert {"l1buffer.0.bin": b"abc", "7buffer.1.bin": b"x", "space.0.bin": b"de", "space.1.bin": b""} == read


@pytest.mark.parametrize("form", ["", "NCHW"])
def test_overflow_records(tmp_path, form):
    """An Opdebug file becomes the JSON of its record."""
    record = op_debug.DebugRecord(op_debug.Unit.AIC, {"task_id": 9}, (32,))
    path = tmp_path / "Opdebug.Node_OpDebug.3.1.1612439563338030"
    path.write_bytes(dump_data.header(op_debug.header_data(1)) + op_debug.encode(record))

    convert([path], tmp_path / "out", Target(form))

    assert [f"{path.name}.output.0.json"] == names(tmp_path / "out")
    text = (tmp_path / "out" / f"{path.name}.output.0.json").read_bytes()
    assert op_debug.to_json(record) == text
    assert json.loads(text)["acc_list"]["data"]["task_id"] == 9


def test_version_1(tmp_path):
    """A file that is one message is read where version 1 is given, and refused as version 2."""
    message = bytes.fromhex("1a14 0803 1002 1a03 0a0102 2a02 0507 3a03 0a0102 3002 32036f6e65")
    path = tmp_path / NAME
    path.write_bytes(message)

    done = convert([path], tmp_path / "out", Target(version=1))
    refused = convert([path], tmp_path / "none")

    assert [5, 7] == np.load(tmp_path / "out" / f"{NAME}.output.0.npy").tolist()
    assert (0, 11) == (done.code, refused.code)


def test_an_npy_file_is_an_output(tmp_path):
    """A .npy file that is given is converted as an operator's output of no format."""
    np.save(tmp_path / "x.npy", np.arange(3, dtype="f4"))
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((2, 3))))

    convert([tmp_path / "x.npy"], tmp_path / "out", Target(kind=OutputKind.BIN))
    refused = convert([tmp_path / "f.npy"], tmp_path / "none")

    data = (tmp_path / "out" / "x.npy.output.0.3.float32.RESERVED.bin").read_bytes()
    assert [0, 1, 2] == np.frombuffer(data, "<f4").tolist()
    assert "Fortran order" in refused.failed[0].failures[0].message


def test_directories_are_converted_with_those_below(tmp_path):
    """Results keep their place below the output; other kinds of files are skipped and counted."""
    source, output = tmp_path / "in", tmp_path / "out"
    for place in ("a/0", "a/1", "b"):
        dumped.file(source / place / NAME, dumped.tensor(np.zeros(2)))
    for other in ("a/statistic.csv", "a/0/x.npy", "b/mapping.csv", ".hidden/1", "b/.x", "acl_dump_0.json"):
        path = source / other
        path.parent.mkdir(exist_ok=True)
        path.write_text("other", encoding="utf-8")

    done = convert([source], output)

    assert [f"{place}/{NAME}.output.0.npy" for place in ("a/0", "a/1", "b")] == names(output)
    assert {".csv": 2, ".npy": 1, ".json": 1, "": 1} == dict(done.skipped)


def test_results_in_the_directory_of_the_dump_are_skipped_the_next_time(tmp_path):
    """Converting a directory into itself twice gives the same files."""
    dumped.file(tmp_path / NAME, dumped.tensor(np.zeros(2)))

    first, second = (convert([tmp_path], tmp_path, Target(kind=OutputKind.BIN)) for _ in range(2))

    assert first.files == second.files == 1
    assert 2 == len(names(tmp_path))


def test_modes(tmp_path, image):
    """Files and directories are their owner's alone."""
    (tmp_path / "deep").mkdir(mode=0o700)
    convert([image.parent], tmp_path / "deep" / "out")

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep").rglob("*")]
    assert {0o600, 0o700} == set(modes)


@pytest.mark.parametrize("target", [Target(), Target("NCHW")], ids=["as it is", "NCHW"])
@pytest.mark.parametrize("large", [executors.LARGE, 0], ids=["processes", "threads"])
def test_several_workers_give_the_same(tmp_path, in_processes, monkeypatch, large, target):
    """Work spread over processes or threads gives the same files and results, in the order of the files."""
    monkeypatch.setattr(executors, "LARGE", large)
    for number in range(9):
        dumped.file(
            tmp_path / "in" / f"Add.op{number}.0.0.16124395633380{number:02}",
            dumped.tensor(dumped.counted((number + 1, 1, 2, 3, 16)), "NC1HWC0", (number + 1, 16, 2, 3)),
        )
    (tmp_path / "in" / "broken").write_text("no dump", encoding="utf-8")
    found = find_sources([str(tmp_path / "in")], str(tmp_path / "two"))
    seen = []

    one = convert([tmp_path / "in"], tmp_path / "one", target)
    in_processes()
    two = convert_files(
        found, str(tmp_path / "two"), target, executor=ExecutorChoice(2), progress=seen.append
    )

    assert names(tmp_path / "one") == names(tmp_path / "two")
    for name in set(names(tmp_path / "one")) - {"convert_failed_file_list.txt"}:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert [result.path for result in one.results] == [result.path for result in two.results]
    assert [Path(source.path).stat().st_size for source in found.sources] == seen
    assert (11, 1, 9) == (two.code, len(two.failed), two.files)


def test_long_names(tmp_path):
    """A name of 255 bytes becomes a hash, which mapping.csv explains once; one of 254 bytes stays."""
    short = f"Conv2D.{'x' * 213}.1.2.1612439563338030"
    dumped.file(tmp_path / "in" / short, dumped.tensor(np.arange(3)))
    name = f"Conv2D.{'x' * 214}.1.2.1612439563338030"
    long = f"{name}.output.0.npy"
    hashed = f"{uuid.uuid3(uuid.NAMESPACE_DNS, long).hex}.npy"
    dumped.file(tmp_path / "in" / name, dumped.tensor(np.arange(3)))

    for _ in range(2):
        convert([tmp_path / "in"], tmp_path / "out")

    assert len(long) == 255
    assert sorted((hashed, "mapping.csv", f"{short}.output.0.npy")) == sorted(names(tmp_path / "out"))
    assert f"{hashed},{long}\n" == (tmp_path / "out" / "mapping.csv").read_text()


@pytest.mark.parametrize(
    ("only", "form", "expected"),
    [
        (("input", 0), "NCHW", [f"{NAME}.input.0.2x20x5x4.npy"]),
        (("output", 0), "NHWC", [f"{NAME}.output.0..npy"]),
    ],
)
def test_one_tensor(image, tmp_path, only, form, expected):
    """-i and -o convert one tensor."""
    convert([image], tmp_path / "out", Target(form, only=only))

    assert expected == names(tmp_path / "out")


def test_a_shape_is_given(image, tmp_path):
    """-s is the shape in the target's order of axes."""
    target = Target("NHWC", shape=(2, 5, 4, 18), only=("input", 0))

    convert([image], tmp_path / "out", target)

    loaded = np.load(tmp_path / "out" / f"{NAME}.input.0.2x5x4x18.npy")
    assert IMAGE[:, :18].transpose(0, 2, 3, 1).tolist() == loaded.tolist()


def test_every_reference_format_is_known():
    """The formats that msaccucmp names are accepted, except the ones that it spells in its own way."""
    text = """
        NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0
        FRACTAL_DECONV_TRANSPOSE FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN
        NC1KHKWHWC0 BN_WEIGHT FILTER_HWCK HWCN MD NDHWC C1HWNCoC0 FRACTAL_NZ NCDHW DHWCN NDC1HWC0
        FRACTAL_Z_3D CN DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL
        ND_RNN_BIAS FRACTAL_ZN_RNN YUV YUV_A MAX
    """

    assert set(text.split()) <= set(dump_message.FORMATS)
