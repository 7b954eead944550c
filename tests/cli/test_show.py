"""``msdump show FILE`` and ``msdump show DUMP OPERATOR``: a tensor in the terminal."""

import json
from types import MappingProxyType

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump.encode import dump_data
from msdump.look import Extreme, Strangers, inspect
from tests.world import cli, common_settings

pytestmark = pytest.mark.usefixtures("fresh")

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y)
<float[2, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>
{
    [mul] a = Mul(x, w)
    [entropy] y = Log(a)
}
"""


def show(*arguments):
    """Return exit code and printed text of the command."""
    done = cli("show", *arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def save(tmp_path):
    """Return a function that saves an array and returns its file."""

    def write(array):
        path = tmp_path / "x.npy"
        np.save(path, array)
        return path

    return write


@pytest.fixture
def dump(tmp_path):
    """Return a function that dumps two steps of a model, with keys of the configuration changed."""

    def make(e2e=MappingProxyType({"enable": True}), /, **changes):
        blocks = {"common_dump_settings": common_settings(tmp_path / "dump", **changes)}
        if e2e is not None:
            blocks["e2e_dump_settings"] = dict(e2e)
        (tmp_path / "data_dump.json").write_text(json.dumps(blocks), encoding="utf-8")
        onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
        np.savez(tmp_path / "x.npz", x=np.array([[1, 1, 0], [1, 1, -1]], np.float32))
        arguments = ("--config", tmp_path / "data_dump.json", "--inputs", tmp_path / "x.npz", "--steps", 2)
        line = ["run", tmp_path / "m.onnx", "--device-target", "Ascend", *arguments]
        done = cli(*line)
        assert 0 == done.exit_code, done.output
        return tmp_path / "dump"

    return make


TREES = {
    "dump files": ({"file_format": "bin"}, None, "x output 0\nfloat32 (2, 3): [ 1.  1.  0.  1.  1. -1.] ..."),
    "inputs alone": (
        {"input_output": 1},
        {"enable": True},
        ".input.0.DefaultFormat.float32.npy')\nfloat32 (2, 3): [ 1.  1.  0.  1.  1. -1.] ...",
    ),
}


@pytest.mark.parametrize(("common", "e2e", "last"), TREES.values(), ids=TREES)
def test_tree_of_a_dump_without_files_of_outputs(dump, common, e2e, last):
    """Where no output has a file of its own, a tensor of a dump file or an input is read back."""
    folder = dump(e2e, **common)

    code, text, error = show(folder)

    assert (0, "") == (code, error)
    assert text.endswith(last + "\n")


def test_tree_of_measured_operators(tmp_path):
    """Where acl saved statistics of each operator, the first one's are printed."""
    rows = "Input/Output,Index\nOutput,0\n"
    for name in ("Add.add.1.0.1700000000000002.csv", "Relu.relu.2.0.1700000000000001.csv"):
        (tmp_path / name).write_text(rows)

    code, text, error = show(tmp_path)

    assert (0, "") == (code, error)
    assert text.endswith(f"{tmp_path}/Relu.relu.2.0.1700000000000001.csv\n{rows}")


def test_tree_without_tensors_of_operators(tmp_path):
    """Records of overflows, parameters and files of graphs are no tensors of operators."""
    for name in (
        "Opdebug.Node_OpDebug.8.1.1700000000000001",
        "Parameter.w.0.0.1700000000000002.output.0.DefaultFormat.npy",
        "graph.ir",
    ):
        (tmp_path / name).touch()

    assert (1, f"msdump: error: {tmp_path}: no tensor of an operator's output was dumped\n") == show(
        tmp_path
    )[::2]


def test_file(save):
    """A file shows type, statistics, places of outstanding elements, a histogram and a slice around them."""
    array = np.arange(240, dtype=np.float32).reshape(2, 10, 12)
    array[1, 4, 5], array[0, 9, 9] = np.nan, -np.inf
    path = save(array)

    code, text, _ = show(path)

    lines = text.splitlines()
    assert 0 == code
    assert [
        "x.npy",
        f"file       {path}",
        "type       float32, 2 x 10 x 12, 240 elements",
        "statistics max nan, min nan, avg nan, l2norm nan, count 240",
        "counts     1 negative, 237 positive, 1 zero, 1 nan, 1 negative inf",
        "smallest   0 at [0, 0, 0]",
        "largest    239 at [1, 9, 11]",
        "nan        1 at [1, 4, 5]",
        "-inf       1 at [0, 9, 9]",
        "histogram",
    ] == lines[:10]
    assert "slice      [0, 4:10, 6:12]" == lines[22]
    assert lines[-1].endswith("[114. 115. 116. -inf 118. 119.]]")


ODD = {
    "a number": (np.float32(3), "smallest   3 at []"),
    "nothing": (np.zeros((0, 3)), "type       float64, 0 x 3, 0 elements"),
    "complex": (np.ones(4, np.complex64), "type       complex64, 4, 4 elements"),
    "all the same": (np.full(5, 2, np.int8), "  2 to 2  ######################################## 5"),
    "truth": (np.array([True, False]), "largest    1 at [0]"),
    "beyond float64": (np.array([2**62, 2**62 + 1]), "largest    4611686018427387905 at [1]"),
    "the whole range": (np.array([-1.7e308, 1.7e308]), "smallest   -1.7e+308 at [0]"),
    "all NaN": (np.full(3, np.nan), "nan        3 at [0], [1], [2]"),
    "many NaN": (np.full(9, np.nan), "nan        9 at [0], [1], [2], [3], [4] and 4 more"),
}


@pytest.mark.parametrize(("array", "line"), ODD.values(), ids=ODD)
def test_odd_tensors(save, array, line, monkeypatch):
    """Every tensor can be shown, whatever its shape, its type and its elements."""
    code, text, _ = show(save(array))

    assert 0 == code
    assert line in text.replace("█", "#").splitlines()


def test_dump_file_of_cann(tmp_path):
    """A dump file of CANN shows each of its tensors, by the name that its header has."""
    tensors = {"input": np.arange(3, dtype=np.float32), "output": np.array([7], np.int32)}
    infos = {
        side: dump_data.TensorInfo(number, 2, array.shape, array.shape, array.nbytes)
        for (side, array), number in zip(tensors.items(), (1, 7), strict=True)
    }
    data = dump_data.DumpData(
        version="2.0",
        dump_time=1,
        op_name="Default/Add-op0",
        inputs=(infos["input"],),
        outputs=(infos["output"],),
    )
    path = tmp_path / "Add.Default_Add-op0.0.0.1"
    path.write_bytes(dump_data.header(data) + b"".join(array.tobytes() for array in tensors.values()))

    code, text, _ = show(path)

    assert 0 == code
    assert ["Default/Add-op0 input 0", "Default/Add-op0 output 0"] == [
        line for line in text.splitlines() if line.startswith("Default")
    ]
    assert "type       int32, 1, 1 element, ND on the device" in text


def test_operator(dump):
    """An operator shows its tensors of the first iteration, inputs first, and how often else it ran."""
    code, text, told = show(dump(), "Log-op*")

    names = [line for line in text.splitlines() if line.startswith("Log")]
    assert 0 == code
    assert [
        "Log Default/Log-op0 input 0, rank 0, iteration 0",
        "Log Default/Log-op0 output 0, rank 0, iteration 0",
    ] == names
    assert "nan        1 at [1, 2]" in text
    assert "-inf       1 at [0, 2]" in text
    assert "msdump: it ran 1 more time (--iteration, --rank)\n" == told


def test_operator_by_its_node(dump):
    """The name of the model's node selects the operator that it became."""
    code, text, _ = show(dump(), "entropy")

    assert (0, "Log Default/Log-op0") == (code, text.partition(" input")[0])


def test_one_tensor_of_an_operator(dump):
    """``--slot`` and ``--iteration`` choose tensors."""
    code, text, told = show(dump(), "Log-op*", "--slot", "output:0", "--iteration", "1")

    assert (0, "") == (code, told)
    assert 1 == text.count("file  ")
    assert "rank 0, iteration 1" in text.splitlines()[0]


def test_statistics_alone(dump):
    """A tensor of which only statistics were saved shows them."""
    folder = dump(saved_data="statistic")

    code, text, _ = show(folder, "Mul-op*", "--slot", "output:0")

    assert 0 == code
    assert "its elements were not saved, only its statistics" in text
    assert "max 5, min -6" in text


def test_document(save):
    """``--json`` has the same as a document."""
    code, text, _ = show(save(np.array([1, np.inf, np.nan, 3])), "--json")

    (tensor,) = json.loads(text)["tensors"]
    assert 0 == code
    assert ("float64", [4], {"value": 3.0, "place": [3]}) == (
        tensor["dtype"],
        tensor["shape"],
        tensor["largest"],
    )
    assert {"count": 1, "places": [[2]]} == tensor["strangers"]["nan"]
    assert "NaN" == tensor["statistics"]["max"]


REFUSED = {
    "no such dump": (("nowhere", "Add"), "no dump here"),
    "no such operator": (("{dump}", "Lgo"), "no operator 'Lgo' (did you mean 'Log'?)"),
    "several operators": (("{dump}", "*op0"), "operators match '*op0'; give a full name:\n  Default/"),
    "no such slot": (("{dump}", "Log-op*", "--slot", "output:7"), "there are input:0, output:0"),
    "no slot": (("{dump}", "Log-op*", "--slot", "7"), "is not an input or output such as output:0"),
    "a slot of a dump": (("{dump}", "--slot", "output:0"), "choose tensors of an OPERATOR"),
    "no tensor in the file": (("{dump}/rank_0/.dump_metadata/config.json",), "not a dump file"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(dump, arguments, message):
    """A tensor that cannot be shown is an error, with exit code 2."""
    folder = dump()
    if arguments[0].endswith(".json"):
        (folder / "broken.bin").write_bytes(b"\x00" * 3)
        arguments = (folder / "broken.bin",)

    code, _, told = show(*(str(each).format(dump=folder) for each in arguments))

    assert 2 == code, told
    assert message in told


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=4, max_side=5), elements=st.floats(width=32)))
def test_inspection(array):
    """Places and counts are the elements'; every finite element is in the histogram."""
    seen = inspect(array)

    finite = array[np.isfinite(array)]
    if finite.size:
        assert [finite.min(), finite.max()] == [array[seen.smallest.place], array[seen.largest.place]]
        assert finite.size == sum(seen.histogram.counts)
    else:
        assert (None, None, None) == (seen.smallest, seen.largest, seen.histogram)
    nan = [tuple(place) for place in np.argwhere(np.isnan(array)).tolist()]
    assert Strangers(len(nan), tuple(nan[:5])) == seen.strangers["nan"]


def test_large_tensor():
    """Extremes and NaN of many elements have their places."""
    array = np.zeros((3, 1_000_000), np.float32)
    array[2, 5], array[1, 7], array[2, 9] = 4, -4, np.nan

    seen = inspect(array)

    assert (Extreme(-4.0, (1, 7)), Extreme(4.0, (2, 5))) == (seen.smallest, seen.largest)
    assert Strangers(1, ((2, 9),)) == seen.strangers["nan"]
    assert 2_999_999 == sum(seen.histogram.counts)
