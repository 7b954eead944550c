"""What devices, levels and settings change about a dump."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import msdump
from msdump.errors import ConfigError, NotAvailableError
from msdump.execute import runtime
from tests.dump import nets, trees

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
O0 = {"device_target": "Ascend", "jit_level": "O0"}
O1 = {"device_target": "Ascend", "jit_level": "O1"}
CPU = {"device_target": "CPU"}
GPU = {"device_target": "GPU"}


@pytest.fixture
def no_gpu(monkeypatch):
    """Set up a runtime of its own, whose onnxruntime has no CUDA provider."""
    monkeypatch.setattr(runtime.native, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(runtime.runtime(), "gpu_refused", False)


NAMES = {
    ("2.5", "CPU"): (CPU, "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy"),
    ("2.5", "GPU"): (GPU, "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy"),
    ("2.5", "O0"): (O0, "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.float32.npy"),
    ("2.5", "O1"): (O1, "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.float32.npy"),
    ("2.7", "CPU"): (
        CPU,
        "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.Float32.npy",
    ),
    ("2.7", "GPU"): (
        GPU,
        "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.Float32.npy",
    ),
    ("2.7", "O0"): (O0, "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.float32.npy"),
    ("classic", "CPU"): (CPU, "Conv2D.Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy"),
    ("classic", "O0"): (O0, "Conv2D.Conv2D-op0.0.0.{ts}.output.0.DefaultFormat.npy"),
}


@pytest.mark.parametrize(
    ("naming", "context", "expected"),
    [(naming, *rest) for (naming, _), rest in NAMES.items()],
    ids=[f"{naming} on {mode}" for naming, mode in NAMES],
)
def test_name(door, no_gpu, naming, context, expected):
    """The name of a tensor file follows the generation and the device."""
    door.dump(
        nets.mini(),
        nets.mini_feeds(),
        naming=naming,
        dump_mode=1,
        kernels=["Conv2D"],
        input_output=2,
        context=context,
    )

    assert [expected] == trees.timeless(path.name for path in (door.rank / "Net" / "0" / "0").iterdir())


def test_default_naming(door):
    """Without ``msdump.naming`` the documented names of 2.5 are written."""
    door.dump(nets.mini(), nets.mini_feeds(), dump_mode=1, kernels=["ReLU"], input_output=2)

    assert (trees.timeless(path.name for path in (door.rank / "Net" / "0" / "0").iterdir())) == [
        "ReLU.Default_relu-ReLU_ReLU-op0.0.0.{ts}.output.0.DefaultFormat.npy"
    ]


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


HISTORIES = {"CPU": (CPU, "0\n2\n"), "GPU": (GPU, "0\n1\n2\n3\n"), "O0": (O0, None)}


@pytest.mark.parametrize(("context", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_history(door, no_gpu, context, expected):
    """The history lists the dumped iterations on CPU, every run on GPU; Ascend has none."""
    door.dump(nets.mini(), nets.mini_feeds(), iteration="0|2", steps=4, context=context)

    history = door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv"
    assert expected == (history.read_text() if history.exists() else None)


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


def test_constant_file(door):
    """A constant's file has the documented name and the constant in it."""
    door.dump(nets.exp_plus_one(), {"x": np.ones((1, 3), np.float32)})

    (path,) = (door.rank / "Net" / "0" / "constants").iterdir()

    assert trees.timeless([path.name]) == ["Parameter.data-0.0.0.{ts}.output.0.DefaultFormat.npy"]
    assert trees.same_bits(np.array(1, np.float32), np.load(path))


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
    "CPU": (CPU, True, False),
    "off": (O0, False, False),
}


