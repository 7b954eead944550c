"""Operators with constant inputs, in each precision mode, against their plain kernels on rounded values."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser
from onnxruntime.capi import onnxruntime_pybind11_state as native

from msdump.device import precision
from msdump.errors import MsdumpError
from msdump.execute import KernelFactory, OperatorRunner, Program, WeightStore, cpu_runtime, emulated, values
from msdump.execute.segment_compiler import SegmentCompiler
from msdump.graph import loader, moves
from msdump.graph.kernel import FLOAT16, FLOAT32, Rounding, onenode
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from msdump.threads import thread_count

RNG = np.random.default_rng(5)
HALF_OR_SINGLE = (np.float16, np.float32)
MICROSOFT = "com.microsoft"
MODES = ("allow_fp32_to_fp16", "force_fp16", "force_fp32", "must_keep_origin_dtype", "allow_fp32_to_bf16")


@dataclass(frozen=True)
class Fed:
    """An input that is fed; every other one is a constant."""

    array: np.ndarray


@dataclass(frozen=True)
class Case:
    """An operator, its inputs (None: absent), attributes and number of outputs."""

    op_type: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    domain: str = ""
    outputs: int = 1

    def arrays(self, dtype):
        """Return the inputs by name, floats in a type: fed ones, and constants."""
        fed, constants = {}, {}
        for slot, item in enumerate(self.inputs):
            if item is not None:
                array = np.asarray(item.array if isinstance(item, Fed) else item)
                array = array.astype(dtype) if array.dtype == np.float32 else array
                (fed if isinstance(item, Fed) else constants)[f"i{slot}"] = array
        return fed, constants

    def model(self, fed, constants, kinds=(), *, pair=False):
        """Return the model; beside another operator where it is to run in a session of two."""
        names = [f"i{slot}" if item is not None else "" for slot, item in enumerate(self.inputs)]
        outputs = [f"o{slot}" for slot in range(self.outputs)]
        nodes = [helper.make_node(self.op_type, names, outputs, domain=self.domain, **self.attributes)]
        if pair:
            nodes.append(helper.make_node("Identity", [next(iter(fed))], ["beside"]))
            outputs = [*outputs, "beside"]
        kinds = dict(zip(outputs, kinds, strict=False))
        graph = helper.make_graph(
            nodes,
            "g",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in fed.items()
            ],
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kinds[name]), None)
                if name in kinds
                else helper.make_empty_tensor_value_info(name)
                for name in outputs
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def f(*shape):
    """Return random floats."""
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape):
    """Return random floats above 0."""
    return (RNG.random(shape) + 0.1).astype(np.float32)


def x(*shape):
    """Return random floats that are fed."""
    return Fed(f(*shape))


def u8(*shape, most=256):
    """Return random bytes."""
    return RNG.integers(0, most, shape, dtype=np.uint8)


def i8(*shape):
    """Return small random integers of a byte."""
    return RNG.integers(-60, 60, shape, dtype=np.int8)


def ints(*numbers, dtype=np.int64):
    """Return integers."""
    return np.array(numbers, dtype)


def scale(*shape):
    """Return scales: small floats above 0."""
    return positive(*shape) / 40


def onnx_op(op_type, *inputs, outputs=1, **attributes):
    """Return an operator of ONNX's own."""
    return Case(op_type, inputs, attributes, outputs=outputs)


def ms(op_type, *inputs, outputs=1, **attributes):
    """Return an operator of the runtime's own."""
    return Case(op_type, inputs, attributes, MICROSOFT, outputs)


def zero(dtype=np.uint8, *shape):
    """Return a zero point."""
    return np.full(shape, 3, dtype)


