"""Gradients of dense layers against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.differences import check, one_operator

_RNG = np.random.default_rng(3)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


CASES = {
    "Gemm": (("Gemm", [_normal(3, 4), _normal(4, 5), _normal(5)], {}), (3, 5)),
    "Gemm_transposed": (
        (
            "Gemm",
            [_normal(4, 3), _normal(5, 4), _normal(5)],
            {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
        ),
        (3, 5),
    ),
    "Gemm_without_bias": (("Gemm", [_normal(3, 4), _normal(5, 4)], {"transB": 1}), (3, 5)),
    "MatMul": (("MatMul", [_normal(3, 4), _normal(4, 5)], {}), (3, 5)),
    "Relu": (("Relu", [_normal(3, 4) + 0.01], {}), (3, 4)),
    "Flatten": (("Flatten", [_normal(2, 3, 4)], {}), (2, 12)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)