@pytest.mark.parametrize(("context", "is_asked", "is_written"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_save_kernel_args(door, no_gpu, context, is_asked, is_written):
    """Arguments of dumped operators stand beside their tensors on Ascend and GPU; CPU has none."""
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


def test_kernel_args_are_json_texts(door):
    """The arguments are a JSON object of texts, keys sorted, four spaces deep."""
    door.dump(nets.mini(), nets.mini_feeds(), save_kernel_args=True, context=O0)

    path = next((door.rank / "Net" / "0" / "0").glob("Conv2D.*.json"))
    data = json.loads(path.read_text())
    assert data
    assert {str} == {type(item) for item in data.values()}
    assert json.dumps(dict(sorted(data.items())), indent=4) == path.read_text().rstrip("\n")
    assert trees.mode(path) == 0o400


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


def test_support_device_on_cpu(door):
    """On the CPU ``support_device`` is not looked at."""
    door.dump(nets.mini(), nets.mini_feeds(), support_device=[7])

    assert trees.tensors(door.rank)


NOT_AVAILABLE = {
    "O2": ({"device_target": "Ascend", "jit_level": "O2"}, {}, "jit_level O2"),
    "no level and no e2e block": ({"device_target": "Ascend"}, {"e2e": None}, "jit_level O2"),
    "asynchronous": (O0, {"enable": False}, "asynchronous dump"),
    "statistics": (O0, {"saved_data": "statistic"}, "saved_data statistic or full"),
    "both": (O0, {"saved_data": "full"}, "saved_data statistic or full"),
    "samples": (O0, {"sample_mode": 1}, "sample_mode 1"),
    "overflow": (O0, {"op_debug_mode": 3}, r"op_debug_mode 3 \(overflow\)"),
    "exception": (O0, {"op_debug_mode": 4}, r"op_debug_mode 4 \(exception\)"),
    "device format": (O0, {"trans_flag": False}, "trans_flag false on Ascend"),
}


@pytest.mark.parametrize(("context", "changes", "message"), NOT_AVAILABLE.values(), ids=NOT_AVAILABLE)
def test_not_available(door, context, changes, message):
    """What cannot be executed yet is refused by name before anything is written."""
    file = door.configure(**{key: value for key, value in changes.items() if key != "e2e"})
    if "e2e" in changes:
        blocks = json.loads(file.read_text())
        del blocks["e2e_dump_settings"]
        door.configure(blocks)

    with pytest.raises(NotAvailableError, match=message):
        door.load(nets.mini(), **context)

    assert not door.path.exists()


def test_not_available_names_all(door):
    """Every setting that is not available is named at once."""
    door.configure(saved_data="full", sample_mode=1, trans_flag=False)

    with pytest.raises(NotAvailableError) as caught:
        door.load(nets.mini(), **O0)

    expected = "saved_data statistic or full; sample_mode 1; trans_flag false on Ascend"
    assert f"{door.folder}/data_dump.json: not available in this version: {expected}" == str(caught.value)


WITHOUT_EFFECT = {
    "enable false": {"enable": False},
    "no enable": {"enable": None},
    "trans_flag": {"trans_flag": False},
    "samples": {"sample_mode": 1},
    "kernel arguments": {"save_kernel_args": True},
    "device": {"support_device": [5]},
    "format of files": {"file_format": "bin"},
    "categories without statistics": {"statistic_category": ["max", "none"]},
}


@pytest.mark.parametrize("changes", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_without_effect_on_cpu(door, changes):
    """Settings of other devices change nothing about a dump on the CPU."""
    door.dump(nets.mini(), nets.mini_feeds(), **changes)

    assert 17 == len(trees.tree(door.rank / "Net"))
    assert 17 == len([path for path in (door.rank / "Net" / "0" / "0").glob("*.npy") if np.load(path).size])


def test_graph_files_from_the_load_on(door):
    """Graph files, execution order and metadata are there when the network is loaded, before it runs."""
    door.configure(iteration="9")

    door.load(nets.mini())

    assert [
        *(".dump_metadata/config.json", ".dump_metadata/data_dump.json"),
        "execution_order/ms_execution_order_graph_0.csv",
        *("graphs/ms_output_trace_code_graph_0.ir", "graphs/ms_output_trace_code_graph_0.pb"),
    ] == list(trees.tree(door.rank))


def test_rank_of_the_environment(door):
    """A run that no launcher distributed is rank 0, whatever RANK_ID says."""
    door.monkeypatch.setenv("RANK_ID", "4")

    door.dump(nets.mini(), nets.mini_feeds())

    assert ["rank_0"] == [path.name for path in door.path.iterdir()]


def test_path_beats_the_environment(door):
    """MS_DIAGNOSTIC_DATA_PATH counts only where the configuration has no path."""
    door.monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(door.folder / "diag"))

    door.dump(nets.mini(), nets.mini_feeds())

    assert ["data_dump.json", "dump"] == sorted(path.name for path in door.folder.iterdir())


def test_long_names_on_ascend(door):
    """Names over 255 bytes are mapped on every device, those of argument files too."""
    door.dump(nets.long_names(), {"x": np.ones((2, 4), np.float32)}, save_kernel_args=True, context=O0)

    folder = door.rank / "Net" / "0" / "0"
    mapping = dict(line.split(",") for line in (folder / "mapping.csv").read_text().splitlines())
    assert {path.name for path in folder.iterdir()} == {*mapping, "mapping.csv"}
    assert 8 == len(mapping)
    assert 2 == sum(name.endswith(".json") for name in mapping.values())
    assert all(stand_in.endswith(name[name.rindex(".") :]) for stand_in, name in mapping.items())


def test_without_a_configuration(door, caplog):
    """Without MINDSPORE_DUMP_CONFIG nothing is written and nothing is said."""
    caplog.set_level("DEBUG", "msdump")

    network = door.load(nets.mini())
    network.run(nets.mini_feeds())
    door.process.close()

    assert network.summary is None
    assert list(door.folder.iterdir()) == []
    assert caplog.records == []


@pytest.mark.parametrize("value", ["", None])
def test_empty_variable(door, value):
    """An empty variable is as good as none."""
    door.monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", value or "")

    door.load(nets.mini()).run(nets.mini_feeds())

    assert list(door.folder.iterdir()) == []


def test_variable_is_read_once(door):
    """What the variable or the file says after the first load has no effect."""
    file = door.configure(net_name="First")
    first = door.load(nets.mini())
    file.write_text("{}")
    door.monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", "/none.json")

    first.run(nets.mini_feeds())
    door.load(nets.mini()).run(nets.mini_feeds())

    assert {"0", "1"} == {path.name for path in (door.rank / "First").iterdir()}


def test_variable_set_after_the_first_load(door):
    """A variable that is set after the first load has no effect."""
    door.load(nets.mini())
    door.configure()

    door.load(nets.mini()).run(nets.mini_feeds())

    assert not door.path.exists()


def test_faulty_configuration_is_read_again(door):
    """A faulty configuration raises at every load until it is mended."""
    door.configure(iteration="5-3")
    for _ in range(2):
        with pytest.raises(ConfigError, match="iteration"):
            door.load(nets.mini())

    door.configure()
    door.load(nets.mini()).run(nets.mini_feeds())

    assert trees.tensors(door.rank)


def test_configuration_by_relative_path(door):
    """The variable may hold a relative path; a later change of directory does not matter."""
    file = door.configure()
    door.monkeypatch.chdir(door.folder)
    door.monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", file.name)
    network = door.load(nets.mini())
    door.monkeypatch.chdir("/")

    network.run(nets.mini_feeds())

    assert file.read_bytes() == (door.rank / ".dump_metadata" / "data_dump.json").read_bytes()


def test_context_of_each_network(door):
    """Each network is compiled for the context of its load."""
    door.configure(save_kernel_args=True)

    on_cpu, on_ascend = door.load(nets.mini(), **CPU), door.load(nets.mini(), **O0)
    for network in (on_cpu, on_ascend):
        network.run(nets.mini_feeds())

    dtypes = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "0")}
    assert {None} == dtypes
    dtypes = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "1")}
    assert {"float32"} == dtypes


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


