"""Dump files of whole networks, converted back, next to the tensors of one session over the whole graph.

Each file is read twice: by ``msdump convert`` and by the reference tool's rules
written out in ``dump_files``. Without rounding every tensor has the bits that one
session over the model computes; with it, the bits of the emulated run operator by
operator (O0), rounded once more where the device holds float16.
"""

import csv
import itertools
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import pytest

from msdump.graph import loader
from sample_nets import data
from tests.dump import dump_files, nets, o2
from tests.execute import whole
from tests.texts import parsed
from tests.world import GRAPHS, O2, cli, compiled_config

IMAGE = "NCHW"
EXACT = ("must_keep_origin_dtype", "force_fp32")
MIXED = "allow_fp32_to_fp16"
MODES = (*EXACT, MIXED)
CONVERTED = "converted"


def random(*shape, dtype=np.float32, seed=0):
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def convolutions():
    """Return convolutions of every kind of group, and typical successors."""
    weights = {
        "whole": random(36, 20, 3, 3),
        "halves": random(40, 18, 2, 3),
        "each": random(40, 1, 3, 3),
        "back": random(40, 5, 2, 2),
        **{name: abs(random(36, seed=at)) + 0.5 for at, name in enumerate(("scale", "shift", "mean"))},
        "variance": abs(random(36, seed=9)) + 0.5,
    }
    return parsed(
        """graph (float[n,20,9,8] x) => (y) {
            ["a/Conv"] a = Conv<pads = [1, 1, 1, 1]>(x, whole)
            ["b/BatchNormalization"] b = BatchNormalization(a, scale, shift, mean, variance)
            ["c/Relu"] c = Relu(b)
            ["d/Conv"] d = Conv<group = 2>(c, halves)
            ["e/Conv"] e = Conv<group = 40>(d, each)
            ["f/ConvTranspose"] f = ConvTranspose(e, back)
            ["g/AveragePool"] g = AveragePool<kernel_shape = [2, 2]>(f)
            ["h/GlobalAveragePool"] h = GlobalAveragePool(g)
            ["y/Add"] y = Add(h, g)
        }""",
        **weights,
    )


def volumes():
    """Return convolution and pooling of volumes."""
    return parsed(
        """graph (float[n,3,4,5,6] x) => (y) {
            ["a/Conv"] a = Conv(x, w)
            ["b/Relu"] b = Relu(a)
            ["y/MaxPool"] y = MaxPool<kernel_shape = [2, 1, 2]>(b)
        }""",
        w=random(18, 3, 2, 2, 3),
    )


def rows():
    """Return operators with windows over one axis: convolutions, one of them transposed, and pools."""
    weights = {name: random(18, seed=at) for at, name in enumerate(("b", "scale", "shift", "mean"))}
    weights |= {"variance": abs(random(18)) + 0.5, "w": random(18, 3, 3), "v": random(18, 5, 2)}
    return parsed(
        """graph (float[n,3,20] x) => (y) {
            ["a/Conv"] a = Conv(x, w, b)
            ["n/BatchNormalization"] n = BatchNormalization(a, scale, shift, mean, variance)
            ["r/Relu"] r = Relu(n)
            ["p/MaxPool"] p = MaxPool<kernel_shape = [2]>(r)
            ["q/AveragePool"] q = AveragePool<kernel_shape = [2]>(p)
            ["y/ConvTranspose"] y = ConvTranspose(q, v)
        }""",
        **weights,
    )


def matrices():
    """Return products of matrices of every rank, and a sum of vectors."""
    weights = {"w": random(33, 5) / 16, "k": random(17), "v": random(3, 289), "k2": random(3, seed=1)}
    weights["axis"] = np.array([1], np.int64)
    return parsed(
        """graph (float[n,17,33] x) => (y) {
            ["a/MatMul"] a = MatMul(x, w)
            ["b/Transpose"] b = Transpose<perm = [0, 2, 1]>(a)
            ["c/MatMul"] c = MatMul(a, b)
            ["d/Add"] d = Add(c, k)
            ["e/Gelu"] e = Gelu(d)
            ["f/Unsqueeze"] f = Unsqueeze(e, axis)
            ["g/MatMul"] g = MatMul(f, f)
            ["h/Flatten"] h = Flatten(g)
            ["y/Gemm"] y = Gemm<transB = 1>(h, v, k2)
        }""",
        **weights,
    )


