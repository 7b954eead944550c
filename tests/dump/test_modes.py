"""Effects of devices, levels and settings on a dump."""

import json
import os

import numpy as np
import pytest

from msdump import env, open_dump
from msdump.execute import runtime
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import CPU, GPU, GRAPHS, O0, O1, O2


@pytest.fixture
def no_gpu(monkeypatch):
    """Set up a separate runtime without a CUDA provider."""
    monkeypatch.setattr(runtime.native, "get_available_providers", lambda: ["CPUExecutionProvider"])
    runtime._cuda_runtime.cache_clear()
    runtime._cuda_or_cpu_runtime.cache_clear()
    yield
    runtime._cuda_runtime.cache_clear()
    runtime._cuda_or_cpu_runtime.cache_clear()


def quotient():
    """Return a model that divides in a scope."""
    divided = nets.node("Div", "x y", "z", name="net/half/Div")
    return nets.model([divided], [nets.value("x", [2]), nets.value("y", [2])], ["z"])


@pytest.mark.parametrize(
    "item", ["Div", "RealDiv", "Default/net/half/Div-op0", "Default/net/half/RealDiv-op0"]
)
@pytest.mark.parametrize(
    ("context", "name"),
    [(CPU, "Div"), (GPU, "Div"), (O0, "Div"), (O1, "Div"), (O2, "RealDiv")],
    ids=["CPU", "GPU", "O0", "O1", "O2"],
)
def test_division(door, no_gpu, item, context, name):
    """A division is a Div, in a compiled graph a RealDiv: names, types and ``kernels`` agree on it."""
    feeds = {"x": np.float32([2, 3]), "y": np.float32([4, 5])}
    selects = item in {name, f"Default/net/half/{name}-op0"} or (name == "RealDiv" and item == "Div")

    network = door.dump(quotient(), feeds, context=context, dump_mode=1, kernels=[item])

    assert [name] == [operator.op_type for operator in network.operators]
    found = {file.name.partition("-op0")[0] for file in door.path.rglob("*Div.*")}
    assert ({f"{name}.Default_net_half_{name}"} if selects else set()) == found


def test_division_in_graph_files(door):
    """The .ir file that O2 saves calls a division as the dump does."""
    door.monkeypatch.setenv(env.SAVE_GRAPHS, "1")
    door.monkeypatch.setenv(env.SAVE_GRAPHS_PATH, str(door.folder))

    door.load(quotient(), **O2)

    (file,) = door.folder.glob("trace_code_graph_*")
    assert "full_name_with_scope: (Default/net/half/RealDiv-op0)" in file.read_text()


FOLDERS = {
    "CPU": (CPU, {".dump_metadata", "Net", "execution_order", "graphs"}),
    "GPU": (GPU, {".dump_metadata", "Net", "execution_order", "graphs"}),
    "O0": (O0, {"Net", "execution_order", "graphs"}),
    "O1": (O1, {"Net", "execution_order", "graphs"}),
}


