"""Gradients between the backward pass and the optimizer: clipped, accumulated, scaled, in this order."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import msdump
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, bindings_of, one_operator
from tests.training.mlp import batch, mlp

WEIGHTS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
_GRADIENT = np.array([[3.0, -4.0, 0.5], [0.0, 1.0, -2.0]])
_NORM = np.sqrt(2 * (_GRADIENT**2).sum())  # two parameters have this gradient
_INFINITE = np.where(_GRADIENT == 1.0, np.inf, _GRADIENT)
_NAN = np.where(_GRADIENT == 1.0, np.nan, _GRADIENT)

CLIPPED = {
    "norm above": ("global_norm:2.0", _GRADIENT, _GRADIENT * 2 / _NORM),
    "norm below": ("global_norm:100", _GRADIENT, _GRADIENT),
    "norm of zeros": ("global_norm", 0 * _GRADIENT, 0 * _GRADIENT),
    "infinite norm": ("global_norm:2.0", _INFINITE, np.where(np.isinf(_INFINITE), np.nan, 0)),
    "norm that is no number": ("global_norm:2.0", _NAN, _NAN),
    "both ends": ("value:-1,0.75", _GRADIENT, np.clip(_GRADIENT, -1, 0.75)),
    "lower end": ("value:-1", _GRADIENT, np.maximum(_GRADIENT, -1)),
    "upper end": ("value:clip_value_max=0.75", _INFINITE, np.minimum(_GRADIENT, 0.75)),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize(("text", "gradient", "expected"), CLIPPED.values(), ids=CLIPPED)
def test_clipped_gradients(text, gradient, expected, dtype):
    """A plain runtime computes the limits by formula in every type, infinities and NaN included."""
    ones = np.ones((2, 3), dtype)
    step = step_graph(
        one_operator("Add", [ones, ones], {}), WEIGHTED, "sgd:1.0", clip_gradients=text, device_target="GPU"
    )
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3

    session = onnxruntime.InferenceSession(step.SerializeToString(), settings)
    updated = session.run(
        [bindings_of(step)[name] for name in ("p0", "p1")], {"inputs0": gradient.astype(dtype)}
    )

    for array in updated:
        # three roundings to the type, of numbers up to 5
        tolerance = 15 * max(np.finfo(dtype).eps, np.finfo(np.float32).eps)
        np.testing.assert_allclose(1 - array.astype(np.float64), expected, rtol=0, atol=tolerance)


def test_norm_of_bfloat16():
    """Gradients in bfloat16 keep their type; their squares are added in float32 over the parameters."""
    ones = np.ones((2, 3), ml_dtypes.bfloat16)
    model = one_operator("Add", [ones, ones], {})
    network = msdump.load(step_graph(model, WEIGHTED, "sgd:1.0", clip_gradients="global_norm:2.0"))

    network.train_step(_GRADIENT.astype(ml_dtypes.bfloat16))

    updated = network.state()["p0"]
    assert updated.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(1 - updated.astype(float), _GRADIENT * 2 / _NORM, atol=0.02)  # 8 bits


@pytest.mark.parametrize("dtype", [np.float16, np.float64], ids=lambda dtype: dtype.__name__)
def test_dynamic_scale_of_other_types(dtype):
    """A loss and gradients that are not float32 read casts of the scale, and keep their type."""
    step = step_graph(
        one_operator("Add", [np.ones((2, 3), dtype)] * 2, {}), WEIGHTED, "sgd:1.0", loss_scale="dynamic:4"
    )
    network = msdump.load(step)

    network.train_step(_GRADIENT.astype(dtype))

    for name in ("p0", "p1"):
        assert network.state()[name].dtype == dtype
        np.testing.assert_array_equal(network.state()[name], 1 - _GRADIENT)
    products = [node for node in step.graph.node if node.name.startswith("Default/Mul")]
    assert {""} == {node.domain for node in products}  # operands of one type


class Expected:
    """Momentum, 0.1 and 0.9, in numpy with gradients of a step graph without clipping and accumulation.

    Attributes:
        state: Weights and moments.
    """

    def __init__(self, steps=1, share=1.0, clip=lambda gradients: gradients, **choices):
        """Begin with the weights of the network.

        Args:
            steps: Number of steps between updates.
            share: Factor of each gradient.
            clip: Limits a list of gradients.
            choices: Arguments of ``step_graph``.
        """
        self._oracle = msdump.load(step_graph(mlp(), optimizer="sgd:1.0", **choices))
        state = self._oracle.state()
        self.state = {name: state[name].astype(np.float64) for name in WEIGHTS}
        self._moments = dict.fromkeys(WEIGHTS, 0.0)
        self._sums = dict.fromkeys(WEIGHTS, 0.0)
        self._steps, self._share, self._clip = steps, share, clip
        self._count = 0

    def train(self, step):
        """Train on one batch."""
        self._oracle.load_state(
            self._oracle.state() | {name: array.astype(np.float32) for name, array in self.state.items()}
        )
        before = self._oracle.state()
        self._oracle.train_step(*batch(step))
        after = self._oracle.state()
        for name in WEIGHTS:
            self._sums[name] = self._sums[name] + self._share * (before[name] - after[name])
        self._count += 1
        if self._count % self._steps == 0:
            for name, gradient in zip(WEIGHTS, self._clip(list(self._sums.values())), strict=True):
                self._moments[name] = 0.9 * self._moments[name] + gradient
                self.state[name] -= 0.1 * self._moments[name]
            self._sums = dict.fromkeys(WEIGHTS, 0.0)


def _by_norm(limit):
    def clip(gradients):
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        return [gradient * limit / max(norm, limit) for gradient in gradients]

    return clip


def _by_value(gradients):
    return [np.clip(gradient, -0.05, 0.02) for gradient in gradients]


TRAININGS = {
    "norm": ({"clip_gradients": "global_norm:0.1"}, {"clip": _by_norm(0.1)}),
    "norm of some steps": ({"clip_gradients": "global_norm:0.75"}, {"clip": _by_norm(0.75)}),
    "value": ({"clip_gradients": "value:-0.05,0.02"}, {"clip": _by_value}),
    "sum": ({"accumulate": 2}, {"steps": 2}),
    "mean": ({"accumulate": "mean:3"}, {"steps": 3, "share": 1 / 3}),
    "each step": ({"accumulate": "sum:1"}, {}),
    "sum and norm": (
        {"accumulate": 2, "clip_gradients": "global_norm:0.1"},
        {"steps": 2, "clip": _by_norm(0.1)},
    ),
    "static scale": (
        {"accumulate": 2, "clip_gradients": "value:-0.05,0.02", "loss_scale": 1024},
        {"steps": 2, "clip": _by_value},
    ),
}


@pytest.mark.parametrize(("choices", "rule"), TRAININGS.values(), ids=TRAININGS)
def test_trainings(choices, rule):
    """Weights of several steps follow numpy: gradients are added, then clipped, in each n-th step."""
    network, expected = (
        msdump.load(step_graph(mlp(), optimizer="momentum:0.1,0.9", **choices)),
        Expected(**rule),
    )

    for step in range(6):
        network.train_step(*batch(step))
        expected.train(step)
        for name, array in expected.state.items():
            # gradients of the reference are differences of weights of float32, below 2
            np.testing.assert_allclose(network.state()[name], array, rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("optimizer", "groups", "parameters", "updates"),
    [
        ("momentum", {}, [(6, 8), (6,), (4, 6), (4,)], [(4,), (4, 6), (6,), (6, 8)]),
        ("adam", {}, [(6, 8), (6,), (4, 6), (4,)], [(6, 8), (6,), (4, 6), (4,)]),
        ("adam", {"*.bias": "weight_decay=0"}, [(6,), (4,), (6, 8), (4, 6)], [(6,), (4,), (6, 8), (4, 6)]),
        ({"fc2*": "adam", "*": "momentum"}, {}, [(4, 6), (4,), (6, 8), (6,)], [(4, 6), (4,), (6,), (6, 8)]),
    ],
)
def test_clipped_gradients_have_the_order_of_updates(optimizer, groups, parameters, updates):
    """As in MindSpore, squares follow the groups of parameters, quotients the order of updates."""
    step = step_graph(mlp(), optimizer=optimizer, groups=groups, clip_gradients="global_norm:1.0")
    shapes = {
        value.name: tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
        for value in step.graph.value_info
    }

    def sizes(name):
        return [shapes[node.output[0]] for node in step.graph.node if node.name.rstrip("_0123456789") == name]

    assert parameters == sizes("Default/Square")
    assert updates == sizes("Default/Mul") == sizes("Default/Div")


@pytest.mark.parametrize("device_target", ["CPU", "Ascend"])
def test_overflowing_steps_are_not_added(device_target):
    """Infinite gradients of a dynamic scale reach neither the sums nor the norm, and are not counted."""
    choices = {"precision": "float16", "device_target": device_target}
    network = msdump.load(
        step_graph(
            mlp(),
            optimizer="momentum:0.1,0.9",
            loss_scale="dynamic:1048576,factor=64,window=2",
            accumulate="mean:2",
            clip_gradients="global_norm:0.1",
            **choices,
        )
    )
    expected = Expected(2, 0.5, _by_norm(0.1), loss_scale=1024, **choices)
    facts = []

    for step in range(6):
        _, overflow = network.train_step(*batch(step))
        state = network.state()
        if not overflow:
            expected.train(step)
        facts.append((bool(overflow), int(state["counter_"]), int(state["global_step"][0])))
        for name, array in expected.state.items():
            np.testing.assert_allclose(state[name], array, rtol=0, atol=2e-4, err_msg=name)  # of float16

    assert facts == [(True, 1, 0), (False, 2, 0), (False, 3, 1), (True, 3, 1), (False, 4, 1), (False, 5, 2)]


def test_operators_and_variables():
    """Scopes and types are as in a training cell of MindSpore, names of variables as in its tutorial."""
    choices = {
        "accumulate": "mean:4",
        "clip_gradients": "global_norm:1.0",
        "trainable": ["fc2.weight", "fc2.bias"],
    }
    network = msdump.load(step_graph(mlp(), optimizer="momentum:0.1,0.9", **choices))

    names = [operator.full_name for operator in network.operators]
    assert names[names.index("Default/Div-op0") :] == [
        *("Default/Div-op0", "Default/AssignAdd-op0", "Default/Div-op1", "Default/AssignAdd-op1"),
        *("Default/FloorMod-op0", "Default/Equal-op0"),
        *("Default/Square-op0", "Default/ReduceSum-op0", "Default/ExpandDims-op0"),
        *("Default/Square-op1", "Default/ReduceSum-op1", "Default/ExpandDims-op1"),
        *("Default/AddN-op0", "Default/Sqrt-op0", "Default/GreaterEqual-op0", "Default/Select-op0"),
        *("Default/Mul-op0", "Default/Div-op2", "Default/Mul-op1", "Default/Div-op3"),
        "Default/optimizer-Momentum/AssignAdd-op0",
        *("Default/optimizer-Momentum/ApplyMomentum-op0", "Default/optimizer-Momentum/ApplyMomentum-op1"),
        *("Default/Assign-op0", "Default/Assign-op1"),
        "Default/AssignAdd-op2",  # the counter, in both branches
        "Default/AssignAdd-op3",
    ]
    counted = {name: (array.shape, array.dtype) for name, array in network.state().items() if "_" in name}
    assert counted == {
        "counter_": ((), np.int32),
        "accumulate_.fc2.weight": ((4, 6), np.float32),
        "accumulate_.fc2.bias": ((4,), np.float32),
        "global_step": ((1,), np.int32),
    }


@pytest.mark.parametrize("device_target", ["CPU", "Ascend"])
def test_step_without_parameters_has_no_norm(device_target):
    """Where nothing is trained no operator reads gradients, and no step overflows."""
    model = parsed("net (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    choices = {"accumulate": 2, "clip_gradients": "global_norm:1.0", "loss_scale": "dynamic"}
    step = step_graph(model, "mse", device_target=device_target, **choices)
    network = msdump.load(step)

    overflows = [bool(network.train_step(*[np.ones((2, 3), np.float32)] * 2)[1]) for _ in range(2)]

    assert [False, False] == overflows
    assert {"counter_": 3, "global_step": 1} == {
        name: int(network.state()[name].item()) for name in ("counter_", "global_step")
    }
    assert not {"Sqrt", "AllFinite", "ReduceAll"} & {operator.op_type for operator in network.operators}
