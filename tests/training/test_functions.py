"""Gradients of functions of one operand against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, bindings_of, one_operator


def _grid(low, high):
    """Return numbers between two bounds, none of them round."""
    return np.linspace(low + 0.0131, high - 0.0217, 12).astype(np.float32).reshape(3, 4)


_ANY, _POSITIVE, _INSIDE = _grid(-3, 3), _grid(0.2, 3), _grid(-0.9, 0.9)

_PLAIN = {
    **dict.fromkeys(("Neg", "Abs", "Reciprocal", "Exp", "Erf", "Sin", "Cos", "Sinh", "Cosh", "Tanh"), _ANY),
    **dict.fromkeys(("Atan", "Asinh", "Sigmoid", "Softsign"), _ANY),
    **dict.fromkeys(("Sqrt", "Log"), _POSITIVE),
    **dict.fromkeys(("Asin", "Acos", "Atanh", "Tan"), _INSIDE),
    "Acosh": _grid(1.2, 4),
}

_AXIS = np.array(1, np.int64)
CASES = {
    **{name: (name, [array], {}) for name, array in _PLAIN.items()},
    "Exp_of_vector": ("Exp", [_ANY[0]], {}),
    "CumSum": ("CumSum", [_ANY, _AXIS], {}),
    "CumSum_exclusive": ("CumSum", [_ANY, _AXIS], {"exclusive": 1}),
    "CumSum_reverse": ("CumSum", [_ANY, np.array(-2, np.int64)], {"reverse": 1}),
    "CumSum_both": ("CumSum", [_ANY, np.array(0, np.int32)], {"reverse": 1, "exclusive": 1}),
}

CONSTANTS = {name: ((name, [_ANY], {}),) for name in ("Sign", "Floor", "Ceil", "Round", "Hardmax")}
"""Operators whose gradient is zero wherever they have one."""


@pytest.mark.parametrize("case", CONSTANTS)
def test_what_is_constant_trains_nothing(case):
    """A parameter behind a function without slope is not updated."""
    step = step_graph(one_operator(*CONSTANTS[case][0]), WEIGHTED)

    assert ["global_step"] == [*bindings_of(step)]
