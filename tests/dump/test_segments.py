"""Dumps of operators that run together: the same rows and files as of operators that run one by one."""

import functools
import logging
import math
import re

import numpy as np
import pytest

import msdump
from msdump.errors import ExecutionError, WatchHitError
from msdump.execute import KernelFactory
from msdump.graph import loader
from sample_nets.build import build
from tests import inputs, steps
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import CPU, O0, ROOT

HALF = {**O0, "ascend_config": {"precision_mode": "force_fp16"}}
BFLOAT16 = {**O0, "ascend_config": {"precision_mode": "allow_mix_precision_bf16"}}
ALL = [
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "l2norm"),
]
ROWS = {"saved_data": "statistic"}
LARGE = [{"condition": "tensor_too_large", "max_gt": 2.5}]
HARMLESS = [{"condition": "tensor_too_large", "max_gt": 1e30}]
OUTPUTS = {"input_output": 2}
DEVICE_FORMATS = {"trans_flag": False}
MODES = {
    "rows": (O0, ROWS),
    "rows of outputs": (O0, {**ROWS, **OUTPUTS, "statistic_category": ALL}),
    "default rows of outputs": (O0, {**ROWS, **OUTPUTS}),
    "rows of outputs under O1": ({**O0, "jit_level": "O1"}, {**ROWS, **OUTPUTS}),
    "rows with hashes": (O0, {**ROWS, "statistic_category": ["md5", "max"]}),
    "rows of the device": (O0, {**ROWS, "stat_calc_mode": "device"}),
    "rows of samples": (O0, {**ROWS, "sample_mode": 1, "sample_num": 5}),
    "rows in device formats": (HALF, {**ROWS, "trans_flag": False}),
    "rows of a few": (O0, {**ROWS, "dump_mode": 1, "kernels": ["name-regex(.+-op[02])"]}),
    "rows under O1": ({**O0, "jit_level": "O1"}, ROWS),
    "rows under O2": ({**O0, "jit_level": "O2"}, {**ROWS, "file_format": "npy"}),
    "rows and files": (O0, {"saved_data": "full"}),
    "files of outputs": (O0, OUTPUTS),
    "files of outputs in halves": (HALF, OUTPUTS),
    "files of outputs under O1": ({**O0, "jit_level": "O1"}, OUTPUTS),
    "files of outputs on a CPU": (CPU, OUTPUTS),
    "files of a few outputs": (O0, {**OUTPUTS, "dump_mode": 1, "kernels": ["name-regex(.+-op[02])"]}),
    "files": (O0, {}),
    "files of inputs": (O0, {"input_output": 1}),
    "files in halves": (HALF, {}),
    "files in bfloat16": (BFLOAT16, {}),
    "device formats": (O0, DEVICE_FORMATS),
    "device formats of outputs": (O0, {**DEVICE_FORMATS, **OUTPUTS}),
    "device formats in halves": (HALF, DEVICE_FORMATS),
    "device formats in bfloat16": (BFLOAT16, DEVICE_FORMATS),
    "device formats under O1": ({**O0, "jit_level": "O1"}, DEVICE_FORMATS),
    "files of inputs on a CPU": (CPU, {"input_output": 1}),
    "files of a few": (O0, {"dump_mode": 1, "kernels": ["name-regex(.+-op[02])"]}),
    "files of scoped names": (O0, {**OUTPUTS, "naming": "2.5"}),
    "hits": (O0, {"watch": LARGE}),
    "hits of rows": (O0, {**ROWS, "watch": LARGE}),
    "hits of outputs": (O0, {**ROWS, **OUTPUTS, "watch": LARGE}),
    "no hits of outputs": (O0, {**OUTPUTS, "watch": HARMLESS}),
    "warnings and rows": (HALF, {**ROWS, "watch": LARGE, "on_hit": "log"}),
    "a history": (O0, {"watch": LARGE, "history": 1}),
    "overflows": (HALF, {**ROWS, "op_debug_mode": 3}),
    "asynchronous files": (O0, {"enable": False}),
    "asynchronous files of outputs": (O0, {**OUTPUTS, "enable": False}),
    "asynchronous files in halves": (HALF, {"enable": False}),
    "asynchronous files under O1": ({**O0, "jit_level": "O1"}, {"enable": False}),
    "asynchronous device formats": (HALF, {**DEVICE_FORMATS, "enable": False}),
}
MANY = ("overflow", "loop")
FEW = (
    *("rows of outputs", "files", "files of outputs", "hits of outputs"),
    *("device formats in halves", "asynchronous files"),
)
SAMPLES = ("overflow",)
FILES = tuple(sorted(path.stem for path in (ROOT / "graphs").glob("*.onnx")))
_TIME = re.compile(rb"(?<=,)[0-9]{16}(?=,)|(?<=\.)[0-9]{16}(?=\.)")

