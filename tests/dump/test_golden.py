"""Dumps of the reference's own networks next to the reference's files.

Left aside are peculiarities of the reference: attributes that it holds as inputs,
and its known faults (no constants/, a Flatten that keeps its input's shape,
operator numbers that differ from file to file, histories that lose lines).
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.dump import nets, trees

ATTRIBUTE_INPUTS = {"MatMul": "23", "BiasAdd": "2", "Concat": "2", "Split": "12"}


@dataclass(frozen=True)
class Case:
    """A network of the reference and its inputs."""

    build: Any
    feeds: dict


MINI = Case(nets.mini, nets.mini_feeds())
CASES = {
    **dict.fromkeys(
        ("mini_all", "mini_names", "mini_regex", "mini_inputs", "mini_outputs", "mini_iter"), MINI
    ),
    "env_path": MINI,
    "longname": Case(nets.long_names, {"x": np.ones((2, 4), np.float32)}),
    "zero_size": Case(nets.zero_size, {"x": np.zeros((0, 3), np.float32)}),
}
OP_NUMBERS = {"Default/Concat-op1": "Default/Concat-op0"}  # the reference's csv counts nodes that are gone

every_case = pytest.mark.parametrize("name", CASES)


def run(door, name, naming="2.7"):
    """Run a case with the reference's own configuration, another path and a generation of names."""
    expected, case = nets.golden(name), CASES[name]
    blocks = expected["config"]
    if name == "env_path":
        door.monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(door.folder / "diag"))
        blocks["common_dump_settings"]["path"] = ""
        root = door.folder / "diag" / "debug_dump" / "rank_0"
    else:
        blocks["common_dump_settings"]["path"] = str(door.path)
        root = door.rank
    door.configure({**blocks, "msdump": {"naming": naming}})
    network = door.load(case.build())
    for _ in range(expected["steps"]):
        network.run(case.feeds)
    return expected, root, network


def own(names):
    """Return the names of the reference without its attribute inputs."""
    kept = {}
    for name, kind in names.items():
        match = trees.TENSOR.fullmatch(name.rpartition("/")[2])
        is_attribute = (
            match and match["io"] == "input" and match["slot"] in ATTRIBUTE_INPUTS.get(match["type"], "")
        )
        if not is_attribute:
            kept[name] = kind
    return kept


def written(root):
    """Return the paths of graph and tensor files with their timestamps taken out."""
    names = [n for n in trees.tree(root) if n.endswith((".npy", ".ir", ".pb")) and "/constants/" not in n]
    return trees.timeless(names)


@every_case
def test_file_names(door, name):
    """The same files stand in the same directories under the same names as the reference's."""
    expected, root, _ = run(door, name)

    assert sorted(own(expected["files"])) == written(root)


@every_case
@pytest.mark.parametrize(
    ("naming", "scope"), [("2.5", r"$^"), ("classic", r"(?<=\.)Default_([\w-]*_)?(?=\w+-op)")]
)
def test_older_file_names(door, name, naming, scope):
    """Older generations leave out the dtype, and the oldest the scope too."""
    expected, root, _ = run(door, name, naming)

    untyped = [re.sub(r"\.\w+\.npy$", ".npy", name) for name in own(expected["files"])]

    assert sorted(re.sub(scope, "", name) for name in untyped) == written(root)


@every_case
def test_csv_files(door, name):
    """Execution order and history are the reference's."""
    expected, root, _ = run(door, name)

    rows = {path: renumbered(text) for path, text in expected["csv"].items()}

    found = {
        n: p.read_text() for n, p in trees.tree(root).items() if n.endswith(".csv") and "mapping" not in n
    }
    assert rows == found


def renumbered(text):
    """Return rows of the reference with the operator numbers that its files have."""
    for theirs, ours in OP_NUMBERS.items():
        text = text.replace(theirs, ours)
    return text


@every_case
def test_metadata(door, name):
    """The metadata are the reference's bytes and a copy of the configuration."""
    expected, root, _ = run(door, name)

    folder = root / ".dump_metadata"
    assert {"config.json", "data_dump.json"} == {path.name for path in folder.iterdir()}
    assert (folder / "config.json").read_text() == '{"device_target":"CPU","ms_version":"2.10.0"}'
    assert (door.folder / "data_dump.json").read_bytes() == (folder / "data_dump.json").read_bytes()
    assert expected["device"] in {None, (folder / "config.json").read_text()}


@every_case
def test_npy_headers(door, name):
    """Every tensor file starts with the reference's bytes."""
    expected, root, _ = run(door, name)
    headers = {n: expected["headers"][kind] for n, kind in own(expected["files"]).items() if kind}

    found = {
        trees.TIMESTAMP.sub("{ts}", n): path.read_bytes()[:128].decode("latin-1")
        for n, path in trees.tree(root).items()
        if n.endswith(".npy") and "/constants/" not in n
    }

    assert {n: adapted(n, header) for n, header in headers.items()} == found


