"""Networks that MindSpore exported, beside the dumps of MindSpore 2.10 itself on the CPU.

For each of 46 networks: the .mindir file, its inputs and results, and of the real dumps the names of all
files, the execution order, and the sum and the absolute sum of each file's elements. A sum is null where the
real file holds leftover memory, or a type that numpy cannot read.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import msdump
from msdump.capture import Process
from msdump.frontends import mindspore
from tests.world import common_settings

DATA = Path(__file__).parent / "networks"
HALF = ("amp", "mlp16")
"""Networks with float16: one unit in the last place is 0.001 of a value, a sum of few values less."""


RANDOM = ("dropout_train",)
"""Networks that draw random numbers, which MindSpore draws otherwise."""

NOISE = 2e-6
"""The error of float32 in sums that are zero in theory, as gradients of a bias before BatchNorm."""

DYNAMIC = ("dynamic", "dynamic_attention")
"""Networks of which the cell has other kernels than its file: sizes are computed there."""


@pytest.fixture(autouse=True)
def _own_process(monkeypatch):
    """Number graphs from 0."""
    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))


def dump(name, path, **settings):
    """Run a network as often as MindSpore did, with a dump of everything; return its results."""
    config = {
        "common_dump_settings": common_settings(path),
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
        "msdump": {"naming": "2.7", **settings},
    }
    network = msdump.load(DATA / f"{name}.mindir", config=config, context={"device_target": "CPU"})
    arrays = np.load(DATA / f"{name}.npz")
    inputs = [arrays[key] for key in arrays if key.startswith("input_")]
    found = []
    for _ in range(expected(name)["runs"]):
        results = network(*inputs)
        found += results if isinstance(results, tuple) else [results]
    return found, [arrays[key] for key in arrays if key.startswith("output_")]


def expected(name):
    """Return the contents of MindSpore's own dumps."""
    return json.loads((DATA / f"{name}.json").read_text())


def shown_files(path):
    """Return the files of tensors by graph, iteration and name, without task, stream, time and format."""
    files = {}
    for file in sorted(path.glob("rank_0/Net/*/[0-9]*/*.npy"), key=lambda file: file.name.split(".")[4]):
        kind, name, _, _, _, io, slot, _, dtype, _ = file.name.split(".")
        key = f"{file.parent.parent.name}/{file.parent.name}/{kind}.{name}.{io}.{slot}.{dtype}"
        files.setdefault(key, []).append(file)
    return files


def orders(path):
    """Return the execution order of each graph."""
    files = path.glob("rank_0/execution_order/ms_execution_order_graph_*.csv")
    return {file.stem.rpartition("_")[2]: file.read_text().splitlines()[1:] for file in files}


NAMES = sorted(file.stem for file in DATA.glob("*.mindir"))


@pytest.mark.parametrize("name", NAMES)
def test_dump_of_a_loaded_file(name, tmp_path):
    """The dump has the files, sums and order of MindSpore's dump of the same file, and the same results."""
    results, wanted = dump(name, tmp_path / "dump", scopes="loaded")
    real, tolerance = expected(name)["loaded"], 4e-3 if name.startswith(HALF) else 2e-5
    files = shown_files(tmp_path / "dump")
    shown = {key for key in files if key in real["files"] or not crosses(key, real["order"])}
    assert real["files"].keys() == shown
    for key, sums in real["files"].items():
        if sums is None or key not in files:
            continue
        array = np.load(files[key][0]).astype(np.float64)
        found = [np.nansum(array), np.nansum(np.abs(array))]
        assert np.allclose(found, sums, rtol=tolerance, atol=max(tolerance * sums[1], NOISE)), key
    assert real["order"] == orders(tmp_path / "dump")
    for result, value in zip(results, wanted, strict=True):
        if name in RANDOM:
            assert result.shape == value.shape
            continue
        limit = max(tolerance * np.abs(np.nan_to_num(value.astype(np.float64))).max(initial=0), NOISE)
        assert np.allclose(result.astype(np.float64), value, rtol=tolerance, atol=limit, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in NAMES if "cell" in expected(name) and name not in DYNAMIC])
def test_dump_of_the_cell(name, tmp_path):
    """Kernels and order have the names that they have in MindSpore's dump of the network itself."""
    dump(name, tmp_path / "dump")
    real = expected(name)["cell"]
    assert set(map(kernel, real["files"])) == set(map(kernel, shown_files(tmp_path / "dump")))
    assert real["order"] == orders(tmp_path / "dump")


def crosses(key, order):
    """Return whether a file may hold a value of another kernel graph, which MindSpore does not write."""
    return len(order) > 1 and (".input." in key or "/Parameter." in key)


def kernel(key):
    """Return graph, iteration, type and name of a file's kernel."""
    return key.rsplit(".", 3)[0]
