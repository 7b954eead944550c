"""Lists of learning rates, groups of parameters and several optimizers beside MindSpore's own steps."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import msdump
from msdump.errors import ExecutionError, InputError
from msdump.training import eval_graph, step_graph
from msdump.training.optimizers import Adam, Momentum
from tests.dump import trees
from tests.texts import parsed
from tests.training.mlp import batch, losses, mlp
from tests.world import opened

pytestmark = pytest.mark.usefixtures("fresh")

RATES = "0.1 0.2 0.3 0.1"
TWO = {"fc1*": "sgd:0.1", "": Adam(0.01)}


def _step(**choices):
    """Return the training step of a perceptron with a normalisation."""
    return step_graph(mlp(has_norm=True), **choices)


# parameters that are updated in their order, other operators of the optimizers, variables beside moments
FORMS = {
    "list": (
        {"optimizer": Momentum([0.1, 0.2])},
        ["fc2.bias", "fc2.weight", "norm.beta", "norm.gamma", "fc1.bias", "fc1.weight"],
        ["Momentum/learning_rate-_IteratorLearningRate/Gather", "Momentum/Reshape", "Momentum/AssignAdd"],
        {"global_step": (1,), "learning_rate": (2,), "momentum": ()},
    ),
    "groups": (
        {"optimizer": "adamw", "groups": {"*.bias": {}, "fc*": {"learning_rate": 0.1}}},
        ["fc1.bias", "fc2.bias", "fc1.weight", "fc2.weight", "norm.gamma", "norm.beta"],
        ["AdamWeightDecay/AssignAdd"],
        {"global_step": (1,), "learning_rate": (), "learning_rate_group_1": ()},
    ),
    "every_group_has_a_rate": (
        {"optimizer": "adamw", "groups": {"fc*": {"learning_rate": 0.1}, "*": {"learning_rate": 0.2}}},
        ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "norm.gamma", "norm.beta"],
        ["AdamWeightDecay/AssignAdd"],
        {"global_step": (1,), "learning_rate_group_0": (), "learning_rate_group_1": ()},
    ),
    "lists": (
        {"optimizer": "adamw:0.1", "groups": {"fc?.bias": {}, "fc*": {"learning_rate": [0.1, 0.2]}}},
        ["fc1.bias", "fc2.bias", "fc1.weight", "fc2.weight", "norm.gamma", "norm.beta"],
        [
            "AdamWeightDecay/learning_rate-CellList/0-_ConvertToCell/Add",
            "AdamWeightDecay/learning_rate-CellList/0-_ConvertToCell/Sub",
            "AdamWeightDecay/learning_rate-CellList/2-_IteratorLearningRate/Gather",
            "AdamWeightDecay/Reshape",
            "AdamWeightDecay/AssignAdd",
        ],
        {"global_step": (1,), "learning_rate": (), "learning_rate_group_1": (2,)},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_operators_and_variables(name):
    """Scopes, order and names of variables are as in MindSpore's Optimizer."""
    choices, order, operators, variables = FORMS[name]
    step = _step(**choices)
    scope = "Default/optimizer-"
    nodes = [node for node in step.graph.node if node.name.startswith(scope)]
    updates = [node for node in nodes if node.op_type in {"ApplyMomentum", "AdamWeightDecay"}]

    assert order == [node.input[0] for node in updates]
    assert operators == [node.name.removeprefix(scope) for node in nodes if node not in updates]
    found = {tensor.name: tuple(tensor.dims) for tensor in step.graph.initializer}
    moments = ("moments.", "adam_")
    assert variables == {key: found[key] for key in found if not key.startswith((*moments, "fc", "norm"))}


@pytest.mark.parametrize(
    ("decayed", "others"), [("weights", {"norm.gamma": 0.5, "norm.beta": 0.5}), ("matrices", {})]
)
def test_decay_in_groups(decayed, others):
    """In groups scales and shifts of normalisations decay as well, and a group of decay 0 has no product."""
    step = _step(
        optimizer=f"sgd:weight_decay=0.5,decayed={decayed}",
        groups={"*.bias": "weight_decay=0", "fc1*": "weight_decay=2"},
    )
    constants = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in step.graph.node
        if node.op_type == "Constant"
    }

    assert {"fc1.weight": 2.0, "fc2.weight": 0.5, **others} == {
        node.input[0]: float(constants[node.input[1]])
        for node in step.graph.node
        if node.op_type == "Mul" and "optimizer-SGD" in node.name
    }


