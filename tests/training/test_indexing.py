"""Gradients of gathers, scatters and Einsum against numerical differences."""

from __future__ import annotations

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
    "Gather": ("Gather", [_TABLE, _ints([3, 1, 3])], {}),
    "Gather_embedding": ("Gather", [_TABLE, _IDS], {}),
    "GatherElements_int32": ("GatherElements", [_MATRIX, _ROWS.astype(np.int32)], {}),
    "ScatterElements_int32": ("ScatterElements", [_MATRIX, _ROWS.astype(np.int32), _CELLS], {}),
    "Gather_axis": ("Gather", [_normal(2, 5, 3), _IDS], {"axis": 1}),
    "Gather_one_of_axis": ("Gather", [_normal(2, 3), _ints(1)], {"axis": 1}),
    "GatherElements": ("GatherElements", [_MATRIX, _ints([[0, 2, 1, 0], [0, -1, 0, 1]])], {}),
    "GatherElements_axis": ("GatherElements", [_MATRIX, _ints([[3], [0], [-1]])], {"axis": 1}),
    "GatherND": ("GatherND", [_MATRIX, _ints([[0, 1], [2, 3], [0, 1]])], {}),
    "GatherND_batch": ("GatherND", [_normal(2, 3, 4), _ints([[1], [0]])], {"batch_dims": 1}),
    "ScatterElements": ("ScatterElements", [_MATRIX, _ROWS, _CELLS], {}),
    "ScatterElements_axis": (
        "ScatterElements",
        [_MATRIX, _ints([[1], [0], [-1]]), _normal(3, 1)],
        {"axis": 1},
    ),
    "ScatterElements_add": (
        "ScatterElements",
        [_MATRIX, _ints([[1, 1, 0, 2], [1, 0, 0, 2]]), _normal(2, 4)],
        {"reduction": "add"},
    ),
    "ScatterElements_max": ("ScatterElements", [_MATRIX, _ROWS, _CELLS], {"reduction": "max"}),
    "ScatterND": ("ScatterND", [_MATRIX, _PLACES, _PARTS], {}),
    "ScatterND_add": ("ScatterND", [_MATRIX, _ints([[1], [1]]), _PARTS], {"reduction": "add"}),
    "ScatterND_max": ("ScatterND", [_MATRIX, _PLACES, _PARTS], {"reduction": "max"}),
    "TopK": ("TopK", [_MATRIX, _ints([2])], {}, 2),
    "TopK_smallest": ("TopK", [_MATRIX, _ints([1])], {"axis": 0, "largest": 0}, 2),
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
