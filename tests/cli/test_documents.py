"""The documents that commands print with ``--json``, and their JSON Schemas."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from msdump.cli import documents
from msdump.cli.documents import DOCUMENTS, schema_text, text
from msdump.cli.output import Document, Shape
from msdump.encode import DebugRecord, Unit, dump_data, op_debug
from tests.judge import dumped
from tests.world import ROOT, cli, write_config

GRAPHS = ROOT / "graphs"
MINI = str(GRAPHS / "mini.onnx")
START = 1612439563338030


@pytest.fixture(autouse=True)
def _fresh(fresh):
    """Let each test begin as a new process."""


@pytest.fixture
def told():
    """Return a function that runs a command with --json and returns its exit code and its document.

    Standard output must be one document of the command's schema, and nothing else.
    """

    def run(*arguments):
        done = cli(*arguments, "--json")
        documents.adapter(arguments[0]).validate_json(done.stdout)
        return done.exit_code, json.loads(done.stdout)

    return run


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration and returns its path."""

    def write(**changes):
        given = {"iteration": "0|2", "support_device": [0, 1]} | changes
        return write_config(tmp_path / "data_dump.json", tmp_path / "dump", **given)

    return write


@dataclass
class Measured:
    """An object with values of many types.

    Attributes:
        numbers: Numbers.
        inner: Another one, None for none.
        name: Its name, "" where it is not known.
        place: Its place, -1 for none.
        loss: Its loss, NaN for none.
    """

    numbers: list[float | None] = field(default_factory=list)
    inner: list[Measured] = field(default_factory=list)
    name: str = ""
    place: int = -1
    loss: float = math.nan
    parent: Measured | None = None


def shown(value, fields, **computed):
    """Return the document of an object, without its error."""
    document = json.loads(text(Document(Shape(Measured, fields, **computed)), value))
    assert document.pop("error") is None
    return document


def test_numbers_that_are_not_finite_are_texts():
    """NaN and infinities are texts that float() reads, a number that was not computed is null."""
    value = Measured([1.5, float("nan"), float("inf"), float("-inf"), None])

    assert {"numbers": [1.5, "NaN", "Infinity", "-Infinity", None]} == shown(value, "numbers")


def test_fields_of_a_shape():
    """A field shows an attribute, of other objects and of each in a list, or a function's value."""

    def double(value) -> float:  # documents read the type
        """The number twice."""
        return 2 * value.place

    value = Measured(name="a", place=3, inner=[Measured(name="b"), Measured()])

    assert {"title": "a", "names": ["b", ""], "above": None, "double": 6.0} == shown(
        value, "title=name names=inner.name above=parent.name double", double=double
    )


def test_values_that_mean_nothing_are_null():
    """A question mark makes null of an empty text, NaN and a negative number, of nothing else."""
    nothing = shown(Measured(), "name? place? loss?")
    zero = shown(Measured(name="a", place=0, loss=0.0), "name? place? loss?")

    assert ({"name": None, "place": None, "loss": None}, {"name": "a", "place": 0, "loss": 0.0}) == (
        nothing,
        zero,
    )


def test_check(told, config):
    """The plan is in words; operators, forecast and left out tensors are numbers."""
    code, document = told("check", config(kernels=["conv", "nothing"], dump_mode=1), "--model", MINI)

    model = document["model"]
    assert (0, None, None, "0|2") == (
        code,
        document["error"],
        document["found"],
        document["plan"]["iterations"],
    )
    assert (5, None, ["Conv2D"]) == (
        model["operators"],
        model["compiled"],
        [each["op_type"] for each in model["dumped"]],
    )
    assert ["nothing"] == [each["item"] for each in model["unmatched"]]
    assert [("operator", 4)] == [(each["what"], each["count"]) for each in model["left_out"]]
    assert model["forecast"]["total"]["files"] == (
        model["forecast"]["once"]["files"] + 2 * model["forecast"]["per_iteration"]["files"]
    )