def test_first_match_counts():
    """Of groups, and of optimizers, the first with a pattern that matches has the parameter."""
    step = _step(
        optimizer={"*.bias": "sgd:0.1", "fc1*": "momentum:0.2", "": "adam:0.3"},
        groups={"fc1*": "learning_rate=0.5", "*.bias": "learning_rate=0.6"},
    )
    rates = {
        tensor.name: float(numpy_helper.to_array(tensor))
        for tensor in step.graph.initializer
        if "learning_rate" in tensor.name
    }
    slot = {"SGD": 2, "ApplyMomentum": 2, "Adam": 5}

    assert {
        "fc1.bias": ("SGD", 0.5),
        "fc2.bias": ("SGD", 0.6),
        "fc1.weight": ("ApplyMomentum", 0.5),
        "fc2.weight": ("Adam", 0.3),
        "norm.gamma": ("Adam", 0.3),
        "norm.beta": ("Adam", 0.3),
    } == {
        node.input[0]: (node.op_type, pytest.approx(rates[node.input[slot[node.op_type]]]))
        for node in step.graph.node
        if node.op_type in slot
    }


def test_files_of_two_optimizers(tmp_path):
    """Each optimizer has a scope of its own, and variables with its name in front."""
    with opened(tmp_path) as door:
        door.configure()
        network = msdump.load(_step(optimizer=TWO))
        network.train_step(*batch(0))

    names = {match["name"] for match, _ in trees.tensors(door.rank / "Net" / "0" / "0")}
    scopes = {name.partition("-")[0] for name in names if "optimizer" in name and name.startswith("Default")}
    assert {"Default_optimizer_0", "Default_optimizer_1"} == scopes
    assert {
        *("optimizer_0_global_step", "optimizer_0_learning_rate", "optimizer_0_momentum"),
        *(f"optimizer_0_{kind}_fc1_{part}" for kind in ("accum", "stat") for part in ("weight", "bias")),
        *(f"optimizer_1_{name}" for name in ("global_step", "learning_rate", "beta1_power", "beta2_power")),
        *(
            f"optimizer_1_{kind}_{part}"
            for kind in ("moment1", "moment2")
            for part in ("norm_gamma", "norm_beta", "fc2_weight", "fc2_bias")
        ),
    } == {name for name in names if name.startswith("optimizer")}


UPDATES = {"Adam", "SGD", "ApplyMomentum", "AdamWeightDecay"}


@pytest.mark.parametrize(
    ("optimizer", "scopes", "powers"),
    [
        ({"fc1*": "adam:0.1", "": "adam:0.1"}, {"optimizer-Adam"}, {"beta1_power"}),
        ({"fc1*": Adam([0.1, 0.2]), "": Adam([0.1, 0.2])}, {"optimizer-Adam"}, {"beta1_power"}),
        (
            {"fc1*": "adam:0.1", "": "adam:0.1,name=deep"},
            {"optimizer_0-Adam", "deep-Adam"},
            {"optimizer_0.beta1_power", "deep.beta1_power"},
        ),
        (
            {"fc1*": "sgd:0.1,name=wide", "*.bias": "adam:0.1,name=deep", "": "adam:0.1,name=deep"},
            {"wide-SGD", "deep-Adam"},
            {"deep.beta1_power"},
        ),
        ("adam:0.1,name=opt", {"opt-Adam"}, {"opt.beta1_power"}),
    ],
)
def test_names_of_optimizers(optimizer, scopes, powers):
    """Equal optimizers are one with one pair of powers; a name is the attribute of the cell and a prefix."""
    step = _step(optimizer=optimizer)
    updates = [node for node in step.graph.node if node.op_type in UPDATES]

    assert scopes == {node.name.split("/")[1] for node in updates}
    assert 6 == len(updates)
    assert powers == {each.name for each in step.graph.initializer if each.name.endswith("beta1_power")}


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"fc1*": "adam:name=a", "": "sgd:name=a"}, "optimizers that differ have one name: a, a; give each"),
        ({"fc1*": "adam:name=optimizer_1", "": "sgd"}, "have one name: optimizer_1, optimizer_1"),
        ("adam:name=a-b", "name is a-b; must be the name of an attribute, of letters, digits and _"),
    ],
)
def test_wrong_names_of_optimizers(optimizer, message):
    """Each optimizer has a name of its own, which a Python attribute can have."""
    with pytest.raises(InputError, match=message):
        _step(optimizer=optimizer)


