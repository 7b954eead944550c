"""Files with a name or shape other than the tensor's: the graph file beside them has the true one."""

import shutil
from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.dump.compared import accused, document, faults
from tests.dump.nets import FLOAT, model, node, value
from tests.dump.test_comparison import FEEDS, LENET, O0, O2
from tests.world import cli

pytestmark = pytest.mark.usefixtures("quiet")


def only(root, pattern):
    """Return the one file with a matching path."""
    (path,) = root.rglob(pattern)
    return path


@pytest.mark.parametrize("options", [(), ("--model", LENET)], ids=["files", "model"])
def test_shape_of_a_view(door, options):
    """The file of a view with the shape of the view's input agrees: its graph has the shape."""
    mine, golden = door.twice(LENET, FEEDS)
    path = only(mine, "Flatten.*.output.0.*.npy")
    np.save(path, np.load(path).reshape(1, 8, 5, 5))

    code, report = document(mine, golden, *options)

    assert (0, "equal") == (code, report["verdict"])


@pytest.mark.parametrize("options", [(), ("--model", LENET)], ids=["files", "model"])
def test_half_of_the_bytes(door, options):
    """MindSpore's file of float16 where the device held float32 is not judged, and accuses no operator."""
    mine, golden = door.twice(LENET, FEEDS)
    for path in [*mine.rglob("MatMul.*.output.0.*.npy"), *mine.rglob("BiasAdd.*.input.0.*.npy")]:
        array = np.load(path)
        half = np.frombuffer(array.tobytes()[: array.nbytes // 2], np.float16).reshape(array.shape)
        np.save(str(path).replace("Float32", "Float16"), half)
        path.unlink()

    code, report = document(mine, golden, *options)

    [product] = [each for each in report["operators"] if each["operator"].endswith("fc1-Dense/MatMul-op0")]
    [output] = product["outputs"]
    assert (0, "unchecked") == (code, output["verdict"])
    assert "the device held float32 by the graph, but the file is named float16" in output["note"]
    assert {"equal", "unchecked", "agrees"} >= {each["verdict"] for each in report["operators"]}


@pytest.mark.parametrize("is_with_model", [False, True], ids=["files", "model"])
def test_memory_that_nothing_reads(door, is_with_model):
    """Outputs of an optimizer that hold leftover memory are no fault; the variable that it writes is one."""
    step = str(door.folder / "step.onnx")
    cli("train-graph", LENET, "-o", step, "--optimizer", "adam:0.01")
    command = ["run", step, "--train", "--steps", "2", "--config", str(door.configure(naming="2.7"))]
    assert 0 == cli(*command).exit_code
    mine, options = door.path, ("--model", step) if is_with_model else ()
    golden = shutil.copytree(mine, door.folder / "copy")
    for path in mine.rglob("Adam.*.output.*.npy"):
        np.save(path, np.full_like(np.load(path), np.nan))

    assert 0 == document(mine, golden, *options)[0]

    (path,) = [each for each in mine.rglob("Adam.*Adam-op1.*.input.0.*.npy") if each.parent.name == "0"]
    np.save(path, np.load(path) * 1.02)
    _, report = document(mine, golden, *options)
    assert {"Adam-op1"} == {name.rpartition("/")[2] for name in faults(report)}


@pytest.mark.parametrize(("slot", "verdicts"), [(1, []), (2, []), (3, ["own"])])
def test_outputs_that_a_kernel_does_not_write(tmp_path, slot, verdicts):
    """Leftover memory in an output that the vendor's BatchNorm does not write accuses no operator."""
    mine, golden = (_normalized(tmp_path / name) for name in ("mine", "golden"))
    (path,) = mine.rglob(f"BatchNorm.*.output.{slot}.*.npy")
    np.save(path, np.load(path) + 7)
    if slot == 2:
        (reader,) = mine.rglob("BatchNormGrad.*.input.5.*.npy")
        np.save(reader, np.load(reader) + 7)

    _, report = document(mine, golden)

    assert verdicts == faults(report, "verdict")
    assert "healed" not in {each["verdict"] for each in report["operators"]}


def _normalized(root):
    """Write a dump of a vendor's batch normalization and its gradient; return its root."""
    files, graphs = root / "rank_0" / "Net" / "0" / "0", root / "rank_0" / "graphs"
    files.mkdir(parents=True)
    graphs.mkdir()
    image, row = "<Tensor[Float32], (2, 3)>", "<Tensor[Float32], (3)>"
    results = ", ".join([image, *[row] * 4])
    (graphs / "ms_output_trace_code_graph_0.ir").write_text(
        f"%para1_x: {image}  :  IsWeight: false\n%para2_g: {row}  :  IsWeight: true\n"
        "subgraph @kernel_graph0() {\n"
        "  %0(a) = PrimFunc_BatchNorm(%para1_x, %para2_g) primitive_attrs: {}\n"
        f"      : ({image}, {row}) -> (<Tuple[{results}]>)\n"
        "      # Fullname with scope: (Default/BatchNorm-op0)\n"
        + "".join(
            f"  %{place}(i) = TupleGetItem(%0, I64({slot}))\n"
            f"      : ({results}, Int64) -> ({row})\n"
            f"      # Fullname with scope: (Default/TupleGetItem-op{slot})\n"
            for place, slot in enumerate((3, 4, 2), 1)
        )
        + "  %4(b) = PrimFunc_BatchNormGrad(%para1_x, %para1_x, %para2_g, %1, %2, %3) primitive_attrs: {}\n"
        f"      : ({image}, {image}, {row}, {row}, {row}, {row}) -> ({image})\n"
        "      # Fullname with scope: (Default/BatchNormGrad-op0)\n"
        f"  Return(%4)\n      : ({image})\n}}\n"
    )
    draw = np.random.default_rng(0)
    x, y, g = draw.random((2, 3), "f4"), draw.random((2, 3), "f4"), draw.random(3, "f4")
    written = [y, *(draw.random(3, "f4") for _ in range(4))]
    operators = {
        "BatchNorm": ([x, g], written),
        "BatchNormGrad": ([x, x, g, written[3], written[4], written[2]], [draw.random((2, 3), "f4")]),
    }
    for time, (kind, sides) in enumerate(operators.items()):
        for side, tensors in zip(("input", "output"), sides, strict=True):
            for slot, tensor in enumerate(tensors):
                stem = f"{kind}.Default_{kind}-op0.0.0.170000000000000{time}.{side}.{slot}"
                np.save(files / f"{stem}.DefaultFormat.Float32.npy", tensor)
    return root


@pytest.mark.parametrize("value", [1.5, np.nan], ids=["numbers", "nan"])
def test_readers_of_one_wrong_file(door, value):
    """A single wrong output file accuses the operator that wrote it; with a model, too, no reader of it."""
    mine, golden = door.twice(LENET, FEEDS)
    path = only(mine, "ReLU.*ReLU-op0.*.output.0.*.npy")
    np.save(path, np.load(path) * value)

    for options in ((), ("--model", LENET)):
        assert ["ReLU-op0"] == [name for _, name in accused(mine, golden, *options)]


def quantized(kind):
    """Return a network that quantizes to an element type of four bits and back."""
    scale, zero = helper.make_tensor("s", FLOAT, [], [0.3]), helper.make_tensor("z", kind, [], [1])
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    network = model(nodes, [value("x", [3, 5])], ["y"], opset=21)
    network.graph.initializer.extend((scale, zero))
    return network


@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "O0"])
@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4], ids=["uint4", "int4"])
def test_type_without_a_number_in_dump_files(door, kind, context):
    """A dump file with DT_UNDEFINED is read in the element type of its counterpart."""
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 5)).astype("f4")}
    golden = door.aside("golden", quantized(kind), feeds, context=context)
    mine = door.aside("mine", quantized(kind), feeds, context=O2, file_format="bin")

    assert [] == [verdict for verdict, _ in accused(mine, golden) if verdict != "unchecked"]
    assert [] == [verdict for verdict, _ in accused(golden, mine) if verdict != "unchecked"]

    dumped = only(mine, "QuantizeLinear.*")
    contents = bytearray(dumped.read_bytes())
    contents[-1] ^= 0x07  # the last of fifteen elements stands in the lower half of the last byte
    dumped.write_bytes(contents)
    assert ("own", "QuantizeLinear-op0") in accused(mine, golden)