def norms():
    """Return a batch normalization that is not fused, and operators that join and resize images."""
    weights = {name: random(20, seed=at) for at, name in enumerate(("scale", "shift", "mean"))}
    weights |= {"variance": abs(random(20)) + 0.5, "k": random(20, 1, 1)}
    weights["sizes"] = np.array([1, 1, 2, 2], np.float32)
    return parsed(
        """graph (float[n,20,8,8] x) => (y, c) {
            ["p/MaxPool"] p = MaxPool<kernel_shape = [2, 2]>(x)
            ["n/BatchNormalization"] n = BatchNormalization(p, scale, shift, mean, variance)
            ["a/Add"] a = Add(n, k)
            ["c/Abs"] c = Abs(a)
            ["d/Concat"] d = Concat<axis = 1>(c, p)
            ["y/Resize"] y = Resize<mode = "nearest">(d, , sizes)
        }""",
        **weights,
    )


def recurrent():
    """Return recurrent operators: the device bytes of their weights are not documented."""
    nodes = [
        nets.node("LSTM", "x W R B", "a h c", "a/LSTM", hidden_size=20),
        nets.node("GRU", "x W2 R2", "b -", "b/GRU", hidden_size=20),
        nets.node("Add", "a b", "y", "y/Add"),
    ]
    shapes = {"W": (1, 80, 33), "R": (1, 80, 20), "B": (1, 160), "W2": (1, 60, 33), "R2": (1, 60, 20)}
    weights = {name: random(*shape) for name, shape in shapes.items()}
    return nets.model(nodes, [nets.value("x", [5, "n", 33])], ["y", "h", "c"], weights)


@dataclass(frozen=True)
class Case:
    """A network with its inputs."""

    feeds: Any  # gives the inputs
    model: Any = None  # gives a model that no file holds
    form: str = IMAGE  # the format that the files are converted to


SAMPLES = {
    "mini": Case(lambda: {"x": data.digits(0, 2, 6)}),
    "lenet": Case(lambda: {"x": data.digits(0, 2, 32)}),
    "overflow": Case(lambda: {"x": data.digits(0, 2, 16)}),
    "alexnet": Case(lambda: {"x": data.photos(0, 2, 227)}),
    "mobilenetv2": Case(lambda: {"x": data.photos(0, 1, 224)}),
    "resnet50": Case(lambda: {"x": data.photos(0, 1, 224)}),
    "bert": Case(lambda: data.texts(0, 1, 128, 30522)),
}
SLOW = ("alexnet", "mobilenetv2", "resnet50", "bert")
MADE_UP = {
    "convolutions": Case(lambda: {"x": random(2, 20, 9, 8)}, convolutions),
    "volumes": Case(lambda: {"x": random(2, 3, 4, 5, 6)}, volumes, "NCDHW"),
    "rows": Case(lambda: {"x": random(2, 3, 20)}, rows),
    "norms": Case(lambda: {"x": random(2, 20, 8, 8)}, norms),
    "recurrent": Case(lambda: {"x": random(5, 2, 33)}, recurrent),
    "matrices": Case(lambda: {"x": random(2, 17, 33)}, matrices),
}
SMALL = {
    path.stem: Case(None) for path in sorted(GRAPHS.glob("*.onnx")) if path.stem not in {"lenet", "mini"}
}
CONTROL_FLOW = ("if", "loop", "scan")
WITHOUT_FILES = ("sequences",)
OWN_FLOAT16 = {"float16": 2**-9}
"""Models of float16: one session rounds each of their three operators, the device the products' sum once."""
CASES = {
    **SAMPLES,
    **MADE_UP,
    **{name: case for name, case in SMALL.items() if name not in (*CONTROL_FLOW, *WITHOUT_FILES)},
}