def test_check_of_an_operator_that_cannot_run(told, config, tmp_path):
    """An operator without a kernel is in the document, the exit code stays 1."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "mine": 1]> g (float[2] x) => (float[2] y)'
        " { y = mine.Unknown(x) }"
    )
    onnx.save(model, tmp_path / "m.onnx")

    code, document = told("check", config(), "--model", tmp_path / "m.onnx")

    assert (1, [True]) == (code, [each["is_certain"] for each in document["model"]["cannot_run"]])


def test_run(told, config, tmp_path):
    """Iterations, files and bytes of the dump of each rank are as on disk."""
    code, document = told("run", MINI, "--config", config(), "--steps", "3", "--ranks", "2")

    assert 0 == code
    for number, rank in enumerate(document["ranks"]):
        dump = rank["dump"]
        assert (number, [0, 1, 2], [0, 2]) == (rank["rank"], rank["iterations"], dump["iterations"])
        assert ([], f"{tmp_path}/dump/rank_{number}/Net") == (dump["dropped"], dump["path"])
        # the copy of the configuration is not among the counted files
        assert dump["files"] >= sum(len(files) for *_, files in os.walk(dump["path"])) > 0


def test_a_run_that_fails(told, tmp_path):
    """The document of a failed run has its error and the iterations before, the exit code stays 1."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[1] i) => (float[1] y)'
        " <float[2] t = {1.0, 2.0}> { y = Gather(t, i) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "f.npz", i=np.array([7]))

    code, document = told("run", tmp_path / "m.onnx", "--inputs", tmp_path / "f.npz")

    assert (1, []) == (code, document["ranks"][0]["iterations"])
    assert "Gather" in document["error"]


def test_convert(told, tmp_path):
    """Each dump file has its results, one that fails its reason too."""
    dumped.file(tmp_path / "d" / "a" / dumped.NAME, dumped.tensor(np.float32([1, 2])))
    (tmp_path / "d" / dumped.NAME).write_bytes(b"nothing")
    (tmp_path / "d" / "x.csv").touch()

    code, document = told("convert", tmp_path / "d", "-out", tmp_path / "out")

    assert (1, 1, {".csv": 1}) == (code, document["files"], document["skipped"])
    assert {str(tmp_path / "d" / dumped.NAME): 1, str(tmp_path / "d" / "a" / dumped.NAME): 0} == {
        each["path"]: len(each["failures"]) for each in document["results"]
    }
    assert dumped.NAME in document["error"]


def test_convert_by_a_script_that_prints(tmp_path):
    """The prints of a user's script do not spoil the document."""
    folder = tmp_path / "scripts" / "format_convert"
    folder.mkdir(parents=True)
    script = "def convert(shape_from, shape_to, array):\n    print('noise')\n    return array\n"
    (folder / "convert_NC1HWC0_to_NCHW.py").write_text(script)
    array = np.zeros((1, 1, 2, 2, 16), np.float32)
    path = tmp_path / "d" / dumped.NAME
    dumped.file(path, dumped.tensor(array, "NC1HWC0", (1, 16, 2, 2)))

    options = ["-out", str(tmp_path / "out"), "-f", "NCHW", "-c", str(tmp_path / "scripts"), "--json"]
    done = cli("convert", path, *options)

    assert (0, 1) == (done.exit_code, json.loads(done.stdout)["files"])
    assert "noise" in done.stderr


def operators(folder, *arrays):
    """Write a dump of operators, each with its output, which the next one reads."""
    folder.mkdir(parents=True)
    for number, array in enumerate(arrays):
        stem = f"Add.Default_Add-op{number}.0.0"
        np.save(
            folder / f"{stem}.{START + 10 * number}.output.0.DefaultFormat.float32.npy", np.float32(array)
        )


def test_compare(told, tmp_path):
    """Every operator has its verdict, its place and the errors of its tensors."""
    operators(tmp_path / "mine", [1, 2], [3, 5], [6, 7])
    operators(tmp_path / "golden", [1, 2], [3, 4], [6, 7], [8])

    code, document = told("compare", tmp_path / "mine", tmp_path / "golden", "-out", tmp_path / "out")

    told_of = {each["operator"]: each for each in document["operators"]}
    assert (1, "own", "Default_Add-op1", ["Default_Add-op1"]) == (
        code,
        *(document[key] for key in ("verdict", "first", "accused")),
    )
    assert {0: "equal", 1: "own", 2: "equal", 3: "missing"} == {
        number: told_of[f"Default_Add-op{number}"]["verdict"] for number in range(4)
    }
    (output,) = told_of["Default_Add-op1"]["outputs"]
    assert ("output:0", "differs", "float32", [2], 1.0) == (
        *(output[key] for key in ("tensor", "verdict", "dtype", "shape")),
        output["error"]["largest"],
    )
    assert output["scores"]["MaxAbsoluteError"] == "1.000000"
    assert Path(document["table"]).is_file()


def test_compare_of_files(told, tmp_path):
    """Two files are one operator without inputs; NaN is a text."""
    np.save(tmp_path / "a.npy", np.float32([1, np.nan]))
    np.save(tmp_path / "b.npy", np.float32([1, 2]))

    code, document = told("compare", tmp_path / "a.npy", tmp_path / "b.npy")

    (operator,) = document["operators"]
    assert (1, "own", "NaN") == (code, operator["verdict"], operator["outputs"][0]["error"]["cosine"])


