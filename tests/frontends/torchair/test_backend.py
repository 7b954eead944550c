"""``torchair.get_npu_backend``: torch.compile runs on the emulated device and dumps."""

import copy
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from msdump import torchair  # noqa: E402
from msdump.encode import dump_data  # noqa: E402
from msdump.errors import AclError, GraphError, NotAvailableError  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Start each test with nothing compiled, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    torch.manual_seed(0)


class Attention(nn.Module):
    """Two heads of causal attention."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.merge = nn.Linear(8, 8)

    def forward(self, x):
        """Return the mixed heads of (batch, words, 8)."""
        heads = [part.view(*part.shape[:2], 2, 4).transpose(1, 2) for part in self.project(x).chunk(3, -1)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.merge(mixed.transpose(1, 2).reshape(x.shape))


class Classifier(nn.Module):
    """A convolutional network with every kind of layer that trains differently than it infers."""

    def __init__(self, pooling):
        """Make the layers around a pooling."""
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, stride=2, groups=2)
        self.pooling = pooling
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        """Return two numbers for each image."""
        x = self.second(self.pooling(torch.relu(self.norm(self.first(x)))))
        return self.last(functional.adaptive_avg_pool2d(x, 2).flatten(1))


class Written(nn.Module):
    """Changes its input, and a copy of it."""

    def forward(self, x):
        """Return the changed copy, a view of the input and a number."""
        copy = x.clone()
        copy[0] = 1
        x.add_(2)
        return copy, x.t(), x.shape[0]


def perceptron():
    """Return two layers of a perceptron."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def backend(**options):
    """Return a backend with options of dump_config."""
    config = torchair.CompilerConfig()
    for name, value in options.items():
        setattr(config.dump_config, name, value)
    return torchair.get_npu_backend(compiler_config=config)


def dumping(tmp_path, **options):
    """Return a backend that dumps, with options of dump_config."""
    return backend(enable_dump=True, dump_path=str(tmp_path), **options)


def files(tmp_path, pattern="*"):
    """Return the paths of the dump's files by iteration."""
    found = {}
    for path in sorted(tmp_path.glob(f"worldsize1_global_rank0/*/0/graph_*/*/*/{pattern}")):
        found.setdefault(path.parent.name, []).append(path)
    return found


def operators(paths):
    """Return ["Softmax.Softmax_1", ...]: type and name of each file's operator."""
    return sorted({".".join(path.name.split(".")[:2]) for path in paths})


def clones(values):
    """Return copies of the tensors among values."""
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in values]


INFERENCES = {
    "perceptron": lambda: (perceptron(), [torch.randn(3, 4)]),
    "convolution": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        [torch.randn(2, 3, 8, 8)],
    ),
    "attention": lambda: (Attention(), [torch.randn(2, 5, 8)]),
    "several outputs": lambda: (lambda x: (*x.topk(2), *x.max(1), x > 0, 3, None), [torch.randn(2, 4)]),
    "number as input": lambda: (lambda x, n: x * n + n, [torch.randn(2, 4), 2.5]),
    "written input": lambda: (Written(), [torch.randn(3, 4)]),
    "nothing to run": lambda: (nn.Identity(), [torch.randn(2, 4)]),
    "scalar": lambda: (lambda x: x.sum(), [torch.randn(2, 4)]),
    "empty tensor": lambda: (lambda x: x + 1, [torch.empty(0, 4)]),
    "transposed input": lambda: (lambda x: x * 2, [torch.randn(3, 4).t()]),
    "float64": lambda: (lambda x: x @ x.t(), [torch.randn(3, 4).double()]),
    "int8": lambda: (lambda x: x + x, [torch.arange(4, dtype=torch.int8)]),
    "bool": lambda: (torch.logical_not, [torch.tensor([True, False])]),
    "float16": lambda: (nn.Softmax(-1), [torch.randn(2, 4).half()]),
    "bfloat16": lambda: (lambda x: x * 2 + 1, [torch.randn(2, 4).bfloat16()]),
}