_DATE = re.compile(r"\b[0-9]{14}\b")


def _dumped(root):
    """Return the contents of tensor files and tables below a directory by path, times taken out."""
    contents = {}
    for name, path in trees.tree(root).items():
        if path.suffix not in {".csv", ".npy"}:
            continue
        key = _DATE.sub("{date}", trees.TIMESTAMP.sub("{ts}", name))
        data = path.read_bytes()
        contents.setdefault(key, []).append(_TIME.sub(b"{ts}", data) if name.endswith("csv") else data)
    return contents


def _both(door, monkeypatch, run):
    """Return the files of a run of joined operators, and of a run of single ones."""
    left = []
    for joins in (True, False):
        monkeypatch.setattr(KernelFactory, "joins", joins)
        door.folder = door.folder.parent / f"joins {joins}"
        door.folder.mkdir()
        door.again()
        run()
        door.process.close()
        left.append(_dumped(door.path))
    return left


@functools.cache
def _small(path):
    """Return inputs of a model."""
    return inputs.small(loader.load(path))


@pytest.fixture
def place(door, tmp_path):
    """Give a door with dumps in folders side by side."""
    door.folder = tmp_path / "first"
    return door


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, mode) for name in (*SAMPLES, *FILES) for mode in MODES if name in MANY or mode in FEW],
)
def test_rows_are_those_of_single_operators(name, mode, place, monkeypatch, tmp_path_factory, caplog):
    """Rows, files, and warnings are equal whether operators run together or one by one."""
    samples = tmp_path_factory.getbasetemp() / "nets"
    path = build(name, samples, batch=2) if name in SAMPLES else ROOT / "graphs" / f"{name}.onnx"
    context, changes = MODES[mode]
    messages = []

    def run():
        caplog.clear()
        place.dump(str(path), _small(path), steps=2, context=context, **changes)
        warned = (each.getMessage() for each in caplog.records if "watch rule" in each.getMessage())
        messages.append(list(warned))

    with caplog.at_level(logging.WARNING, "msdump"):
        together, alone = _both(place, monkeypatch, run)

    assert together.keys() == alone.keys()
    assert [] == [name for name in alone if alone[name] != together[name]]
    assert messages[0] == messages[1]


def _chain():
    """Return a model of five operators, of which only the third makes a large number of a small one."""
    return parsed("""graph (float[n,2] x) => (y) {
        a = Neg(x)
        b = Abs(a)
        c = Reciprocal(b)
        d = Tanh(c)
        y = Neg(d)
    }""")


def _steps(messages, network, inputs):
    """Run steps and keep the messages of hits that end one."""
    for number in inputs:
        x = np.full((2, 2), number, np.float32)
        x[0, 0] = 1
        try:
            network(x)
        except WatchHitError as error:
            messages.append(str(error))


@pytest.mark.parametrize(
    ("on_hit", "saved_data", "expected"),
    [
        ("dump", "tensor", ["Reciprocal"]),
        ("dump", "statistic", ["Reciprocal"]),
        ("stop", "statistic", ["Neg", "Abs", "Reciprocal"]),
        ("stop", "tensor", ["Neg", "Abs", "Reciprocal"]),
        ("log", "statistic", ["Neg", "Abs", "Reciprocal", "Tanh", "Neg"]),
    ],
)
def test_hit_in_the_middle(on_hit, saved_data, expected, place, monkeypatch, caplog):
    """A hit in the middle of operators that run together is logged and dumped as where each runs alone."""
    rules = [{"condition": "tensor_too_large", "max_gt": 5}, {"condition": "tensor_overflow"}]
    messages = []

    def run():
        caplog.clear()
        messages.append([])
        place.configure(watch=rules, on_hit=on_hit, saved_data=saved_data, input_output=2)
        _steps(messages[-1], place.load(_chain(), **O0), [1, 2, 3, 0.125, 1, 0, 2])
        messages[-1] += [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]

    with caplog.at_level(logging.WARNING, "msdump"):
        together, alone = _both(place, monkeypatch, run)

    assert messages[1] == messages[0]
    assert "output.0: the largest element is 8 (> max_gt 5)" in messages[0][0]
    assert together == alone
    if saved_data == "statistic":
        assert expected == _operators(place, 3)
    else:
        assert expected == [match["type"] for match, _ in trees.tensors(place.rank, iteration=3)]


