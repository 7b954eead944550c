"""The networks into which faults are injected: ten, small enough to be run and dumped in a second each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper, parser
from onnxscript import OpBuilder, nn

from msdump.training.step_graph import step_graph
from sample_nets.alexnet.net import AlexNet
from sample_nets.bert import net as bert
from sample_nets.layers import (
    GELU,
    BatchNorm2d,
    Conv2d,
    Dense,
    Embedding,
    Flatten,
    LayerNorm,
    MaxPool2d,
    ReLU,
    SequentialCell,
    he_normal,
    truncated_normal,
)
from sample_nets.lenet import net as lenet
from sample_nets.mobilenetv2.net import ConvBNReLU, InvertedResidual
from sample_nets.resnet50 import net as resnet
from sample_nets.tracing import parameter, trace
from scripts.faults.further import FURTHER
from scripts.faults.packages import TRAINED
from scripts.faults.zoo import ZOO

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"


@dataclass(frozen=True)
class Net:
    """A sound network and its inputs; every node has a name of its own, in bodies as well."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    trains: bool = False


class _AlexNet(AlexNet):
    """AlexNet's layers in its order, on small images and an eighth as wide."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.conv1 = Conv2d(3, 12, 11, stride=4)
        self.conv2 = Conv2d(12, 32, 5, pad=2)
        self.conv3 = Conv2d(32, 48, 3, pad=1)
        self.conv4 = Conv2d(48, 48, 3, pad=1)
        self.conv5 = Conv2d(48, 32, 3, pad=1)
        self.relu = ReLU()
        self.max_pool2d = MaxPool2d(kernel_size=3, stride=2)
        self.flatten = Flatten()
        self.fc1 = Dense(32, 128)
        self.fc2 = Dense(128, 128)
        self.fc3 = Dense(128, 10)


class _ResNet(resnet.ResNet):
    """ResNet-50's fifty layers, an eighth as wide."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.conv1 = Conv2d(3, 8, 7, stride=2, pad=3)
        self.bn1 = BatchNorm2d(8)
        self.relu = ReLU()
        self.maxpool = MaxPool2d(kernel_size=3, stride=2, pad=1)
        width = 8
        for number, (count, wide, stride) in enumerate(resnet.STAGES, 1):
            inner = wide // 8
            blocks = [resnet.ResidualBlock(width, inner, stride)]
            width = inner * resnet.EXPANSION
            blocks += [resnet.ResidualBlock(width, inner, 1) for _ in range(count - 1)]
            setattr(self, f"layer{number}", SequentialCell(*blocks))
        self.flatten = Flatten()
        self.end_point = Dense(width, 20)


class _MobileNet(nn.Module):
    """MobileNetV2's stem, blocks and classifier, a quarter as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.features = SequentialCell(
            ConvBNReLU(3, 8, 3, stride=2),
            InvertedResidual(8, 4, stride=1, expansion=1),
            InvertedResidual(4, 6, stride=2, expansion=6),
            InvertedResidual(6, 6, stride=1, expansion=6),
            InvertedResidual(6, 8, stride=2, expansion=6),
            InvertedResidual(8, 8, stride=1, expansion=6),
            InvertedResidual(8, 8, stride=1, expansion=6),
            InvertedResidual(8, 16, stride=1, expansion=6),
            InvertedResidual(16, 16, stride=1, expansion=6),
            ConvBNReLU(16, 64, 1),
        )
        self.flatten = Flatten()
        self.head = Dense(64, 20)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 3, H, W) to scores (N, 20)."""
        x = op.ReduceMean(self.features(op, x), [2, 3], keepdims=1)
        return self.head(op, self.flatten(op, x))


