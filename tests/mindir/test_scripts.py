"""Scripts of MindSpore's users run after their import line is changed."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

import msdump.mindspore as ms
from msdump.capture import Process
from msdump.errors import InputError
from msdump.frontends import mindspore
from msdump.mindspore import Tensor, nn

DATA = Path(__file__).parent
LENET = DATA / "networks" / "lenet.mindir"


@pytest.fixture(autouse=True)
def _own_process(monkeypatch):
    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))


def arrays():
    """Return inputs and results of LeNet, by MindSpore."""
    return np.load(DATA / "networks" / "lenet.npz")


@pytest.mark.parametrize("device", ["CPU", "Ascend"])
def test_inference(device):
    """A graph cell gives MindSpore's result as a tensor; on Ascend it has the precision of float16."""
    ms.set_context(mode=ms.GRAPH_MODE, device_target=device)
    net = nn.GraphCell(ms.load(LENET))
    result = net(Tensor(arrays()["input_0"]))
    assert isinstance(result, Tensor)
    limit = 1e-6 if device == "CPU" else 2e-3
    assert np.allclose(result.asnumpy(), arrays()["output_0_0"], rtol=0, atol=limit)


def test_dump_by_the_environment(tmp_path, monkeypatch):
    """The cell dumps by MINDSPORE_DUMP_CONFIG, under the names of the exported network."""
    config = tmp_path / "data_dump.json"
    common = {"dump_mode": 0, "path": f"{tmp_path}/dump", "net_name": "Net", "iteration": "0"}
    common |= {"input_output": 2, "kernels": [], "support_device": [0], "saved_data": "tensor"}
    config.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}))
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(config))
    ms.set_device("CPU")
    nn.GraphCell(ms.load(LENET))(arrays()["input_0"])
    files = [file.name for file in (tmp_path / "dump/rank_0/Net/0/0").iterdir()]
    assert any(name.startswith("MatMul.Default_fc1-Dense_MatMul-op0.") for name in files)


def test_weights_are_replaced():
    """Weights of a checkpoint take the place of the file's, also after a run; others are listed."""
    net = nn.GraphCell(ms.load(LENET))
    assert np.array_equal(net.parameters_dict()["fc3.bias"], np.zeros(10, np.float32)) is False
    before = net(arrays()["input_0"]).asnumpy()
    missing, unknown = ms.load_param_into_net(
        net, {"fc3.bias": Tensor(np.ones(10, np.float32)), "other": Tensor(1)}
    )
    after = net(arrays()["input_0"]).asnumpy()
    moved = np.ones(10, np.float32) - np.asarray(nn.GraphCell(ms.load(LENET)).parameters_dict()["fc3.bias"])
    assert np.allclose(after - before, moved, rtol=0, atol=1e-6)
    assert (len(missing), unknown) == (7, ["other"])


def test_checkpoint_of_mindspore():
    """A checkpoint that MindSpore wrote: matrices, a vector of one element, a scalar."""
    found = ms.load_checkpoint(DATA / "checkpoint.ckpt")
    kinds = {name: (each.shape, str(each.dtype)) for name, each in found.items()}
    assert kinds == {
        "fc.weight": ((4, 3), "float32"),
        "fc.bias": ((4,), "float32"),
        "step": ((), "int32"),
        "h": ((2, 2), "float64"),
        "e": ((1,), "float16"),
    }
    assert (int(found["step"].asnumpy()), found["h"].asnumpy().tolist()) == (7, [[1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: ms.load(folder / "none.mindir"), "there is no such file"),
        (lambda _: ms.load(LENET, dec_key=b"0123456789ABCDEF"), "encrypted files cannot be read"),
        (lambda _: nn.GraphCell("net.mindir"), "must be what load returned"),
        (lambda folder: ms.load_checkpoint(folder / "cut.ckpt"), "cut off"),
        (lambda _: ms.load_checkpoint(LENET), "no"),
        (lambda folder: ms.load_checkpoint(folder / "none.ckpt"), "cannot be read"),
        (lambda _: nn.GraphCell(ms.load(LENET), {"fc3.bia": Tensor(1.0)}), "did you mean"),
        (lambda _: nn.GraphCell(ms.load(LENET), {"fc3.bias": Tensor([1.0])}), "has shape (10,)"),
        (lambda _: Tensor([object()]), "is no tensor"),
        (lambda _: Tensor(np.ma.masked_equal([1.0, 2.0], 1)), "Tensor: masked elements: 1"),
        (
            lambda _: nn.GraphCell(ms.load(LENET), {"fc3.bias": np.ma.masked_less(np.zeros(10), 1)}),
            "masked elements: 10",
        ),
    ],
)
def test_errors(call, words, tmp_path):
    """Wrong arguments are refused, and the message names the fault."""
    whole = (DATA / "checkpoint.ckpt").read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[:-3])
    shutil.copy(LENET, tmp_path)
    with pytest.raises(InputError, match=words.replace("(", r"\(").replace(")", r"\)")):
        call(tmp_path)


def test_settings_without_a_counterpart(caplog):
    """Settings of MindSpore that have no effect here are named in one warning."""
    with caplog.at_level(logging.WARNING):
        ms.set_context(mode=ms.PYNATIVE_MODE, save_graphs=False, enable_graph_kernel=True)
    assert [record.getMessage() for record in caplog.records] == [
        "set_context: no effect here: enable_graph_kernel, save_graphs"
    ]


@pytest.mark.parametrize(
    ("given", "dtype", "kind"),
    [
        (1, None, "int64"),
        (0.5, None, "float32"),
        ([True], None, "bool"),
        (np.ones(2), None, "float64"),
        ([1, 2], ms.float16, "float16"),
    ],
)
def test_element_types_of_tensors(given, dtype, kind):
    """Numbers become int64 and float32; arrays keep their type."""
    assert str(Tensor(given, dtype).dtype) == kind
