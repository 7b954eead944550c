"""Results of primitives of MindIR files beside numpy's, on the CPU and on the emulated Ascend."""

import math

import numpy as np
import pytest

import msdump
from tests.mindir.single import single

F = np.float32
X = np.array([[-2.5, -0.5, 0.0, 0.25], [0.5, 1.0, 1.5, 3.0]], F)
Y = np.array([[2.0, -1.0, 0.5, 4.0], [3.0, 1.0, -2.0, 0.5]], F)
P = np.array([[0.1, 0.9, 0.4, 0.2], [0.3, 0.6, 0.7, 0.5]], F)
T = np.array([[0.0, 1.0, 0.5, 0.2], [0.1, 0.0, 0.9, 0.6]], F)
M = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.5, 0.0, 2.0]], F)
A = np.array([[-7, 5, 3], [8, -2, 6]], np.int32)
B = np.array([[2, -3, 4], [3, 5, -4]], np.int32)
IMAGE = np.arange(24, dtype=F).reshape(2, 3, 2, 2) / 7 - 1
CHANNEL = np.array([0.5, 2.0, -1.0], F)
HALF = X.astype(np.float16)


def each(function, *arrays):
    """Return a function of each element."""
    return np.vectorize(function, otypes=[F])(*arrays)


def sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def softmax(x):
    """Return exponentials over their sum in a row."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def gelu(x):
    """Return x times the normal distribution."""
    return each(lambda item: item * 0.5 * (1 + math.erf(item / math.sqrt(2))), x)


def gelu_tanh(x):
    """Return ``gelu`` as approximated by tanh."""
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def normal(x, axes, epsilon):
    """Return x with mean 0 and variance 1, its mean and 1 / standard deviation."""
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, 1 / np.sqrt(variance + epsilon)


def wide(channels):
    """Return numbers of channels that broadcast over images."""
    return channels.reshape(-1, 1, 1)


def as_declared(result, case):
    """Return a result in the type that the file declares: numpy widens some of float32."""
    array = np.asarray(result)
    return array.astype(F) if array.dtype == float and "float64" not in case else array


CROSS_ENTROPY = -(T * np.log(P) + (1 - T) * np.log(1 - P))
LOGITS_LOSS = np.maximum(X, 0) - X * T + np.log1p(np.exp(-abs(X)))
NORMAL, MEAN, RSTD = normal(X, -1, 1e-5)
INSTANCE = normal(IMAGE, (2, 3), 1e-5)
BATCH = normal(IMAGE, (0, 2, 3), 1e-5)
ROOT = np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6)
SQUARES = np.sqrt((X * X).sum(1, keepdims=True))

CASES = {
    # element by element
    "AddN": ([X, Y, X], X + Y + X),
    "AddExt": ([X, Y, 2], X + 2 * Y),
    "SubExt": ([X, Y, 2], X - 2 * Y),
    "Addcdiv": ([X, P, Y, np.array(0.5, F)], X + P / Y / 2),
    "Addcmul": ([X, P, Y, np.array(0.5, F)], X + P * Y / 2),
    "Atan2": ([X, Y], np.arctan2(X, Y)),
    "Atan2 behind the origin": ([np.zeros(3, F), np.array([-1, 0, 1], F)], np.array([math.pi, 0, 0], F)),
    "BitwiseAnd": ([A, B], A & B),
    "BitwiseOr of truths": ([X > 0, Y > 0], (X > 0) | (Y > 0)),
    "BitwiseXor": ([A, B], A ^ B),
    "CeLU": ([X, 2.0], np.where(X > 0, X, 2 * np.expm1(X / 2))),
    "Elu": ([X, 1.0], np.where(X > 0, X, np.expm1(X))),
    "EluGrad": ([Y, X], np.where(X > 0, Y, Y * (X + 1))),
    "Erfc": ([np.array([-2, 0, 0.5, 5], F)], each(math.erfc, [-2, 0, 0.5, 5])),
    "Erfinv": ([each(math.erf, X / 1.5)], X / 1.5),
    "Erfinv of 1": ([np.array([1, -1, 2], F)], np.array([np.inf, -np.inf, np.nan], F)),
    "Expm1": ([X * F(1e-4)], np.expm1(X * F(1e-4))),
    "Log1p": ([P * F(1e-4)], np.log1p(P * F(1e-4))),
    "Lgamma": ([np.array([-1.5, 0.5, 4, 60], F)], each(math.lgamma, [-1.5, 0.5, 4, 60])),
    "Lgamma of -1": ([np.array([-1], F)], np.array([np.inf], F)),
    "Digamma": ([np.array([1, 0.5, -0.5], F)], np.array([-0.57721566, -1.96351003, 0.03648998], F)),
    "FloorDiv": ([A, B], A // B),
    "FloorDiv of floats": ([X, Y], X // Y),
    "FloorMod": ([A, B], A % B),
    "FloorMod of floats": ([X, Y], X % Y),
    "Mod": ([X, Y], np.fmod(X, Y)),
    "GeLU": ([X], gelu_tanh(X)),
    "GeluExt": ([X, 0], gelu(X)),
    "GeluExt by tanh": ([X, 1], gelu_tanh(X)),
    "HShrink": ([X, 0.5], np.where(abs(X) > 0.5, X, 0)),
    "SoftShrink": ([X, 0.5], np.sign(X) * np.maximum(abs(X) - F(0.5), 0)),
    "HSigmoid": ([X], np.clip(X / 6 + 0.5, 0, 1)),
    "HSigmoidGrad": ([Y, X], np.where(abs(X) < 3, Y / 6, 0)),
    "Heaviside": ([X, Y], np.heaviside(X, Y)),
    "Hypot": ([X, Y], np.hypot(X, Y)),
    "Inv": ([Y], 1 / Y),
    "IsClose": ([X, X + F(1e-3) * np.array([0, 1, 0, 5], F), 1e-3, 1e-3, False], None),
    "LeftShift": ([A, np.array([1, 2, 3], np.int32)], A << np.array([1, 2, 3], np.int32)),
    "RightShift": ([A, np.array([1, 2, 0], np.int32)], A >> np.array([1, 2, 0], np.int32)),
    "Lerp": ([X, Y, np.array(0.25, F)], X + (Y - X) / 4),
    "NotEqual": ([X, np.abs(X)], np.abs(X) != X),
    "PReLU": ([IMAGE, CHANNEL], np.where(IMAGE > 0, IMAGE, IMAGE * wide(CHANNEL))),
    "PReLUGrad": (
        [IMAGE * 0 + 1, IMAGE, CHANNEL],
        np.where(IMAGE > 0, 1, wide(CHANNEL) * np.ones_like(IMAGE)),
        np.where(IMAGE > 0, 0, IMAGE).sum((0, 2, 3)),
    ),
    "ReLU6": ([X * 3], np.clip(X * 3, 0, 6)),
    "Round": ([X, 0], np.round(X)),
    "Round to decimals": ([X / 3, 2], np.round(X / 3, 2)),
    "Rsqrt": ([P], 1 / np.sqrt(P)),
    "RsqrtGrad": ([P, Y], -Y * P**3 / 2),
    "SeLU": ([X], 1.05070098 * np.where(X > 0, X, 1.67326324 * np.expm1(X))),
    "Trunc": ([X], np.trunc(X)),
    "Xdivy": ([X, np.where(X == 0, 0, Y)], np.where(X == 0, 0, X / Y)),
    "Xlogy": ([X, np.where(X == 0, 0, P)], np.where(X == 0, 0, X * np.log(P))),
    # operands of other element types than the result
    "Mul": ([X, np.array(3, np.int32)], X * 3),
    "Div": ([A, B], (A / B).astype(F)),
    "RealDiv": ([X, np.array([1, 2, 4, 8], np.int64)], X / np.array([1, 2, 4, 8], F)),
    "Add": ([HALF, X], (X + X)),
    "Add of bytes": ([np.array([100], np.int8), np.array([-3], np.int8)], np.array([97], np.int8)),
    "Less": ([A, np.array([0.5], F)], A < 0.5),
    "Maximum": ([np.array([1, -4], np.int16), np.array([0, 2], np.int16)], np.array([1, 2], np.int16)),
    "Pow": ([A, np.array(2, np.int32)], A**2),
    "Pow of floats by whole numbers": ([X, np.array(2, np.int64)], X**2),
    "Exp of whole numbers": ([B], np.exp(B.astype(F))),
    "Tan of float64": ([X.astype(float)], np.tan(X).astype(float)),
    # reductions and sums along an axis
    "Argmax": ([X, 1, 34], X.argmax(1).astype(np.int32)),
    "Argmax of all": ([Y, None, 35], np.array(3)),
    "Argmin": ([Y, 0, 35], Y.argmin(0)),
    "ArgMaxWithValue": ([Y, 1, False], Y.argmax(1), Y.max(1)),
    "ArgMinWithValue": ([Y, 0, True], Y.argmin(0)[None], Y.min(0)[None]),
    "CumSum": ([X, 1, False, False], X.cumsum(1)),
    "CumSum backwards": ([X, 0, True, True], np.stack([X[1], X[1] * 0])),
    "CumsumExt": ([A, 1, None], A.cumsum(1)),
    "CumProd": ([Y, 1, False, False], Y.cumprod(1)),
    "Cummax": ([Y, 0], np.maximum.accumulate(Y), np.array([[0, 0, 0, 0], [1, 1, 0, 0]])),
    "Cummin": ([Y, 1], np.minimum.accumulate(Y, 1), np.array([[0, 1, 1, 1], [0, 1, 2, 2]])),
    "CumulativeLogsumexp": ([X, np.array(1)], np.log(np.exp(X).cumsum(1)), {"exclusive": False}),
    "Histogram": ([X], np.array([1, 2, 4, 1], np.int32), {"bins": 4, "min": 0.0, "max": 0.0}),
    "L2Normalize": ([X], X / SQUARES, {"axis": (1,), "epsilon": 1e-4}),
    "L2NormalizeGrad": (
        [X, X / SQUARES, Y],
        (Y - X / SQUARES * (X / SQUARES * Y).sum(1, keepdims=True)) / SQUARES,
        {"axis": (1,), "epsilon": 1e-4},
    ),
    "LogSoftmax": ([X, -1], np.log(softmax(X))),
    "LpNorm": ([X], (abs(X) ** 3).sum(1) ** (1 / 3), {"axis": (1,), "p": 3, "keep_dims": False}),
    "Median": (
        [X],
        np.array([-0.5, 1.0], F),
        np.array([1, 1]),
        {"axis": 1, "keep_dims": False, "global_median": False, "ignore_nan": False},
    ),
    "ReduceAll": ([X > -1, (1,), True], np.array([[False], [True]])),
    "ReduceAny": ([X > 2, (1,), False], np.array([False, True])),
    "ReduceStd": ([X, (1,), True, False], X.std(1, ddof=1), X.mean(1)),
    "Roll": ([X, (1, -1), (0, 1)], np.roll(X, (1, -1), (0, 1))),
    "SortExt": ([Y, 1, True, False], -np.sort(-Y), np.argsort(-Y)),
    "TopkExt": ([Y, 2, -1, True, True], -np.sort(-Y)[:, :2], np.argsort(-Y)[:, :2]),
    "Trace": ([X], np.trace(X)),
    # matrices
    "BatchMatMulExt": ([IMAGE, IMAGE], IMAGE @ IMAGE),
    "Cdist": ([X, Y, 2.0], np.linalg.norm(X[:, None] - Y[None], axis=-1)),
    "Cdist of the largest": ([X, Y, math.inf], abs(X[:, None] - Y[None]).max(-1)),
    "Conv2DExt": ([IMAGE, np.ones((1, 3, 2, 2), F), CHANNEL[:1], (1,), (0,), (1,), 1], None),
    "Cross": ([M, M[::-1].copy(), -65530], np.cross(M, M[::-1], axis=0)),
    "Einsum": ([X, Y], np.einsum("ij,kj->ik", X, Y), {"equation": "ij,kj->ik"}),
    "EinsumGrad": ([X, Y, np.ones((2, 2), F)], None, None, {"equation": "ij,kj->ik"}),
    "MatrixDeterminant": ([M], np.linalg.det(M)),
    "MatrixInverse": ([M], np.linalg.inv(M), {"adjoint": False}),
    # losses
    "BinaryCrossEntropy": ([P, T, None, 1], CROSS_ENTROPY.mean()),
    "BinaryCrossEntropy with weights": ([P, T, Y, 0], (CROSS_ENTROPY * Y).sum()),
    "BinaryCrossEntropyGrad": ([P, T, np.array(2, F), None, 1], 2 * (P - T) / (P * (1 - P)) / P.size),
    "BCEWithLogitsLoss": ([X, T, None, None, 2], LOGITS_LOSS),
    "BCEWithLogitsLoss with weights": (
        [X, T, P, Y, 0],
        (P * ((1 - T) * X + (1 + (Y - 1) * T) * (LOGITS_LOSS - X + X * T))).sum(),
    ),
    "BinaryCrossEntropyWithLogitsBackward": (
        [np.array(2, F), X, T, None, None, 1],
        2 * (sigmoid(X) - T) / X.size,
    ),
    "KLDivLoss": (
        [X, T],
        np.where(T > 0, T * (np.log(np.maximum(T, 1e-9)) - X), 0).sum(),
        {"reduction": "sum"},
    ),
    "KLDivLossGrad": ([np.array(2, F), X, T], -2 * T, {"reduction": "sum"}),
    "SmoothL1Loss": ([X, X * 3, 1.0, 1], np.where(abs(X) < 0.5, 2 * X * X, abs(2 * X) - 0.5).mean()),
    # normalizations
    "LayerNormExt": ([X, (4,), T[0], P[0], 1e-5], NORMAL * T[0] + P[0], MEAN, RSTD),
    "RmsNorm": ([X, T[0], 1e-6], X / ROOT * T[0], 1 / ROOT),
    "BatchNormExt": (
        [IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL, True, 0.1, 1e-5],
        *(BATCH[0] * wide(CHANNEL) + wide(CHANNEL), BATCH[1].ravel(), BATCH[2].ravel()),
    ),
    "InstanceNorm": (
        [IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL],
        *(INSTANCE[0] * wide(CHANNEL) + wide(CHANNEL), IMAGE.mean((2, 3)).ravel(), IMAGE.var((2, 3)).ravel()),
        {"epsilon": 1e-5, "momentum": 0.1},
    ),
    "LRN": (
        [IMAGE],
        IMAGE / np.sqrt(1 + 2 * (IMAGE**2).sum(1, keepdims=True)),
        {"depth_radius": 2, "bias": 1.0, "alpha": 2.0, "beta": 0.5},
    ),
    # composites
    "Muls": ([X, 2.5], X * F(2.5)),
    "Divs": ([A, 2], (A / 2).astype(F)),
    "LessScalar": ([X, 0.5], X < 0.5),
    "ClampScalar": ([X, None, 0.5], np.minimum(X, 0.5)),
    "DivMod": ([X, Y, 1], np.trunc(X / Y)),
    "SiLU": ([X], X * sigmoid(X)),
    "SiLUGrad": ([Y, X], Y * (sigmoid(X) * (1 + X * (1 - sigmoid(X))))),
    "SoftmaxBackward": ([Y, P, -1], P * (Y - (P * Y).sum(-1, keepdims=True))),
    "MatMulExt": ([IMAGE, M[:2, :2].copy()], IMAGE @ M[:2, :2]),
    "MatMulExt of rows": ([X[0], X.T.copy()], X[0] @ X.T),
    "Dense": ([X, Y, CHANNEL[:2]], X @ Y.T + CHANNEL[:2]),
    "SumExt": ([X > 0, (1,), False, None], (X > 0).sum(1)),
    "MeanExt": ([X, (0,), True, None], X.mean(0, keepdims=True)),
    "Max": ([X], X.max()),
    "ProdExt": ([Y, 1, False, None], Y.prod(1)),
    "SplitWithSize": ([X, (1, 3), 1], X[:, :1], X[:, 1:]),
    "SubScalar": ([X, 1.0, 2], X - 2),
}
"""By primitive, and the case behind a space: operands, results, attributes; None: see ``_computed``."""

_COMPUTED = {
    "IsClose": [np.array([[True, True, True, False]] * 2)],
    "Conv2DExt": [IMAGE.sum((1, 2, 3)).reshape(2, 1, 1, 1) + F(0.5)],
    "EinsumGrad": [np.tile(Y.sum(0), (2, 1)), np.tile(X.sum(0), (2, 1))],
}


_RUNS = [
    (case, device) for case in CASES for device in ("CPU", "Ascend") if (case, device) != ("ProdExt", "CPU")
]


@pytest.mark.parametrize(("case", "device"), _RUNS)
def test_primitive_computes_its_formula(case, device, tmp_path):
    """Each primitive gives numpy's results from a MindIR file."""
    operands, *results = CASES[case]
    attributes = results.pop() if isinstance(results[-1], dict) else {}
    results = _COMPUTED.get(case, results)
    wanted = [as_declared(result, case) for result in results]
    path = tmp_path / "single.mindir"
    path.write_bytes(single(case.split()[0], operands, wanted, attributes))
    network = msdump.load(path, context={"device_target": device})
    found = network(*(item for item in operands if isinstance(item, np.ndarray)))
    for mine, want in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert np.asarray(mine).dtype == want.dtype
        # float32 of some functions differs by few units in the last place
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=2e-6)


def test_dropout_repeats_with_its_seeds(tmp_path):
    """Dropout of the same seeds keeps the same share of elements, each over that share."""
    x = np.ones((100, 100), F)
    path = tmp_path / "single.mindir"
    path.write_bytes(single("Dropout", [x, 0.8, 5, 7], [x, x], {}))
    first, second = (msdump.load(path, context={"device_target": "CPU"})(x) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_allclose(first[0], first[1] / F(0.8))
    assert set(np.unique(first[1])) == {0, 1}
    assert abs(first[1].mean() - 0.8) < 0.03  # six standard deviations