class _Block(nn.Module):
    """Causal attention and a dense layer, each behind a norm and beside its short cut."""

    def __init__(self, size: int, heads: int, length: int) -> None:
        super().__init__()
        init = truncated_normal(size**-0.5)
        self.ln_1, self.ln_2 = LayerNorm(size), LayerNorm(size)
        self.attn = Dense(size, 3 * size, init)
        self.proj = Dense(size, size, init)
        self.up, self.down = Dense(size, 4 * size, init), Dense(4 * size, size, init)
        self.gelu = GELU()
        self.split = [0, 0, heads, size // heads]
        self.merged = [0, 0, size]
        self.scale = (size / heads) ** -0.5
        self.mask = parameter((length, length), lambda _, shape: np.triu(np.full(shape, -1e4), 1))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map (N, length, size)."""
        parts = op.Split(self.attn(op, self.ln_1(op, x)), axis=-1, num_outputs=3, _outputs=3)
        query, key, value = (op.Transpose(op.Reshape(part, self.split), perm=[0, 2, 1, 3]) for part in parts)
        scores = op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), self.scale)
        weights = op.Softmax(op.Add(scores, self.mask), axis=-1)
        context = op.Transpose(op.MatMul(weights, value), perm=[0, 2, 1, 3])
        x = op.Add(x, self.proj(op, op.Reshape(context, self.merged)))
        return op.Add(x, self.down(op, self.gelu(op, self.up(op, self.ln_2(op, x)))))


class _Decoder(nn.Module):
    """A decoder in the manner of GPT-2, with the table of tokens used at both ends."""

    def __init__(self, vocabulary: int = 48, length: int = 8, size: int = 32) -> None:
        super().__init__()
        self.wte = Embedding(vocabulary, size)
        self.wpe = parameter((length, size), truncated_normal(0.02))
        self.h = SequentialCell(*(_Block(size, 4, length) for _ in range(2)))
        self.ln_f = LayerNorm(size)

    def forward(self, op: OpBuilder, ids: Any) -> Any:
        """Map ids (N, length) to logits (N, length, vocabulary)."""
        x = self.h(op, op.Add(self.wte(op, ids), self.wpe))
        return op.MatMul(self.ln_f(op, x), op.Transpose(self.wte.embedding_table, perm=[1, 0]))


class _Product(nn.Module):
    """A product with a weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = parameter((size, size), he_normal(size, 1.0))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map the last dimension."""
        return op.MatMul(x, self.weight)


class _Residual(nn.Module):
    """Two products and their short cut; without biases everything scales with the input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.a, self.b = _Product(size), _Product(size)
        self.relu = ReLU()

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map the last dimension."""
        inner = self.b(op, self.relu(op, self.a(op, x)))
        return op.Sub(x, op.Mul(inner, 0.5))


class _Mlp(nn.Module):
    """Residual blocks of products alone."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.blocks = SequentialCell(*(_Residual(size) for _ in range(4)))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map (N, size)."""
        return op.LeakyRelu(self.blocks(op, x), alpha=0.1)


_CONTROL = """<ir_version: 10, opset_import: ["" : 20]>
control (float[4,16] x, int64 count, bool flag) => (float[4,16] y)
{
    start = MatMul(x, w0)
    last = Loop(count, , start) <body = step (int64 i, bool go, float[4,16] v) => (bool more, float[4,16] w) {
        more = Identity(go)
        p = MatMul(v, w1)
        q = Add(p, b1)
        r = Tanh(q)
        w = Sub(v, r) }>
    chosen = If(flag) <then_branch = wide () => (float[4,16] a) { s = Sigmoid(last)  a = Mul(s, last) },
                       else_branch = narrow () => (float[4,16] b) { b = Relu(last) }>
    mean = ReduceMean<keepdims = 1>(chosen, axes)
    centred = Sub(chosen, mean)
    y = MatMul(centred, w2)
}"""


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def _traced(name: str, module: nn.Module, inputs: tuple[ir.Value, ...], outputs: tuple[str, ...]) -> Any:
    return ir.to_proto(trace(module, inputs, name=name, outputs=outputs))


def _images(name: str, module: nn.Module, *shape: int) -> Net:
    model = _traced(name, module, (ir.val("x", ir.DataType.FLOAT, shape),), ("output",))
    return Net(name, model, {"x": _generator(name).standard_normal(shape, np.float32)})


def _bert() -> Net:
    sizes = bert.BertConfig(vocabulary=48, sequence=8, hidden=32, heads=4, layers=2)
    model = _traced("bert", bert.network(sizes), bert.inputs(1, sizes), bert.OUTPUTS)
    mask = np.ones((1, 8), np.int64)
    mask[0, 6:] = 0
    ids = _generator("bert").integers(0, 48, (1, 8))
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros((1, 8), np.int64)}
    return Net("bert", model, feeds)