def bits(level, bits=4, *, points=False, block=32):
    """Return a MatMulNBits."""
    blocks = 256 // block
    per_row = (blocks * bits + 7) // 8
    inputs = [x(3, 256), u8(64, blocks, block * bits // 8), scale(64 * blocks)]
    return ms(
        "MatMulNBits",
        *inputs,
        *([u8(64 * per_row)] if points else []),
        K=256,
        N=64,
        bits=bits,
        block_size=block,
        accuracy_level=level,
    )


# fmt: off
CASES = {
    "Conv": onnx_op("Conv", x(1, 3, 8, 8), f(4, 3, 3, 3), f(4), pads=[1] * 4),
    "Conv, grouped": onnx_op("Conv", x(1, 4, 8, 8), f(4, 1, 3, 3), f(4), group=4),
    "Conv 1d": onnx_op("Conv", x(1, 3, 8), f(4, 3, 3), f(4)),
    "Conv 3d": onnx_op("Conv", x(1, 3, 4, 4, 4), f(4, 3, 3, 3, 3)),
    "ConvTranspose": onnx_op("ConvTranspose", x(1, 3, 5, 5), f(3, 4, 3, 3), f(4)),
    "ConvInteger": onnx_op("ConvInteger", Fed(u8(1, 3, 8, 8)), u8(4, 3, 3, 3), zero(), zero()),
    "DeformConv": onnx_op("DeformConv", x(1, 2, 5, 5), f(4, 2, 2, 2), f(1, 8, 4, 4), f(4)),
    "MatMul": onnx_op("MatMul", x(3, 40), f(40, 30)),
    "MatMul, weight first": onnx_op("MatMul", f(20, 40), x(40, 3)),
    "MatMul, large": onnx_op("MatMul", x(3, 300), f(300, 400)),
    "Gemm": onnx_op("Gemm", x(3, 40), f(30, 40), f(30), transB=1, alpha=0.5),
    "Einsum": onnx_op("Einsum", x(3, 4), f(4, 5), equation="ij,jk->ik"),
    "MatMulInteger": onnx_op("MatMulInteger", Fed(u8(3, 40)), i8(40, 30), zero(), zero(np.int8)),
    "LSTM": onnx_op("LSTM", x(5, 2, 8), f(1, 64, 8), f(1, 64, 16), f(1, 128), outputs=3, hidden_size=16),
    "GRU": onnx_op("GRU", x(5, 2, 8), f(1, 48, 8), f(1, 48, 16), f(1, 96), outputs=2, hidden_size=16),
    "RNN": onnx_op("RNN", x(5, 2, 8), f(1, 16, 8), f(1, 16, 16), f(1, 32), outputs=2, hidden_size=16),
    "LSTM, peepholes": onnx_op("LSTM", x(5, 2, 8), f(1, 64, 8), f(1, 64, 16), f(1, 128), ints(5, 4,
        dtype=np.int32), f(1, 2, 16), f(1, 2, 16), f(1, 48), hidden_size=16),
    "LayerNormalization": onnx_op("LayerNormalization", x(2, 5, 16), f(16), f(16)),
    "GroupNormalization": onnx_op("GroupNormalization", x(2, 4, 6), f(4), f(4), num_groups=2),
    "InstanceNormalization": onnx_op("InstanceNormalization", x(2, 4, 6), f(4), f(4)),
    "BatchNormalization": onnx_op("BatchNormalization", x(2, 4, 6), f(4), f(4), f(4), positive(4)),
    "PRelu": onnx_op("PRelu", x(2, 4, 6), f(4, 1)),
    "Add": onnx_op("Add", x(3, 400), f(400)),
    "Mul": onnx_op("Mul", x(3, 4), f(4)),
    "Mul, domain by its name": Case("Mul", (x(3, 4), f(4)), {}, "ai.onnx"),
    "Div": onnx_op("Div", x(3, 4), positive(4)),
    "Sub": onnx_op("Sub", f(4), x(3, 4)),
    "Pow": onnx_op("Pow", Fed(positive(3, 4)), f(4)),
    "Max": onnx_op("Max", x(3, 4), f(4), f(3, 4)),
    "Sum": onnx_op("Sum", x(3, 4), f(4), f(4)),
    "Clip": onnx_op("Clip", x(3, 4), np.float32(-0.3), np.float32(0.7)),
    "Less": onnx_op("Less", x(3, 4), f(4)),
    "Where": onnx_op("Where", Fed(RNG.random((3, 4)) > 0.5), f(3, 4), f(4)),
    "Gather": onnx_op("Gather", f(50, 6), Fed(ints(3, 40, 7))),
    "GatherElements": onnx_op("GatherElements", f(5, 6), Fed(ints(1, 2, 3).reshape(1, 3))),
    "ScatterND": onnx_op("ScatterND", f(5, 6), ints(2, 3).reshape(2, 1), x(2, 6)),
    "ScatterElements": onnx_op("ScatterElements", x(5, 6), ints(2, 3).reshape(1, 2), f(1, 2)),
    "Concat": onnx_op("Concat", x(3, 4), f(3, 4), axis=0),
    "Pad": onnx_op("Pad", x(3, 4), ints(1, 1, 1, 1), np.float32(0.1)),
    "Expand": onnx_op("Expand", x(3, 1), ints(3, 4)),
    "OneHot": onnx_op("OneHot", Fed(ints(1, 2)), ints(4), np.array([0.1, 0.9], np.float32)),
    "Resize": onnx_op("Resize", x(1, 2, 4, 4), None, np.array([1, 1, 2, 2], np.float32), mode="linear"),
    "Resize to sizes": onnx_op("Resize", x(1, 2, 4, 4), None, None, ints(1, 2, 7, 7), mode="cubic"),
    "RoiAlign": onnx_op("RoiAlign", x(1, 2, 8, 8), np.array([[0, 0, 4, 4]], np.float32), ints(0),
        output_height=2, output_width=2),
    "GridSample": onnx_op("GridSample", x(1, 2, 4, 4), np.tanh(f(1, 3, 3, 2))),
    "Range": onnx_op("Range", Fed(np.float32(0)), np.float32(3.1), np.float32(0.3)),
    "Mean": onnx_op("Mean", x(3, 4), f(3, 4)),
    "TopK": onnx_op("TopK", x(3, 8), ints(2), outputs=2),
    "QuantizeLinear": onnx_op("QuantizeLinear", x(3, 8), scale(), zero()),
    "QuantizeLinear, axis": onnx_op("QuantizeLinear", x(3, 8), scale(8), zero(np.int8, 8), axis=1),
    "DequantizeLinear": onnx_op("DequantizeLinear", Fed(u8(3, 8)), scale(), zero()),
    "DequantizeLinear, weight": onnx_op("DequantizeLinear", i8(3, 8), Fed(scale(8)), zero(np.int8, 8),
        axis=1),
    "DequantizeLinear, blocks": onnx_op("DequantizeLinear", Fed(u8(4, 8)), scale(2, 8), zero(np.uint8, 2,
        8), axis=0, block_size=2),
    "DynamicQuantizeLinear": onnx_op("DynamicQuantizeLinear", x(3, 8), outputs=3),
    "QLinearConv": onnx_op("QLinearConv", Fed(u8(1, 3, 8, 8)), scale(), zero(), u8(4, 3, 3, 3), scale(),
        zero(), np.float32(0.3), zero(), RNG.integers(-99, 99, 4, dtype=np.int32)),
    "QLinearConv, per channel": onnx_op("QLinearConv", Fed(u8(1, 3, 8, 8)), scale(), zero(), i8(4, 3, 3, 3),
        scale(4), np.zeros(4, np.int8), np.float32(0.3), zero()),
    "QLinearMatMul": onnx_op("QLinearMatMul", Fed(u8(3, 40)), scale(), zero(), u8(40, 30), scale(), zero(),
        np.float32(0.3), zero()),
    **{ f"MatMulNBits, {width} bits, level {level}{', zero points' * points}": bits(level, width,
        points=points) for width in (4, 8) for level in range(5) for points in (False, True) },
    "MatMulNBits, blocks of 16": bits(4, block=16),
    "MatMulNBits, blocks of 128": bits(4, block=128, points=True),
    "MatMulNBits, bias": ms("MatMulNBits", x(3, 256), u8(64, 8, 16), scale(512), None, None, f(64), K=256,
        N=64, bits=4, block_size=32, accuracy_level=4),
    "MatMulNBits, float points": ms("MatMulNBits", x(3, 256), u8(64, 8, 16), scale(512), positive(512) * 8,
        K=256, N=64, bits=4, block_size=32),
    "MatMulNBits, fed scales": ms("MatMulNBits", x(3, 256), u8(64, 8, 16), Fed(scale(512)), K=256, N=64,
        bits=4, block_size=32),
    "MatMulBnb4": ms("MatMulBnb4", x(3, 256), u8(64 * 256 // 2), positive(512), K=256, N=64, block_size=32,
        quant_type=1),
    "GatherBlockQuantized": ms("GatherBlockQuantized", u8(20, 16), Fed(ints(1, 5)), scale(20, 1), u8(20, 1),
        bits=4, block_size=32, gather_axis=0, quantize_axis=1),
    "MatMulIntegerToFloat": ms("MatMulIntegerToFloat", Fed(u8(3, 40)), u8(40, 30), scale(), scale(), zero(),
        zero(), f(30)),
    "DynamicQuantizeMatMul": ms("DynamicQuantizeMatMul", x(3, 40), u8(40, 30), scale(), zero(), f(30)),
    "DynamicQuantizeLSTM": ms("DynamicQuantizeLSTM", x(5, 2, 8), i8(1, 8, 64), i8(1, 16, 64), f(1, 128),
        None, None, None, None, scale(1), np.zeros(1, np.int8), scale(1), np.zeros(1, np.int8),
        hidden_size=16),
    "QGemm": ms("QGemm", Fed(u8(3, 40)), scale(), zero(), u8(40, 30), scale(), zero(), None,
        np.float32(0.3), zero()),
    "QGemm, float": ms("QGemm", Fed(u8(3, 40)), scale(), zero(), i8(40, 30), scale(30), np.zeros(30,
        np.int8)),
    "QLinearAdd": ms("QLinearAdd", Fed(u8(3, 8)), scale(), zero(), u8(8), scale(), zero(), scale(), zero()),
    "QLinearMul": ms("QLinearMul", Fed(u8(3, 8)), scale(), zero(), u8(8), scale(), zero(), scale(), zero()),
    "QLinearSigmoid": ms("QLinearSigmoid", Fed(u8(3, 8)), scale(), zero(), scale(), zero()),
    "QLinearLeakyRelu": ms("QLinearLeakyRelu", Fed(u8(3, 8)), scale(), zero(), scale(), zero(), alpha=0.1),
    "QLinearSoftmax": ms("QLinearSoftmax", Fed(u8(3, 8)), scale(), zero(), np.float32(1 / 256), zero(),
        opset=13),
    "QLinearAveragePool": ms("QLinearAveragePool", Fed(u8(1, 2, 6, 6)), scale(), zero(), scale(), zero(),
        kernel_shape=[2, 2]),
    "QLinearGlobalAveragePool": ms("QLinearGlobalAveragePool", Fed(u8(1, 2, 6, 6)), scale(), zero(),
        scale(), zero()),
    "QLinearConcat": ms("QLinearConcat", scale(), zero(), Fed(u8(3, 8)), scale(), zero(), u8(3, 8), scale(),
        zero(), axis=0),
    "QLinearWhere": ms("QLinearWhere", Fed(RNG.random((3, 8)) > 0.5), u8(3, 8), scale(), zero(), u8(8),
        scale(), zero(), scale(), zero()),
    "QLinearConv of Microsoft": ms("QLinearConv", Fed(u8(1, 8, 8, 4)), scale(), zero(), u8(4, 4, 3, 3),
        scale(), zero(), np.float32(0.3), zero(), channels_last=1),
    "QuantizeLinear of Microsoft": ms("QuantizeLinear", x(3, 8), scale(), zero()),
    "DequantizeLinear of Microsoft": ms("DequantizeLinear", Fed(u8(3, 8)), scale(), zero()),
    "QAttention": ms("QAttention", Fed(u8(1, 4, 16)), u8(16, 48), f(48), scale(), scale(), None, zero(),
        zero(), num_heads=2),
    "Attention": ms("Attention", x(1, 4, 16), f(16, 48), f(48), num_heads=2),
    "Attention, masked": ms("Attention", x(1, 4, 16), f(16, 48), f(48), ints(3, dtype=np.int32),
        num_heads=2),
    "MultiHeadAttention": ms("MultiHeadAttention", x(1, 4, 16), x(1, 4, 16), x(1, 4, 16), f(48),
        num_heads=2),
    "GroupQueryAttention": ms("GroupQueryAttention", x(1, 4, 32), x(1, 4, 16), x(1, 4, 16), Fed(f(1, 1, 0,
        16)), Fed(f(1, 1, 0, 16)), ints(3, dtype=np.int32), np.array(4, np.int32), f(8, 8), f(8, 8),
        outputs=3, num_heads=2, kv_num_heads=1, do_rotary=1),
    "DecoderMaskedMultiHeadAttention": ms("DecoderMaskedMultiHeadAttention", x(1, 1, 16), x(1, 1, 16), x(1,
        1, 16), num_heads=2),
    "RotaryEmbedding": ms("RotaryEmbedding", x(1, 4, 32), ints(0), f(8, 8), f(8, 8), num_heads=2,
        rotary_embedding_dim=16),
    "SkipLayerNormalization": ms("SkipLayerNormalization", x(1, 4, 16), x(1, 4, 16), f(16), f(16), f(16)),
    "SkipSimplifiedLayerNormalization": ms("SkipSimplifiedLayerNormalization", x(1, 4, 16), x(1, 4, 16),
        f(16), f(16)),
    "EmbedLayerNormalization": ms("EmbedLayerNormalization", Fed(ints(1, 2, 3, dtype=np.int32).reshape(1,
        3)), None, f(20, 16), f(8, 16), None, f(16), f(16), outputs=2),
    "QEmbedLayerNormalization": ms("QEmbedLayerNormalization", Fed(ints(1, 2, 3, dtype=np.int32).reshape(1,
        3)), None, u8(20, 16), u8(8, 16), None, u8(16), u8(16), None, scale(), scale(), None, scale(),
        scale(), zero(), zero(), None, zero(), zero(), outputs=2),
    "FusedMatMul": ms("FusedMatMul", x(3, 40), f(30, 40), transB=1, alpha=0.5),
    "FusedGemm": ms("FusedGemm", x(3, 40), f(40, 30), f(30), activation="Relu"),
    "FusedConv": ms("FusedConv", x(1, 3, 8, 8), f(4, 3, 3, 3), f(4), activation="Relu"),
    "TransposeMatMul": ms("TransposeMatMul", x(3, 40), f(40, 30)),
    "BiasGelu": ms("BiasGelu", x(3, 16), f(16)),
    "FastGelu": ms("FastGelu", x(3, 16), f(16)),
    "QuickGelu": ms("QuickGelu", x(3, 16), alpha=1.7),
    "CropAndResize": ms("CropAndResize", x(1, 2, 8, 8), np.array([[0, 0, 0.5, 0.5]], np.float32), ints(0,
        dtype=np.int32), ints(2, 2, dtype=np.int32)),
    "GatherND": ms("GatherND", f(5, 6), Fed(ints(1, 2).reshape(1, 2))),
    "Pad of Microsoft": ms("Pad", x(3, 4), ints(1, 1, 1, 1), np.float32([0.1])),
    "MoE": ms("MoE", x(4, 16), Fed(f(4, 2)), f(2, 24, 16), f(2, 24), f(2, 16, 24), f(2, 16), k=1,
        activation_type="relu"),
    "QMoE": ms("QMoE", x(4, 32), Fed(f(4, 2)), u8(2, 64, 16), scale(2, 64), None, u8(2, 32, 32), scale(2,
        32), k=1, activation_type="relu", expert_weight_bits=4),
}
# fmt: on


RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2]))