@pytest.mark.parametrize("case", INFERENCES.values(), ids=INFERENCES)
def test_inference_returns_what_eager_returns(case):
    """Values, types, shapes and strides of every output, and changed inputs, are eager's."""
    model, inputs = case()
    model = model.eval() if isinstance(model, nn.Module) else model
    eager_inputs, compiled_inputs = clones(inputs), clones(inputs)

    with torch.no_grad():
        expected = model(*eager_inputs)
        actual = torch.compile(model, backend=backend())(*compiled_inputs)

    torch.testing.assert_close(actual, expected, check_stride=True)
    torch.testing.assert_close(compiled_inputs, eager_inputs)


TRAININGS = {
    "perceptron": lambda: (perceptron(), torch.randn(3, 4)),
    "maximum pooling": lambda: (Classifier(nn.MaxPool2d(3, 2, 1)), torch.randn(2, 3, 16, 16)),
    "average pooling": lambda: (
        Classifier(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)),
        torch.randn(2, 3, 16, 16),
    ),
    "average of a given divisor": lambda: (
        Classifier(nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=3)),
        torch.randn(2, 3, 16, 16),
    ),
    "one dimension": lambda: (nn.Conv1d(4, 6, 3, stride=2, dilation=2, groups=2), torch.randn(2, 4, 12)),
    "transposed convolution": lambda: (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        torch.randn(2, 4, 5, 5),
    ),
}


@pytest.mark.parametrize("case", TRAININGS.values(), ids=TRAININGS)
def test_a_training_step_leaves_the_gradients_of_eager(case):
    """Loss, gradients of parameters and of the input, and buffers after a step are eager's."""
    model, x = case()
    eager, compiled = trained(model, x, None), trained(model, x, backend())

    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)


def trained(model, x, with_backend):
    """Return loss, gradients and buffers after one step of a copy of the model."""
    model = copy.deepcopy(model).train()
    x = x.clone().requires_grad_(x.is_floating_point())
    run = model if with_backend is None else torch.compile(model, backend=with_backend)

    loss = run(x).square().sum()
    loss.backward()

    gradients = [parameter.grad for parameter in model.parameters()]
    return [loss.detach(), x.grad, *gradients, *model.buffers()]


def test_a_dump_lies_where_torchair_puts_it(tmp_path):
    """Each call is an iteration from 0 below rank, time, device, graph and model number."""
    compiled = torch.compile(perceptron(), backend=dumping(tmp_path))

    with torch.no_grad():
        compiled(torch.randn(3, 4))
        compiled(torch.randn(3, 4))

    found = files(tmp_path)
    parts = found["0"][0].relative_to(tmp_path).parts
    assert ["0", "1"] == list(found)
    assert "worldsize1_global_rank0" == parts[0]
    assert parts[1].isdigit()
    assert 14 == len(parts[1])
    assert f"graph_{parts[4]}" == parts[3]
    assert "Dense.GemmRelu" in operators(found["0"])


def test_a_batch_of_another_size_is_the_same_models_next_iteration(tmp_path):
    """Where dimensions are open, every size gives eager's values and has the model's directory."""
    model = perceptron()
    compiled = torch.compile(model, backend=dumping(tmp_path), dynamic=True)

    with torch.no_grad():
        for batch in (3, 5, 2, 3):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(compiled(x), model(x))

    found = files(tmp_path)
    assert ["0", "1", "2", "3"] == list(found)
    assert 1 == len({path.parent.parent for paths in found.values() for path in paths})


def test_dumped_bytes_are_the_tensors(tmp_path):
    """The dump of the last operator holds the value that the call returned."""
    compiled = torch.compile(lambda x: x.softmax(-1).sum(0), backend=dumping(tmp_path))

    result = compiled(torch.randn(3, 4))

    (path,) = files(tmp_path, "ReduceSum.ReduceSum.*")["0"]
    view = memoryview(path.read_bytes())
    data, offset = dump_data.read_header(view, str(path))
    size = sum(info.size for info in data.inputs)
    output = np.frombuffer(view[offset + size :], np.float32, result.numel()).reshape(result.shape)
    np.testing.assert_array_equal(result.numpy(), output)


