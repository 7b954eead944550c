"""Choices of a training step: losses next to MindSpore's own steps, texts and objects, refused values."""

import re
from pathlib import Path

import numpy as np
import pytest

from msdump.errors import InputError
from msdump.training import OPTIMIZERS, options, step_graph
from msdump.training.optimizers import SGD, Adam
from tests.training.mlp import losses, mlp

MOMENTUM = "momentum:0.1,0.9"
LISTS = {"*.weight": "", "*": "learning_rate=0.1 0.2 0.3 0.1,weight_decay=0.1"}
WEIGHTS = {"*.weight": {"learning_rate": 0.01}, "*": "weight_decay=0"}

# four steps of MindSpore 2.10 on the CPU, of a perceptron with the same weights and batches
PLAIN = [
    ({"clip_gradients": "global_norm:0.1"}, (1.3433666, 1.4932674, 1.3250186, 1.2536726)),
    ({"clip_gradients": "value:-0.01,0.02"}, (1.3433666, 1.4917357, 1.3230432, 1.2556112)),
    ({"accumulate": 2}, (1.3433666, 1.4918889, 1.3222303, 1.26961)),
    ({"accumulate": "mean:2"}, (1.3433666, 1.4918889, 1.324589, 1.2595396)),
    ({"accumulate": 2, "clip_gradients": "global_norm:0.1"}, (1.3433666, 1.4918889, 1.3270905, 1.2510686)),
    (
        {"clip_gradients": "global_norm:0.1", "optimizer": "adam:0.1"},
        (1.3433666, 1.5766386, 1.3013456, 1.4468553),
    ),
    (
        {"clip_gradients": "value:-0.01,0.02", "optimizer": "adam:0.1"},
        (1.3433666, 1.5765016, 1.3091751, 1.4351346),
    ),
]

# the losses behind the first one where the perceptron has a normalisation
NORMALIZED = [
    ({"optimizer": "sgd:0.1,0.9,0.1"}, (1.4672675, 1.3893559, 1.483156)),
    ({"optimizer": "sgd:0.1,0.9,0.1,nesterov=true"}, (1.5102623, 1.3841946, 1.5120842)),
    ({"optimizer": "adam:0.1,use_nesterov=true"}, (2.183285, 1.4324448, 1.9326942)),
    ({"optimizer": "rmsprop:0.1,0.8,0.5,weight_decay=0.1"}, (1.471993, 1.3939406, 1.4587996)),
    ({"optimizer": "rmsprop:0.1,0.8,0.5,centered=true"}, (1.4738991, 1.3969853, 1.4633148)),
    ({"optimizer": "adagrad:0.1,weight_decay=0.1"}, (1.534676, 1.3895612, 1.4681915)),
    # the decay is scaled as the gradient is, and their sum divided; 1000 is no power of two
    ({"optimizer": "momentum:0.1,0.9,0.1", "loss_scale": 1000}, (1.4672675, 1.3893559, 1.483156)),
    ({"optimizer": "adam:0.1,weight_decay=0.1", "loss_scale": 1000}, (1.7280718, 1.4287708, 1.7074463)),
    ({"optimizer": "momentum:0.1 0.05 0.01 0.02,0.9,0.1"}, (1.4672675, 1.3936226, 1.4282157)),
    ({"optimizer": "momentum:0.1,0.9,0.5", "groups": WEIGHTS}, (1.4450523, 1.4182827, 1.4232117)),
    ({"optimizer": "momentum:0.1,0.9,0.5", "groups": LISTS}, (1.4589312, 1.3807681, 1.4939451)),
    ({"optimizer": "adamw:0.1,weight_decay=0.5", "groups": WEIGHTS}, (1.9615338, 1.6291215, 1.6769714)),
    (
        {
            "optimizer": "sgd:0.1,0.9,0.01",
            "groups": {"*.weight": "weight_decay=0.1", "*": "learning_rate=0.01"},
        },
        (1.4441801, 1.3924605, 1.4403572),
    ),
    ({"optimizer": {"fc1*": "sgd:0.1", "": Adam(0.01)}}, (1.4500858, 1.3999891, 1.4243906)),
]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("has_norm", "choices", "expected"),
    [
        *((False, *row) for row in PLAIN),
        *((True, choices, (1.44902, *later)) for choices, later in NORMALIZED),
    ],
    ids=str,
)
def test_losses_of_mindspore(has_norm, choices, expected):
    """Four steps have the losses of MindSpore, but for the rounding of float32."""
    step = step_graph(mlp(has_norm=has_norm), **{"optimizer": MOMENTUM} | choices)

    np.testing.assert_allclose(losses(step), expected, rtol=1e-5)


def test_texts_and_objects():
    """A text gives the same optimizer as its class, and an object stays as it is."""
    for choice in ("sgd: 0.1, 0.9, nesterov=TRUE", SGD(0.1, momentum=0.9, nesterov=True)):
        optimizer = options.parsed(choice, OPTIMIZERS, "optimizer")

        assert SGD(0.1, momentum=0.9, nesterov=True) == optimizer


