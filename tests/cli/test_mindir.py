"""Commands that take a model take a .mindir file of MindSpore, with MindSpore's names for the device."""

import shutil

import onnx
import pytest

from msdump.graph import loader
from msdump.plan import Context, DeviceTarget
from tests.world import GRAPHS, cli, completed

CONV = "Default/stem-Conv2d/Conv2D-op0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, forks):
    """Return a folder with the model, its ONNX form, a configuration, and dumps of two devices."""
    path = tmp_path_factory.mktemp("mindir")
    shutil.copy(GRAPHS / "mindspore_cnn.mindir", path / "net.mindir")
    calls = [
        ("convert", path / "net.mindir", "-out", path, "-t", "onnx"),
        ("init", "--yes", "--iteration", "0", "-o", path / "data_dump.json"),
    ]
    for name, target in (("cpu", ("CPU",)), ("ascend", ("Ascend", "--jit-level", "O0"))):
        calls.append(("run", path / "net.mindir", "--path", path / name, "--device-target", *target))
    for arguments in calls:
        # processes of their own: one process has one path of dumps
        completed(forks / "msdump", *arguments, check=True)
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check data_dump.json --model net.mindir --device-target Ascend", CONV),
        ("diff net.mindir", "verdict   agrees"),
        ("diff net.mindir net.onnx", "verdict   equal: the outputs are equal"),
        ("diff net.mindir net.onnx --mine Ascend:force_fp16", "verdict   agrees"),
        ("diff net.mindir --mine onnxruntime", "verdict   agrees"),
        ("diff net.mindir --mine Ascend:force_fp16 --advise 1e-5", "in float32"),
        ("compare cpu ascend --model net.mindir", "verdict   agrees"),
        ("compare ascend cpu --graph net.mindir", "verdict   agrees"),
        (f"extract ascend {CONV} -o repro --model net.mindir", "repro"),
        ("report ascend cpu --annotate net.mindir notes.onnx -o r.html", "notes.onnx: 21 nodes with texts"),
        (f"explain cpu {CONV} --model net.mindir", CONV),
        ("compile net.mindir -o graph.json", ""),
        ("run net.mindir --device-target Ascend --jit-level O2 --path o2", "dumped   1 iteration (0)"),
        ("run net.mindir --device-target Ascend --dump async --path a", "dumped   1 iteration (0)"),
        ("run net.mindir --device-target Ascend --dump statistics --path s", "dumped   1 iteration (0)"),
        ("run net.mindir --device-target Ascend --dump overflow --path o", "1 iteration (0)"),
    ],
    ids=lambda text: text.partition(" --")[0],
)
def test_command_takes_a_mindir(folder, monkeypatch, line, words):
    """Each command runs, and names MindSpore's operators."""
    monkeypatch.chdir(folder)

    done = cli(*line.split())

    assert done.exit_code == 0, done.output
    assert words in done.stdout
    assert "keep few names of operators" not in done.stderr


def test_annotated_model_is_onnx(folder, monkeypatch):
    """Texts of a report are in an ONNX model with the operators of the dump's device."""
    monkeypatch.chdir(folder)

    cli("report", "ascend", "cpu", "--annotate", "net.mindir", "notes.onnx", "-o", "r.html")

    model = onnx.load("notes.onnx")
    onnx.checker.check_model(model)
    names = [node.name for node in model.graph.node if node.op_type != "Constant"]
    ascend = loader.load("net.mindir", context=Context(DeviceTarget.ASCEND))
    assert sorted(node.name for node in ascend.nodes) == sorted(names)


def test_gradients_are_refused(folder):
    """A training step is exported by MindSpore itself."""
    done = cli("train-graph", folder / "net.mindir", "-o", folder / "step.onnx")

    assert done.exit_code == 2
    assert "net.mindir: gradients are derived of ONNX models alone; export the training step" in done.stderr
