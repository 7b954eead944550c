"""MindIR files as ONNX models, by ``msdump convert -t onnx``."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import msdump
from msdump.convert import convert_models
from msdump.errors import GraphError, ToolError
from msdump.graph import loader
from tests import inputs
from tests.world import ROOT, cli, common_settings

DATA = ROOT / "tests" / "graph" / "mindir" / "data"
CNN = ROOT / "graphs" / "mindspore_cnn.mindir"
MODELS = {"inference": CNN, "float16": DATA / "mlp16.mindir", "training": DATA / "bn_train.mindir"}


def call(*arguments):
    """Run ``msdump convert``."""
    return cli("convert", *arguments)


@pytest.fixture(params=MODELS)
def pair(request, tmp_path):
    """Return the paths of a .mindir file and of the ONNX file that is made of it."""
    source = MODELS[request.param]
    assert call(source, "-out", tmp_path / "out", "-t", "onnx").exit_code == 0
    return source, tmp_path / "out" / f"{source.stem}.onnx"


def test_onnxruntime_computes_the_same_bits(pair):
    """The written model is valid, and gives the results that msdump gives of the .mindir file."""
    source, written = pair
    network = msdump.load(source)
    fed = inputs.small(network.graph)
    onnx.checker.check_model(written)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    session = onnxruntime.InferenceSession(written, options)
    expected = network.run(fed)

    assert [value.name for value in session.get_inputs()] == list(fed)
    assert [value.name for value in session.get_outputs()][: len(expected)] == list(expected)
    for name, array in zip(expected, session.run(list(expected), fed), strict=True):
        own = expected[name]
        if own.dtype == np.float16:  # onnxruntime leaves out roundings between float16 operators of a session
            np.testing.assert_array_max_ulp(array.astype(own.dtype), own, maxulp=1)
        else:
            assert array.tobytes() == own.tobytes()


def test_converted_model_dumps_alike(pair, tmp_path):
    """A dump of the written model has the files of one of the .mindir file, state included."""
    written = {}
    for path in pair:
        common = common_settings(tmp_path / path.suffix) | {"iteration": "all"}
        config = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}
        network = msdump.load(path, config=config)
        fed = inputs.small(network.graph)
        for _ in range(2):
            network.run(fed)
        files = sorted(Path(tmp_path, path.suffix).rglob("*.npy"))
        written[path.suffix] = sorted(
            (file.parent.name, *file.name.split(".")[:4], *file.name.split(".")[5:], np.load(file).tobytes())
            for file in files
        )

    assert written[".mindir"] == written[".onnx"]
    assert len(written[".onnx"]) > 10


def test_listed_names_are_kept(pair):
    """Operators have the same names, in files and in .ir."""
    own, other = ([node.operator for node in loader.load(path).nodes] for path in pair)

    assert own == other


def test_training_state_is_described(tmp_path):
    """New values of weights are update bindings of the written model."""
    convert_models([str(MODELS["training"])], str(tmp_path))

    (info,) = onnx.load(tmp_path / "bn_train.onnx").training_info
    assert {"bn.moving_mean", "bn.moving_variance"} == {entry.key for entry in info.update_binding}


def test_summary_and_document_count_models(tmp_path):
    """The result is one ONNX file for each model."""
    done = call(CNN, "-out", tmp_path / "out", "-t", "onnx")
    size = (tmp_path / "out" / "mindspore_cnn.onnx").stat().st_size
    document = json.loads(call(CNN, "-out", tmp_path / "out", "-t", "onnx", "--json").stdout)

    assert done.stdout == f"converted 1 model to 1 file, {size:,} bytes\ninto      {tmp_path}/out\n"
    assert (document["files"], document["bytes"], document["skipped"]) == (1, size, {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((ROOT / "graphs" / "mini.onnx",), "mini.onnx: not a .mindir file of MindSpore"),
        (("no.mindir",), "no.mindir: the model cannot be read: No such file or directory"),
        ((CNN, "-f", "NCHW"), "-f, -s, -c, -o and -i are for dump files"),
        ((CNN, CNN), "two models of one name (mindspore_cnn.onnx, mindspore_cnn.onnx)"),
    ],
    ids=["onnx", "missing", "option", "twice"],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, words):
    """Nothing is written, and the exit code is 2."""
    done = call(*arguments, "-t", "onnx", "-out", tmp_path / "out")

    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_faults_have_types(tmp_path):
    """Python callers get msdump's own exceptions."""
    with pytest.raises(GraphError, match=r"not a \.mindir file"):
        convert_models([str(ROOT / "graphs" / "mini.onnx")], str(tmp_path))
    with pytest.raises(ToolError, match="there is no directory"):
        convert_models([str(CNN)], str(tmp_path / "none" / "out"))
