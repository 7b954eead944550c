"""The door through which files are read: its refusals, and that every reader uses it."""

import errno
import os
import signal
import socket
import subprocess

import numpy as np
import onnx
import pytest

from msdump import reading
from msdump.config import source
from msdump.config.acl import faults as acl_file
from msdump.convert import Target, convert_files, find_sources, load_function
from msdump.errors import MsdumpError
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.compare import measure_files
from msdump.judge.pair import read_identities
from msdump.judge.verdict import Limits
from msdump.read import FolderKind, Iteration, Record, open_dump, read_overflow
from msdump.return_codes import ReturnCode
from msdump.store import Key, PathKind, TensorName
from tests.texts import parsed


@pytest.fixture(autouse=True)
def alarm():
    """End a reader that hangs: its wait is interrupted."""

    def expire(number, frame):
        raise AssertionError("the reader hangs")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    """Make a pipe without a writer."""
    os.mkfifo(path)


def endless(path):
    """Make a link to a device without an end."""
    path.symlink_to("/dev/zero")


def listening(path):
    """Make a socket."""
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # a socket's path may have 108 bytes
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)
    os.fchdir(here)
    os.close(here)


def huge(path):
    """Make a file of a terabyte that takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTS = {
    "pipe": (pipe, "not a regular file but a pipe"),
    "endless": (endless, "not a regular file but a device"),
    "socket": (listening, "not a regular file but a socket"),
}

OTHER_REASONS = {
    **{("acl", plant): "it is not a regular file" for plant in PLANTS},  # in CANN's words
    ("side file", "endless"): "outside the model's folder",
}


def rank(path):
    """Return the rank of a dump."""
    return open_dump(path).ranks[0]


def converted(path):
    """Raise the failure of a file's conversion."""
    found = find_sources([str(path)], str(path.parent / "out"))
    done = convert_files(found, str(path.parent / "out"), Target())
    raise MsdumpError(*(failure.message for failure in done.results[0].failures))


def record(path):
    """Return a tensor of a dump."""
    return Record(
        TensorName("Add", "a", 1, "output", 0, "DefaultFormat"),
        str(path),
        Iteration(Key(PathKind.ITERATION), str(path.parent), lambda _: None),
    )


def network(root):
    """Return a model with one input."""
    path = root / "net.onnx"
    onnx.save(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }"), path)
    return loader.load(path)


def side_file(path):
    """Load a model with a weight in another file."""
    weight = onnx.helper.make_tensor("w", 1, [2], np.zeros(2, "f4").tobytes(), raw=True)
    onnx.external_data_helper.set_external_data(weight, path.name)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    node = onnx.helper.make_node("Relu", ["w"], ["y"])
    y = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([node], "g", [], [y], [weight])
    (path.parent / "side.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return loader.load(path.parent / "side.onnx")


READERS = {
    "configuration of a dump": (
        "rank_0/.dump_metadata/data_dump.json",
        lambda path: rank(path.parents[2]).config,
    ),
    "device of a dump": ("rank_0/.dump_metadata/config.json", lambda path: rank(path.parents[2]).device),
    "execution order": (
        "rank_0/execution_order/ms_execution_order_graph_0.csv",
        lambda path: rank(path.parents[2]).execution_order(0),
    ),
    "iterations": (
        "rank_0/execution_order/ms_global_execution_order_graph_0.csv",
        lambda path: rank(path.parents[2]).iterations_run(0),
    ),
    "tensor": ("Add.a.0.0.1.output.0.DefaultFormat.npy", lambda path: record(path).array),
    "header of a tensor": ("Add.a.0.0.1.output.0.DefaultFormat.npy", lambda path: record(path).shape),
    "converted": ("Add.a.1.2.3", converted),
    "compared": ("a.npy", lambda path: measure_files(str(path), str(path), Limits())),
    "overflow": ("Opdebug.Node_OpDebug.1.2.3", lambda path: read_overflow(str(path))),
    "graph file": ("graph.json", lambda path: read_identities(str(path), FolderKind.DUMPS, FolderKind.DUMPS)),
    "inputs": ("x.npz", lambda path: inputs.from_file(network(path.parent), str(path))),
    "script": (
        "convert_a_to_b.py",
        lambda path: load_function(path, "convert", ReturnCode.CONVERT_FUNCTION),
    ),
    "model": ("m.onnx", loader.load),
    "side file": ("m.bin", side_file),
    "configuration": ("c.json", lambda path: source.read(str(path), "CONFIG")),
    "acl": ("acl.json", lambda path: acl_file.read_file(str(path))),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_what_is_no_file(tmp_path, reader, plant):
    """Nothing hangs where a pipe, a device or a socket stands in place of a file; the message says it."""
    place, read = READERS[reader]
    make, reason = PLANTS[plant]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)

    with pytest.raises(MsdumpError) as raised:
        read(path)

    assert OTHER_REASONS.get((reader, plant), reason) in str(raised.value)


@pytest.mark.parametrize(
    "reader", ["configuration of a dump", "execution order", "graph file", "configuration", "acl"]
)
def test_a_file_that_is_read_as_a_whole_is_bounded(tmp_path, reader):
    """A file of a terabyte is refused by its size, before anything of it is read."""
    place, read = READERS[reader]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    huge(path)

    with pytest.raises(MsdumpError, match="1099511627776 bytes exceed the maximum of"):
        read(path)


@pytest.mark.parametrize(("size", "is_read"), [(0, True), (9, True), (10, True), (11, False)])
def test_the_bound_is_the_last_size_that_is_read(tmp_path, size, is_read):
    """A file may have as many bytes as are allowed, and none more."""
    path = tmp_path / "f"
    path.write_bytes(bytes(size))

    try:
        data = reading.read_bytes(path, 10)
    except OSError as error:
        data = error.strerror

    assert (bytes(size) if is_read else "its 11 bytes exceed the maximum of 10") == data


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["zero byte", "surrogate"])
def test_an_impossible_name_is_an_error_of_the_system(tmp_path, name):
    """A name that no file can have is refused like a file that is not there."""
    with pytest.raises(OSError, match="no file can have this name"):
        reading.read_bytes(f"{tmp_path}/{name}")


def test_walk_of_a_deep_folder(tmp_path):
    """Folders come in order, links are not followed, and a path that is too long is handed to the caller."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "circle").symlink_to("circle")
    deepest = os.open(tmp_path / "a", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=deepest)
        deeper = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = deeper
    os.close(deepest)
    errors = []

    top, first, *others = reading.walk(str(tmp_path), errors.append)
    subprocess.run(["rm", "-r", tmp_path / "a"], check=True)  # pytest cannot: it calls itself for each level

    assert (str(tmp_path), ["a", "link"], ["circle"]) == top
    assert (f"{tmp_path}/a", ["d"], ["file"]) == first
    assert 1500 < len(others) < 3000
    assert [errno.ENAMETOOLONG] == [error.errno for error in errors]
