"""Networks of the table that are built here: small forms of common ones, random operators, bodies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper, parser

from scripts.faults.further import Builder, Made, attention, shape

MICROSOFT = "com.microsoft"


def _rms_norm(build: Builder, x: str, size: int) -> str:
    square = build.add("Pow", x, build.weight(np.float32(2)))
    mean = build.add("ReduceMean", square, shape(build, -1), keepdims=1)
    root = build.add("Sqrt", build.add("Add", mean, build.weight(np.float32(1e-5))))
    gain = build.weight(1 + build.draw.standard_normal(size).astype(np.float32) * np.float32(0.1))
    return build.add("Mul", build.add("Div", x, root), gain)


def _int4(build: Builder, x: str, size: int, to: int) -> str:
    """Append a product with a weight of four bits."""
    blocks = size // 32
    packed = build.weight(build.draw.integers(0, 256, (to, blocks, 16)).astype(np.uint8))
    scales = build.weight((0.02 + 0.02 * build.draw.random(to * blocks)).astype(np.float32))
    return build.add("MatMulNBits", x, packed, scales, domain=MICROSOFT, K=size, N=to, bits=4, block_size=32)


def _llm() -> Made:
    """Return two blocks of a decoder with grouped attention over a cache, and weights of four bits."""
    build, size, heads, groups, past, now = Builder("llm"), 64, 4, 2, 5, 3
    wide, each = size // heads * groups, size // heads
    ids = build.feed("ids", build.draw.integers(0, 96, (1, now)))
    x = build.add("Gather", build.normal(96, size), ids)
    angles = np.arange(16)[:, None] / 10000 ** (np.arange(each // 2) / (each // 2))
    tables = [build.weight(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles))]
    lengths = build.weight(np.array([past + now - 1], np.int32)), build.weight(np.array(past + now, np.int32))
    shown = []
    for number in range(2):
        cache = [
            build.feed(
                f"past.{number}.{name}", build.draw.standard_normal((1, groups, past, each), np.float32)
            )
            for name in ("key", "value")
        ]
        h = _rms_norm(build, x, size)
        parts = [_int4(build, h, size, to) for to in (size, wide, wide)]
        context, *kept = build.add(
            "GroupQueryAttention",
            *parts,
            *cache,
            *lengths,
            *tables,
            outputs=3,
            domain=MICROSOFT,
            num_heads=heads,
            kv_num_heads=groups,
            do_rotary=1,
        )
        shown += kept
        x = build.add("Add", x, _int4(build, context, size, size))
        h = _rms_norm(build, x, size)
        gate = _int4(build, h, size, 2 * size)
        silu = build.add("Mul", gate, build.add("Sigmoid", gate))
        x = build.add(
            "Add", x, _int4(build, build.add("Mul", silu, _int4(build, h, size, 2 * size)), 2 * size, size)
        )
    logits = build.add("MatMul", _rms_norm(build, x, size), build.normal(size, 96, scale=0.125))
    return build.made(logits, *shown)


def _conv(build: Builder, x: str, size: int, to: int, *, stride: int = 1, norm: bool = True) -> str:
    weight = build.normal(to, size, 3, 3, scale=(9 * size) ** -0.5)
    x = build.add("Conv", x, weight, build.normal(to, scale=0.1), pads=[1] * 4, strides=[stride] * 2)
    if norm:
        draw = build.draw
        gain, bias, mean = (draw.standard_normal(to, np.float32) * np.float32(0.1) for _ in range(3))
        arrays = (1 + gain, bias, mean, (0.5 + draw.random(to)).astype(np.float32))
        x = build.add("BatchNormalization", x, *map(build.weight, arrays), epsilon=1e-4)
    return x


def _image(build: Builder, *shape: int) -> str:
    """Feed a smooth image with a bright square in it."""
    rows, columns = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape[-2:]), indexing="ij")
    image = np.broadcast_to(np.sin(3 * rows) * np.cos(5 * columns), shape).astype(np.float32).copy()
    image[..., 4:9, 5:11] += 1
    return build.feed("x", image + 0.05 * build.draw.standard_normal(shape, np.float32))


def _vit() -> Made:
    """Return a vision transformer of patches of four pixels."""
    build, size = Builder("vit"), 32
    x = build.add(
        "Conv", _image(build, 1, 3, 16, 16), build.normal(size, 3, 4, 4, scale=0.15), strides=[4, 4]
    )
    x = build.add("Transpose", build.add("Reshape", x, shape(build, 1, size, 16)), perm=[0, 2, 1])
    x = build.add("Concat", build.normal(1, 1, size), x, axis=1)
    x = build.add("Add", x, build.normal(1, 17, size, scale=0.2))

    def dense(value: str, inner: int, to: int) -> str:
        product = build.add("MatMul", value, build.normal(inner, to, scale=inner**-0.5))
        return build.add("Add", product, build.normal(to, scale=0.1))

    for _ in range(2):
        x = build.add("Add", x, attention(build, build.norm(x, size), dense, size))
        inner = build.add("Gelu", dense(build.norm(x, size), size, 4 * size), approximate="tanh")
        x = build.add("Add", x, dense(inner, 4 * size, size))
    first = build.add("Gather", build.norm(x, size), build.weight(np.int64(0)), axis=1)
    return build.made(
        build.add("Gemm", first, build.normal(size, 10, scale=0.2), build.normal(10, scale=0.1))
    )


def _unet() -> Made:
    """Return a U-Net of two levels that denoises an image at a time step."""
    build = Builder("unet")
    x = _image(build, 1, 3, 16, 16)
    time = build.feed("time", np.array([[0.3]], np.float32))
    embedded = build.add("Sin", build.add("MatMul", time, build.normal(1, 16)))
    kept = []
    x = _conv(build, x, 3, 8)
    for size in (8, 16):
        x = build.add("LeakyRelu", x, alpha=0.1)
        kept.append(x)
        x = _conv(build, x, size, 2 * size, stride=2)
        shift = build.add("MatMul", embedded, build.normal(16, 2 * size, scale=0.25))
        x = build.add("Add", x, build.add("Reshape", shift, shape(build, 1, 2 * size, 1, 1)))
        gain, bias = build.weight(np.ones(2 * size, np.float32)), build.normal(2 * size, scale=0.1)
        x = build.add("InstanceNormalization", x, gain, bias, epsilon=1e-4)
    for size in (16, 8):
        x = build.add("Elu", x, alpha=0.8)
        weight = build.normal(2 * size, size, 2, 2, scale=(2 * size) ** -0.5)
        x = build.add("ConvTranspose", x, weight, strides=[2, 2])
        x = _conv(build, build.add("Concat", x, kept.pop(), axis=1), 2 * size, size)
    x = build.add("Resize", x, "", build.weight(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    return build.made(_conv(build, build.add("Tanh", x), 8, 3, norm=False))


def _detector() -> Made:
    """Return a detector: a backbone, boxes and scores, non-overlapping boxes, and the best of them."""
    build = Builder("detector")
    x = _image(build, 1, 3, 32, 32)
    size = 3
    for to in (8, 16, 32):
        x = build.add("Relu", _conv(build, x, size, to, stride=2))
        size = to
    cells = 16
    raw = build.add("Conv", x, build.normal(4, size, 1, 1, scale=0.2))
    raw = build.add("Transpose", build.add("Reshape", raw, shape(build, 1, 4, cells)), perm=[0, 2, 1])
    centres = np.stack(np.meshgrid(*[np.arange(4) * 8 + 4] * 2, indexing="ij"), -1).reshape(1, cells, 2)
    middle, extent = build.add("Split", raw, axis=-1, num_outputs=2, outputs=2)
    middle = build.add(
        "Add", build.add("Mul", middle, build.weight(np.float32(4))), build.weight(centres.astype(np.float32))
    )
    half = build.add("Mul", build.add("Exp", extent), build.weight(np.float32(4)))
    boxes = build.add("Concat", build.add("Sub", middle, half), build.add("Add", middle, half), axis=-1)
    scores = build.add("Conv", x, build.normal(3, size, 1, 1, scale=0.5))
    scores = build.add("Sigmoid", build.add("Reshape", scores, shape(build, 1, 3, cells)))
    limits = build.weight(np.int64(6)), build.weight(np.float32(0.4)), build.weight(np.float32(0.3))
    chosen = build.add("NonMaxSuppression", boxes, scores, *limits)
    best, where = build.add(
        "TopK", build.add("ReduceMax", scores, shape(build, 1), keepdims=0), shape(build, 5), outputs=2
    )
    rows = build.add(
        "Gather", build.add("Squeeze", boxes, shape(build, 0)), build.add("Squeeze", where, shape(build, 0))
    )
    return build.made(chosen, best, rows)


def _recurrent() -> Made:
    """Return an LSTM and a GRU over sequences of different lengths."""
    build, steps, batch, size, hidden = Builder("recurrent"), 6, 3, 8, 16
    x = build.feed("x", build.draw.standard_normal((steps, batch, size), np.float32))
    lengths = build.feed("lengths", np.array([6, 4, 2], np.int32))
    for op_type, gates, ways in (("LSTM", 4, 2), ("GRU", 3, 1)):
        weights = (
            build.normal(ways, gates * hidden, size, scale=0.3),
            build.normal(ways, gates * hidden, hidden, scale=0.2),
            build.normal(ways, 2 * gates * hidden, scale=0.1),
        )
        how = {"direction": "bidirectional"} if ways == 2 else {"linear_before_reset": 1}
        y, *last = build.add(op_type, x, *weights, lengths, outputs=gates - 1, hidden_size=hidden, **how)
        turned = build.add("Transpose", y, perm=[0, 2, 1, 3])
        size = ways * hidden
        x = build.add("Reshape", turned, shape(build, steps, batch, size))
        x = build.norm(x, size)
    return build.made(build.add("MatMul", x, build.normal(size, 5, scale=0.3)), *last)


def _audio() -> Made:
    """Return a network over waves: windows, frequencies, dilated convolutions, a mean over time."""
    build, wide = Builder("audio"), 16
    time = np.arange(1024) / 1024
    wave = np.sin(2 * np.pi * 40 * time) + 0.3 * np.sin(2 * np.pi * 170 * time)
    x = build.feed("wave", (wave + 0.05 * build.draw.standard_normal(1024)).astype(np.float32)[None, None])
    at = np.arange(64)
    window = np.hanning(64)
    bank = [f(2 * np.pi * number * at / 64) * window for number in range(1, 17) for f in (np.cos, np.sin)]
    x = build.add("Conv", x, build.weight(np.array(bank, np.float32)[:, None]), strides=[32])
    x = build.add("Reshape", build.add("Mul", x, x), shape(build, 1, wide, 2, -1))
    x = build.add("ReduceSum", x, shape(build, 2), keepdims=0)
    x = build.add("Log", build.add("Add", x, build.weight(np.float32(1e-3))))
    for dilation in (1, 2, 4):
        weight = build.normal(2 * wide, wide, 3, scale=0.14)
        y = build.add(
            "Conv", x, weight, build.normal(2 * wide, scale=0.1), pads=[dilation] * 2, dilations=[dilation]
        )
        wave, gate = build.add("Split", y, axis=1, num_outputs=2, outputs=2)
        y = build.add("Mul", build.add("Tanh", wave), build.add("Sigmoid", gate))
        x = build.add("Add", x, build.add("Conv", y, build.normal(wide, wide, 1, scale=0.25)))
    mean = build.add("ReduceMean", x, shape(build, -1), keepdims=0)
    return build.made(
        build.add("Softmax", build.add("Gemm", mean, build.normal(wide, 8, scale=0.25)), axis=-1)
    )


def _noise() -> Made:
    """Return a network that draws numbers without a seed, beside one that draws none."""
    build, size = Builder("noise"), 32
    x = build.feed("x", build.draw.standard_normal((4, size), np.float32))
    h = build.add(
        "Relu", build.add("Gemm", x, build.normal(size, size, scale=0.2), build.normal(size, scale=0.1))
    )
    yes, share = build.weight(np.array(True)), build.weight(np.float32(0.3))
    dropped, _ = build.add("Dropout", h, share, yes, outputs=2)
    mean, spread = (build.add("MatMul", h, build.normal(size, 8, scale=0.2)) for _ in range(2))
    scaled = build.add("Mul", build.add("Exp", spread), build.add("RandomNormalLike", mean))
    latent = build.add("Add", mean, scaled)
    kept = build.add("Bernoulli", build.add("Sigmoid", mean))
    drawn = build.add("Multinomial", mean, sample_size=3)
    return build.made(
        build.add("MatMul", dropped, build.normal(size, 4, scale=0.2)),
        build.add("MatMul", latent, build.normal(8, 4, scale=0.3)),
        build.add("Tanh", build.add("MatMul", mean, build.normal(8, 4, scale=0.3))),
        kept,
        drawn,
    )


_SCAN = """<ir_version: 10, opset_import: ["" : 20]>
scan (float[6,4] x, float[4] start, bool flag) => (float[4] last, float[6,4] all, float[4] chosen)
{
    d = MatMul(x, w0)
    last, all = Scan<num_scan_inputs = 1, body = step (float[4] h, float[4] e) => (float[4] k, float[4] t) {
        m = Mul(h, decay)
        s = Add(m, e)
        k = Tanh(s)
        t = Mul(k, gain) }>(start, d)
    chosen = If(flag) <then_branch = up () => (float[4] a) { r = Sigmoid(last)  a = Mul(r, gain) },
                       else_branch = down () => (float[4] b) { b = Neg(last) }>
}"""


def _scan() -> Made:
    """Return a Scan and an If over its result."""
    model, draw = parser.parse_model(_SCAN), np.random.default_rng(5)
    arrays = {"w0": (4, 4), "decay": (4,), "gain": (4,)}
    for name, sizes in arrays.items():
        array = draw.standard_normal(sizes).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    name_nodes(model.graph)
    feeds = {
        "x": draw.standard_normal((6, 4)).astype(np.float32),
        "start": draw.standard_normal(4).astype(np.float32),
        "flag": np.array(True),
    }
    return model, feeds


def name_nodes(graph: onnx.GraphProto, prefix: str = "") -> None:
    """Give nodes without a name of their own one, also in bodies."""
    taken: set[str] = set()
    for number, node in enumerate(graph.node):
        if prefix or not node.name or node.name in taken:
            node.name = f"{prefix}{node.op_type}_{number}"
        taken.add(node.name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                name_nodes(attribute.g, f"{node.name}_{attribute.name}/")


ZOO: dict[str, Callable[[], Made]] = {
    "llm": _llm,
    "vit": _vit,
    "unet": _unet,
    "detector": _detector,
    "recurrent": _recurrent,
    "audio": _audio,
    "noise": _noise,
    "scan": _scan,
}
"""Functions that make the networks."""
