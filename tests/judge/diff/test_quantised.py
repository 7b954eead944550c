"""``msdump diff`` of a quantised model beside its original: sound ones agree, wrong layers are named."""

from __future__ import annotations

import functools
import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from msdump.capture import Process
from msdump.cli import main
from msdump.frontends import mindspore
from scripts.faults.networks import network
from tests.texts import parsed
from tests.world import common_settings

FORMS = {"qdq": quantization.QuantFormat.QDQ, "operators": quantization.QuantFormat.QOperator}
LAYERS = ("first", "second", "third")
NAMES = {
    "qdq": [f"Default/Conv2D-op{number}" for number in range(3)],
    "operators": [f"Default/QLinearConv-op{number}" for number in range(3)],
    "dynamic": ["Default/first/Add-op0", "Default/second/Add-op0", "Default/Add-op0"],
}
"""The operators that give the result of each layer."""


class Samples(quantization.CalibrationDataReader):
    """The inputs that ranges are measured by."""

    def __init__(self):
        """Make up four inputs."""
        rng = np.random.default_rng(1)
        self.left = [{"x": rng.standard_normal((1, 4, 12, 12)).astype(np.float32)} for _ in range(4)]

    def get_next(self):
        """Return the next input, None behind the last one."""
        return self.left.pop() if self.left else None


def original():
    """Return a network of three convolutions with a residual connection."""
    rng = np.random.default_rng(2)
    weights = {f"{name}.w": (rng.standard_normal((4, 4, 3, 3)) / 6).astype(np.float32) for name in LAYERS} | {
        f"{name}.b": (rng.standard_normal(4) / 8).astype(np.float32) for name in LAYERS
    }
    pads = "<pads = [1, 1, 1, 1]>"
    text = f"""g (float[1,4,12,12] x) => (y) {{
        [first] a = Conv{pads}(x, "first.w", "first.b") ["first/relu"] b = Relu(a)
        [second] c = Conv{pads}(b, "second.w", "second.b") ["second/relu"] d = Relu(c)
        [third] e = Conv{pads}(d, "third.w", "third.b") [sum] y = Add(e, b)
    }}"""
    return parsed(text, **weights)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """Return the folder of the original, and of its quantised forms: static twice, and dynamic."""
    folder = tmp_path_factory.mktemp("quantised")
    onnx.save(onnx.shape_inference.infer_shapes(original()), folder / "float.onnx")
    for name, form in FORMS.items():
        quantization.quantize_static(
            folder / "float.onnx", folder / f"{name}.onnx", Samples(), quant_format=form
        )
    quantization.quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx")
    return folder


def changed(model, name, factor, summand=0):
    """Multiply an initializer, and add to it; return the model."""
    (tensor,) = [each for each in model.graph.initializer if each.name == name]
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * factor + summand).astype(array.dtype), name))
    return model


def diff(mine, golden, *options):
    """Return the exit code, the document and the messages."""
    done = CliRunner().invoke(main, ["diff", str(mine), str(golden), "--json", "--seed", "3", *options])
    return done.exit_code, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("level", ["CPU", "Ascend:O2"])
@pytest.mark.parametrize("form", ["qdq", "operators", "dynamic"])
def test_sound_quantisation_agrees(form, level, quantised):
    """Errors of 8 bits are no fault, the limit is named, and quantised results are compared."""
    code, document, _ = diff(quantised / f"{form}.onnx", quantised / "float.onnx", "--mine", level)

    verdicts = {each["operator"]: each["verdict"] for each in document["operators"]}
    assert (0, "agrees", [], []) == (code, document["verdict"], document["accused"], document["facts"])
    assert document["widened"].startswith(
        "one model is quantised: the limit of the relative distance is 0.0625"
    )
    assert 3 <= sum(verdict == "agrees" for verdict in verdicts.values())
    assert "missing" not in verdicts.values()


@pytest.mark.parametrize("form", ["qdq", "operators", "dynamic"])
@pytest.mark.parametrize("layer", LAYERS)
def test_wrong_scale_is_named(form, layer, quantised, tmp_path):
    """A layer with a scale off by four is the first one accused, however the model is quantised."""
    model = changed(onnx.load(quantised / f"{form}.onnx"), f"{layer}.w_scale", 4)
    onnx.save(model, tmp_path / "wrong.onnx")

    code, document, _ = diff(tmp_path / "wrong.onnx", quantised / "float.onnx")

    assert (1, NAMES[form][LAYERS.index(layer)]) == (code, document["accused"][0])