def test_max_bytes(door, caplog):
    """A file that would pass ``max_bytes`` is skipped, counted and told once; smaller ones still fit."""
    network = door.dump(nets.mini(), nets.mini_feeds(), max_bytes=1200, steps=3)

    sizes = [path.stat().st_size for _, path in trees.tensors(door.rank)]
    assert 1200 >= sum(sizes) > 900
    assert len(sizes) + network.summary.skipped["over max_bytes"] == 3 * 17
    assert sum("max_bytes" in record.getMessage() for record in caplog.records) == 1


def test_max_bytes_holds_for_all_networks(door):
    """The limit is the process's, not one network's."""
    door.configure(max_bytes=1200)

    for _ in range(3):
        door.load(nets.mini()).run(nets.mini_feeds())

    assert sum(path.stat().st_size for _, path in trees.tensors(door.rank)) <= 1200


def test_summary(door):
    """The summary counts the files and bytes that stand on disk."""
    network = door.dump(nets.mini(), nets.mini_feeds(), steps=2)

    files = list(trees.tree(door.path).values())
    assert (len(files) - 1, {}, {}) == (network.summary.files, network.summary.skipped, network.summary.lost)
    assert network.summary.bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device_target": "TPU"}, "device_target = 'TPU': CPU, GPU, Ascend are allowed"),
        ({"jit_level": "O3"}, "jit_level = 'O3': O0, O1, O2 are allowed"),
        ({"device_id": -1}, r"device_id = -1: a device number \(0, 1, ...\) is expected"),
        ({"device_id": True}, "device_id = True"),
        ({"reserve_class_name_in_scope": 0}, "reserve_class_name_in_scope = 0: True or False is expected"),
        ({"mode": 0}, "set_context has no setting 'mode'; it has device_target, "),
    ],
    ids=["device", "level", "negative number", "bool as number", "number as bool", "unknown"],
)
def test_wrong_context(door, settings, message):
    """A wrong setting is refused with what is allowed, and changes nothing."""
    with pytest.raises(ValueError, match=message):
        msdump.set_context(**settings)

    door.dump(nets.mini(), nets.mini_feeds())
    assert (door.rank / ".dump_metadata" / "config.json").read_text().startswith('{"device_target":"CPU"')