@pytest.fixture
def run(door, sample_net):
    """Return a function that dumps a network; the files go at the end."""

    def start(name, mode, **changes):
        case = CASES[name]
        source = (
            case.model() if case.model else sample_net(name) if name in SAMPLES else GRAPHS / f"{name}.onnx"
        )
        model = source if case.model else onnx.load(source)
        feeds = case.feeds() if case.feeds else made_up(model)
        blocks = compiled_config(door.path, fuses=True, **changes)
        blocks["msdump"]["precision_mode"] = mode
        door.configure(blocks)
        network = door.load(source, **O2)
        network.run(feeds)
        return Run(door, case, mode, model, feeds, network)

    yield start
    for folder in (door.path, door.folder / CONVERTED):
        shutil.rmtree(folder, ignore_errors=True)


def made_up(model):
    """Return inputs of a small model: any float, 0 or 1, words."""
    found = {}
    for value in loader.load(model).inputs:
        dtype = value.type.dtype.numpy
        shape = [size if isinstance(size, int) else 3 for size in value.type.shape]
        numbers = random(*shape) * 3
        found[value.name] = (numbers if dtype.kind in "fV" else numbers > 0).astype(dtype)
        if dtype.kind == "O":
            found[value.name] = np.array(["iron", "Moss", "AMBER"], object)
    return found


@dataclass(frozen=True)
class Run:
    """A network that was dumped once."""

    door: Any
    case: Case
    mode: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    network: Any

    @property
    def folder(self):
        """Directory of the execution."""
        return o2.folder(self.door.path)

    def files(self):
        """Return its files, read by the reference's rules."""
        return dump_files.read_folder(self.folder)

    @cached_property
    def original(self):
        """The graph as the model has it."""
        return loader.load(self.model)

    @cached_property
    def texts(self):
        """Names of the values that are text, which files leave out."""
        types = self.original.types.items()
        return {name for name, known in types if known.dtype and known.dtype.numpy.kind == "O"}

    def values(self):
        """Return the names that the model has for the tensors of each operator: inputs and outputs.

        A kernel's outputs are its last original's; TransData and Cast pass their input on.
        """
        originals = {node.operator.full_name: node for node in self.original.nodes}
        names, found = {}, {}
        for node in self.network.graph.nodes:
            if node.name.startswith("trans_"):
                given = [names.get(node.inputs[0], node.inputs[0])]
            else:
                given = list(originals[node.members[-1].operator.full_name].outputs)
            taken = [names.get(name, name) for name in node.inputs]
            names |= dict(zip(node.outputs, given, strict=True))
            found[node.operator.full_name] = (taken, given)
        return found

    def tensors(self):
        """Return each tensor with its file and the name that the model has for it."""
        values = self.values()
        for file in self.files():
            name = file.header.op_name
            taken, given = values.get(name, ([], [name]))  # a Data operator gives a graph input
            for io, names in (("input", taken), ("output", given)):
                known = [name for name in names if name and name not in self.texts]
                for tensor, value in zip(file.slots(io), known, strict=True):
                    yield file, tensor, value

    def expected(self, compute):
        """Return the values of the tensors in the files, computed by a function of model and inputs."""
        wanted = {name for _, _, name in self.tensors()}
        made = [name for node in self.model.graph.node for name in node.output if name in wanted]
        shown = onnx.ModelProto()
        shown.CopyFrom(self.model)
        del shown.graph.output[:]
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        weights = {name: np.asarray(array) for name, array in self.network.graph.weights.items()}
        return {**weights, **self.feeds, **dict(zip(made, compute(shown, self.feeds), strict=True))}

    def emulated(self, model, feeds):
        """Return the outputs of a model that runs operator by operator on the emulated device."""
        self.door.again()
        self.door.monkeypatch.delenv("MINDSPORE_DUMP_CONFIG")
        way = {"ascend_config": {"precision_mode": self.mode}}
        return list(self.door.load(model, device_target="Ascend", jit_level="O0", **way).run(feeds).values())

    def converted(self):
        """Convert the files by ``msdump convert``; return a function that loads a tensor."""
        output = self.door.folder / CONVERTED
        done = cli("convert", "-d", self.folder, "-out", output, "-f", self.case.form)
        assert (0, "") == (done.exit_code, done.stderr)
        stood_in = {}
        if (output / "mapping.csv").exists():
            stood_in = {name: number for number, name in csv.reader((output / "mapping.csv").open())}

        def load(file, tensor):
            dims = "x".join(map(str, tensor.original_shape))
            name = f"{file.path.name}.{tensor.io}.{tensor.slot}.{dims}.npy"
            return np.load(output / stood_in.get(name, name))

        return load


