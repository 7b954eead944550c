"""``msdump compare --model``: each operator runs again, and operators with own errors are named."""

import re

import numpy as np
import onnx
import pytest

from tests.dump import nets
from tests.dump.compared import accused, command, document, faults
from tests.texts import parsed
from tests.world import CPU, GRAPHS, O0, O1, O2, cli, opened

pytestmark = pytest.mark.usefixtures("quiet")

TOKENS = np.arange(16).reshape(2, 8)
FEEDS = {
    "lenet": {"x": np.random.default_rng(7).standard_normal((1, 1, 32, 32)).astype("f4")},
    "transformer": {"input_ids": TOKENS, "attention_mask": TOKENS % 8 // 5, "token_type_ids": TOKENS % 2},
}
MODES = {
    "cpu": {},
    "o0": {"context": O0},
    "o0-device": {"context": O0, "enable": False, "trans_flag": False},
    "o0-force": {"context": O0, "precision_mode": "force_fp16"},
    "o1": {"context": O1},
    "o2-npy": {"context": O2, "file_format": "npy"},
    "o2-bin": {"context": O2, "file_format": "bin"},
}


def operators(mine, golden, model):
    """Return the operators that are accused by the model."""
    return [each for each in accused(mine, golden, "--model", model) if each[0] != "unchecked"]


def epsilon(value):
    """Return a transformer with another epsilon of a normalization, and the normalization's name."""
    model = onnx.load(GRAPHS / "transformer.onnx")
    norm = [each for each in model.graph.node if each.op_type == "LayerNormalization"][1]
    next(each for each in norm.attribute if each.name == "epsilon").f = value
    return model, norm.name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["lenet", "transformer"])
def test_no_sound_operator_is_accused(door, name, mode):
    """A network on another device, in another arithmetic and in other formats has no fault."""
    model = GRAPHS / f"{name}.onnx"
    golden = door.aside("golden", model, FEEDS[name])
    mine = door.aside("mine", model, FEEDS[name], **MODES[mode])
    assert [] == operators(mine, golden, model)


def test_a_folded_constant_is_told_by_its_weights(door):
    """The reader of a constant that the compiler made of a wrong weight is named, with the weight."""
    draw = np.random.default_rng(0)
    arrays = {"table": draw.standard_normal((9, 8), np.float32), "rows": np.arange(8)[::-1].copy()}
    sound = parsed(
        """graph (float[4,8] x) => (y) {
            c = Tanh(x)
            g = Gather(table, rows)
            t = Transpose(g)
            p = MatMul(c, t)
            y = Softmax(p)
        }""",
        **arrays,
    )
    wrong = nets.with_weight(sound, "table", lambda array: array * np.float32(1.01))
    feeds = {"x": draw.standard_normal((4, 8), np.float32)}
    golden, mine = door.aside("golden", sound, feeds), door.aside("mine", wrong, feeds, **MODES["o2-bin"])

    _, told = document(mine, golden, "--model", f"{golden}.onnx")

    assert ["weight"] == faults(told, "verdict")
    assert ["(folded of table)" in note for note in faults(told, "note")] == [True]


def test_operators_of_compiled_graphs_have_the_names_of_nodes(door):
    """Operators of a compiled graph have the names of the model's nodes; inserted ones have none."""
    model = GRAPHS / "transformer.onnx"
    golden = door.aside("golden", model, FEEDS["transformer"])
    mine = door.aside("mine", model, FEEDS["transformer"], **MODES["o2-npy"])

    _, told = document(mine, golden, "--model", model)

    names = {each["operator"]: each.get("onnx_name") for each in told["operators"]}
    assert "Cast_node_1+Sub_node_2+Mul_node_3" == names["Default/Cast-op0Sub-op0Mul-op0"]
    inserted = [name for operator, name in names.items() if operator.startswith("trans_")]
    assert inserted
    assert {None} == {*inserted}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "mini"], "is not the model of the dump"),
        (["--model", "lenet", "--arithmetic", "float64"], "the variant must be CPU, GPU or Ascend"),
    ],
)
def test_what_cannot_run_again_is_told(door, options, message):
    """Another network's model, and another arithmetic are refused."""
    mine, golden = door.twice(GRAPHS / "lenet.onnx", FEEDS["lenet"])
    options = [GRAPHS / f"{each}.onnx" if each in {"mini", "lenet"} else each for each in options]
    done = command(mine, golden, *options)
    assert 2 == done.exit_code
    assert message in done.output