def _train(place):
    """Take steps of a training, which write weights as well."""
    msdump.set_context(**O0)
    network = steps.plain()
    for _ in range(3):
        network.train_step(steps.X, steps.T)


def _resize(place):
    """Run steps of changing and repeated shapes; two of empty tensors, which have no table."""
    network = place.load(_chain(), **O0)
    for count in (2, 2, 2, 3, 2, 3, 3, 0, 0, 3):
        network(np.arange(1, 2 * count + 1, dtype=np.float32).reshape(count, 2))


@pytest.mark.parametrize(
    ("take", "changes", "expected"),
    [
        (_train, {}, [6, 6, 6]),
        (_resize, {}, [0, 0, 0, 10, 0, 10, 10, 10]),
        (_resize, {"statistic_category": ALL}, [0, 0, 0, 10, 0, 10, 10, 10]),
    ],
)
def test_rows_of_steps(take, changes, expected, place, monkeypatch):
    """Rows have the shapes of their step, and equal the rows of single operators."""

    def run():
        place.configure(**ROWS, **changes)
        take(place)

    together, alone = _both(place, monkeypatch, run)

    assert together == alone
    tables = [rows for name, (rows,) in sorted(together.items()) if name.endswith("statistic.csv")]
    assert expected == [rows.count(b'"(3,2)"') for rows in tables]


def _growing_images():
    """Return a model of images of any number and size, with some values beyond float16's range."""
    rng = np.random.default_rng(4)
    weights = {
        "w": rng.standard_normal((20, 3, 3, 3)).astype(np.float32),
        "g": rng.standard_normal((20, 1, 3, 3)).astype(np.float32),
        "m": rng.standard_normal((20, 7)).astype(np.float32) * 3e4,
    }
    return parsed(
        """graph (float[n,3,h,w] x) => (y) {
            a = Conv(x, w)
            b = Conv<group = 20>(a, g)
            c = Relu(b)
            d = MaxPool<kernel_shape = [2, 2]>(c)
            e = GlobalAveragePool(d)
            f = Flatten(e)
            h = MatMul(f, m)
            i = Mul(h, h)
            y = Reciprocal(i)
        }""",
        **weights,
    )


@pytest.mark.parametrize("trans_flag", [True, False])
@pytest.mark.parametrize(
    ("overflow", "input_output"), [("INFNAN_MODE", 0), ("INFNAN_MODE", 2), ("SATURATION_MODE", 0)]
)
@pytest.mark.parametrize("precision", ["allow_fp32_to_fp16", "force_fp16", "allow_mix_precision_bf16"])
def test_files_of_steps(precision, overflow, trans_flag, input_output, place, monkeypatch):
    """Files of steps of changing shapes equal the files of single operators, in every device type."""
    monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", overflow)

    def run():
        place.configure(trans_flag=trans_flag, input_output=input_output)
        network = place.load(_growing_images(), **O0, ascend_config={"precision_mode": precision})
        for size in ((1, 6, 6), (1, 6, 6), (2, 7, 9), (1, 33, 17), (0, 6, 6)):
            network(np.linspace(-9, 9, 3 * math.prod(size), dtype=np.float32).reshape(size[0], 3, *size[1:]))

    together, alone = _both(place, monkeypatch, run)

    assert together.keys() == alone.keys()
    assert [] == [name for name in alone if alone[name] != together[name]]
    assert (not trans_flag) == any("NC1HWC0" in name for name in alone)


def _operators(door, step):
    """Return the operator types of the rows of a step, in their order."""
    rows = (door.rank / "Net" / "0" / str(step) / "statistic.csv").read_text().splitlines()[1:]
    return [row.partition(",")[0] for row in rows]


def test_rows_before_a_failure(door):
    """Of a step that fails the rows of the operators before are there, once; the next step has all."""
    door.configure(**ROWS, input_output=2)
    network = door.load(nets.gather(), **O0)

    with pytest.raises(ExecutionError, match="Gather-op0"):
        network.run(nets.gather_feeds(7))
    network.run(nets.gather_feeds(1))

    assert ["Neg", "Abs"] == _operators(door, 0)
    assert ["Neg", "Abs", "Gather", "ReLU"] == _operators(door, 1)
