"""Every key of Ascend O0/O1, in both ways of dumping, on AlexNet, beside the values of one session."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import msdump
from msdump.errors import ExecutionError
from sample_nets import data
from sample_nets.alexnet.net import AlexNet, fc_with_initialize
from sample_nets.tracing import trace
from tests.dump import keys, trees

O0 = {"device_target": "Ascend", "jit_level": "O0"}
ENABLE = pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
OPERATORS = [
    *("conv1-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op0", "max_pool2d-MaxPool2d/MaxPool-op0"),
    *("conv2-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op1", "max_pool2d-MaxPool2d/MaxPool-op1"),
    *("conv3-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op2"),
    *("conv4-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op3"),
    *("conv5-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op4", "max_pool2d-MaxPool2d/MaxPool-op2"),
    *("flatten-Flatten/Flatten-op0", "fc1-Dense/MatMul-op0", "fc1-Dense/BiasAdd-op0", "relu-ReLU/ReLU-op5"),
    *("fc2-Dense/MatMul-op0", "fc2-Dense/BiasAdd-op0", "relu-ReLU/ReLU-op6"),
    *("fc3-Dense/MatMul-op0", "fc3-Dense/BiasAdd-op0"),
]
BASE = {"dump_mode": 1, "kernels": ["Conv2D"], "input_output": 2, "iteration": "0"}
BASE |= {"precision_mode": "force_fp32"}  # so that every value is the whole graph's
ONLY_CONV = "conv.*"


@pytest.fixture(scope="module", params=["narrow", pytest.param("whole", marks=pytest.mark.slow)])
def alexnet(request, tmp_path_factory):
    """Give AlexNet for images of any size, its dense layers narrow or whole, and all values of one run."""
    network = AlexNet()
    if request.param == "narrow":
        sizes = zip(("fc1", "fc2", "fc3"), (6 * 6 * 256, 64, 64), (64, 64, 10), strict=True)
        for name, *shape in sizes:
            setattr(network, name, fc_with_initialize(*shape))
    image = ir.val("x", ir.DataType.FLOAT, ["N", 3, "H", "W"])
    path = tmp_path_factory.mktemp("alexnet") / "alexnet.onnx"
    ir.save(trace(network, (image,), name="alexnet", outputs=("output",), seed=0), path)
    model, feeds = onnx.load(path), {"x": data.photos(0, 1, 227)}
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    return SimpleNamespace(
        path=path,
        feeds=feeds,
        values=trees.whole_graph(model, feeds),
        nodes=dict(zip(OPERATORS, nodes, strict=True)),
    )


def expected(alexnet, names=ONLY_CONV, ios=("output",)):
    """Return the tensors of operators, ``conv1-Conv2d/Conv2D-op0 output 0`` -> array."""
    return {
        f"{name} {io} {slot}": alexnet.values[value]
        for name, node in alexnet.nodes.items()
        if re.fullmatch(names, name)
        for io in ios
        for slot, value in enumerate(node.input if io == "input" else node.output)
    }


def found(folder):
    """Return the tensors of a step with the keys of ``expected``, and format and type of each file."""
    names = {re.sub(r"[^\w-]", "_", f"Default/{name}"): name for name in OPERATORS}
    files = trees.tensors(folder)
    arrays = {f"{names[m['name']]} {m['io']} {m['slot']}": np.load(path) for m, path in files}
    assert len(arrays) == len(files)
    return arrays, {(m["format"], m["dtype"]) for m, _ in files}


def same(wanted, arrays):
    """Assert that the same tensors are there, bit for bit."""
    assert list(wanted) == [key for key in wanted if key in arrays]
    assert set(wanted) == set(arrays)
    assert [key for key in wanted if not trees.same_bits(wanted[key], arrays[key])] == []


BOTH = ("input", "output")
# changes, operators, sides, steps with files of the four that run
CHOICES = {
    "op_debug_mode 0": ({"op_debug_mode": 0}, ONLY_CONV, ("output",), ["0"]),
    "dump_mode 0": ({"dump_mode": 0}, ".*", ("output",), ["0"]),
    "dump_mode 1": ({"dump_mode": 1}, ONLY_CONV, ("output",), ["0"]),
    "dump_mode 2": ({"dump_mode": 2}, "(fc1|conv3)-.*", ("output",), ["0"]),
    "iteration all": ({"iteration": "all"}, ONLY_CONV, ("output",), ["0", "1", "2", "3"]),
    "iteration one": ({"iteration": "2"}, ONLY_CONV, ("output",), ["2"]),
    "iteration range": ({"iteration": "1-2"}, ONLY_CONV, ("output",), ["1", "2"]),
    "iteration several": ({"iteration": "0|2-3|100-120"}, ONLY_CONV, ("output",), ["0", "2", "3"]),
    "iteration with spaces": ({"iteration": "0 | 2-3"}, ONLY_CONV, ("output",), ["0", "2", "3"]),
    "initial_iteration 5": (
        {"initial_iteration": 5, "iteration": "0|6-7"},
        ONLY_CONV,
        ("output",),
        ["6", "7"],
    ),
    "input_output 0": ({"input_output": 0}, ONLY_CONV, BOTH, ["0"]),
    "input_output 1": ({"input_output": 1}, ONLY_CONV, ("input",), ["0"]),
    "input_output 2": ({"input_output": 2}, ONLY_CONV, ("output",), ["0"]),
    "kernels names": (
        {"kernels": ["Default/conv3-Conv2d/Conv2D-op0", "Default/relu-ReLU/ReLU-op5"]},
        "conv3.*|relu-ReLU/ReLU-op5",
        ("output",),
        ["0"],
    ),
    "kernels type": ({"kernels": ["matmul", "FLAT"]}, ".*(MatMul|Flatten)-op.*", ("output",), ["0"]),
    "kernels expression": (
        {"kernels": ["name-regex(Default/(fc|max).+op[01])"]},
        "(fc|max).*op[01]",
        ("output",),
        ["0"],
    ),
    "kernels none": ({"kernels": [""]}, ".*", ("output",), ["0"]),
    "support_device with": ({"support_device": [0, 3]}, ONLY_CONV, ("output",), ["0"]),
    "support_device without": ({"support_device": [0, 1]}, ONLY_CONV, ("output",), []),
    "saved_data tensor": ({"saved_data": "tensor"}, ONLY_CONV, ("output",), ["0"]),
    "net_name given": ({"net_name": "AlexNet_of-2012"}, ONLY_CONV, ("output",), ["0"]),
    "save_kernel_args false": ({"save_kernel_args": False}, ONLY_CONV, ("output",), ["0"]),
}


@ENABLE
@pytest.mark.parametrize(("changes", "names", "ios", "steps"), CHOICES.values(), ids=CHOICES)
def test_choices(door, alexnet, enable, changes, names, ios, steps):
    """Exactly the tensors that the key asks for are there, in the steps that it names, with their values."""
    msdump.set_dump("fc1")
    msdump.set_dump("conv3")

    door.dump(
        alexnet.path,
        alexnet.feeds,
        steps=4 if len(steps) != 1 or steps != ["0"] else 1,
        context={**O0, "device_id": 3},
        enable=enable,
        **{**BASE, "support_device": [3], **changes},
    )

    folder = door.rank / changes.get("net_name", "Net") / "0"
    assert steps == sorted(path.name for path in folder.iterdir()) if steps else not folder.exists()
    for step in steps:
        arrays, kinds = found(folder / step)
        same(expected(alexnet, names, ios), arrays)
        assert kinds == {("DefaultFormat", "float32")}
        assert {path.suffix for path in (folder / step).iterdir()} == {".npy"}


PATHS = {"path given": "own/place", "path from the environment": "debug_dump"}


@ENABLE
@pytest.mark.parametrize(("key", "place"), PATHS.items(), ids=PATHS)
def test_path(door, alexnet, enable, key, place):
    """The dump stands below ``path``, else below ``debug_dump`` of MS_DIAGNOSTIC_DATA_PATH."""
    door.monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(door.folder))
    path = str(door.folder / place) if "given" in key else ""

    door.dump(alexnet.path, alexnet.feeds, context=O0, enable=enable, **BASE, path=path)

    arrays, _ = found(door.folder / place / "rank_0" / "Net" / "0" / "0")
    same(expected(alexnet), arrays)


def test_enable_missing(door, alexnet):
    """Without ``enable`` the dump is asynchronous, and complete when the step returns."""
    network = door.dump(alexnet.path, alexnet.feeds, context=O0, enable=None, **BASE)

    assert network.plan.files.is_async
    same(expected(alexnet), found(door.rank / "Net" / "0" / "0")[0])


def image_blocks(array):
    """Return an image in NC1HWC0: blocks of sixteen channels, the last one filled with zeros."""
    n, c, h, w = array.shape
    device = np.zeros((n, -(-c // 16) * 16, h, w), array.dtype)
    device[:, :c] = array
    return np.ascontiguousarray(device.reshape(n, -1, 16, h, w).transpose(0, 1, 3, 4, 2))


def first(count):
    """Return what takes the first elements of a tensor."""
    return lambda array: array.reshape(-1)[:count].copy()


CONTENTS = {
    "trans_flag true": ({"trans_flag": True}, lambda array: array, "DefaultFormat"),
    "trans_flag false": ({"trans_flag": False}, image_blocks, "NC1HWC0"),
    "sample_mode 0": ({"sample_mode": 0, "sample_num": 4}, lambda array: array, "DefaultFormat"),
    "sample_mode 1": ({"sample_mode": 1, "sample_num": 100_000}, None, "DefaultFormat"),
    "sample_num default": ({"sample_mode": 1}, first(100), "DefaultFormat"),
    "sample_num 4": ({"sample_mode": 1, "sample_num": 4}, first(4), "DefaultFormat"),
}


def smaller(array):
    """Return a tensor with at most 100 000 elements as it is, of another one so many."""
    return array if array.size <= 100_000 else first(100_000)(array)


@ENABLE
@pytest.mark.parametrize(("changes", "shown", "kind"), CONTENTS.values(), ids=CONTENTS)
def test_contents(door, alexnet, enable, changes, shown, kind):
    """Tensors are saved as the key says: as on the host or the device, whole or their first elements."""
    door.dump(alexnet.path, alexnet.feeds, context=O0, enable=enable, **BASE, **changes)

    arrays, kinds = found(door.rank / "Net" / "0" / "0")
    wanted = {key: (shown or smaller)(array) for key, array in expected(alexnet).items()}
    same(wanted, arrays)
    assert kinds == {(kind, "float32")}


def counted(condition):
    """Return what counts elements."""
    return lambda x: str(np.count_nonzero(condition(x)))


def number(function):
    """Return what prints a number as C++ does."""
    return lambda x: f"{function(x.astype(np.float64)):.6g}"


def digest(name):
    """Return what hashes elements."""
    return lambda x: hashlib.new(name, x.tobytes(), usedforsecurity=False).hexdigest()


NUMBERS = {
    "max": ("Max Value", number(np.max)),
    "min": ("Min Value", number(np.min)),
    "avg": ("Avg Value", number(np.mean)),
    "count": ("Count", lambda x: str(x.size)),
    "negative zero count": ("Negative Zero Count", counted(lambda x: x < 0)),
    "positive zero count": ("Positive Zero Count", counted(lambda x: x > 0)),
    "nan count": ("NaN Count", counted(np.isnan)),
    "negative inf count": ("Negative Inf Count", counted(np.isneginf)),
    "positive inf count": ("Positive Inf Count", counted(np.isposinf)),
    "zero count": ("Zero Count", counted(lambda x: x == 0)),
    "md5": ("MD5", digest("md5")),
    "l2norm": ("L2Norm Value", number(np.linalg.norm)),
    "hash": ("SHA1", digest("sha1")),
    "hash:md5": ("MD5", digest("md5")),
    "hash:sha1": ("SHA1", digest("sha1")),
}
TABLES = {
    **{f"statistic_category {name}": ("statistic", [name]) for name in NUMBERS},
    "statistic_category default": ("statistic", None),
    "saved_data statistic": ("statistic", ["count", "l2norm", "min"]),
    "saved_data full": ("full", ["md5", "max"]),
    "stat_calc_mode host": ("statistic", ["avg", "max"]),
}


@ENABLE
@pytest.mark.parametrize(("saved", "categories"), TABLES.values(), ids=TABLES)
def test_statistics(door, alexnet, enable, saved, categories):
    """The rows are numpy's numbers of each tensor, the columns those that the key names, in its order."""
    changes = {"saved_data": saved, "stat_calc_mode": "host", "kernels": ["Conv2D", "ReLU"]}
    changes |= {} if categories is None else {"statistic_category": categories}

    door.dump(alexnet.path, alexnet.feeds, context=O0, enable=enable, **{**BASE, **changes})

    folder = door.rank / "Net" / "0" / "0"
    wanted = expected(alexnet, "conv.*|relu.*")
    rows = list(csv.DictReader((folder / "statistic.csv").read_text().splitlines()))
    for (key, array), row in zip(wanted.items(), rows, strict=True):
        assert row["Op Name"].endswith(re.sub(r"[^\w-]", "_", key.partition(" ")[0]))
        assert (row["Data Size"], row["Shape"]) == (
            str(array.nbytes),
            f"({','.join(map(str, array.shape))})",
        )
        for name in categories or ("max", "min", "l2norm"):
            title, text = NUMBERS[name]
            assert text(array) == row[title] or np.isclose(float(text(array)), float(row[title]), rtol=2e-6)
    assert list(rows[0])[10:] == [NUMBERS[name][0] for name in categories or ("max", "min", "l2norm")]
    same(wanted if saved == "full" else {}, found(folder)[0])