@pytest.mark.parametrize(("context", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_folders(door, no_gpu, context, expected):
    """Metadata are written on CPU and GPU, not on Ascend."""
    door.dump(nets.mini(), nets.mini_feeds(), context=context)

    assert expected == {path.name for path in door.rank.iterdir()}


PARAMETERS = {"CPU": (CPU, ["x"], ["data-0"]), "GPU": (GPU, ["x"], ["data-0"]), "O0": (O0, [], [])}


@pytest.mark.parametrize(("context", "parameters", "constants"), PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_and_constants(door, no_gpu, context, parameters, constants):
    """Parameters follow each dumped step and constants come once, on CPU and GPU only."""
    door.dump(nets.exp_plus_one(), {"x": np.ones((1, 3), np.float32)}, steps=2, context=context)

    assert [parameters] * 2 == [trees.parameters(door.rank / "Net" / "0" / step) for step in "01"]
    assert constants == trees.parameters(door.rank / "Net" / "0" / "constants")


CONSTANTS = {
    "outputs": ({"input_output": 2}, ["data-0"]),
    "inputs": ({"input_output": 1}, []),
    "kernels without them": ({"dump_mode": 1, "kernels": ["Exp"]}, []),
    "kernels with them": ({"dump_mode": 1, "kernels": ["name-regex(Default/data-.+)"]}, ["data-0"]),
    "nothing marked": ({"dump_mode": 2}, []),
    "later iteration": ({"iteration": "1"}, ["data-0"]),
    "no iteration": ({"iteration": "5"}, []),
}


@pytest.mark.parametrize(("changes", "expected"), CONSTANTS.values(), ids=CONSTANTS)
def test_constants(door, changes, expected):
    """Constants count as outputs and obey the selection, as parameters do."""
    door.dump(nets.exp_plus_one(), {"x": np.ones((1, 3), np.float32)}, steps=3, **changes)

    folder = door.rank / "Net" / "0" / "constants"
    assert expected == trees.parameters(folder)
    assert bool(expected) == folder.exists()


def test_no_gpu(door, no_gpu, caplog):
    """Where onnxruntime has no GPU provider, GPU mode runs on the CPU after one warning."""
    door.configure()

    for _ in range(2):
        door.load(nets.mini(), **GPU).run(nets.mini_feeds())

    told = [record.getMessage() for record in caplog.records if "CUDA" in record.getMessage()]
    assert told == ["the installed onnxruntime has no CUDA provider: operators run on the CPU"]
    device = json.loads((door.rank / ".dump_metadata" / "config.json").read_text())
    assert device["device_target"] == "GPU"


ARGUMENTS = {
    "O0": (O0, True, True),
    "GPU": (GPU, True, True),
    "CPU": (CPU, True, True),
    "off": (O0, False, False),
}


@pytest.mark.parametrize(("context", "is_asked", "is_written"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_save_kernel_args(door, no_gpu, context, is_asked, is_written):
    """Arguments of dumped operators stand beside their tensors on every device."""
    door.dump(
        nets.mini(),
        nets.mini_feeds(),
        save_kernel_args=is_asked,
        dump_mode=1,
        kernels=["MatMul", "ReLU"],
        context=context,
    )

    names = {path.name for path in (door.rank / "Net" / "0" / "0").glob("*.json")}
    files = {"MatMul.Default_fc-Dense_MatMul-op0.json", "ReLU.Default_relu-ReLU_ReLU-op0.json"}
    assert (files if is_written else set()) == names


@pytest.mark.parametrize(("umask", "parent"), [(0, 0o777), (0o022, 0o755), (0o077, 0o700), (0o777, 0o700)])
def test_permissions(door, umask, parent):
    """Files are 0400 and directories 0700 under every umask; a directory that was there keeps its mode."""
    door.path.mkdir()
    door.path.chmod(parent)
    before = os.umask(umask)
    try:
        door.configure()
        os.umask(umask)
        door.load(nets.long_names()).run({"x": np.ones((2, 4), np.float32)})
    finally:
        os.umask(before)

    modes = {(path.is_dir(), trees.mode(path)) for path in door.path.rglob("*")}
    assert {(True, 0o700), (False, 0o400)} == modes
    assert parent == trees.mode(door.path)


DEVICES = {
    "in the list": ({"device_id": 3}, [3], True),
    "not in the list": ({"device_id": 1}, [0, 3], False),
    "default device": ({}, [0], True),
    "empty list": ({}, [], False),
}


@pytest.mark.parametrize("source", ["call", "environment"])
@pytest.mark.parametrize("case", DEVICES.values(), ids=DEVICES)
def test_support_device(door, caplog, case, source):
    """Ascend dumps on the devices that ``support_device`` lists; elsewhere one line says that it does not."""
    device, supported, is_dumped = case
    if source == "environment" and device:
        door.monkeypatch.setenv("DEVICE_ID", str(device["device_id"]))
        device = {}
    door.configure(support_device=supported)
    network = door.load(nets.mini(), **O0, **device)

    outputs = network.run(nets.mini_feeds())

    assert outputs["output"].shape == (1, 3)
    assert is_dumped == door.path.exists()
    assert is_dumped != any("support_device" in record.getMessage() for record in caplog.records)


SCOPES = {
    True: "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy",
    False: "Conv2D.Default_conv1_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy",
}


@pytest.mark.parametrize(("keeps", "expected"), SCOPES.items())
def test_reserve_class_name_in_scope(door, keeps, expected):
    """Without class names the scopes and the file names are shorter."""
    feeds = {"x": np.ones((1, 1, 6, 6), np.float32)}

    network = door.dump(
        GRAPHS / "mini.onnx",
        feeds,
        dump_mode=1,
        kernels=["Conv2D"],
        input_output=2,
        context={"reserve_class_name_in_scope": keeps},
    )

    files = [path.name for path in (door.rank / "Net" / "0" / "0").iterdir()]
    assert [expected] == trees.timeless(files)
    order = (door.rank / "execution_order" / "ms_execution_order_graph_0.csv").read_text().splitlines()
    assert order[1:] == [operator.full_name for operator in network.operators]


@pytest.mark.parametrize(
    ("context", "changes", "files"), [({}, {}, 17), (O0, {}, 13), (O0, {"enable": False}, 13)]
)
def test_max_bytes(door, caplog, context, changes, files):
    """A file that would pass ``max_bytes`` is skipped, counted and logged once; smaller ones still fit."""
    network = door.dump(nets.mini(), nets.mini_feeds(), max_bytes=1200, steps=3, context=context, **changes)

    sizes = [path.stat().st_size for _, path in trees.tensors(door.rank)]
    assert 1200 >= sum(sizes) > 900
    assert len(sizes) + network.summary.skipped["over max_bytes"] == 3 * files
    assert sum("max_bytes" in record.getMessage() for record in caplog.records) == 1


def test_summary(door):
    """The summary counts the files and bytes that stand on disk."""
    network = door.dump(nets.mini(), nets.mini_feeds(), steps=2)

    files = list(trees.tree(door.path).values())
    assert (len(files), {}, {}) == (network.summary.files, network.summary.skipped, network.summary.lost)
    assert network.summary.bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("context", [CPU, O0, O1, O2], ids=["CPU", "O0", "O1", "O2"])
def test_windows_over_one_axis(door, context):
    """Windows over one axis have names of their own and lie as on the host, unlike images."""
    weights = {"w": np.ones((4, 3, 3), np.float32), "v": np.ones((4, 2, 3), np.float32)}
    model = parsed(
        """graph (float[1,3,8] x) => (y) {
            ["a/Conv"] a = Conv<pads = [1, 0]>(x, w)
            ["p/MaxPool"] p = MaxPool<kernel_shape = [2]>(a)
            ["q/AveragePool"] q = AveragePool<kernel_shape = [2]>(p)
            ["t/ConvTranspose"] t = ConvTranspose(q, v)
            ["y/GlobalAveragePool"] y = GlobalAveragePool(t)
        }""",
        **weights,
    )
    trans = {} if context in (CPU, O2) else {"trans_flag": True}
    trans |= {"op_debug_mode": 0} if context is O2 else {}

    door.dump(model, {"x": np.full((1, 3, 8), 1 + 2**-12, np.float32)}, context=context, **trans)

    records = [record for record in open_dump(door.path).records if record.io == "output"]
    found = {
        record.op_type: record for record in records if record.op_type not in {"Cast", "Data", "Parameter"}
    }
    assert ["Conv1D", "MaxPool1D", "AvgPool1D", "Conv1DBackpropInput"] == list(found)[:4]
    assert {3} == {record.host.ndim for record in found.values()}
    assert {"NC1HWC0", "FRACTAL_Z"}.isdisjoint(str(record.format) for record in records)
    # a product of float16 on the device
    assert found["Conv1D"].host[0, 0, 1] == (9 * (1 + 2**-12) if context is CPU else 9)
    texts = [path.read_text() for path in door.path.rglob("*.ir")]
    assert bool(texts) is (context is not O2)
    assert all("NCL" in text and "NCHW" not in text for text in texts)