FAR = 1e-4
"""Distance of two results of which one was rounded, or computed on rounded inputs, and the other was not."""


def plain(case, fed, constants):
    """Return the outputs of the runtime's own kernel, None where it has none for these types."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = thread_count()  # DynamicQuantizeLSTM quantises the share of each thread
    model = case.model(fed, constants)
    for value in model.graph.input:  # with known shapes, its MoE of float16 writes over its inputs
        value.type.tensor_type.ClearField("shape")
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, fed)
    except (native.Fail, native.InvalidGraph, native.NotImplemented):
        return None


def in_type(array, dtype):
    """Return a float array in float32 with the values of a type; others as they are."""
    return array.astype(dtype.numpy).astype(np.float32) if array.dtype in HALF_OR_SINGLE else array


def expected(case, dtype, rounding):
    """Return results by their definition: the plain kernel in float32 on rounded inputs, rounded again."""
    sides, keeps = case.arrays(dtype), case.domain == MICROSOFT or moves(case.op_type)
    if keeps and dtype == np.float16:
        return plain(case, *sides)
    reads = FLOAT32 if dtype == np.float16 else rounding.reads
    results = plain(case, *({name: in_type(array, reads) for name, array in side.items()} for side in sides))
    return results if keeps else [in_type(array, rounding.writes) for array in results]


def distance(found, wanted):
    """Return how far two arrays are apart; a half type holds its own values only."""
    wanted = wanted.astype(found.dtype).astype(np.float64)
    return np.linalg.norm(found.astype(np.float64) - wanted) / (np.linalg.norm(wanted) or 1)


def cast_constants(data):
    """Return the names of the constants of a model that a Cast converts."""
    graph = onnx.load_from_string(data).graph
    constants = {each.name for each in graph.initializer}
    return [node.input[0] for node in graph.node if node.op_type == "Cast" and node.input[0] in constants]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_rounded_values(name, dtype, monkeypatch):
    """In each mode, alone and beside another operator, results are the plain kernel's on rounded values."""
    case, dtype, models = CASES[name], np.dtype(dtype), []

    def recorded(make):
        """Return a function that keeps the models that it makes; no session is opened below it."""

        def call(*arguments):
            models.append(made := make(*arguments))
            return made

        return call

    monkeypatch.setattr(onenode, "build", recorded(onenode.build))
    monkeypatch.setattr(SegmentCompiler, "_linked", recorded(SegmentCompiler._linked))
    fed, constants = case.arrays(dtype)
    own = plain(case, fed, constants)
    if own is None and dtype == np.float32:
        pytest.skip("the installed onnxruntime has no such kernel")
    if name == "MatMulNBits, fed scales" and dtype == np.float16 and RUNTIME < (1, 31):
        pytest.skip("this onnxruntime's kernel adds memory that nobody wrote to its first element")
    kinds = [array.dtype for array in own or ()] if case.domain else ()
    given = {key: values.from_python(array) for key, array in fed.items()}
    for mode, pair in itertools.product(MODES if dtype == np.float32 else MODES[:2], (False, True)):
        context = Context(DeviceTarget.ASCEND, JitLevel.O0, precision_mode=PrecisionMode(mode))
        device = emulated(loader.load(case.model(fed, constants, kinds, pair=pair)), None, context)
        wanted = expected(case, dtype, device.roundings(device.graph.nodes[0])[0])
        program = Program(device.graph, device.roundings)
        if wanted is None:
            with pytest.raises(MsdumpError):
                program.run(given)
            continue
        for found, array in zip(program.run(given), wanted, strict=False):
            assert found.shape == array.shape, mode
            assert distance(found, array) < FAR, mode
    assert [] == [name for model in models for name in cast_constants(model.data)]


