"""Operator graphs that are inferred from the elements of dumped tensors."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.judge.pair import graph_of_contents
from msdump.read import SourceKind, ValueSource, read_folder
from tests.judge.compare import compared

SIZES = {"small": 1_000, "large": 300_001}  # below and above the size that is hashed in full at once


def written(name):
    """Return the source that an operator's first output is."""
    return ValueSource(SourceKind.OPERATOR, name)


def put(folder, number, name, output, *inputs):
    """Write the dump file of an operator."""
    tensors = [compared.device(each) for each in inputs]
    compared.put(folder, f"Add.{name}.{number}.0", number, compared.device(output), inputs=tensors)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_values_that_few_bits_tell_apart(tmp_path, size):
    """The reader of a value is found though other values differ from it in one element only."""
    values = np.zeros((4, size), np.float32)
    values[1, 0] = values[2, size // 3] = values[3, -1] = 1
    for number, value in enumerate(values):
        put(tmp_path, number + 1, f"writer{number}", value)
    for number, value in enumerate(values):
        put(tmp_path, number + 11, f"reader{number}", np.full(size, number + 2, np.float32), value)
    put(
        tmp_path, 21, "last", np.float32([0]), *(np.full(size, number + 2, np.float32) for number in range(4))
    )

    graph = graph_of_contents(read_folder(str(tmp_path)))

    assert [(written(f"writer{number}"),) for number in range(4)] == [
        graph.operators[f"reader{number}"].inputs for number in range(4)
    ]
    assert tuple(written(f"reader{number}") for number in range(4)) == graph.operators["last"].inputs


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_last_writer_counts(tmp_path, size):
    """Of several operators that wrote the same elements the last before the reader is read."""
    value = np.arange(size, dtype=np.float32)
    weight = value + 1
    put(tmp_path, 1, "first", value, np.float32([7]))
    put(tmp_path, 2, "second", value, value, weight)
    put(tmp_path, 3, "third", value * 2, value, weight)

    graph = graph_of_contents(read_folder(str(tmp_path)))

    first_weight = ValueSource(SourceKind.WEIGHT, "second/input1")
    assert (written("first"), first_weight) == graph.operators["second"].inputs
    assert (written("second"), first_weight) == graph.operators["third"].inputs
    assert (written("third"),) == graph.outputs


def test_passes_of_a_loop_and_inputs_are_written_too(tmp_path):
    """The output of a later pass has the operator as its source; outputs of Data are network inputs."""
    value, first, second = (np.arange(9, dtype=np.float32) + number for number in range(3))
    compared.put(tmp_path, "Data.x.1.0", 1, compared.device(value), inputs=[])
    compared.put(tmp_path, "Add.loop.2.0", 2, compared.device(first), inputs=[compared.device(value)])
    compared.put(tmp_path, "Add.loop.2.0", 3, compared.device(second), inputs=[compared.device(first)])
    put(tmp_path, 4, "behind", np.float32([1]), second)

    graph = graph_of_contents(read_folder(str(tmp_path)))

    assert ["loop", "behind"] == [*graph.operators]
    assert (ValueSource(SourceKind.INPUT, "x"),) == graph.operators["loop"].inputs
    assert (written("loop"),) == graph.operators["behind"].inputs