DEVICE = {
    "stat_calc_mode device": "high",
    "device_stat_precision_mode high": "high",
    "device_stat_precision_mode low": "low",
}


@ENABLE
@pytest.mark.parametrize("precision", DEVICE.values(), ids=DEVICE)
def test_statistics_of_the_device(door, alexnet, enable, precision):
    """The device adds float16 tensors in float32, or, low, in float16, where a large norm is infinite."""
    changes = {"saved_data": "statistic", "statistic_category": ["max", "min", "avg", "l2norm"]}
    changes |= {"stat_calc_mode": "device", "device_stat_precision_mode": precision}
    changes |= {"precision_mode": "force_fp16", "trans_flag": False}
    feeds = {"x": 4 * alexnet.feeds["x"]}

    door.dump(alexnet.path, feeds, context=O0, enable=enable, **{**BASE, **changes})

    text = (door.rank / "Net" / "0" / "0" / "statistic.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    norms = []
    for array, row in zip(expected(alexnet).values(), rows, strict=True):
        device = 4 * image_blocks(array).astype(np.float64)  # convolutions without bias are linear
        titles = ("Max Value", "Min Value", "Avg Value", "L2Norm Value")
        high, low, mean, norm = (float(row[title]) for title in titles)
        np.testing.assert_allclose([high, low], [device.max(), device.min()], rtol=0.02)
        np.testing.assert_allclose(mean, device.mean(), atol=0.02 * np.abs(device).mean())
        norms.append((norm, np.linalg.norm(device)))
        assert (row["Data Type"], row["Data Size"]) == ("float16", str(2 * device.size))
    assert any(norm**2 > 2 * 65504 for _, norm in norms)
    for norm, wanted in norms:
        if precision == "low" and wanted**2 > 1.1 * 65504:
            assert norm == np.inf
        else:
            np.testing.assert_allclose(norm, wanted, rtol=0.05)


LIMITS = {"op_debug_mode 3": None, "overflow_number 0": 0, "overflow_number 2": 2}


@ENABLE
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_overflow(door, alexnet, enable, limit):
    """Inputs and outputs of the operators that overflow in float16, the first where a number is given."""
    feeds = {"x": alexnet.feeds["x"].copy()}
    feeds["x"][0, :, :11, :11] = 60_000 * np.sign(alexnet.values["conv1.weight"][0])
    changes = {"op_debug_mode": 3, "precision_mode": "force_fp16", "dump_mode": 0, "input_output": 0}
    changes |= {} if limit is None else {"overflow_number": limit}
    quiet = {"op_debug_mode": 0, "input_output": 2, "net_name": "All"}
    door.dump(alexnet.path, feeds, context=O0, **{**BASE, **changes, **quiet, "overflow_number": None})
    everything, _ = found(door.rank / "All" / "0" / "0")
    door.again()

    door.dump(alexnet.path, feeds, context=O0, enable=enable, **{**BASE, **changes})

    arrays, _ = found(door.rank / "Net" / "0" / "0")
    dumped = list(dict.fromkeys(key.partition(" ")[0] for key in arrays))
    wanted = [name for name in OPERATORS if not np.isfinite(everything[f"{name} output 0"]).all()]
    assert OPERATORS[:2] == wanted[:2]
    assert len(wanted) > 5
    assert dumped == (wanted[:2] if limit == 2 else wanted)
    for name in dumped:
        sides = alexnet.nodes[name].input, alexnet.nodes[name].output
        slots = [f"{io} {slot}" for io, side in zip(BOTH, sides, strict=True) for slot in range(len(side))]
        assert slots == [key.partition(" ")[2] for key in arrays if key.startswith(f"{name} ")]


@ENABLE
def test_exception(door, alexnet, enable):
    """``op_debug_mode 4``: an image that does not fit the dense layer leaves that layer's inputs."""
    small = {"x": alexnet.feeds["x"][:, :, :195, :195].copy()}
    door.configure(enable=enable, **{**BASE, "op_debug_mode": 4, "dump_mode": 0, "input_output": 1})
    network = door.load(alexnet.path, **O0)

    with pytest.raises(ExecutionError, match="Default/fc1-Dense/MatMul-op0"):
        network.run(small)

    arrays, _ = found(door.rank / "Net" / "0" / "0")
    assert list(arrays) == [f"fc1-Dense/MatMul-op0 input {slot}" for slot in (0, 1)]
    assert arrays["fc1-Dense/MatMul-op0 input 0"].shape == (1, 6400)
    assert trees.same_bits(alexnet.values["fc1.weight"], arrays["fc1-Dense/MatMul-op0 input 1"])


@ENABLE
def test_save_kernel_args(door, alexnet, enable):
    """``save_kernel_args true``: a synchronous dump saves the arguments under MindSpore's names."""
    door.dump(
        alexnet.path,
        alexnet.feeds,
        context=O0,
        enable=enable,
        **{**BASE, "kernels": ["Conv2D", "MatMul"], "save_kernel_args": True},
    )

    folder = door.rank / "Net" / "0" / "0"
    texts = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    wanted = [name for name in OPERATORS if "Conv2D" in name or "MatMul" in name]
    files = {f"{re.split('[/-]', name)[2]}.Default_{name.replace('/', '_')}.json" for name in wanted}
    assert set(texts) == (files if enable else set())
    if enable:
        assert texts["MatMul.Default_fc1-Dense_MatMul-op0.json"] == {
            "transpose_a": "False",
            "transpose_b": "False",
        }
        convolution = texts["Conv2D.Default_conv1-Conv2d_Conv2D-op0.json"]
        assert (convolution["kernel_size"], convolution["stride"]) == ("[11 11]", "[1 1 4 4]")


def test_every_key_has_a_row():
    """Each key of the documents, with each of its values, is a row above or a test of its own."""
    rows = {*CHOICES, *PATHS, *CONTENTS, *TABLES, *DEVICE, *LIMITS}

    assert {"enable missing", "op_debug_mode 4", "save_kernel_args true"} == keys.ALL - rows
    assert rows <= keys.ALL