def _decoder() -> Net:
    model = _traced("decoder", _Decoder(), (ir.val("ids", ir.DataType.INT64, (2, 8)),), ("logits",))
    return Net("decoder", model, {"ids": _generator("decoder").integers(0, 48, (2, 8))})


def _control() -> Net:
    model, draw = parser.parse_model(_CONTROL), _generator("control")
    arrays = {f"w{number}": draw.standard_normal((16, 16), np.float32) / 4 for number in range(3)}
    arrays |= {"b1": draw.standard_normal(16, np.float32) / 10, "axes": np.array([1])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    _name_nodes(model.graph, "")
    feeds = {"x": draw.standard_normal((4, 16), np.float32), "count": np.array(3), "flag": np.array(True)}
    return Net("control", model, feeds)


def _name_nodes(graph: onnx.GraphProto, prefix: str) -> None:
    for number, node in enumerate(graph.node):
        node.name = f"{prefix}{node.op_type}_{number}"
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name_nodes(attribute.g, f"{node.name}_{attribute.name}/")


def _exported() -> Net:
    model = onnx.load(GRAPHS / "torch_export.onnx")
    shapes = {
        value.name: [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    draw = _generator("torch_export")
    return Net(
        "torch_export",
        model,
        {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()},
    )


def _training() -> Net:
    small = lenet.LeNet5(channels=(4, 6), hidden=(24, 16))
    forward = _traced("lenet", small, lenet.inputs(4), ("output",))
    step = step_graph(forward, loss="softmax_cross_entropy", optimizer="momentum:0.1,0.9")
    draw = _generator("training")
    feeds: dict[str, np.ndarray] = {}
    known = {initializer.name for initializer in step.graph.initializer}
    for value in step.graph.input:
        if value.name in known:
            continue
        kind, shape = value.type.tensor_type, [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        is_float = kind.elem_type == onnx.TensorProto.FLOAT
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[value.name] = (draw.standard_normal(shape) if is_float else draw.integers(0, 10, shape)).astype(
            dtype
        )
    return Net("training", step, feeds, trains=True)


def _tiny() -> Net:
    size = np.float32(1e-8)
    net = _images("mlp", _Mlp(), 4, 32)
    return Net("mlp", net.model, {name: array * size for name, array in net.feeds.items()})


NETWORKS: dict[str, Callable[[], Net]] = {
    "lenet": lambda: _images("lenet", lenet.LeNet5(), 2, 1, 32, 32),
    "alexnet": lambda: _images("alexnet", _AlexNet(), 2, 3, 67, 67),
    "resnet50": lambda: _images("resnet50", _ResNet(), 1, 3, 64, 64),
    "mobilenetv2": lambda: _images("mobilenetv2", _MobileNet(), 1, 3, 32, 32),
    "bert": _bert,
    "decoder": _decoder,
    "mlp": _tiny,
    "control": _control,
    "torch_export": _exported,
    "training": _training,
}
"""Functions that make the networks. The tensors of ``mlp`` have the scale 1e-8."""

TABLE = (*ZOO, *TRAINED)
"""Names of the networks of the table, which no test uses."""

SOUND = (*NETWORKS, *FURTHER)
"""Names of all networks, also of the ones without trials of faults."""


@cache
def network(name: str) -> Net:
    """Return a network; it is made once."""
    if name in NETWORKS:
        return NETWORKS[name]()
    made = TRAINED[name].made if name in TRAINED else FURTHER.get(name) or ZOO[name]
    return Net(name, *made())