OF_MICROSOFT = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
g (float[4] x) => (float[4] y) {
  a = Abs(x) b = com.microsoft.QuickGelu<alpha = 1.0>(a) c = Neg(b) y = Abs(c) }"""


@pytest.mark.parametrize("most", [1e3, 1e6])
def test_the_plain_kernel_reports_overflows(most):
    """Numbers beyond float16's range are bounded in front of the plain kernel, and set the status."""
    graph = loader.load(parser.parse_model(OF_MICROSOFT))
    node = graph.nodes[1]
    rounding = [Rounding(FLOAT16, FLOAT16, saturates=True, reports=True)]
    factory = KernelFactory(graph, WeightStore(graph.weights), cpu_runtime(), lambda _: rounding)
    fed = {"a": values.owned(np.array([1, most, 2, 3], np.float32))}

    kernel = factory.make(node, fed)

    for _ in range(2):
        feeds = {inner: fed[name] for inner, name in kernel.feeds}
        result, status = map(values.to_array, kernel.run(feeds, kernel.results, None))
        assert min(most, 65504) == result.max()
        assert bool(status) == (most > 65504)


def test_what_stands_for_a_constant_is_one():
    """An operator of another domain that is given other weights reads them as constants, each time anew."""
    case = CASES["MatMulNBits, 4 bits, level 4"]
    fed, constants = case.arrays(np.float32)
    graph = loader.load(case.model(fed, constants))
    runner, (node,), scales = OperatorRunner(graph), graph.nodes, constants["i2"]
    (own,) = runner.run(node, fed)

    (twice,), (again,) = (runner.run(node, {**fed, "i2": scales * factor}) for factor in (2, 1))

    assert np.any(own)
    np.testing.assert_allclose(2 * own, twice, rtol=1e-5)
    np.testing.assert_array_equal(own, again)