def as_held(array, dtype):
    """Return a host array in the device's type, rounded to nearest, ties to even."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def as_saved(array):
    """Return an array as .npy files hold it."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def deviation(expected, found):
    """Return the length of the difference of two arrays beside that of the expected one."""
    assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
    expected, found = expected.astype(np.float64), found.astype(np.float64)
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), np.finfo(np.float64).tiny)


def marked(names):
    """Return the networks, the deep ones marked."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", marked(CASES))
def test_every_tensor_comes_back(run, name, mode):
    """All tensors of all files, read in both ways, equal the network's."""
    dumped = run(name, mode)
    load = dumped.converted()
    tensors = list(dumped.tensors())

    expected = dumped.expected(whole.run if mode in EXACT else dumped.emulated)

    for file, tensor, value in tensors:
        place, want = (file.path, tensor.io, tensor.slot), as_held(expected[value], tensor.dtype)
        assert mode == MIXED or expected[value].dtype == tensor.dtype, place
        assert whole.same(as_saved(tensor.host), load(file, tensor)), place
        if name in OWN_FLOAT16 and mode in EXACT:
            assert deviation(want, tensor.host) < OWN_FLOAT16[name], place
        else:
            assert whole.same(want, tensor.host), place
    assert tensors


HALF, SINGLE = "float16", "float32"
ROLES = {
    "Conv2D": (["NC1HWC0", "FRACTAL_Z"], "NC1HWC0"),
    "DepthwiseConv2dNative": (["NC1HWC0", "FRACTAL_Z"], "NC1HWC0"),
    "Conv2DBackpropInput": (["NC1HWC0", "FRACTAL_Z"], "NC1HWC0"),
    "Conv1D": (["ND", "ND"], "ND"),
    "Conv1DBackpropInput": (["ND", "ND"], "ND"),
    "Conv3D": (["NDC1HWC0", "FRACTAL_Z_3D"], "NDC1HWC0"),
    "MatMul": (["FRACTAL_NZ", "FRACTAL_NZ"], "FRACTAL_NZ"),
    "BatchMatMul": (["FRACTAL_NZ", "FRACTAL_NZ"], "FRACTAL_NZ"),
    "Dense": (["FRACTAL_NZ", "FRACTAL_NZ"], "FRACTAL_NZ"),
}
"""Formats of the factors of each product and of its result, which float16 and float32 lie in."""


PLACED = (*SAMPLES, *MADE_UP, "transformer", "torch_export")


@pytest.mark.parametrize("name", marked(PLACED))
class TestHeaders:
    """Names, times and headers of the files of a network."""

    def test_names_and_times(self, run, name):
        """Names and headers agree; each operator has a task of its own; times follow the execution."""
        dumped = run(name, MIXED)

        files = dumped.files()

        kernels = [file for file in files if file.op_type != "Data"]
        ran = [node.operator for node, task in zip(*with_tasks(dumped), strict=True) if task is not None]
        assert [(op.op_type, op.full_name) for op in ran] == [(f.op_type, f.header.op_name) for f in kernels]
        assert len({(file.task, file.stream) for file in kernels}) == len(kernels)
        assert sorted({file.time for file in files}) == [file.time for file in files]
        for file in files:
            assert ("2.0", file.time) == (file.header.version, file.header.dump_time)
            assert re.sub(r"[^\w-]", "_", file.header.op_name) == file.op_name

    def test_tensors(self, run, name):
        """Factors of products are float16 in their formats, TransData and Cast change one thing each."""
        dumped = run(name, MIXED)

        for file in dumped.files():
            taken, given = file.slots("input"), file.slots("output")
            if file.op_type in ROLES:
                formats, result = ROLES[file.op_type]
                assert formats == [tensor.format for tensor in taken[:2]]
                assert [HALF, HALF, SINGLE] == [tensor.dtype for tensor in (*taken[:2], given[0])]
                assert result == given[0].format
            elif file.op_type in {"TransData", "Cast"} and file.op_name.startswith("trans_"):
                changes = (taken[0].format != given[0].format, taken[0].dtype != given[0].dtype)
                assert (file.op_type == "TransData", file.op_type == "Cast") == changes
            else:
                assert HALF not in {str(tensor.dtype) for tensor in file.tensors}
            for tensor in file.tensors:
                assert math.prod(tensor.shape) * tensor.dtype.itemsize == tensor.description.size

    def test_groups(self, run, name):
        """Only weights of grouped convolutions have a sub-format: the number of groups."""
        dumped = run(name, MIXED)
        groups = dict(weights_and_groups(dumped.model))

        found = {value: tensor.description.sub_format for _, tensor, value in dumped.tensors()}

        assert groups == {value: number for value, number in found.items() if number}