def cancelling(op_type, **weights):
    """Return a product, one column of which cancels nearly, and an operator that reads it."""
    columns = np.random.default_rng(1).standard_normal((64, 2)).astype("f4")
    row = np.random.default_rng(2).standard_normal((1, 64)).astype("f4")
    columns[:, 1] -= (row[0] * (row @ columns[:, 1:]).item() / (row @ row.T).item()).astype("f4")
    columns[:, 0] = 100 * np.sign(row[0])
    nodes = [
        node("MatMul", "x w", "y"),
        node(op_type, " ".join(("y", *weights)), "z", **FLAGS.get(op_type, {})),
    ]
    return model(nodes, [value("x", [1, 64])], ["z"], {"w": columns, **weights}), {"x": row}


FLAGS = {"Mod": {"fmod": 1}, "Gather": {"axis": 1}}
READERS = {
    "Slice": {"starts": np.array([1]), "ends": np.array([2]), "axes": np.array([1])},
    "Gather": {"indices": np.array([1])},
    "Mod": {"divisor": np.float32(3)},
}


@pytest.mark.parametrize("op_type", READERS)
def test_reader_of_a_small_part(door, op_type):
    """An operator that passes on a part of a tensor is not accused if the whole tensor agrees."""
    network, feeds = cancelling(op_type, **READERS[op_type])
    golden = door.aside("golden", network, feeds)
    door.dump(network, feeds, context=O0, precision_mode="force_fp16")

    assert [] == accused(door.path, golden)


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_optional_inputs_and_outputs_that_are_absent(door, file_format):
    """Absent tensors have no number in a compiled graph; tensors behind them are compared nevertheless."""
    normalize = node("SkipLayerNormalization", "x x g", "n", domain="com.microsoft")
    normalize.output.extend(("", "", "sum"))
    clip = helper.make_node("Clip", ["n", "", "most"], ["y"])
    weights = {"g": np.ones(4, "f4"), "most": np.float32(0.5)}
    network = model([normalize, clip], [value("x", [2, 3, 4])], ["y"], weights)
    network.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f4")}
    golden = door.aside("golden", network, feeds, context=O0)
    door.dump(network, feeds, context=O2, file_format=file_format)
    for dumps in ((door.path, golden), (golden, door.path)):
        code, told = document(*dumps)
        compared = {each["operator"]: each for each in told["operators"] if "op0" in each["operator"]}
        assert (0, "equal") == (code, told["verdict"])
        assert [["input", "input"], ["output"] * 2] == [
            [each["tensor"].partition(":")[0] for each in tensors]
            for tensors in (
                next(each["inputs"] for name, each in compared.items() if "Clip" in name),
                next(each["outputs"] for name, each in compared.items() if "Norm" in name),
            )
        ]

    limit = only(golden, "ClipByValue.*.input.2.*.npy")
    np.save(limit, np.float32(0.25))

    assert ["weight"] == [verdict for verdict, _ in accused(door.path, golden) if verdict != "unchecked"]


