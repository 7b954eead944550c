"""Gradients of gathers, scatters and Einsum against numerical differences."""

import numpy as np
import pytest

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, normals, one_operator

_RNG = np.random.default_rng(17)


_normal = normals(_RNG)


def _ints(values):
    return np.array(values, np.int64)


_TABLE, _IDS = _normal(5, 3), _ints([[1, 4, 1], [0, 1, -1]])
_MATRIX = _normal(3, 4)
_PLACES, _PARTS = _ints([[0], [2]]), _normal(2, 4)
_ROWS, _CELLS = _ints([[0, 1, 2, 0]]), _normal(1, 4)

CASES = {
    "Gather_embedding": ("Gather", [_TABLE, _IDS], {}),
    "GatherElements_int32": ("GatherElements", [_MATRIX, _ROWS.astype(np.int32)], {}),
    "ScatterElements_int32": ("ScatterElements", [_MATRIX, _ROWS.astype(np.int32), _CELLS], {}),
    "Gather_one_of_axis": ("Gather", [_normal(2, 3), _ints(1)], {"axis": 1}),
    "GatherND_batch": ("GatherND", [_normal(2, 3, 4), _ints([[1], [0]])], {"batch_dims": 1}),
    "ScatterElements_max": ("ScatterElements", [_MATRIX, _ROWS, _CELLS], {"reduction": "max"}),
    "ScatterND": ("ScatterND", [_MATRIX, _PLACES, _PARTS], {}),
    "TopK_columns": ("TopK", [_MATRIX, _ints([2])], {"axis": 0}, 2),
    "ScatterND_max": ("ScatterND", [_MATRIX, _PLACES, _PARTS], {"reduction": "max"}),
    "Einsum_product": ("Einsum", [_normal(2, 3), _normal(3, 4)], {"equation": "ij,jk->ik"}),
    "Einsum_implicit": ("Einsum", [_normal(2, 3), _normal(3, 4)], {"equation": "ij,jk"}),
    "Einsum_attention": (
        "Einsum",
        [_normal(2, 3, 2, 4), _normal(2, 5, 2, 4)],
        {"equation": "bqhd,bkhd->bhqk"},
    ),
    "Einsum_sum_of_one": ("Einsum", [_normal(2, 3), _normal(3, 4)], {"equation": "ij,jk->i"}),
    "Einsum_alone": ("Einsum", [_normal(2, 3, 4)], {"equation": "ijk->ki"}),
    "Einsum_ellipsis": ("Einsum", [_normal(2, 3, 4), _normal(4, 5)], {"equation": "...ij,jk->...ik"}),
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("ScatterND", [_MATRIX, _PLACES, _PARTS], {"reduction": "mul"}),
            "TensorScatterMul: a reduction 'mul' has no gradient",
        ),
        (("Einsum", [_normal(3, 3)], {"equation": "ii->i"}), "Einsum: a diagonal has no gradient"),
    ],
)
def test_refused(arguments, message):
    """Forms without a gradient are refused, with the operator's place."""
    with pytest.raises(GraphError, match=f"layer/{message}"):
        step_graph(one_operator(*arguments), WEIGHTED)