REPLACEABLE = """<ir_version: 10, opset_import: ["": 20]>
g (float[2,n] x, float[n,n] w) => (float[2,n] y) { a = Abs(w) b = MatMul(x, w) y = MatMul(b, a) }"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [4, 64], ids=["in the model", "beside it"])
def test_weights_that_a_caller_may_replace(mode, size, monkeypatch):
    """A default is rounded once, a replacement once in its run, with the results of a fed weight."""
    first, replacement = f(size, size), f(size, size) * np.float32(1e3)
    fed, kept = parser.parse_model(REPLACEABLE), parser.parse_model(REPLACEABLE)
    kept.graph.initializer.append(numpy_helper.from_array(first, "w"))
    context = Context(DeviceTarget.ASCEND, JitLevel.O0, precision_mode=PrecisionMode(mode))
    devices = [emulated(loader.load(model), None, context) for model in (fed, kept)]
    ours, theirs = (Program(device.graph, device.roundings) for device in reversed(devices))
    casts, narrow = [], precision.cast
    monkeypatch.setattr(precision, "cast", lambda *given: casts.append(given) or narrow(*given))

    for weight in (first, first, replacement, first, first):
        x = {"x": values.owned(f(2, size))}
        own = {"w": values.owned(weight)}
        (wanted,) = theirs.run(x | own)
        (found,) = ours.run(x if weight is first else x | own)

        assert np.array_equal(wanted, found)
    reduced = mode not in {"force_fp32", "must_keep_origin_dtype"}
    assert (4 if reduced else 0) == len(
        casts
    )  # to the smaller type and back: the weight, and its replacement


@pytest.mark.parametrize(
    ("body", "casts"),
    [
        ("t = Transpose(w) y = MatMul(x, t)", 2),
        ("t = Identity(w) u = Reshape(t, s) y = MatMul(x, u)", 2),
        ("t = Transpose(w) a = MatMul(x, t) y = MatMul(a, t)", 4),
        ("t = Transpose(w) a = MatMul(x, t) b = Abs(t) y = MatMul(a, b)", 8),
        ("t = Transpose(w) a = Identity(t) b = MatMul(x, a) c = Exp(t) y = Add(b, c)", 4),
        ("t = Transpose(v) y = MatMul(x, t)", 4),
    ],
    ids=["moved", "moved twice", "two products", "no product", "no product beside", "replaceable"],
)
def test_weights_are_rounded_before_they_are_moved(body, casts, monkeypatch):
    """A run casts activations, and weights that others read unrounded; bits are as with fed weights."""
    head = '<ir_version: 10, opset_import: ["": 20]> g (float[4,4] x, float[4,4] v{}) => (float[4,4] y) <{}>'
    constants = "int64[2] s = {4, 4}"
    fed, kept = (
        parser.parse_model(f"{head.format(*parts)} {{ {body} }}")
        for parts in ((", float[4,4] w", constants), ("", constants))
    )
    w, x = f(4, 4), f(4, 4)
    fed.graph.initializer.append(numpy_helper.from_array(w, "v"))
    kept.graph.initializer.extend(numpy_helper.from_array(w, name) for name in "vw")
    context, models = Context(DeviceTarget.ASCEND, JitLevel.O0), []
    ours, theirs = (emulated(loader.load(model), None, context) for model in (kept, fed))
    linked = SegmentCompiler._linked
    monkeypatch.setattr(
        SegmentCompiler, "_linked", lambda *given: models.append(linked(*given)) or models[-1]
    )
    given = {"x": values.owned(x)}

    (found,) = Program(ours.graph, ours.roundings).run(given)
    (wanted,) = Program(theirs.graph, theirs.roundings).run(given | {name: values.owned(w) for name in "vw"})

    nodes = onnx.load_from_string(models[0].data).graph.node
    assert casts == sum(node.op_type == "Cast" for node in nodes)
    assert np.array_equal(wanted, found)