ACTIVATIONS = {
    "scale of the input": ("x_scale", 6, 0, 0),
    "short scale of the input": ("x_scale", 0.2, 0, 0),
    "zero point of the input": ("x_zero_point", 1, 60, 0),
    "scale behind a clamp": ("b_scale", 6, 0, 1),
    "zero point of a sum's input": ("e_zero_point", 1, -60, 3),
}
"""Changes of a tensor's quantisation: a factor, a summand, and the number of the wrong operator."""


@pytest.mark.parametrize(("name", "factor", "summand", "number"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_wrong_range_of_a_tensor_is_named(name, factor, summand, number, quantised, tmp_path):
    """A scale or zero point that does not fit the range of its tensor is named, and no other."""
    model = changed(onnx.load(quantised / "qdq.onnx"), name, factor, summand)
    onnx.save(model, tmp_path / "wrong.onnx")

    code, document, _ = diff(tmp_path / "wrong.onnx", quantised / "float.onnx")

    assert (1, [f"Default/QuantizeLinear-op{number}"]) == (code, document["accused"])


EXPLANATIONS = {
    "8 bits": ((), "own error 3.1 in float32, the limit of 8 bits is 0.062"),
    "distance": (("--distance", "0.1"), "own error 3.1 in float32, the given limit is 0.1"),
    "precision": (("--precision", "bfloat16"), "own error 3.1 in float32, the limit of rounding is 0.016"),
}


@pytest.mark.parametrize(("options", "words"), EXPLANATIONS.values(), ids=EXPLANATIONS)
def test_what_explains_a_distance_is_told(options, words, quantised, tmp_path):
    """The fault's note says whether 8 bits, the user's limit or rounding would explain its error."""
    model = changed(onnx.load(quantised / "qdq.onnx"), "second.w_scale", 4)
    onnx.save(model, tmp_path / "wrong.onnx")

    arguments = ["diff", f"{tmp_path}/wrong.onnx", f"{quantised}/float.onnx", "--seed", "3", *options]
    done = CliRunner().invoke(main, arguments)

    assert f"fault     Default/Conv2D-op1 (Conv2D): own, {words}" in done.stdout.splitlines()


def test_result_is_read_with_another_zero_point(quantised, tmp_path):
    """An operator that decodes its input by another zero point than the writer's is named."""
    model = onnx.load(quantised / "operators.onnx")
    (reader,) = [node for node in model.graph.node if node.op_type == "QLinearConv" and "third" in node.name]
    (zero,) = [each for each in model.graph.initializer if each.name == reader.input[2]]
    moved = numpy_helper.to_array(zero).astype(np.int32) + 40
    off = numpy_helper.from_array(moved.astype(numpy_helper.to_array(zero).dtype), "off")
    model.graph.initializer.append(off)
    reader.input[2] = "off"
    onnx.save(model, tmp_path / "wrong.onnx")

    code, document, _ = diff(tmp_path / "wrong.onnx", quantised / "float.onnx")

    assert (1, "Default/QLinearConv-op2") == (code, document["first"])


def test_two_quantised_models_are_compared_bit_by_bit(quantised, tmp_path):
    """Beside another quantised model no limit is widened, and no scale is judged by the range of a tensor."""
    model = changed(onnx.load(quantised / "qdq.onnx"), "x_scale", 6)
    onnx.save(model, tmp_path / "coarse.onnx")

    for path in (quantised / "operators.onnx", tmp_path / "coarse.onnx"):
        assert (0, "equal", "") == (diff(path, path)[0], diff(path, path)[1]["verdict"], diff(path, path)[2])


def test_steps_of_integers_explain_what_the_network_returns(tmp_path):
    """Where elements fall to the next integer, outputs lie as far off as that explains, and agree."""
    net = network("quantised")
    onnx.save(net.model, tmp_path / "net.onnx")
    np.savez(tmp_path / "inputs.npz", **net.feeds)

    arguments = ["diff", f"{tmp_path}/net.onnx", "--inputs", f"{tmp_path}/inputs.npz", "--json"]
    done = CliRunner().invoke(main, arguments)

    assert (0, "agrees") == (done.exit_code, json.loads(done.stdout)["verdict"])


def test_rounding_of_a_weight_is_no_error_of_the_operator_that_sums_it_up(tmp_path):
    """Sums that cancel enlarge the rounding of weights to 8 bits."""
    rng = np.random.default_rng(4)
    part = rng.standard_normal((64, 16)).astype(np.float32)
    weight = np.concatenate([part, 0.1 * rng.standard_normal((64, 16)).astype(np.float32) - part])
    text = "g (float[1,64] x) => (float[1,16] y) { t = Concat <axis = 1> (x, x) [product] y = MatMul(t, w) }"
    onnx.save(parsed(text, w=weight), tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
    model = onnx.load(tmp_path / "dynamic.onnx")
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    text = text.replace("[product]", "v = DequantizeLinear(q, s, z) [product]").replace("(t, w)", "(t, v)")
    given = {
        name: stored[f"w_{kind}"]
        for name, kind in zip("qsz", ("quantized", "scale", "zero_point"), strict=True)
    }
    onnx.save(parsed(text, **given), tmp_path / "int8.onnx")

    for name in ("dynamic", "int8"):
        _, document, _ = diff(tmp_path / f"{name}.onnx", tmp_path / "float.onnx")
        assert ([], []) == (document["accused"], document["facts"]), name


@pytest.mark.parametrize("factor", [4, 1.3, 0.8])
@pytest.mark.parametrize(("name", "number"), [("x", 6), ("b", 7), ("d", 8)])
def test_a_tensor_is_read_with_the_scale_that_it_was_written_with(name, number, factor, quantised, tmp_path):
    """A DequantizeLinear with another scale than its QuantizeLinear is named, and nothing else."""
    model = onnx.load(quantised / "qdq.onnx")
    (reader,) = [node for node in model.graph.node if node.name == f"{name}_DequantizeLinear"]
    (scale,) = [each for each in model.graph.initializer if each.name == reader.input[1]]
    off = numpy_helper.to_array(scale) * np.float32(factor)
    model.graph.initializer.append(numpy_helper.from_array(off, "off"))
    reader.input[1] = "off"
    onnx.save(model, tmp_path / "wrong.onnx")

    code, document, _ = diff(tmp_path / "wrong.onnx", quantised / "float.onnx")

    (accused,) = [each for each in document["operators"] if each["verdict"] == "own"]
    assert (1, f"Default/DequantizeLinear-op{number}") == (code, accused["operator"])
    assert "wrote with" in accused["note"]


def test_scales_of_channels_beside_scales_of_weights(quantised, tmp_path):
    """Two sound forms of one model differ by the steps of 8 bits, and a sentence says why."""
    form = quantization.QuantFormat.QDQ
    path = tmp_path / "channels.onnx"
    quantization.quantize_static(
        quantised / "float.onnx", path, Samples(), quant_format=form, per_channel=True
    )

    code, document, _ = diff(quantised / "qdq.onnx", path)

    assert (0, "agrees", []) == (code, document["verdict"], document["accused"])
    assert document["widened"].startswith(
        "the weights of mine are quantised per tensor, golden's per channel:"
    )


@pytest.mark.parametrize("golden", ["qdq", "float"])
def test_what_onnxruntime_fuses_agrees_at_its_borders(golden, quantised):
    """Pairs of quantised operators inside of a fused kernel accuse nothing."""
    code, document, _ = diff(quantised / "qdq.onnx", quantised / f"{golden}.onnx", "--mine", "onnxruntime")

    assert (0, []) == (code, document["accused"])


def save_four_bits(folder, form, factor):
    """Save two products, and their form with 4 bits; the scales of the second one are multiplied."""
    rng = np.random.default_rng(5)
    weights = {"w0": rng.standard_normal((64, 64)) / 8, "w1": rng.standard_normal((64, 32)) / 8}
    body = "a = MatMul(x, w0) b = Relu(a) c = Neg(b) d = Neg(c) y = MatMul(d, w1)"
    text = f"g (float[4,64] x) => (float[4,32] y) {{ {body} }}"
    model = parsed(text, **{name: array.astype(np.float32) for name, array in weights.items()})
    onnx.save(model, folder / "float.onnx")
    quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, quant_format=form)
    quantizer.process()
    made = quantizer.model.model
    (scales,) = [
        each.name for each in made.graph.initializer if "scale" in each.name and each.name.startswith("w1")
    ]
    onnx.save(changed(made, scales, np.float32(factor)), folder / "four.onnx")


FOUR_BITS = {"sound": (1.0, []), "by a fifth": (1.2, ["op1"]), "twice": (2.0, ["op1"])}


@pytest.mark.parametrize(("factor", "expected"), FOUR_BITS.values(), ids=FOUR_BITS)
@pytest.mark.parametrize("form", quantization.QuantFormat)
def test_weights_of_four_bits(form, factor, expected, tmp_path):
    """Rounding to 4 bits is no fault, and a wrong scale of one layer is named."""
    save_four_bits(tmp_path, form, factor)

    code, document, _ = diff(tmp_path / "four.onnx", tmp_path / "float.onnx")

    assert "the limit of the relative distance is 0.5" in document["widened"]
    assert (bool(expected), expected) == (bool(code), [each[-3:] for each in document["accused"]])


PACKED_BITS = {"sound": (1.0, []), "twice": (2.0, ["MatMulNBits-op1"])}


@pytest.mark.parametrize(("factor", "expected"), PACKED_BITS.values(), ids=PACKED_BITS)
@pytest.mark.parametrize("has_model", [False, True])
def test_files_of_packed_weights(has_model, factor, expected, accused, tmp_path):
    """Files of a model with packed weights agree with the original's; a wrong scale of a layer is named."""
    save_four_bits(tmp_path, quantization.QuantFormat.QOperator, factor)

    options = ["--model", f"{tmp_path}/float.onnx"] if has_model else []
    assert expected == accused(tmp_path, "four", *options)


WRONG_SCALES = {
    "sound": (1, 0, []),
    "scale": (1.5, 0, ["DequantizeLinear"]),
    "zero point": (1, 9, ["DequantizeLinear"]),
}


@pytest.mark.parametrize(("factor", "summand", "expected"), WRONG_SCALES.values(), ids=WRONG_SCALES)
def test_files_of_unlike_scales(factor, summand, expected, accused, quantised, tmp_path):
    """Files of a model with an operator that reads integers by a wrong scale name it beside the original."""
    model = onnx.load(quantised / "qdq.onnx")
    reader = next(each for each in model.graph.node if each.output[0] == "b_DequantizeLinear_Output")
    slot = 2 if summand else 1
    own = next(each for each in model.graph.initializer if each.name == reader.input[slot])
    array = numpy_helper.to_array(own) * factor + summand
    model.graph.initializer.append(
        numpy_helper.from_array(array.astype(numpy_helper.to_array(own).dtype), "own")
    )
    reader.input[slot] = "own"
    onnx.save(model, tmp_path / "mine.onnx")
    onnx.save(onnx.load(quantised / "float.onnx"), tmp_path / "float.onnx")

    assert expected == [each.partition("-")[0] for each in accused(tmp_path, "mine")]


@pytest.fixture
def accused(monkeypatch):
    """Return a function that dumps a model and float.onnx and returns the accused operators."""
    return functools.partial(dump_and_compare, monkeypatch)


def dump_and_compare(monkeypatch, folder, mine, *options):
    """Dump a model and float.onnx on the same inputs; return the operators that ``compare`` accuses."""
    for name in (mine, "float"):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))  # iterations from 0
        common = common_settings(f"{folder}/{name}", iteration="all")
        config = folder / f"{name}.json"
        blocks = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
        config.write_text(json.dumps(blocks))
        line = ["run", f"{folder}/{name}.onnx", "--config", str(config), "--seed", "3"]
        done = CliRunner().invoke(main, line)
        assert 0 == done.exit_code, done.output
    line = ["compare", f"{folder}/{mine}", f"{folder}/float", "-out", str(folder), "--json", *options]
    done = CliRunner().invoke(main, line)
    found = json.loads(done.stdout)["accused"]
    return [each.rpartition("/")[2] for each in found]


def test_a_result_near_zero_is_rounded_to_it(tmp_path):
    """Numbers below the smallest of float32 have no relative error: the kernel gives the same again."""
    text = "g (float[8,8] x) => (float[8,8] y) { a = Neg(x) y = Sigmoid(a) }"
    onnx.save(parsed(text), tmp_path / "net.onnx")
    np.savez(tmp_path / "inputs.npz", x=np.linspace(88, 125, 64, dtype=np.float32).reshape(8, 8))

    arguments = ["diff", f"{tmp_path}/net.onnx", "--mine", "CPU", "--golden", "float64", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--inputs", f"{tmp_path}/inputs.npz"])

    assert [] == json.loads(done.stdout)["accused"]