def layers(*, of_bits, wrong=1.0, of_channels=False):
    """Return three dense layers, in real numbers or as quantised ones between their tensors."""
    draw = np.random.default_rng(4)
    arrays, nodes, value = {}, [], "x"

    def handed_on(name, scale, zero):
        """Quantise a tensor and make real numbers of it again."""
        arrays.update({f"{name}_s": np.float32(scale), f"{name}_z": np.array(zero, np.uint8)})
        given = f"{name} {name}_s {name}_z"
        nodes.append(node("QuantizeLinear", given, f"{name}_q", f"{name}_q"))
        nodes.append(node("DequantizeLinear", f"{name}_q {name}_s {name}_z", f"{name}_d", f"{name}_d"))
        return f"{name}_d"

    for layer in range(3):
        weight, name = draw.uniform(-0.3, 0.3, (32, 32)).astype("f4"), f"w{layer}"
        if of_bits:
            value = handed_on(value, 3 / 127, 128)
            scale = (np.abs(weight).max(0) if of_channels else np.float32(0.3)) / np.float32(127)
            arrays |= {f"{name}_q": np.round(weight / scale).astype(np.int8)}
            arrays |= {f"{name}_s": scale * np.float32(wrong if layer == 1 else 1)}
            nodes.append(node("DequantizeLinear", f"{name}_q {name}_s", name, f"{name}_d", axis=1))
        else:
            arrays[name] = weight
        nodes.append(node("MatMul", f"{value} {name}", f"m{layer}", f"m{layer}"))
        nodes.append(node("Tanh", f"m{layer}", f"a{layer}", f"a{layer}"))
        value = f"a{layer}"
    output = handed_on(value, 1 / 127, 128) if of_bits else value
    return model(nodes, [helper.make_tensor_value_info("x", 1, [8, 32])], [output], arrays, opset=13)


