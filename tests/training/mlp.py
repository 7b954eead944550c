"""A perceptron in the layers of MindSpore, small enough to be followed in numpy."""

import numpy as np

import msdump
from tests.training.cells import in_cells

FEATURES, HIDDEN, CLASSES = 8, 6, 4
BATCH = 5


def mlp(*, features=FEATURES, has_norm=False, ends_in_float32=False):
    """Return Dense, LayerNorm if ``has_norm``, ReLU, Dense, of the class MLP.

    Args:
        features: Number of inputs of the first layer.
        has_norm: Whether there is a LayerNorm.
        ends_in_float32: Whether the network itself casts its result to float32.
    """
    random = np.random.default_rng(1)
    weights = {
        "fc1.weight": random.normal(0, 0.3, (HIDDEN, features)),
        "fc1.bias": random.normal(0, 0.1, HIDDEN),
        "norm.gamma": np.ones(HIDDEN),
        "norm.beta": np.zeros(HIDDEN),
        "fc2.weight": random.normal(0, 0.3, (CLASSES, HIDDEN)),
        "fc2.bias": random.normal(0, 0.1, CLASSES),
    }
    norm = '["norm-LayerNorm"] n = LayerNormalization<axis = -1>(h, "norm.gamma", "norm.beta")'
    text = f"""mlp (float[N,{features}] x) => (float[N,{CLASSES}] {"y" if ends_in_float32 else "s"}) {{
        ["fc1-Dense"] h = Gemm<transB = 1>(x, "fc1.weight", "fc1.bias")
        {norm if has_norm else ""}
        ["relu-ReLU"] r = Relu({"n" if has_norm else "h"})
        ["fc2-Dense"] s = Gemm<transB = 1>(r, "fc2.weight", "fc2.bias")
        {"y = Cast<to = 1>(s)" if ends_in_float32 else ""}
    }}"""
    return in_cells(text, "MLP", **{name: array.astype(np.float32) for name, array in weights.items()})


def batch(step, features=FEATURES):
    """Return the images and labels of a step."""
    random = np.random.default_rng(step)
    return (
        random.normal(0, 1, (BATCH, features)).astype(np.float32),
        random.integers(0, CLASSES, BATCH).astype(np.int32),
    )


def losses(step):
    """Return the losses of the first four steps."""
    network = msdump.load(step)
    results = [network.train_step(*batch(number)) for number in range(4)]
    return [float(result[0] if isinstance(result, tuple) else result) for result in results]
