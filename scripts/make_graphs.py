"""Make the small models of ``graphs/`` and their table: ``python scripts/make_graphs.py [FOLDER]``.

The same bytes come out every time. ``torch_export.onnx`` and ``torch_norm.onnx`` are made by
``graphs/torch_export/export.py``, which needs PyTorch; here they are only listed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper, parser

from sample_nets.bert import net as bert
from sample_nets.lenet import net as lenet
from sample_nets.mini import net as mini
from sample_nets.tracing import trace

GRAPHS: Final = Path(__file__).resolve().parents[1] / "graphs"
HEAD: Final = '<ir_version: 10, opset_import: ["" : 20]>'


@dataclass(frozen=True, slots=True)
class Sample:
    """One model of the folder.

    Attributes:
        shows: Its purpose, in a few words.
        make: Returns the model; None where another script makes the file.
    """

    shows: str
    make: Callable[[], onnx.ModelProto] | None


def text(
    source: str, weights: Mapping[str, np.ndarray] | None = None, *, named: bool = True
) -> Callable[[], onnx.ModelProto]:
    """Return a maker that parses ONNX's text form, adds weights and numbers the nodes' names."""

    def make() -> onnx.ModelProto:
        model = parser.parse_model(source)
        arrays = (weights or {}).items()
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays)
        onnx.checker.check_model(model)
        if named:
            _name_nodes(model.graph, "")
        return model

    return make


def _name_nodes(graph: onnx.GraphProto, prefix: str) -> None:
    for number, node in enumerate(graph.node):
        node.name = f"{prefix}{node.op_type}_{number}"
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name_nodes(attribute.g, f"{node.name}/{attribute.name}/")


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def _integers(low: int, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(low, high, shape)


def _mini() -> onnx.ModelProto:
    return ir.to_proto(trace(mini.network(), mini.inputs(1), name="mini"))


def _lenet() -> onnx.ModelProto:
    small = lenet.LeNet5(channels=(4, 8), hidden=(32, 24))
    return ir.to_proto(trace(small, lenet.inputs(1), name="lenet"))


def _transformer() -> onnx.ModelProto:
    config = bert.BertConfig(vocabulary=64, sequence=8, hidden=32, heads=4, layers=1)
    inputs = bert.inputs(2, config)
    return ir.to_proto(trace(bert.network(config), inputs, name="transformer", outputs=bert.OUTPUTS))


def _passthrough() -> onnx.ModelProto:
    """Return a model with outputs that are an input, an initializer and one value used twice."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    weight = helper.make_tensor_value_info("weight", onnx.TensorProto.FLOAT, [2, 2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "weight"], ["y"], name="Add_0")],
        "passthrough",
        [x],
        [y, x, weight],
        [numpy_helper.from_array(_normal(2, 2), "weight")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


SAMPLES: Final = {
    "mini": Sample("convolution, ReLU, flatten, dense; scopes and source lines", _mini),
    "lenet": Sample("a small LeNet with shared ReLU and pooling", _lenet),
    "transformer": Sample("one transformer layer with embeddings, nested scopes", _transformer),
    "torch_export": Sample("exported by PyTorch with its metadata (see torch_export/)", None),
    "torch_norm": Sample("exported by PyTorch; sound in float32, not in float16 (see torch_export/)", None),
    "if": Sample(
        "a branch that depends on the input; the branches read outer values",
        text(f"""{HEAD}
        branch (float[2,3] x, bool flag) => (float[2,3] y)
        {{
            y = If (flag) <
                then_branch = positive () => (float[2,3] a) {{ a = Relu (x) }},
                else_branch = negative () => (float[2,3] b) {{ n = Neg (x)  b = Relu (n) }}
            >
        }}"""),
    ),
    "loop": Sample(
        "a loop with a carried value, a scan output and an early end",
        text(f"""{HEAD}
        loop (int64 count, float[3] start) => (float[3] last, float[steps,3] history)
        <bool go = {{1}}, float limit = {{50.0}}>
        {{
            last, history = Loop (count, go, start) <
                body = step (int64 i, bool condition, float[3] value)
                    => (bool again, float[3] doubled, float[3] seen)
                {{
                    doubled = Add (value, value)
                    largest = ReduceMax <keepdims = 0> (doubled)
                    again = Less (largest, limit)
                    seen = Identity (doubled)
                }}
            >
        }}"""),
    ),
    "scan": Sample(
        "a running sum over the rows of a matrix",
        text(f"""{HEAD}
        scan (float[3] start, float[4,3] rows) => (float[3] total, float[4,3] partial)
        {{
            total, partial = Scan <num_scan_inputs = 1,
                body = add (float[3] sum, float[3] row) => (float[3] next, float[3] copy)
                {{
                    next = Add (sum, row)
                    copy = Identity (next)
                }}
            > (start, rows)
        }}"""),
    ),
    "functions": Sample(
        "local functions, one calling the other, with an attribute",
        text("""<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
        functions (float[2,3] x) => (float[2,3] y)
        {
            scaled = local.Scaled <factor = 3.0> (x)
            y = local.Twice (scaled)
        }
        <domain: "local", opset_import: ["" : 20]>
        Scaled <factor> (x) => (y)
        {
            scale = Constant <value_float : float = @factor> ()
            y = Mul (x, scale)
        }
        <domain: "local", opset_import: ["" : 20, "local" : 1]>
        Twice (x) => (y)
        {
            once = local.Scaled <factor = 2.0> (x)
            y = Relu (once)
        }"""),
    ),
    "sequences": Sample(
        "a sequence of tensors built, read and joined",
        text(f"""{HEAD}
        sequences (float[2,3] a, float[2,3] b) => (float[2,6] joined, seq(float[2,3]) both, float[2,3] last)
        <int64 minus_one = {{-1}}>
        {{
            both = SequenceConstruct (a, b)
            joined = ConcatFromSequence <axis = 1> (both)
            last = SequenceAt (both, minus_one)
        }}"""),
    ),
    "optional": Sample(
        "an optional value: created, tested and read",
        text(f"""{HEAD}
        optionals (float[2,3] x) => (float[2,3] y, bool has)
        {{
            maybe = Optional (x)
            has = OptionalHasElement (maybe)
            value = OptionalGetElement (maybe)
            y = Relu (value)
        }}"""),
    ),
    "strings": Sample(
        "string tensors, a string constant and a comparison of strings",
        text(f"""{HEAD}
        strings (string[3] words) => (string[3] loud, bool[3] same)
        <string suffix = {{"!"}}>
        {{
            upper = StringNormalizer <case_change_action = "UPPER", locale = "C"> (words)
            loud = StringConcat (upper, suffix)
            same = Equal (words, upper)
        }}"""),
    ),
    "external_data": Sample(
        "weights in a second file, external_data.bin",
        text(
            f"""{HEAD}
        external_data (float[N,64] x) => (float[N,32] y)
        {{
            product = MatMul (x, weight)
            y = Add (product, bias)
        }}""",
            {"weight": _normal(64, 32), "bias": _normal(32)},
        ),
    ),
    "inputs_and_outputs": Sample(
        "several inputs and outputs, one input with a default, absent optional operands, an unused output",
        text(f"""{HEAD}
        several (float[2,4] a, float[2,4] b, float[4] bias)
            => (float[2,4] sum, float[2,2] top, float[2,4] kept)
        <float[4] bias = {{1, 2, 3, 4}}, float low = {{0}}, float high = {{6}}, int64[1] k = {{2}}>
        {{
            added = Add (a, b)
            sum = Add (added, bias)
            kept = Clip (sum, , high)
            capped = Clip (sum, low)
            top, indices = TopK (capped, k)
        }}"""),
    ),
    "opset7": Sample(
        "an old model: opset 7, attributes where later versions have inputs",
        text("""<ir_version: 4, opset_import: ["" : 7]>
        opset7 (float[1,2,4,4] x) => (float[1,3] y)
        <float[8,3] weight = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2,
                              -0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7, -0.8, -0.9, -1, -1.1, -1.2},
         float[3] bias = {0.5, -0.5, 0}>
        {
            padded = Pad <mode = "constant", pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x)
            pooled = MaxPool <kernel_shape = [3, 3], strides = [3, 3]> (padded)
            unit = Clip <min = -1.0, max = 1.0> (pooled)
            flat = Flatten (unit)
            dense = Gemm (flat, weight, bias)
            y = Softmax (dense)
        }"""),
    ),
    "quantized": Sample(
        "a quantised convolution and an integer product",
        text(
            f"""{HEAD}
        quantized (uint8[1,1,6,6] image, int8[2,4] left) => (uint8[1,2,4,4] feature, int32[2,3] product)
        <float x_scale = {{0.05}}, uint8 x_zero = {{128}}, float[2] w_scale = {{0.02, 0.03}},
         int8[2] w_zero = {{0, 0}}, float y_scale = {{0.1}}, uint8 y_zero = {{120}}>
        {{
            feature = QLinearConv <kernel_shape = [3, 3]>
                (image, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, bias)
            product = MatMulInteger (left, right)
        }}""",
            {  # of seven bits: with eight, kernels saturate on processors without VNNI
                "weight": _integers(-64, 64, 2, 1, 3, 3).astype(np.int8),
                "bias": _integers(-500, 500, 2).astype(np.int32),
                "right": _integers(-64, 64, 4, 3).astype(np.int8),
            },
        ),
    ),
    "float16": Sample(
        "half precision throughout",
        text(
            f"""{HEAD}
        half (float16[2,4] x) => (float16[2,3] y)
        {{
            product = MatMul (x, weight)
            sum = Add (product, bias)
            y = Relu (sum)
        }}""",
            {"weight": _normal(4, 3).astype(np.float16), "bias": _normal(3).astype(np.float16)},
        ),
    ),
    "bfloat16": Sample(
        "a bfloat16 weight and output, computed with in float32",
        text(
            f"""{HEAD}
        bfloat16 (float[2,4] x) => (float[2,3] y, bfloat16[2,4] narrow)
        {{
            narrow = Cast <to = 16> (x)
            wide = Cast <to = 1> (narrow)
            weight32 = Cast <to = 1> (weight)
            y = MatMul (wide, weight32)
        }}""",
            {"weight": _normal(4, 3).astype(ml_dtypes.bfloat16)},
        ),
    ),
    "int4": Sample(
        "a weight of packed 4-bit integers",
        text(
            """<ir_version: 10, opset_import: ["" : 21]>
        int4 (float[2,4] x) => (float[2,3] y)
        <float scale = {0.125}>
        {
            weight = DequantizeLinear (packed, scale)
            y = MatMul (x, weight)
        }""",
            {"packed": _integers(-8, 8, 4, 3).astype(ml_dtypes.int4)},
        ),
    ),
    "dynamic_shapes": Sample(
        "named and unknown dimensions, shapes computed while it runs, a result without elements",
        text(f"""{HEAD}
        dynamic (float[N,?] x) => (float[K,L] rows, int64[2] size, int64[2,M] places)
        <float limit = {{100.0}}, int64[1] flat = {{-1}}, int64[2] pair = {{1, -1}}>
        {{
            size = Shape (x)
            line = Reshape (x, flat)
            wide = Reshape (line, pair)
            rows = Concat <axis = 0> (wide, wide)
            large = Greater (x, limit)
            places = NonZero (large)
        }}"""),
    ),
    "passthrough": Sample("outputs that are an input and an initializer", _passthrough),
    "nameless": Sample(
        "nodes without names, two of them alike",
        text(
            f"""{HEAD}
        nameless (float[2,3] x) => (float[2,3] y)
        {{
            a = Relu (x)
            b = Sigmoid (a)
            c = Relu (b)
            y = Add (a, c)
        }}""",
            named=False,
        ),
    ),
    "contrib": Sample(
        "an operator of onnxruntime's own domain",
        text("""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        contrib (float[2,3] a, float[4,3] b) => (float[2,4] y)
        {
            product = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (a, b)
            y = com.microsoft.QuickGelu (product)
        }"""),
    ),
}


def save(name: str, model: onnx.ModelProto, folder: Path) -> None:
    """Write a model deterministically; ``external_data`` gets its second file."""
    model.producer_name = "msdump scripts/make_graphs.py"
    if name == "external_data":
        (folder / f"{name}.bin").unlink(missing_ok=True)  # onnx appends to a file that is there
        onnx.external_data_helper.convert_model_to_external_data(
            model, location=f"{name}.bin", size_threshold=0
        )
        onnx.external_data_helper.write_external_data_tensors(model, str(folder))
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def table(folder: Path) -> str:
    """Return the README's table of the models in a folder."""
    rows = ["| file | shows | opset | operators |", "|---|---|---|---|"]
    for name, sample in sorted(SAMPLES.items()):
        model = onnx.load(folder / f"{name}.onnx", load_external_data=False)
        opsets = ", ".join(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in model.opset_import)
        rows.append(f"| `{name}.onnx` | {sample.shows} | {opsets} | {', '.join(operators(model))} |")
    return "\n".join(rows)


def operators(model: onnx.ModelProto) -> list[str]:
    """Return the operator types of a model with its subgraphs and functions, sorted."""
    found: set[str] = set()
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        found.add(node.op_type)
        pending.extend(inner for attribute in node.attribute for inner in attribute.g.node)
    return sorted(found)


README: Final = """# Graphs

Small ONNX models for tests and first trials. Each shows one feature of the format.
`python scripts/make_graphs.py` writes them and this table again, byte for byte.
`torch_export/export.py` writes the models exported by PyTorch, and `mindspore_cnn.py` the MindIR file
`mindspore_cnn.mindir`, under MindSpore 2.10: convolutions, batch normalisation and residual cells.

{table}
"""


def main() -> None:
    """Write every model and the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=GRAPHS)
    folder: Path = options.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, sample in SAMPLES.items():
        if sample.make is not None:
            save(name, sample.make(), folder)
    (folder / "README.md").write_text(README.format(table=table(GRAPHS)), encoding="utf-8")


if __name__ == "__main__":
    main()
