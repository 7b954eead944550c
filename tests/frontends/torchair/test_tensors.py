"""Tensors of torch become arrays, and arrays tensors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from msdump.errors import InputError  # noqa: E402
from msdump.frontends.torchair import export  # noqa: E402

TYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"),
    *("complex64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
]
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", TYPES)
def test_both_directions_are_inverse(name):
    """Every element type survives the way to an array and back, values and bits alike."""
    tensor = torch.tensor([[0, 1, 2], [1, 0, 4]]).to(getattr(torch, name))

    array = export.to_array(tensor)
    back = export.from_array(array, tensor.stride(), CPU)

    assert name == array.dtype.name
    assert tensor.dtype == back.dtype
    assert torch.equal(tensor.view(torch.uint8), back.view(torch.uint8))


LAYOUTS = {
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "strided": lambda: torch.arange(12.0)[::3],
    "channels last": lambda: (
        torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    ),
    "needs a gradient": lambda: torch.ones(2, requires_grad=True),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "no elements": lambda: torch.empty(0, 3),
    "scalar": lambda: torch.tensor(2.0),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_keep_their_values(make):
    """An array has a tensor's values in order, however they lie in memory."""
    tensor = make()

    array = export.to_array(tensor)

    assert array.flags.c_contiguous
    assert tensor.tolist() == array.tolist()


def test_strides_are_those_asked_for():
    """A tensor gets the strides of eager execution, with memory of its own."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)

    tensor = export.from_array(array, (1, 2), CPU)
    array[0, 0] = 9

    assert (1, 2) == tensor.stride()
    assert [[0, 1, 2], [3, 4, 5]] == tensor.tolist()


def test_sparse_tensors_are_refused():
    """A sparse tensor has no dense array; the message says how to get one."""
    sparse = torch.eye(2).to_sparse()

    with pytest.raises(InputError, match="to_dense"):
        export.to_array(sparse)
