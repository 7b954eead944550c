"""The networks that the reference trained, with the reference's class names and first weights."""

import math

import numpy as np

from tests.training.cells import in_cells

_DENSE = '["{0}-Dense"] {2} = Gemm<transB = 1>({1}, "{0}.weight", "{0}.bias")'


def _dense(name, x, y):
    return _DENSE.format(name, x, y)


_NORM = '["norm-LayerNorm"] n = LayerNormalization<axis = -1, epsilon = {}>({}, "norm.gamma", "norm.beta")'

NETWORKS = {
    "momentum": (
        "MLP",
        "float[5,8] x",
        f'{_dense("fc1", "x", "h")} ["relu-ReLU"] r = Relu(h) {_dense("fc2", "r", "y")}',
    ),
    "convbn": (
        "ConvNet",
        "float[4,1,8,8] x",
        f"""["conv1-Conv2d"] c = Conv<strides = [1, 1], auto_pad = "SAME_UPPER">(x, "conv1.weight")
        ["bn1-BatchNorm2d"] b = BatchNormalization(c, "bn1.gamma", "bn1.beta", zeros, ones)
        ["relu-ReLU"] r = Relu(b)
        ["pool-MaxPool2d"] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        ["conv2-Conv2d"] d = Conv<strides = [2, 2], auto_pad = "SAME_UPPER">(p, "conv2.weight", "conv2.bias")
        ["relu-ReLU"] s = Relu(d) ["flatten-Flatten"] f = Flatten(s) {_dense("fc", "f", "y")}""",
    ),
    "adam": (
        "MLP",
        "float[4,6] x",
        f"""{_dense("fc1", "x", "h")} ["gelu-GELU"] g = Gelu<approximate = "tanh">(h)
        {_NORM.format("1e-7", "g")} {_dense("fc2", "n", "k")} ["fc2-Dense/activation-Tanh"] t = Tanh(k)
        ["drop-Dropout"] d = Dropout(t, ratio, on) {_dense("fc3", "d", "y")}""",
    ),
    "attention": (
        "Classifier",
        "int32[2,5] x",
        f"""["embed-Embedding"] i = Reshape(x, flat)
        ["embed-Embedding"] v = Gather<axis = 0>("embed.embedding_table", i)
        ["embed-Embedding"] e = Reshape(v, words)
        ["attn-Attention"] q = MatMul(e, "attn.wqk")
        ["attn-Attention"] w = MatMul(e, "attn.wv")
        ["attn-Attention"] k = Transpose<perm = [0, 2, 1]>(e)
        ["attn-Attention"] s = MatMul(q, k)
        ["attn-Attention"] scores = Mul(s, scale)
        ["attn-Attention/softmax-Softmax"] p = Softmax<axis = -1>(scores)
        ["attn-Attention"] a = MatMul(p, w)
        r = Add(e, a) {_NORM.format("1e-5", "r")} m = ReduceMean<keepdims = 0>(n, axis)
        {_dense("head", "m", "y")}""",
    ),
    "datasink": ("Dense", "float[4,6] x", "y = Gemm<transB = 1>(x, weight, bias)"),
    "fixedscale": (
        "MLP",
        "float[5,8] x",
        f"""{_dense("fc1", "x", "h")} {_NORM.format("1e-7", "h")} ["relu-ReLU"] r = Relu(n)
        {_dense("fc2", "r", "y")}""",
    ),
    "lossscale": (
        "MLP",
        "float[5,8] x",
        f'{_dense("fc1", "x", "h")} ["relu-ReLU"] r = Relu(h) {_dense("fc2", "r", "s")} y = Cast<to = 1>(s)',
    ),
}
"""Class, input and operators by the golden's name."""

CONSTANTS = {
    "zeros": np.zeros(4, np.float32),
    "ones": np.ones(4, np.float32),
    "ratio": np.array(0.3, np.float32),
    "on": np.array(True),
    "flat": np.array([-1]),
    "words": np.array([2, 5, 8]),
    "scale": np.array(1 / math.sqrt(8), np.float32),
    "axis": np.array([1]),
}


def model(name, weights):
    """Return a network with the reference's first weights, arrays by the names of the parameters."""
    kind, given, operators = NETWORKS[name]
    return in_cells(f"{name} ({given}) => (y) {{ {operators} }}", kind, **weights, **CONSTANTS)
