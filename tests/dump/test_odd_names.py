"""Whatever an operator is called, the lists and tables of its dump are read back."""

import json
import re

import numpy as np
import pytest

from msdump import open_dump
from tests.dump import nets
from tests.world import GPU, O0, cli

X = {"x": np.float32([[1, -2], [3, np.nan]])}
ODD = {
    "commas": "a,b,/,",
    "quotes": 'say "no", it\'s',
    "other letters": "Größe/名前",
    "line feed": "two\nlines",
    "carriage return": "two\r\nlines\r",
    "line separators": "one\u2028two\x85three\x0bfour",
    "tab": "a\tb",
    "formula": "=1+1",
    "spaces": " / ",
    "dots": "../up.npy",
    "header": "NodeExecutionOrder-FullNameWithScope",
    "long": "block/" * 50,
    "long in UTF-8": "né," * 100,
}


def network(odd):
    """Return two operators in scopes of an odd name."""
    nodes = [nets.node("Relu", "x", "a", f"{odd}/Relu"), nets.node("Neg", "a", "y", f"{odd}/again/Neg")]
    return nets.model(nodes, [nets.value("x", [2, 2])], ["y"])


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_lists_and_tables_read_back(door, odd):
    """Order, iterations, rows, stand-ins and the configuration of a dump come back with its names."""
    network_ = door.dump(network(odd), X, steps=2, context=GPU, saved_data="full", save_kernel_args=True)
    door.process.close()

    names = [operator.full_name for operator in network_.operators]
    dump = open_dump(door.path)
    rank = dump.ranks[0]
    (graph,) = rank.networks["Net"].graphs.values()
    assert tuple(names) == graph.execution_order
    assert (0, 1) == graph.iterations_run
    assert json.loads((door.folder / "data_dump.json").read_text()) == rank.config
    for iteration in graph.iterations.values():
        assert {*names, "x"} == {record.full_name for record in iteration.records}
        assert [5, 5] == [len(iteration.records), len(iteration.statistics)]
        listed = {re.sub(r"[^\w-]", "_", name, flags=re.ASCII) for name in names}
        assert {*listed, "x"} == {row["Op Name"] for row in iteration.statistics}
        assert () == tuple(dump.ignored)


FINITE = {"x": np.float32([[1, -2], [3, 4]])}
TOO_LONG = "x" * 300


@pytest.mark.parametrize("saved_data", ["tensor", "full"])
def test_mapped_files_are_compared(door, saved_data):
    """A dump of which mapping.csv alone has the names is compared tensor by tensor, not by its statistics."""
    model = network(TOO_LONG)
    golden = door.aside("golden", model, FINITE, context=O0, saved_data=saved_data)
    door.dump(model, {"x": FINITE["x"][::-1]}, context=O0, saved_data=saved_data)
    door.process.close()

    done = cli("compare", door.path, golden, "-out", door.folder)

    assert 1 == done.exit_code, done.stderr
    assert "compared  4 tensors of 2 operators: 0 agree (0 exactly), 4 differ" in done.stdout


@pytest.mark.parametrize("enable", [False, True])
def test_timestamps_follow_the_operators(door, enable):
    """Tensors are in the order of operators, also where some names are too long for a file."""
    nodes = [nets.node("Relu", "x", "a", f"{TOO_LONG}/Relu"), nets.node("Neg", "a", "y", "short/Neg")]
    model = nets.model(nodes, [nets.value("x", [2, 2])], ["y"])
    door.dump(model, FINITE, context=O0, enable=enable)
    door.process.close()

    (iteration,) = open_dump(door.path).iterations

    assert ["ReLU", "ReLU", "Neg", "Neg"] == [record.name.op_type for record in iteration.records]
