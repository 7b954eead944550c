"""Trees of msprobe as golden: modules, calls and weights are paired, or listed with their reason."""

from __future__ import annotations

import json
import shutil

import hypothesis
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import msdump
from msdump.cli import main
from msdump.read import CallName, parse_name

X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
W = {
    "q.weight": np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32),
    "q.bias": np.random.default_rng(2).normal(size=5).astype(np.float32),
    "fc.weight": np.random.default_rng(3).normal(size=(5, 5)).astype(np.float32),
    "fc.bias": np.random.default_rng(4).normal(size=5).astype(np.float32),
}
LINEAR, NET = "torch.nn.modules.linear.Linear", "__main__.Net"

NODES = {  # name: type, inputs, output, module
    "q_matmul": ("MatMul", ["x", "val_q"], "val_0", "q"),
    "q_add": ("Add", ["val_0", "q.bias"], "linear", "q"),
    "relu": ("Relu", ["linear"], "relu", ""),
    "fc_0": ("Gemm", ["relu", "fc.weight", "fc.bias"], "linear_1", "fc"),
    "add": ("Add", ["relu", "linear_1"], "add", ""),
    "tanh": ("Tanh", ["add"], "tanh", ""),
    "fc_1": ("Gemm", ["tanh", "fc.weight", "fc.bias"], "linear_2", "fc"),
}