REFUSED = [
    ("loss", "mes", "must be one of softmax_cross_entropy, dense_softmax_cross_entropy, mse, "),
    ("loss", "mes", "(did you mean 'mse'?)"),
    ("loss", "mse:max", "reduction is max; must be mean or sum or none; the options are reduction=mean"),
    ("loss", "smooth_l1:beta=0", "must be more than 0; the options are reduction=mean, beta=1"),
    ("loss", "l1:beta=1", "unknown option 'beta'; the options are reduction=mean"),
    ("loss", "none:sum", "'sum' is one value too many; there are no options"),
    ("optimizer", "sdg", "sgd, momentum, adam, adamw, rmsprop, adagrad (did you mean 'sgd'?)"),
    ("optimizer", "sgd:0.1,lr=3", "unknown option 'lr'; the options are learning_rate=0.1, momentum=0,"),
    ("optimizer", "sgd:fast", "learning_rate is 'fast'; must be a number"),
    ("optimizer", "sgd:-1", "learning_rate is -1.0; must be 0 or more"),
    ("optimizer", "sgd:nan", "learning_rate is nan; must be 0 or more"),
    ("optimizer", "momentum:0.1,0.9,0,maybe", "use_nesterov is 'maybe'; must be true or false"),
    ("optimizer", "adam:1,2", "beta1 is 2.0; must be between 0 and 1"),
    ("optimizer", "adamw:eps=0", "eps is 0.0; must be more than 0"),
    ("optimizer", "adamw:decayed=none", "decayed is none; must be weights or matrices or all"),
    ("optimizer", "sgd:0.1,nesterov=true", "nesterov needs a momentum above 0 and no dampening"),
    ("optimizer", "sgd:momentum=0.9,0.1", "'0.1' has no name, but follows an option with a name"),
    ("optimizer", "sgd:0.1,learning_rate=0.2", "learning_rate is given twice"),
    ("optimizer", "momentum:1,0.9,0,0,all,opt,4", "'4' is one value too many"),
    ("optimizer", {}, "no optimizer for fc1.weight, fc1.bias, norm.gamma, norm.beta, fc2.weight"),
    (
        "optimizer",
        {"fc2.wweight": "sgd", "": "adam"},
        "there are fc1.weight, fc1.bias, norm.gamma, norm.beta, fc2.weight, fc2.bias (did you mean 'fc2",
    ),
    (
        "optimizer",
        {"*.bias": "sgd", "fc?.bias": "adam", "*": "sgd"},
        "optimizer 'fc?.bias': earlier patterns have all its parameters",
    ),
    (
        "optimizer",
        {"fc*": "sgd"},
        "no optimizer for norm.gamma, norm.beta; add an optimizer without a pattern",
    ),
    ("optimizer", {"": "sgd", "*": "adam"}, "the optimizer without a pattern has no parameters"),
    ("optimizer", {"fc*": "sdg"}, "unknown optimizer 'sdg'"),
    ("groups", {"*.biass": {}}, "group '*.biass': no trained parameter has this name"),
    ("groups", {"*": {"lr": 1}}, "'lr'; the options are learning_rate=none, weight_decay=none"),
    ("groups", {"*": "weight_decay=much"}, "group '*': weight_decay is 'much'; must be a number"),
    ("groups", {"*": "weight_decay=1 2"}, "weight_decay is (1.0, 2.0); must be 0 or more"),
    ("groups", {"*": {"learning_rate": [0.1, -1]}}, "learning_rate is [0.1, -1]; must be 0 or more"),
    ("groups", {"*": {"learning_rate": []}}, "learning_rate is []; must be 0 or more, or a list of"),
    ("groups", {"fc1*": "learning_rate=1 2", "*": "learning_rate=1 2 3"}, "rates have 2, 3 elements"),
    ("clip_gradients", "globalnorm:1", "unknown clipping 'globalnorm': must be one of global_norm, value ("),
    ("clip_gradients", "global_norm:0", "clip_norm is 0.0; must be more than 0"),
    ("clip_gradients", "global_norm:1,2", "'2' is one value too many"),
    ("clip_gradients", "value", "clip_value_min is -inf, clip_value_max is inf; must be a smaller"),
    ("clip_gradients", "value:1,-1", "clip_value_min is 1.0, clip_value_max is -1.0"),
    ("clip_gradients", "value:nan,1", "clip_value_min is nan"),
    ("accumulate", 0, "steps is 0.0; must be a whole number from 1"),
    ("accumulate", "2.5", "steps is 2.5"),
    ("accumulate", 2**31, "must be a whole number from 1 to 2147483647"),
    ("accumulate", "-inf", "steps is -inf"),
    ("accumulate", "average:2", "unknown accumulation 'average': must be one of sum, mean"),
    ("loss_scale", 0, "value is 0.0; must be more than 0"),
    ("loss_scale", "dynamic:1024,factor=1", "factor is 1.0; must be more than 1"),
    ("loss_scale", "dynamics", "did you mean 'dynamic'"),
    ("data_parallel", 0, "data_parallel=0: must be a number of ranks from 1"),
    ("precision", "float8", "unknown precision 'float8': must be one of float32, float16, bfloat16"),
    ("precision", {"fc3": "float16"}, "layer 'fc3'"),
    ("device_target", "GPUs", "did you mean 'GPU'"),
    ("device_target", "TPU", "unknown device 'TPU'"),
    ("overflow_mode", "SATURATION_MOD", "did you mean 'SATURATION_MODE'"),
]


@pytest.mark.parametrize(("choice", "value", "message"), REFUSED, ids=str)
def test_refused(choice, value, message):
    """Unknown names and options, values out of range and patterns without parameters are refused."""
    with pytest.raises(InputError, match=re.escape(message)):
        step_graph(mlp(has_norm=True), **{choice: value})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_page(name):
    """The page on training lists the options of an optimizer with their defaults."""
    page = Path("docs/how-to/dump-training.md").read_text(encoding="utf-8")
    with pytest.raises(InputError) as refused:
        options.parsed(f"{name}:none=1", OPTIMIZERS, "optimizer")

    allowed = str(refused.value).partition("the options are ")[2].split(", ")
    assert f"| `{name}` | {', '.join(f'`{option}`' for option in allowed)} |" in page