def overflowing(folder):
    """Write the record of an overflow and the dump file of its operator."""
    folder.mkdir(parents=True)
    record = DebugRecord(Unit.AIC, {"task_id": 9, "stream_id": 2}, (2048,))
    header = dump_data.header(op_debug.header_data(START))
    (folder / f"Opdebug.Node_OpDebug.7.3.{START}").write_bytes(header + op_debug.encode(record))
    path = folder / f"Mul.Default_Mul-op9.9.2.{START + 2}"
    dumped.file(path, dumped.tensor(np.array([[1, np.inf]], "f2")), op_name="Default/Mul-op9")


def test_overflow(told, tmp_path):
    """An overflow names its operator, and the extremes of its tensors, infinite ones as texts."""
    overflowing(tmp_path / "d")

    code, document = told("overflow", tmp_path / "d", "-out", tmp_path / "out")

    (overflow,) = document["overflows"]
    assert (0, "Default/Mul-op9", "Mul", ["AIC"]) == (
        code,
        overflow["operator"],
        overflow["op_type"],
        [unit["unit"] for unit in overflow["units"]],
    )
    assert [("output:0", [1, 2], "Infinity", 1.0)] == [
        (each["tensor"], each["shape"], each["max"], each["min"]) for each in overflow["tensors"]
    ]
    assert "[Mul] Default/Mul-op9" in Path(document["summary"]).read_text()


def test_overflow_of_nothing(told, tmp_path):
    """A dump without overflows is no error."""
    code, document = told("overflow", tmp_path)

    assert (0, None, 0, [], None) == (
        code,
        *(document[key] for key in ("error", "records", "overflows", "summary")),
    )


def test_show(told, tmp_path):
    """All files are listed, and a tensor and some statistics are read back."""
    folder = tmp_path / "rank_0" / "Net" / "0" / "0"
    folder.mkdir(parents=True)
    name = f"Add.Default_Add-op0.0.0.{START}.output.0.DefaultFormat.float32.npy"
    np.save(folder / name, np.float32([1, np.nan]))
    (folder / "statistic.csv").write_text('Op Type,Shape\nAdd,"(2,)"\n')

    code, document = told("show", tmp_path)

    assert (0, ["rank_0/Net/0/0"]) == (code, [each["path"] for each in document["directories"]])
    assert ["statistic.csv", name] == [file["name"] for file in document["directories"][0]["files"]]
    assert ("float32", [2], [1.0, "NaN"]) == tuple(
        document["output"][key] for key in ("dtype", "shape", "elements")
    )
    assert (["Op Type", "Shape"], [["Add", "(2,)"]], 1) == tuple(
        document["statistics"][key] for key in ("titles", "rows", "count")
    )


def test_names_that_are_no_text(told, tmp_path):
    """A file with a name that is not UTF-8 is listed all the same."""
    (tmp_path / os.fsdecode(b"a\xff")).touch()

    _, document = told("show", tmp_path)

    assert ["a\\xff"] == [file["name"] for file in document["directories"][0]["files"]]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("show", "{folder}/none"), 2, "none: no dump here"),
        (("show",), 2, "Missing argument 'DUMP'."),
        (("show", "{folder}", "--deep"), 2, "No such option"),
        (("run", "{folder}/none.onnx"), 2, "none.onnx: the model cannot be read"),
        (("convert",), 2, "give the dump files"),
        (("overflow", "{folder}/none"), 2, "none: no such directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_stops_a_command_is_a_document(told, tmp_path, arguments, code, error):
    """A command that is stopped before it did anything prints its error, with the exit code of the text."""
    done, document = told(*(argument.format(folder=tmp_path) for argument in arguments))

    assert (code, ["error"]) == (done, [*document])
    assert error in document["error"]


def test_help_stays_a_text():
    """--help prints the help, whatever else is given."""
    done = cli("show", "--json", "--help")

    assert (0, "Usage: ") == (done.exit_code, done.stdout[:7])


@pytest.mark.parametrize("command", DOCUMENTS)
def test_every_field_is_described(command):
    """A reader of the schema finds a description of every field and every object."""
    for name, definition in json.loads(schema_text(command))["$defs"].items():
        assert "description" in definition, name
        for title, described in definition.get("properties", {}).items():
            assert described.get("description"), f"{name}.{title}"


@pytest.mark.parametrize("command", DOCUMENTS)
def test_an_error_is_a_document_too(command):
    """The schema of every command allows ``{"error": ...}``."""
    names = [each["$ref"].rpartition("/")[2] for each in json.loads(schema_text(command))["anyOf"]]

    assert names[-1] == "ErrorDocument"
