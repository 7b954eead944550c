"""``msdump report --annotate``: a model with verdicts and statistics, for Netron."""

import subprocess

import onnx
import pytest

from msdump.capture import Process
from msdump.frontends import mindspore
from tests.world import ROOT, cli

CULPRIT = "Default/norm-RMSNorm/Mul-op0"


def call(*arguments):
    """Run a command; return exit code and both outputs."""
    done = cli(*arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _fresh(fresh, quiet):
    """Let each test begin as a new process."""


@pytest.fixture(scope="module")
def model(tmp_path_factory, forks):
    """Build the network that overflows in float16 and return its file."""
    folder = tmp_path_factory.mktemp("model")
    subprocess.run(
        [forks / "python", "sample_nets/build.py", "overflow", "--out", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder / "overflow_b1_s0.onnx"


@pytest.fixture
def dumps(model, tmp_path, monkeypatch):
    """Dump the statistics of three steps in float16 and in float32; return both dumps."""

    def dump(name, config):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
        monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(tmp_path / name))
        config = ROOT / "sample_nets" / "overflow" / config
        code, _, told = call(
            "run", model, "--config", config, "--steps", 3, "--device-target", "Ascend", "--jit-level", "O0"
        )
        assert 0 == code, told
        return tmp_path / name / "debug_dump"

    return dump("mine", "data_dump_statistic.json"), dump("golden", "data_dump_statistic_float32.json")


def test_annotated_model(dumps, model, tmp_path):
    """The nodes of the model tell verdicts, errors and statistics; nothing else of it changes."""
    mine, golden = dumps

    code, text, told = call("report", mine, golden, "--annotate", model, tmp_path / "out.onnx")

    assert 0 == code, told
    before, after = onnx.load(model), onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(after)
    texts = {
        node.name: {each.key: each.value for each in node.metadata_props if each.key.startswith("msdump ")}
        for node in after.graph.node
    }
    (culprit,) = (each for each in texts.values() if each.get("msdump operator") == CULPRIT)
    assert "nonfinite" == culprit["msdump verdict"]
    assert "inf" == culprit["msdump state"]
    assert float(culprit["msdump positive inf count"]) > 0
    assert f"{sum(map(bool, texts.values()))} nodes with texts" in text
    for node in after.graph.node:
        kept = [each for each in node.metadata_props if not each.key.startswith("msdump ")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    assert before == after


def test_annotating_again_replaces(dumps, model, tmp_path):
    """A model that was annotated before has each text once."""
    call("report", dumps[0], "--annotate", model, tmp_path / "once.onnx")
    call("report", dumps[0], "--annotate", tmp_path / "once.onnx", tmp_path / "twice.onnx")

    assert onnx.load(tmp_path / "once.onnx") == onnx.load(tmp_path / "twice.onnx")


def test_weights_in_other_files(dumps, tmp_path):
    """A model with weights in files beside it is written into the folder of these files only."""
    path = ROOT / "graphs" / "external_data.onnx"

    code, _, told = call("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert "its weights are in other files" in told


FAULTS = {
    "another model": (ROOT / "graphs" / "strings.onnx", "give the model of the dump"),
    "no model": (ROOT / "graphs" / "README.md", "not an ONNX model"),
    "nothing": (ROOT / "graphs" / "none.onnx", "the model cannot be read"),
}


@pytest.mark.parametrize(("path", "message"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_annotated(dumps, tmp_path, path, message):
    """A file that is not the model of the dump is refused."""
    code, _, told = call("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert message in told
    assert not (tmp_path / "out.onnx").exists()


def test_no_page_unless_asked_for(dumps, model, tmp_path, monkeypatch):
    """With the model alone no page is written, with -o it is."""
    monkeypatch.chdir(tmp_path)

    call("report", dumps[0], "--annotate", model, tmp_path / "out.onnx")
    assert not (tmp_path / "report.html").exists()
    call("report", dumps[0], "--annotate", model, tmp_path / "out.onnx", "-o", "page.html")
    assert (tmp_path / "page.html").exists()