IN_ORDER = ["fc1.weight", "fc1.bias", "norm.gamma", "norm.beta", "fc2.weight", "fc2.bias"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("*", IN_ORDER),
        (["fc2.bias", "norm*", "*"], ["fc2.bias", *IN_ORDER[2:4], *IN_ORDER[:2], "fc2.weight"]),
        (IN_ORDER[::-1], IN_ORDER[::-1]),
    ],
    ids=["model's", "patterns", "names"],
)
@pytest.mark.parametrize("optimizer", ["adamw", "momentum"])
def test_order_of_parameters_in_groups(optimizer, order, expected):
    """order_params replaces the order by groups; the rates stay the groups', Momentum goes back."""
    groups = {"*.bias": {"learning_rate": 0.5}, "order_params": order}
    updates = [
        node for node in _step(optimizer=optimizer, groups=groups).graph.node if node.op_type in UPDATES
    ]

    assert (expected[::-1] if optimizer == "momentum" else expected) == [node.input[0] for node in updates]
    assert {"fc1.bias", "fc2.bias"} == {
        node.input[0] for node in updates if "learning_rate_group_0" in node.input
    }


def test_an_order_has_all_parameters():
    """An order without some of the parameters names them."""
    with pytest.raises(
        InputError, match=r"order_params lacks fc1.bias, norm.gamma, norm.beta; add the names"
    ):
        _step(groups={"order_params": "fc1.weight fc2*"})


def test_one_pattern_is_one_optimizer():
    """A single optimizer has no number, whether it is given by a pattern or not."""
    plain, by_pattern = _step(optimizer="adam:0.1"), _step(optimizer={"": "adam:0.1"})

    assert plain.SerializeToString() == by_pattern.SerializeToString()


@pytest.mark.parametrize(
    "choices",
    [{"loss_scale": 1024}, {"loss_scale": "dynamic:1024"}, {"data_parallel": 1}],
    ids=["static", "dynamic", "ranks"],
)
def test_two_optimizers_with_scaled_or_averaged_gradients(choices):
    """A loss scale, a power of two, and a mean over one rank leave every value as it is."""
    optimizer = {"fc1*": "sgd:0.1,0.9", "": f"adamw:{RATES},weight_decay=0.1"}

    assert losses(_step(optimizer=optimizer)) == losses(_step(optimizer=optimizer, **choices))


def test_static_scale_is_divided_by_each_optimizer():
    """The gradients of a parameter are divided in the scope of its optimizer."""
    step = _step(optimizer=TWO, loss_scale=1024)

    products = [node.name for node in step.graph.node if node.op_type == "Mul" and "optimizer_" in node.name]
    assert 2 == sum(name.startswith("Default/optimizer_0-SGD/Mul") for name in products)
    assert 4 + 2 == sum(name.startswith("Default/optimizer_1-Adam/Mul") for name in products)


def test_overflow_skips_all_optimizers():
    """After an overflow no variable of any optimizer changes."""
    network = msdump.load(_step(optimizer=TWO, loss_scale="dynamic:1024"))
    before = network.state()
    data, label = batch(0)

    _, overflow = network.train_step(data * np.float32(np.inf), label)

    assert bool(overflow)
    changed = {name for name, array in network.state().items() if not np.array_equal(array, before[name])}
    assert {"scale_sense", "current_iterator_step", "last_overflow_iterator_step"} == changed


@pytest.mark.parametrize(
    ("choices", "fed", "kept"),
    [
        ({"optimizer": TWO}, {"optimizer_0.learning_rate": np.float32(0)}, {"fc1.weight", "fc1.bias"}),
        (
            {"optimizer": "sgd", "groups": {"fc1*": "learning_rate=0.1"}},
            {"learning_rate_group_0": np.float32(0)},
            {"fc1.weight", "fc1.bias"},
        ),
        (
            {"optimizer": "sgd:0.1 0.2"},
            {"learning_rate": np.array([0, 1], np.float32)},
            {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "norm.gamma", "norm.beta"},
        ),
    ],
    ids=["two", "groups", "list"],
)
def test_every_rate_can_be_fed(choices, fed, kept):
    """A step may be fed another rate, for itself alone, by the name of the rate's variable."""
    network = msdump.load(_step(**choices))
    before = network.state()

    network.train_step(*batch(0), **fed)

    weights = [name for name in before if name.startswith(("fc", "norm"))]
    state = network.state()
    assert kept == {name for name in weights if np.array_equal(before[name], state[name])}