def test_a_training_loop_learns_and_dumps_every_step(tmp_path):
    """In a loop of training the loss falls as without a compiler, and both graphs are dumped in each step."""
    torch.manual_seed(0)
    images, classes = torch.randn(16, 4), torch.arange(16) % 2
    losses = {}
    compile_dumping = partial(torch.compile, backend=dumping(tmp_path))
    for name, wrap in {"eager": copy.copy, "compiled": compile_dumping}.items():
        torch.manual_seed(0)
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        network = wrap(model)
        losses[name] = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(images), classes)
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())

    assert losses["eager"] == pytest.approx(losses["compiled"], rel=1e-4)
    assert losses["compiled"][-1] < losses["compiled"][0]
    graphs = {
        step: {path.parent.parent.parent.name.rpartition("_")[2] for path in paths}
        for step, paths in files(tmp_path).items()
    }
    assert {step: {"forward", "backward"} for step in "0123"} == graphs


CHAIN = ["Data.arg0_1", "Softmax.Softmax", "ReduceSum.ReduceSum", "Softmax.Softmax_1"]


def chain(x):
    """Three operators that are not fused."""
    return x.softmax(-1).sum(0).softmax(-1)


OPTIONS = {
    "everything": ({}, {"0", "1", "2", "3"}, CHAIN),
    "steps": ({"dump_step": "0|2-3"}, {"0", "2", "3"}, CHAIN),
    "layers": ({"dump_layer": "Softmax_1 ReduceSum"}, {"0", "1", "2", "3"}, CHAIN[2:]),
    "layer that reads the input": ({"dump_layer": "Softmax"}, {"0", "1", "2", "3"}, CHAIN[:2]),
}


@pytest.mark.parametrize(("options", "steps", "names"), OPTIONS.values(), ids=OPTIONS)
def test_options_choose_what_is_dumped(tmp_path, options, steps, names):
    """dump_step chooses iterations by their numbers, dump_layer operators by their names."""
    compiled = torch.compile(chain, backend=dumping(tmp_path, **options))

    for _ in range(4):
        compiled(torch.randn(3, 4))

    found = files(tmp_path)
    assert steps == set(found)
    assert sorted(names) == operators(found["0"])


MODES = {"all": ("all", 1, 1), "input": ("input", 1, 0), "output": ("output", 0, 1)}


@pytest.mark.parametrize(("mode", "inputs", "outputs"), MODES.values(), ids=MODES)
def test_dump_mode_chooses_the_tensors(tmp_path, mode, inputs, outputs):
    """dump_mode says whether a file holds inputs, outputs or both."""
    torch.compile(torch.relu, backend=dumping(tmp_path, dump_mode=mode))(torch.randn(3, 4))

    (path,) = files(tmp_path, "ReLU.*")["0"]
    data, _ = dump_data.read_header(memoryview(path.read_bytes()), str(path))
    assert (inputs, outputs) == (len(data.inputs), len(data.outputs))


def test_statistics_replace_tensors(tmp_path):
    """dump_data = stats writes csv files in place of tensors."""
    torch.compile(torch.relu, backend=dumping(tmp_path, dump_data="stats"))(torch.randn(3, 4))

    names = [path.name for path in files(tmp_path)["0"]]
    assert any(name.endswith(".csv") for name in names)
    assert all(name.endswith(".csv") for name in names)


def test_a_faulty_acl_json_is_told_at_once(tmp_path):
    """A dump_config_path that holds no usable configuration fails with its return code."""
    config = tmp_path / "acl.json"
    config.write_text('{"dump": {"dump_list": [], "dump_path": "/nowhere/at/all"}}')

    with pytest.raises(AclError, match="Fail in acl"):
        backend(dump_config_path=str(config))


def test_a_dump_of_replayed_graphs_is_refused(tmp_path):
    """Mode reduce-overhead has no operators to dump."""
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)

    with pytest.raises(NotAvailableError, match="max-autotune"):
        torchair.get_npu_backend(compiler_config=config)


def test_graphs_without_translation_are_told():
    """An operator that has no ONNX form is named, with the remedies."""
    compiled = torch.compile(lambda x: torch.linalg.svd(x)[1], backend=backend())

    with pytest.raises(GraphError, match=r"graph_\d+.*svd.*custom_decompositions"):
        compiled(torch.randn(3, 3))


def test_a_custom_decomposition_is_used():
    """An operator is replaced by its function in custom_decompositions."""
    replaced = {torch.ops.aten.relu.default: lambda x: x.clamp(min=0) + 1}
    compiled = torch.compile(torch.relu, backend=torchair.get_npu_backend(custom_decompositions=replaced))
    x = torch.randn(3, 4)

    torch.testing.assert_close(compiled(x), torch.relu(x) + 1)