@pytest.mark.parametrize("name", marked(name for name in PLACED if name != "norms"))
def test_addresses(run, name):
    """The input of an operator is the last tensor written to its address; outputs lie beside it.

    Not so where a Concat has made the input, which has no task and hence no file.
    """
    memory = {}

    for file in run(name, MIXED).files():
        taken, given = file.slots("input"), file.slots("output")
        for tensor in taken:
            lying = {at: memory[at] for at in overlaps(memory, tensor)}
            assert lying in ({}, {tensor.description.address: tensor.data}), file.path
            memory[tensor.description.address] = tensor.data
        for tensor in given:
            lying = overlaps(memory, tensor)
            assert {other.description.address for other in taken}.isdisjoint(lying), file.path
            for at in lying:
                del memory[at]
            memory[tensor.description.address] = tensor.data


def overlaps(memory, tensor):
    """Return the addresses of tensors that overlap with a tensor."""
    start, end = tensor.description.address, tensor.description.address + tensor.description.size
    return [at for at, data in memory.items() if at < end and start < at + len(data)]


def with_tasks(dumped):
    """Return the operators of the main graph and their tasks."""
    return dumped.network.graph.nodes, dumped.network.device.tasks


def weights_and_groups(model):
    """Yield the weight of each convolution in several groups, and their number."""
    for node in model.graph.node:
        groups = [item.i for item in node.attribute if item.name == "group" and item.i > 1]
        if groups:
            yield node.input[1], groups[0]


X, START, ROWS = random(2, 3), np.array([1, 2, 3], np.float32), random(4, 3)
DOUBLED = [START * np.float32(2) ** count for count in range(6)]
SUMS = list(itertools.accumulate(ROWS, initial=START))
INSIDE = {
    "if, then": ("if", {"x": X, "flag": np.array(True)}, [("Data", [X]), ("ReLU", [X, X.clip(0)])]),
    "if, else": ("if", {"x": X, "flag": np.array(False)}, [("Data", [X]), ("Neg", [X, (-X).clip(0)])]),
    "loop": (
        "loop",
        {"count": np.array(9), "start": START},
        [
            step
            for before, after in itertools.pairwise(DOUBLED)
            for step in (
                ("Add", [before, before, after]),
                ("ReduceMax", [after, after.max()]),
                ("Less", [after.max(), np.float32(50), after.max() < 50]),
            )
        ],
    ),
    "scan": (
        "scan",
        {"start": START, "rows": ROWS},
        [("Add", [*item]) for item in zip(SUMS, ROWS, SUMS[1:], strict=False)],
    ),
}


@pytest.mark.parametrize(("name", "feeds", "expected"), INSIDE.values(), ids=INSIDE)
def test_branches_and_loops(door, name, feeds, expected):
    """Operators in a branch or in each turn of a loop have files of their own, with their values."""
    network = o2.load(door, GRAPHS / f"{name}.onnx", fuses=True)

    network.run(feeds)

    files = dump_files.read_folder(o2.folder(door.path))
    assert [op_type for op_type, _ in expected] == [file.op_type for file in files]
    for (_, arrays), file in zip(expected, files, strict=True):
        for array, tensor in zip(arrays, file.tensors, strict=True):
            assert whole.same(array, tensor.host), file.path
