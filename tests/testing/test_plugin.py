"""The pytest plugin: tests of users that pass, and fail with verdicts."""

import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import pytest

from msdump.testing import ComparisonError, compare
from tests.world import ROOT, cli, completed, write_config

pytest_plugins = ["pytester"]

MINI = str(ROOT / "graphs" / "mini.onnx")
STRINGS = str(ROOT / "graphs" / "strings.onnx")
X = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
MASKED = np.ma.masked_equal(X, 0)

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] y)
<float[2] w = {{{weights}}}>
{{
    [mul] a = Mul(x, w)
    [log] y = Log(a)
}}
"""


@pytest.fixture(autouse=True)
def _started(forks, monkeypatch):
    """Start the commands of a comparison as forks."""
    monkeypatch.setattr(sys, "executable", str(forks / "python"))


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a model with weights and returns its path."""

    def write(name, weights="2.0, 3.0"):
        path = tmp_path / name
        onnx.save(onnx.parser.parse_model(MODEL.format(weights=weights)), path)
        return str(path)

    return write


@pytest.fixture
def dump(tmp_path, fresh):
    """Dump a run of the smallest network and return the dump."""
    config = write_config(tmp_path / "data_dump.json", tmp_path / "dump")
    np.savez(tmp_path / "x.npz", x=X)
    done = cli("run", MINI, "--config", config, "--inputs", tmp_path / "x.npz")
    assert 0 == done.exit_code, done.output
    return tmp_path / "dump"


def test_another_variant():
    """A model agrees with itself in float64."""
    compared = compare(MINI, {"x": X}, golden="float64")

    assert compared.agrees
    assert f"{MINI} compared with float64" == compared.title
    assert "verdict   agrees" in compared.text


def test_a_tolerance_that_is_too_small():
    """Float32 beside float64 differs where nothing may."""
    assert not compare(MINI, {"x": X + 0.1}, golden="float64", tolerance=0.0, cosine=1.0).agrees


def test_another_model(model):
    """The operator that reads another weight is at fault."""
    compared = compare(model("new.onnx", "2.0, 3.5"), golden=model("old.onnx"))

    assert not compared.agrees
    assert "verdict   weight" in compared.text
    assert "Mul" in compared.text


def test_a_model_in_memory(model):
    """A model need not be a file."""
    path = model("m.onnx")

    assert compare(onnx.load(path), {"x": np.ones(2, np.float32)}, golden=path).agrees


def test_a_dump(dump):
    """A model is dumped as the golden dump was, and compared with it."""
    assert compare(MINI, {"x": X}, golden=dump).agrees


def test_a_dump_of_other_weights(dump, tmp_path):
    """The effects of a changed weight on a dump are reported by operator."""
    changed = onnx.load(MINI)
    weight = changed.graph.initializer[0]
    array = onnx.numpy_helper.to_array(weight) * 1.5
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))

    compared = compare(changed, {"x": X}, golden=dump)

    assert not compared.agrees
    assert "Conv2D" in compared.text.partition("verdict")[2]


def test_outputs(model, tmp_path):
    """Outputs are compared by name, from a mapping or an .npz file."""
    path, x = model("m.onnx"), {"x": np.ones(2, np.float32)}
    right = {"y": np.log([2, 3]).astype(np.float32)}
    np.savez(tmp_path / "y.npz", **right)

    assert compare(path, x, golden=right).agrees
    assert compare(path, x, golden=tmp_path / "y.npz").agrees
    wrong = compare(path, x, golden={"y": np.array([0, 1], np.float32)})
    assert not wrong.agrees
    assert "output 'y'" in wrong.text
    assert "Verdict: differs" in wrong.text


def test_kept_outputs_of_a_type_that_numpy_lacks(tmp_path, forks):
    """Outputs that --save-outputs kept are goldens, bfloat16 as float32."""
    path = str(ROOT / "graphs" / "bfloat16.onnx")
    command = [forks / "msdump", "run", path, "--save-outputs", str(tmp_path / "golden.npz")]
    subprocess.run(command, check=True, capture_output=True)

    assert compare(path, golden=tmp_path / "golden.npz").agrees


FAULTS = {
    "no model": (("no.onnx",), {"golden": "float64"}, "no.onnx"),
    "no variant": ((MINI,), {"golden": "float46"}, "no variant 'float46'"),
    "no such output": ((MINI,), {"golden": {"z": X}}, "not outputs of"),
    "no outputs": ((MINI,), {"golden": {}}, "not outputs of"),
    "texts": ((STRINGS,), {"golden": {"loud": np.array(["a", "b", "c"])}}, "cannot be compared"),
    "a broken file": ((MINI,), {"golden": "broken.npz"}, "broken.npz"),
    "wrong inputs": ((MINI, {"q": X}), {"golden": "float64"}, "q"),
    "masked inputs": ((MINI, {"x": MASKED}), {"golden": "float64"}, "input 'x': masked elements: 1"),
    "masked outputs": ((MINI, {"x": X}), {"golden": {"output": MASKED}}, "compared: masked elements: 1"),
    "no dump": ((MINI,), {"golden": "tests"}, "not a dump with its configuration"),
    "no device": ((MINI,), {"golden": {"z": X}, "mine": "TPU"}, "it is a device and a level"),
}


@pytest.mark.parametrize(("arguments", "wanted", "message"), FAULTS.values(), ids=FAULTS)
def test_nothing_to_compare(arguments, wanted, message, monkeypatch, tmp_path):
    """Dumps that cannot be compared are an error of their own, not a difference."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "broken.npz").write_bytes(b"x")

    with pytest.raises(ComparisonError) as raised:
        compare(*arguments, **wanted)

    assert message in str(raised.value)


def test_settings_of_the_environment_have_no_say(monkeypatch):
    """A configuration in the environment dumps nothing of a comparison, whatever it is."""
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", "/nowhere.json")
    monkeypatch.setenv("DEVICE_TARGET", "Toaster")

    assert compare(MINI, {"x": X}, golden="float64").agrees


def test_fixture(pytester, model):
    """A test with the fixture passes, or fails with the verdicts and without a traceback."""
    pytester.makeconftest(f"import sys; sys.executable = {sys.executable!r}")  # forks again
    good, bad = model("good.onnx"), model("bad.onnx", "2.0, 3.5")
    pytester.makepyfile(
        f"""
        def test_good(msdump_compare):
            assert msdump_compare({good!r}, golden="float64").agrees

        def test_bad(msdump_compare):
            msdump_compare({good!r}, golden="float64")
            msdump_compare({bad!r}, golden={good!r})
        """
    )

    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"*{bad} compared with {good}", "verdict   weight: *", "fault *Mul*"])
    done.stdout.no_fnmatch_line("*Traceback*")


def test_pytest_starts_as_before():
    """The plugin imports neither numpy nor anything of msdump's that does, before it is used."""
    code = (
        "import sys, msdump.testing.plugin;"
        "print(sorted({'numpy', 'onnx', 'onnxruntime', 'rich', 'pydantic', 'click'} & {*sys.modules}))"
    )

    python = f"{sys.prefix}/bin/python"  # not a fork, which has imported them
    done = completed(python, "-c", code, check=True, cwd=ROOT)

    assert "[]\n" == done.stdout