def test_step_behind_a_list_of_rates():
    """A list has a rate for each step; the step behind the last one fails in the Gather, as in MindSpore."""
    network = msdump.load(_step(optimizer="momentum:0.1 0.2"))
    for number in range(2):
        network.train_step(*batch(number))

    with pytest.raises(ExecutionError, match="_IteratorLearningRate/Gather-op0 failed"):
        network.train_step(*batch(2))


def test_evaluation_reads_the_weights():
    """An evaluation of a step with several optimizers finds the trained weights by their names."""
    network = msdump.load(_step(optimizer=TWO))
    evaluation = msdump.load(eval_graph(mlp(has_norm=True)), state_of=network)
    before, *_ = evaluation(*batch(1))
    network.train_step(*batch(0))
    after, *_ = evaluation(*batch(1))

    assert float(before) != float(after)
    np.testing.assert_allclose(float(after), float(network.train_step(*batch(1))), rtol=1e-6)


def test_long_lists_of_names_are_cut():
    """A message on a pattern without parameters names a dozen of them, and their number."""
    layers = "".join(f'x{number} = Mul(x{number - 1}, "layer{number}.weight")' for number in range(1, 21))
    weights = {f"layer{number}.weight": np.ones(3, np.float32) for number in range(1, 21)}
    model = parsed(f"net (float[3] x0) => (float[3] x20) {{ {layers} }}", **weights)

    with pytest.raises(InputError) as refused:
        step_graph(model, "mse", groups={"embedding*": {}})

    assert "layer12.weight, ... (20 in all)" in str(refused.value)
    assert "layer13.weight" not in str(refused.value)


WORDS, WIDTH, LENGTH = 11, 8, 5

_DECODER = f"""decoder (int64[2,{LENGTH}] ids) => (float[2,{LENGTH},{WORDS}] logits) {{
    x = Gather("embedding.weight", ids)
    n = RMSNormalization<axis = -1>(x, "norm.weight")
    q = MatMul(n, "attention.q.weight")
    k = MatMul(n, "attention.k.weight")
    v = MatMul(n, "attention.v.weight")
    a = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(q, k, v)
    r = Add(x, a)
    h = MatMul(r, "head.weight")
    logits = Add(h, "head.bias")
}}"""


def decoder():
    """Return a decoder of one layer: embedding, normalisation, causal attention, head."""
    random = np.random.default_rng(3)
    square = [WIDTH, WIDTH]
    shapes = {
        "embedding.weight": [WORDS, WIDTH],
        "norm.weight": [WIDTH],
        **{f"attention.{name}.weight": square for name in "qkv"},
        "head.weight": [WIDTH, WORDS],
        "head.bias": [WORDS],
    }
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return parsed(_DECODER, opset=23, **weights)


def test_decoder_in_groups(tmp_path):
    """A decoder learns a sentence with no decay for norms and biases, and another rate for the embedding."""
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    groups = {"norm*": "weight_decay=0", "*.bias": "weight_decay=0", "embed*": "learning_rate=0.1"}
    step = step_graph(tmp_path / "decoder.onnx", optimizer="adamw:0.03,weight_decay=0.1", groups=groups)
    network = msdump.load(step)
    ids = np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    labels = np.roll(ids, -1, axis=1).astype(np.int32)

    losses = [float(network.train_step(ids, labels)) for _ in range(20)]

    assert losses[-1] < losses[0] / 4
    updates = [node for node in step.graph.node if node.op_type == "AdamWeightDecay"]
    order = ["norm.weight", "head.bias", "embedding.weight", *(f"attention.{name}.weight" for name in "qkv")]
    assert [*order, "head.weight"] == [node.input[0] for node in updates]
    rates = ["learning_rate"] * 2 + ["learning_rate_group_2"] + ["learning_rate"] * 4
    assert rates == [node.input[3] for node in updates]
    # groups without decay read the same constant, the others another one
    assert [0, 0, 1, 1, 1, 1, 1] == [int(node.input[7] != updates[0].input[7]) for node in updates]