def train(door, step, *, context=CPU, **settings):
    """Dump two training steps; return the dump."""
    device = [text for key, item in context.items() for text in (f"--{key.replace('_', '-')}", item)]
    options = ["--train", "--steps", "2", "--config", door.configure(**settings)]
    assert 0 == cli("run", step, *options, *device).exit_code
    return door.path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the graph of a training step, and a dump of two steps on the CPU."""
    folder = tmp_path_factory.mktemp("trained")
    step = folder / "step.onnx"
    options = ["--optimizer", "adam:0.01,eps=1e-3"]  # float16 rounds Adam's own epsilon to zero
    assert 0 == cli("train-graph", GRAPHS / "lenet.onnx", "-o", step, *options).exit_code
    with opened(folder) as door:
        return step, train(door, step)


@pytest.mark.parametrize("mode", MODES)
def test_training_steps_run_again(door, trained, mode):
    """Operators that write variables in place run again on the values that these had before."""
    step, golden = trained
    assert [] == operators(train(door, step, **MODES[mode]), golden, step)


@pytest.mark.parametrize("mode", MODES)
def test_absent_inputs_keep_their_places(door, mode):
    """Inputs behind an absent optional one are compared with the model's."""
    draw = np.random.default_rng(3)
    shapes = {"w": (1, 12, 4), "r": (1, 12, 3), "b": (1, 24)}
    arrays = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    lstm = [nets.node("Tanh", "h", "t"), nets.node("LSTM", "x w r b - t c", "y", hidden_size=3)]
    inputs = {"x": [5, 2, 4], "h": [1, 2, 3], "c": [1, 2, 3]}
    model = nets.model(lstm, [nets.value(*each) for each in inputs.items()], ["y"], arrays)
    feeds = {name: draw.standard_normal(shape, np.float32) for name, shape in inputs.items()}
    golden, mine = door.aside("golden", model, feeds), door.aside("mine", model, feeds, **MODES[mode])
    assert [] == operators(mine, golden, f"{golden}.onnx")


SPLIT = [
    nets.node("Gemm", "x w b", "g"),
    nets.node("Relu", "g", "r"),
    nets.node("MatMul", "r v", "m"),
    nets.node("Softmax", "m", "s"),
    nets.node("Reshape", "s shape", "t"),
    nets.node("MatMul", "t u", "y"),
]


@pytest.mark.parametrize(
    ("expected", "place", "changed"),
    [
        (["MatMul-op0"], 2, [nets.node("MatMul", "g v", "m")]),
        (["Neg-op0"], 4, [nets.node("Neg", "s", "n"), nets.node("Reshape", "n shape", "t")]),
    ],
    ids=["a reader of what a kernel holds", "an operator too many"],
)
@pytest.mark.parametrize("mode", ["cpu", "o1", "o2-npy", "o2-bin"])
def test_what_kernels_hide_is_named(door, mode, expected, place, changed):
    """A reader that splits a kernel, and an operator before one that is no task, are accused alone."""
    draw = np.random.default_rng(5)
    shapes = {"w": (16, 16), "b": (16,), "v": (16, 16), "u": (32, 8)}
    arrays = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    arrays["shape"] = np.array([2, 32])
    nodes = [*SPLIT[:place], *changed, *SPLIT[place + 1 :]]
    sound, wrong = (nets.model(each, [nets.value("x", [4, 16])], ["y"], arrays) for each in (SPLIT, nodes))
    feeds = {"x": draw.standard_normal((4, 16), np.float32)}
    golden, mine = door.aside("golden", sound, feeds), door.aside("mine", wrong, feeds, **MODES[mode])

    _, told = document(mine, golden, "--model", f"{golden}.onnx")

    assert expected == [re.split("[/_]", name)[-1] for name in faults(told)]


def layers(*, is_other):
    """Return two dense layers and a normalization, as one exporter writes them or another one."""
    draw = np.random.default_rng(11)
    arrays = {f"{name}{layer}": draw.standard_normal(shape, np.float32) / 4
              for layer in range(3) for name, shape in (("w", (16, 16)), ("b", (16,)))}  # fmt: skip
    arrays |= {"scale": np.ones(16, np.float32), "bias": np.zeros(16, np.float32)}
    nodes, value = [], "x"
    for layer, activation in enumerate(("Relu", "Tanh", "Sigmoid")):
        if is_other:
            nodes += [nets.node("Gemm", f"{value} w{layer} b{layer}", f"g{layer}", f"/net/{layer}/Gemm")]
        else:
            nodes += [nets.node("MatMul", f"{value} w{layer}", f"m{layer}", f"node_linear_{layer}")]
            nodes += [nets.node("Add", f"b{layer} m{layer}", f"g{layer}", f"node_add_{layer}")]
        name = f"/net/{layer}/act" if is_other else f"node_{activation.lower()}"
        value = f"a{layer}"
        nodes += [nets.node(activation, f"g{layer}", value, name)]
    nodes += [nets.node("LayerNormalization", f"{value} scale bias", "y", "/net/ln" if is_other else "ln")]
    return nets.model(nodes, [nets.value("x", [4, 16])], ["y"], arrays, opset=18)


@pytest.mark.parametrize("fault", ["", "weight", "own"])
def test_another_exporters_dump_is_judged_by_the_model(door, fault):
    """A dump with other operator names and groups is paired with the model, and its fault alone is named."""
    feeds = {"x": np.random.default_rng(2).standard_normal((4, 16), np.float32)}
    golden, wrong = door.aside("golden", layers(is_other=False), feeds), layers(is_other=True)
    if fault == "weight":
        wrong = nets.with_weight(wrong, "w1", lambda array: array * np.float32(1.2))
    if fault == "own":
        wrong.graph.node[-1].attribute.append(onnx.helper.make_attribute("epsilon", 0.5))
    mine = door.aside("mine", wrong, feeds)

    assert [fault] * bool(fault) == [each[0] for each in operators(mine, golden, f"{golden}.onnx")]