def scaled_products(wrong):
    """Return two products of integers, each scaled by the scales of its input and its weight."""
    arrays, nodes, value = {}, [], "x"
    for layer, weight in enumerate(np.random.default_rng(4).uniform(-0.3, 0.3, (2, 32, 32)).astype("f4")):
        read, scaled = f"q{layer} w{layer} z{layer} wz", f"s{layer} ws{layer}"
        arrays |= {f"w{layer}": np.round(weight / (0.3 / 127)).astype(np.int8)}
        arrays |= {f"ws{layer}": np.float32(0.3 / 127 * (wrong if layer else 1)), "wz": np.int8(0)}
        nodes += [
            node("DynamicQuantizeLinear", value, f"q{layer} s{layer} z{layer}"),
            node("MatMulInteger", read, f"i{layer}", f"product{layer}"),
            node("Cast", f"i{layer}", f"f{layer}", to=FLOAT),
            node("Mul", scaled, f"scale{layer}", f"scale{layer}"),
            node("Mul", f"f{layer} scale{layer}", f"m{layer}", f"scaled{layer}"),
            node("Tanh", f"m{layer}", f"a{layer}", f"a{layer}"),
        ]
        value = f"a{layer}"
    return model(nodes, [helper.make_tensor_value_info("x", 1, [8, 32])], [value], arrays, opset=13)


def products():
    """Return two products of real numbers."""
    draw = np.random.default_rng(4).uniform(-0.3, 0.3, (2, 32, 32)).astype("f4")
    nodes = [node("MatMul", "x w0", "m0"), node("Tanh", "m0", "a0"), node("MatMul", "a0 w1", "m1")]
    given = [helper.make_tensor_value_info("x", 1, [8, 32])]
    weights = {"w0": draw[0], "w1": draw[1]}
    return model([*nodes, node("Tanh", "m1", "a1")], given, ["a1"], weights, opset=13)


PER_CHANNEL = "the weights of mine are quantised per channel, golden's per tensor: "
QUANTISED = {
    "beside real numbers": (partial(layers, of_bits=False), partial(layers, of_bits=True), "w1_d", ""),
    "scales of channels beside scales of tensors": (
        *(partial(layers, of_bits=True), partial(layers, of_bits=True, of_channels=True)),
        *("w1_d", PER_CHANNEL),
    ),
    "products of integers beside real numbers": (products, scaled_products, "scaled1", ""),
}
"""Networks of golden and of mine, the operator with a wrong scale, and the sentence about widened limits."""


@pytest.mark.parametrize("is_with_model", [False, True], ids=["files", "model"])
@pytest.mark.parametrize("wrong", [1.0, 1.5], ids=["sound", "a wrong scale"])
@pytest.mark.parametrize(("golden", "mine", "name", "widened"), QUANTISED.values(), ids=QUANTISED)
def test_quantised_networks(door, golden, mine, name, widened, wrong, is_with_model):
    """A wrong scale is named; tensors between are compared where real numbers are made of them again."""
    feeds = {"x": np.random.default_rng(1).uniform(-3, 3, (8, 32)).astype("f4")}
    golden = door.aside("golden", golden(), feeds)
    mine = door.aside("mine", mine(wrong=wrong), feeds)
    options = ("--model", f"{golden}.onnx") if is_with_model else ()

    code, report = document(mine, golden, *options)

    expected = [name] * (wrong != 1)
    assert (expected, int(bool(expected))) == (faults(report, "onnx_name"), code)
    assert report.get("widened", "").startswith(widened)