def model(changes=None, more=None, **weights):
    """Return the export of a network that calls ``fc`` twice; a node without a type is left out.

    More nodes stand before ``relu``, or behind it if they read its result.
    """
    names = [*NODES]
    at = names.index("relu") + any("relu" in reads for _, reads, _, _ in (more or {}).values())
    nodes_of = {name: NODES[name] for name in names[:at]} | (more or {}) | NODES | (changes or {})
    held = {
        "val_q": np.ascontiguousarray(W["q.weight"].T),
        **{name: array for name, array in W.items() if name != "q.weight"},
        **weights,
    }
    nodes, renamed = [], {}
    for name, (op_type, reads, output, module) in nodes_of.items():
        if not op_type:
            renamed[output] = reads[-1]
            continue
        given = [renamed.get(each, each) for each in reads]
        turned = {"transB": 1, "transA": int(given[0] == "turned")} if op_type == "Gemm" else {}
        node = helper.make_node(op_type, given, [output], name=name, **turned)
        scopes = ["", *([module] if module else []), output]
        classes = [NET, *([LINEAR] if module else []), "aten.op.default"]
        for key, value in (("name_scopes", scopes), ("class_hierarchy", classes)):
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=str(value))
        nodes.append(node)
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", floats, [2, 4])],
        [helper.make_tensor_value_info("linear_2", floats, [2, 5])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def golden(dtype=np.float32, kind="relu", gain=None, between=lambda relu: ({}, relu)):
    """Return the tensors of the tree: ``{name: (inputs, outputs, parameters)}``.

    Args:
        dtype: The type that the tensors are rounded to.
        kind: The function in the place of ``relu``, which computes the same.
        gain: A parameter of ``q``, whose exponential its result is multiplied with.
        between: Returns more calls between ``relu`` and ``fc``, and what ``fc`` reads.
    """

    def linear(array, layer):
        return (array @ W[f"{layer}.weight"].T + W[f"{layer}.bias"]).astype(np.float32)

    def held(layer):
        return {each: W[f"{layer}.{each}"] for each in ("weight", "bias")}

    plain = q = linear(X, "q")
    gains = {}
    if gain is not None:
        q, gains = plain * np.exp(gain), {"gain": gain}
    relu = np.maximum(q, 0)
    inner, read = between(relu)
    first = linear(read, "fc")
    total = relu + first
    bent = np.tanh(total)
    second = linear(bent, "fc")
    calls = {
        "Functional.linear.0.forward": ([X, *held("q").values()], [plain], {}),
        "Module.q.Linear.forward.0": ([X], [q], held("q") | gains),
        f"Functional.{kind}.0.forward": ([q], [relu], {}),
        **inner,
        "Functional.linear.1.forward": ([read, *held("fc").values()], [first], {}),
        "Module.fc.Linear.forward.0": ([read], [first], held("fc")),
        "Tensor.__add__.0.forward": ([relu, first], [total], {}),
        "Torch.tanh.0.forward": ([total], [bent], {}),
        "Functional.linear.2.forward": ([bent, *held("fc").values()], [second], {}),
        "Module.fc.Linear.forward.1": ([bent], [second], held("fc")),
    }
    return {
        name: (
            [each.astype(dtype) for each in inputs],
            [each.astype(dtype) for each in outputs],
            {each: array.astype(dtype) for each, array in parameters.items()},
        )
        for name, (inputs, outputs, parameters) in calls.items()
    }


PARENTS = {
    "Functional.linear.0.forward": "Module.q.Linear.forward.0",
    "Functional.linear.1.forward": "Module.fc.Linear.forward.0",
    "Functional.linear.2.forward": "Module.fc.Linear.forward.1",
}


def write_tree(process, calls, *, saves=True, has_index=True, has_parents=True):
    """Write the tree of one process in one step."""
    folder = process / "dump_tensor_data"
    folder.mkdir(parents=True)

    def tensor(name, array):
        if saves:
            np.save(folder / f"{name}.npy", array)
        wide = array.astype(np.float64)
        numbers = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": np.linalg.norm(wide)}
        return {
            "type": "torch.Tensor",
            "dtype": f"torch.{array.dtype}",
            "shape": list(array.shape),
            **{title: float(np.asarray(number).astype(array.dtype)) for title, number in numbers.items()},
            "data_name": f"{name}.npy" if saves else None,
        }

    data = {}
    for name, (inputs, outputs, parameters) in calls.items():
        data[name] = {
            "input_args": [tensor(f"{name}.input.{at}", each) for at, each in enumerate(inputs)],
            "output": [tensor(f"{name}.output.{at}", each) for at, each in enumerate(outputs)],
            "parameters": {
                each: tensor(f"{name}.parameters.{each}", array) for each, array in parameters.items()
            },
        }
    if has_index:
        (process / "dump.json").write_text(
            json.dumps({"task": "tensor", "framework": "pytorch", "data": data})
        )
        if has_parents:
            parents = {name: PARENTS.get(name) for name in calls}
            (process / "construct.json").write_text(json.dumps(parents))
    return process


def dump_model(network, folder, path):
    """Run a model on the inputs of the tree and dump it; return the dump."""
    onnx.save(network, folder / "model.onnx")
    np.savez(folder / "in.npz", x=X)
    command = ["run", folder / "model.onnx", "--inputs", folder / "in.npz", "--path", path]
    ran = CliRunner().invoke(main, [*map(str, command)])
    assert ran.exit_code == 0, ran.output
    return path


@pytest.fixture
def compare(tmp_path, quiet):
    """Return a function that compares a dump of a model with a tree: the exit code and the document."""
    trees = []

    def run(network, calls, *arguments, **ways):
        tree = tmp_path / f"tree{len(trees)}"
        trees.append(tree)
        write_tree(tree / "step0" / "proc7", calls, **ways)
        mine = dump_model(network, tmp_path, tmp_path / f"mine{len(trees)}")
        command = ["compare", str(mine), str(tree), "--output", str(tmp_path / "out"), *arguments]
        result = CliRunner().invoke(main, [*command, "--json"])
        assert result.exit_code in {0, 1}, result.output
        return result.exit_code, json.loads(result.stdout)

    return run


def accused(document):
    """Return the operators at fault."""
    return document["accused"]


WAYS = {
    "whole": {},
    "statistics": {"saves": False},
    "killed": {"has_index": False},
    "without modules around": {"has_parents": False},
}
LEVELS = {
    "mix": lambda _: True,
    "L0": lambda name: name.startswith("Module."),
    "L1": lambda name: not name.startswith("Module."),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_sound_export_agrees(compare, way, level):
    """Tensors and statistics of each level, whole or of a killed run, agree and have counterparts."""
    calls = {name: sides for name, sides in golden().items() if LEVELS[level](name)}
    code, document = compare(model(), calls, **WAYS[way])
    assert 0 == code
    alone = [each["operator"] for each in document["operators"] if each["operator"] in {*calls, *W}]
    assert alone == []


GAIN = np.random.default_rng(5).normal(size=5).astype(np.float32)
KEPT = np.random.default_rng(6).normal(size=(2, 5)).astype(np.float32)
MASK = np.array([[True, *[False] * 4]] * 2)


def masked(relu):
    """Return calls that hide elements from a softmax, and its result."""
    hidden = np.where(MASK, np.float32(-np.inf), relu)
    powers = np.exp(hidden - hidden.max(-1, keepdims=True))
    soft = powers / powers.sum(-1, keepdims=True)
    fill, softmax = ([relu], [hidden], {}), ([hidden], [soft], {})
    return {"Tensor.masked_fill.0.forward": fill, "Tensor.softmax.0.forward": softmax}, soft


def counted(relu):
    """Return calls that change a buffer in place, and the buffer; the input of each holds its result."""
    total = KEPT + np.float32(0.1) * relu
    scale, add = ([KEPT], [KEPT], {}), ([total, relu], [total], {})
    return {"Tensor.mul_.0.forward": scale, "Tensor.add_.0.forward": add}, total


def reading(name):
    """Return the change by which ``fc`` reads another value than that of ``relu``."""
    return {"fc_0": ("Gemm", [name, *NODES["fc_0"][1][1:]], *NODES["fc_0"][2:])}


@pytest.mark.parametrize(
    ("network", "calls"),
    [
        (
            lambda: model(reading("turned"), {"turn": ("Transpose", ["relu"], "turned", "")}),
            lambda: golden(kind="rectify"),
        ),
        (
            lambda: model(
                reading("soft"),
                {
                    "same": ("Max", ["relu", "zero"], "same", ""),
                    "hide": ("Where", ["mask", "low", "same"], "hidden", ""),
                    "soft": ("Softmax", ["hidden"], "soft", ""),
                },
                zero=np.zeros((), np.float32),
                mask=MASK,
                low=np.array(-np.inf, np.float32),
            ),
            lambda: golden(between=masked),
        ),
        (
            lambda: model(
                {"relu": ("Relu", ["scaled"], *NODES["relu"][2:])},
                {"scale": ("Mul", ["linear", "exp"], "scaled", "q")},
                exp=np.exp(GAIN),
            ),
            lambda: golden(gain=GAIN),
        ),
        (
            lambda: model(
                reading("sum"),
                {
                    "part": ("Mul", ["relu", "tenth"], "part", ""),
                    "sum": ("Add", ["kept", "part"], "sum", ""),
                },
                tenth=np.array(0.1, np.float32),
                kept=KEPT,
            ),
            lambda: golden(between=counted),
        ),
        (
            lambda: model(
                {"fc_0": ("Add", ["val_2", "half"], *NODES["fc_0"][2:])},
                {
                    "fc_m": ("MatMul", ["relu", "val_fc"], "val_1", "fc"),
                    "fc_h": ("Add", ["val_1", "half"], "val_2", "fc"),
                },
                val_fc=np.ascontiguousarray(W["fc.weight"].T),
                half=W["fc.bias"] / 2,
            ),
            golden,
        ),
    ],
    ids=["transposed value", "infinities", "constant of a parameter", "in place", "calls of other lengths"],
)
def test_other_values_are_not_taken_for_those_of_the_tree(compare, network, calls):
    """Equal statistics in another order, constants, and inputs that hold a result are no counterparts."""
    code, document = compare(network(), calls())
    assert (0, []) == (code, accused(document))


def test_a_wrong_weight_is_accused_without_the_result_that_shows_it(compare):
    """Where golden lacks the values behind a wrong weight, the next one that differs is no second fault."""
    network = model(
        {"q_add": ("MatMul", ["x", "val_e"], "e", "q")},
        {
            "q_more": ("Add", ["val_0", "e"], "val_1", "q"),
            "q_less": ("Sub", ["val_1", "e"], "val_2", "q"),
            "q_bias": ("Add", ["val_2", "q.bias"], "linear", "q"),
        },
        val_q=np.ascontiguousarray(W["q.weight"].T * 2),
        val_e=np.ones((4, 1), np.float32),
    )
    _, document = compare(network, golden())
    assert ["Default/q-Linear/MatMul-op0"] == accused(document)


@pytest.mark.parametrize(
    ("changes", "weights", "expected"),
    [
        ({"relu": ("Sigmoid", *NODES["relu"][1:])}, {}, "Default/Sigmoid-op0"),
        ({"add": ("", *NODES["add"][1:])}, {}, "Tensor.__add__.0.forward"),
        ({"add": ("Mul", *NODES["add"][1:])}, {}, "Default/Mul-op0"),
        ({}, {"q.bias": W["q.bias"] + 1}, "Default/q-Linear/BiasAdd-op0"),
        ({}, {"val_q": np.ascontiguousarray(W["q.weight"].T * 2)}, "Default/q-Linear/MatMul-op0"),
        ({}, {"fc.weight": np.ascontiguousarray(W["fc.weight"].T)}, "Default/fc-Linear/Dense-op0"),
        (
            {"fc_1": ("Gemm", ["relu", *NODES["fc_1"][1][1:]], *NODES["fc_1"][2:])},
            {},
            "Default/fc-Linear/Dense-op1",
        ),
    ],
    ids=["activation", "dropped", "replaced", "bias", "weight", "transposed", "wired"],
)
@pytest.mark.parametrize("saves", [True, False], ids=["tensors", "statistics"])
def test_a_fault_of_the_export_is_named_first(compare, changes, weights, expected, saves):
    """The operator that differs from the module is accused first: by tensors and by statistics alone."""
    if not saves and "fc.weight" in weights:
        pytest.skip("a transposed square weight has the statistics of the right one")
    code, document = compare(model(changes, **weights), golden(), saves=saves)
    assert 1 == code
    assert expected == accused(document)[0]


@pytest.mark.parametrize(
    ("changes", "weights", "expected"),
    [
        ({}, {}, []),
        ({"relu": ("Sigmoid", *NODES["relu"][1:])}, {}, ["Default/Sigmoid-op0"]),
        ({"add": ("", *NODES["add"][1:])}, {}, ["Tensor.__add__.0.forward"]),
        ({}, {"q.bias": W["q.bias"] + 1}, ["Default/q-Linear/BiasAdd-op0"]),
        ({}, {"val_q": np.ascontiguousarray(W["q.weight"].T * 2)}, ["Default/q-Linear/MatMul-op0"]),
    ],
    ids=["sound", "activation", "dropped", "bias", "weight"],
)
def test_operators_run_again_on_the_tensors_of_a_tree(compare, tmp_path, changes, weights, expected):
    """With a model the operator at fault is accused alone, by its own error on the tree's tensors."""
    network = model(changes, **weights)
    code, document = compare(network, golden(), "--model", str(tmp_path / "model.onnx"))
    assert (bool(expected), expected) == (bool(code), accused(document))
    again = [each for each in document["operators"] if "own error" in (each.get("note") or "")]
    at = [each["operator"] for each in again if "in the tree's values" in each["note"]]
    assert [name for name in expected if name.startswith("Default")] == at


@pytest.mark.parametrize(
    ("ways", "rows", "code", "sentence"),
    [
        ({"saves": False}, 2, 0, "warning: --model is not used: a side has statistics alone"),
        ({}, 3, 2, "proc7: no tensor is a value of the model"),
    ],
    ids=["statistics", "shape"],
)
def test_a_tree_that_a_model_cannot_use_has_its_sentence(tmp_path, quiet, ways, rows, code, sentence):
    """A tree of statistics alone is compared without the model; tensors of another shape are refused."""
    calls = golden() if rows == len(X) else {"Module.q.Linear.forward.0": ([np.ones((3, 9))], [], {})}
    write_tree(tmp_path / "tree" / "step0" / "proc7", calls, **ways)
    mine = dump_model(model(), tmp_path, tmp_path / "mine")
    command = ["compare", mine, tmp_path / "tree", "--model", tmp_path / "model.onnx", "--output", tmp_path]
    result = CliRunner().invoke(main, [*map(str, command)])
    assert code == result.exit_code, result.output
    assert sentence in result.output


def test_what_is_not_paired_is_listed_with_its_reason(compare):
    """Modules without operators, unknown calls and names of no form are listed; no operator is accused."""
    calls = golden()
    calls["Module.drop.Dropout.forward.0"] = ([X * 3], [X * 3], {"scale": X[0]})
    calls["Torch.erfinv.0.forward"] = ([X * 5], [X * 7], {})
    calls["strange"] = ([], [X * 9], {})
    code, document = compare(model(), calls)
    assert 0 == code
    reasons = {each["operator"]: each.get("note", "") for each in document["operators"]}
    assert "no operator lies in its scope" in reasons["Module.drop.Dropout.forward.0"]
    assert "no operator of its module computes a tensor" in reasons["Torch.erfinv.0.forward"]
    assert "its name is not of a module or call" in reasons["strange"]
    assert "folded into other weights" in reasons["drop.scale"]


def test_statistics_in_half_precision_agree(compare):
    """Statistics that a tree rounds to half precision agree with float32 within the type."""
    code, _ = compare(model(), golden(np.float16), saves=False)
    assert 0 == code


def test_a_tensor_of_another_shape_is_told(compare):
    """A module with another batch than the export's is a fault of its shape, not an error."""
    calls = golden()
    calls["Module.q.Linear.forward.0"][1][0] = np.ones((3, 5), np.float32)
    code, document = compare(model(), {"Module.q.Linear.forward.0": calls["Module.q.Linear.forward.0"]})
    assert (1, "shape") == (code, document["verdict"])


def test_nan_and_infinity_of_the_tree_are_values(compare):
    """NaN and Infinity in dump.json are compared as values, and the operator that lacks them differs."""
    calls = golden()
    calls["Torch.tanh.0.forward"][1][0][0, 0] = np.nan
    code, document = compare(model(), calls, saves=False)
    assert (1, "Default/Tanh-op0") == (code, accused(document)[0])


BATCH_NORM = {"relu": ("BatchNormalization", ["linear", *(f"bn.{n}" for n in "wbmv")], "relu", "bn")}


@pytest.mark.parametrize("saves", [True, False], ids=["tensors", "statistics"])
def test_a_tree_in_train_mode_has_its_sentence(compare, saves):
    """Batch statistics and dropout of the tree are said beside an export in inference."""
    q = golden()["Module.q.Linear.forward.0"]
    w, b = W["fc.bias"] + 2, W["q.bias"]
    normal = (q[1][0] - q[1][0].mean(0)) / np.sqrt(q[1][0].var(0) + 1e-5) * w + b
    calls = {
        "Module.q.Linear.forward.0": q,
        "Module.bn.BatchNorm1d.forward.0": (q[1], [normal.astype(np.float32)], {"weight": w, "bias": b}),
        "Module.drop.Dropout.forward.0": ([normal], [normal * [[1, 0, 1, 0, 1]] * 2], {}),
    }
    statistics = {"bn.w": w, "bn.b": b, "bn.m": np.zeros(5, np.float32), "bn.v": np.ones(5, np.float32)}
    code, document = compare(model(BATCH_NORM, **statistics), calls, saves=saves)
    assert (1, "Default/bn-Linear/BatchNorm-op0") == (code, accused(document)[0])
    [sentence] = document["networks"]
    assert "golden is in train mode: batch statistics in bn and 1 more; call eval() before" in sentence


@pytest.mark.parametrize("factor", [1, 1.5], ids=["sound", "wrong"])
def test_the_sum_of_gradients_is_compared_with_a_module_that_several_read(tmp_path, quiet, factor):
    """The gradient of a module's output is the sum of its readers' gradients, also where contents differ."""
    network, step, mine = (tmp_path / each for each in ("net.onnx", "step.onnx", "mine"))
    onnx.save(model({"relu": (*NODES["relu"][:3], "act")}), network)
    for line in (
        ["train-graph", network, "-o", step, "--loss", "mse", "--optimizer", "momentum:0.1,0.9"],
        ["run", step, "--train", "--steps", 1, "--path", mine],
    ):
        ran = CliRunner().invoke(main, [*map(str, line)])
        assert ran.exit_code == 0, ran.output
    tensors = {
        (each.op_type, str(each.io)): each
        for each in msdump.open_dump(mine).tensors
        if "Gradients" in each.op_name and "act-Linear" in each.op_name
    }
    total, result = (tensors[name, "output"] for name in ("AddN", "ReluGrad"))
    calls = {"Module.act.ReLU.backward.0": ([total.array * np.float32(factor)], [result.array], {})}
    write_tree(tmp_path / "tree" / "step0" / "rank", calls)
    command = ["compare", mine, tmp_path / "tree", "--output", tmp_path, "--json"]
    document = json.loads(CliRunner().invoke(main, [*map(str, command)]).stdout)
    assert [total.full_name] * (factor != 1) == accused(document)


def test_steps_and_ranks_are_paired_by_their_numbers(tmp_path, quiet):
    """Step and rank of a tree are compared with these of the dump, others are listed."""
    mine = dump_model(model(), tmp_path, tmp_path / "mine")
    shutil.copytree(mine / "rank_0", mine / "rank_1")
    wrong = golden()
    wrong["Functional.relu.0.forward"][1][0] += 1
    for place, calls in {"step0/rank0": golden(), "step0/rank1": wrong, "step1/rank0": golden()}.items():
        write_tree(tmp_path / "tree" / place, calls)
    command = ["compare", mine, tmp_path / "tree", "--output", tmp_path, "--json"]
    document = json.loads(CliRunner().invoke(main, [*map(str, command)]).stdout)
    assert [str(tmp_path / "tree" / "step1" / "rank0")] == document["alone"]
    directories = {each["directory"] for each in document["operators"] if each["verdict"] == "own"}
    assert {"1/0"} == directories


@pytest.mark.parametrize(
    ("mine", "other", "message"),
    [
        ("tree", "dump", "give the tree as GOLDEN"),
        ("dump", "later", "no rank and step"),
        ("bare", "tree", "scopes of operators pair them with modules"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(tmp_path, quiet, mine, other, message):
    """A tree as MINE, other steps, and a dump without a graph are refused in one sentence."""
    write_tree(tmp_path / "tree" / "step0" / "rank", golden())
    for step in (4, 5):
        write_tree(tmp_path / "later" / f"step{step}" / "rank", golden())
    dump_model(model(), tmp_path, tmp_path / "dump")
    shutil.copytree(tmp_path / "dump", tmp_path / "bare")
    for file in (tmp_path / "bare" / "rank_0" / "graphs").iterdir():
        file.unlink()
    result = CliRunner().invoke(main, ["compare", str(tmp_path / mine), str(tmp_path / other)])
    assert 2 == result.exit_code
    assert message in result.output


def test_two_trees_are_paired_by_names(tmp_path, quiet):
    """Two trees agree where all tensors of one name do, and the first call that differs is named."""
    write_tree(tmp_path / "one" / "step0" / "rank", golden())
    changed = golden()
    changed["Functional.relu.0.forward"][1][0] += 1
    write_tree(tmp_path / "two" / "step3" / "rank", changed)
    same = CliRunner().invoke(main, ["compare", str(tmp_path / "one"), str(tmp_path / "one")])
    other = CliRunner().invoke(main, ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--json"])
    assert (0, 1) == (same.exit_code, other.exit_code)
    assert "Functional.relu.0.forward" == json.loads(other.stdout)["first"]


PARTS = st.text(st.characters(exclude_characters=".\n", codec="utf-8"), min_size=1, max_size=8)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(".".join)


@hypothesis.given(PATHS, PARTS, st.sampled_from(["Module", "Cell"]), st.booleans(), st.integers(0, 10**8))
def test_names_of_modules_are_read_back(path, kind, prefix, is_backward, number):
    """The parts that make up a module's name are the parts that are read from it."""
    name = f"{prefix}.{path}.{kind}.{'backward' if is_backward else 'forward'}.{number}"
    assert CallName(path, kind, is_backward, number) == parse_name(name)


@hypothesis.given(PATHS, PARTS, st.integers(0, 10**8), PARTS)
def test_names_of_gradients_are_read_back(path, kind, number, parameter):
    """The name of a parameter's gradient holds module, class, call and parameter."""
    name = f"Module.{path}.{kind}.parameters_grad.{number}.{parameter}"
    assert CallName(path, kind, True, number, parameter) == parse_name(name)


@hypothesis.given(st.text(max_size=40))
def test_any_text_is_a_name_or_none(text):
    """No text makes the reader of names fail, and a text without direction is no name."""
    found = parse_name(text)
    assert found is None or "ward" in text or "parameters_grad" in text