def adapted(name, header):
    """Return a header of the reference as ONNX's operators and the true shapes ask for."""
    if ("Flatten-op0" in name and ".output." in name) or ("_MatMul-op0" in name and ".input.0." in name):
        return reshaped(header, "(1,2,4,4,)", "(1,32,)")  # the reference writes the shape before Flatten
    if ("weight.0.0" in name and "conv1" not in name) or ("_MatMul-op0" in name and ".input.1." in name):
        # Its MatMul has a flag to transpose the weight, which ONNX's has not.
        return reshaped(reshaped(header, "(3,32,)", "(32,3,)"), "(3,4,)", "(4,3,)")
    return header


def reshaped(header, before, after):
    """Return a header with another shape and the length it had."""
    if before not in header:
        return header
    return header.replace(before, after).rstrip().ljust(len(header) - 1) + "\n"


@every_case
def test_values(door, name):
    """Every tensor file equals, bit for bit, the value of one session over the whole graph."""
    expected, root, network = run(door, name)
    values = trees.whole_graph(CASES[name].build(), CASES[name].feeds)
    nodes = {re.sub(r"[/. ]", "_", node.operator.full_name): node for node in network.graph.nodes}
    plain = {re.sub(r"[/. ]", "_", key): array for key, array in values.items()}

    files = [item for item in trees.tensors(root) if item[1].parent.name != "constants"]
    assert len([name for name in own(expected["files"]) if name.endswith(".npy")]) == len(files)
    for match, path in files:
        found = np.load(path)
        if match["type"] == "Parameter":
            assert trees.same_bits(plain[match["name"]], found)
        else:
            node = nodes[match["name"]]
            names = node.inputs if match["io"] == "input" else node.outputs
            assert trees.same_bits(values[names[int(match["slot"])]], found)


@pytest.mark.parametrize(
    ("name", "file", "key"),
    [
        ("mini_all", "Conv2D.*output.0*", ("mini", "conv")),
        ("mini_all", "BiasAdd.*output.0*", ("mini", "output")),
        ("longname", "", ("longname", "output")),
    ],
)
def test_values_of_the_reference(door, name, file, key):
    """The values are MindSpore's, but for the last bits of float32 sums."""
    network, value = key
    _, root, _ = run(door, name)

    expected = np.array(nets.golden("values")[network][value], np.float32)

    paths = [
        path for match, path in trees.tensors(root) if match["type"] == "BiasAdd" and match["io"] == "output"
    ]
    path = next(root.rglob(file)) if file else paths[0]
    np.testing.assert_allclose(np.load(path), expected, rtol=1e-5, atol=1e-6)


def test_long_names_are_mapped(door):
    """A name over 255 bytes stands in mapping.csv, digits stand for it, and short names stay."""
    expected, root, _ = run(door, "longname")

    left_out = len(expected["files"]) - len(own(expected["files"]))
    assert expected["mapped"] - left_out == mapped_rows(root)


def mapped_rows(root):
    """Return how many rows the mappings have, after a look at each."""
    rows = 0
    for mapping in root.rglob("mapping.csv"):
        text = mapping.read_text()
        assert text.endswith("\n")
        for line in text.splitlines():
            stand_in, original = line.split(",")
            assert re.fullmatch(r"[0-9]{1,10}\.npy", stand_in)
            assert (mapping.parent / stand_in).is_file()
            assert len(original) > 255
            rows += 1
    return rows


def test_times_follow_execution(door):
    """File times rise in execution order, operator by operator, inputs before outputs, parameters last."""
    run(door, "mini_all")

    found = trees.slots(door.rank)

    assert [
        *("Conv2D-op0 input 0", "Conv2D-op0 input 1", "Conv2D-op0 output 0"),
        *("ReLU-op0 input 0", "ReLU-op0 output 0", "Flatten-op0 input 0", "Flatten-op0 output 0"),
        *("MatMul-op0 input 0", "MatMul-op0 input 1", "MatMul-op0 output 0"),
        *("BiasAdd-op0 input 0", "BiasAdd-op0 input 1", "BiasAdd-op0 output 0"),
        *("weight output 0", "weight output 0", "bias output 0", "x output 0"),
    ] == found
    times = [match["time"] for match, _ in trees.tensors(door.rank)]
    assert len(times) == len(set(times))


def test_two_networks_in_turn(door):
    """Graph numbers, iterations and names are the reference's for networks that take turns."""
    expected = nets.golden("multigraph")
    door.configure(
        {**expected["config"], "msdump": {"naming": "2.7"}}
        | {"common_dump_settings": expected["config"]["common_dump_settings"] | {"path": str(door.path)}}
    )
    a, b = door.load(nets.dense()), door.load(nets.exp_plus_one())
    for _ in range(3):
        b(a(np.ones((2, 4), np.float32)))
    a, b = door.load(nets.dense()), door.load(nets.exp_plus_one())  # as the reference's second shape
    b(a(np.ones((5, 4), np.float32)))
    door.load(nets.cosine())(np.ones((5, 4), np.float32))

    assert sorted(re.sub(r"-op1\.", "-op0.", name) for name in own(expected["files"])) == written(door.rank)