def test_context_from_the_environment(door):
    """DEVICE_TARGET and JIT_LEVEL hold where no call says otherwise."""
    door.monkeypatch.setenv("DEVICE_TARGET", "Ascend")
    door.monkeypatch.setenv("JIT_LEVEL", "O1")
    door.dump(nets.mini(), nets.mini_feeds())
    of_environment = {m["dtype"] for m, _ in trees.tensors(door.rank)}

    door.load(nets.mini(), device_target="CPU").run(nets.mini_feeds())
    of_call = {m["dtype"] for m, _ in trees.tensors(door.rank / "Net" / "1")}

    assert ({"float32"}, {None}) == (of_environment, of_call)


def test_wrong_environment(door):
    """A wrong variable is named at the load."""
    door.monkeypatch.setenv("DEVICE_TARGET", "NPU")

    with pytest.raises(ValueError, match="DEVICE_TARGET = 'NPU': CPU, GPU, Ascend are allowed"):
        door.load(nets.mini())


def test_ir_names_the_graph(door):
    """The graph files of the second network are those of graph 1."""
    door.configure()
    for _ in range(2):
        door.load(nets.mini())

    texts = [(door.rank / "graphs" / f"ms_output_trace_code_graph_{n}.ir").read_text() for n in (0, 1)]
    assert [sorted(set(re.findall(r"kernel_graph(\d+)", text))) for text in texts] == [["0"], ["1"]]
