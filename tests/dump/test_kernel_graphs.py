"""Control flow of .mindir files: kernel graphs, their files, and results, as MindSpore 2.10 has them."""

import csv
import json
from collections import Counter

import numpy as np
import onnxruntime
import pytest

from msdump.errors import GraphError
from msdump.graph import loader
from tests.dump.test_control_flow import listed
from tests.world import CPU, O0, O1, ROOT

DATA = ROOT / "tests" / "graph" / "mindir" / "data"
NETWORKS = json.loads((DATA / "control_flow.json").read_text(encoding="utf-8"))


def inputs(name):
    """Return the inputs with which MindSpore ran a network."""
    x = np.random.RandomState(0).randn(2, 4)
    further = [np.array(each, np.int32) for each in NETWORKS[name]["further"]]
    return [x.astype("e" if NETWORKS[name]["half"] else "f"), *further]


def run(door, name, context, **changes):
    """Dump the runs of a network; return the results of each run as a list."""
    door.configure(**changes)
    network = door.load(DATA / f"{name}.mindir", **context)
    results = [network(*inputs(name)) for _ in NETWORKS[name]["results"]]
    return [[*each] if isinstance(each, (tuple, list)) else [each] for each in results]


def passes(rank):
    """Return how often each operator of a kernel graph wrote its first output, by graph and iteration."""
    found = {}
    for path in rank.glob("Net/*/*/*.output.0.*.npy"):
        kind, operator, *_ = path.name.split(".")
        if kind != "Parameter":
            found.setdefault("/".join(path.parts[-3:-1]), Counter())[operator] += 1
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_mindspore(door, name):
    """Branches and loops give MindSpore's results, also where they write variables, in a second run."""
    results = run(door, name, CPU)

    tolerance = 2e-3 if NETWORKS[name]["half"] else 1e-5  # sums are rounded in another order
    for expected, found in zip(NETWORKS[name]["results"], results, strict=True):
        assert len(expected) == len(found)
        for right, value in zip(expected, found, strict=True):
            np.testing.assert_allclose(value, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_graphs_have_ids_and_files_of_their_own(door, name):
    """A function's part between two calls has an id, even without kernels, and files if it ran."""
    run(door, name, CPU, scopes="loaded", naming="2.7")

    expected = NETWORKS[name]
    graphs = range(len(expected["order"]))
    assert expected["order"] == [listed(door.rank, graph) for graph in graphs]
    assert expected["passes"] == passes(door.rank)
    for kind in ("ir", "pb"):
        trace = "ms_output_trace_code_graph_"
        assert {f"{trace}{graph}.{kind}" for graph in graphs} == {
            path.name for path in (door.rank / "graphs").glob(f"*.{kind}")
        }
    runs = door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv"
    assert [str(run) for run in range(len(expected["results"]))] == runs.read_text().split()


@pytest.mark.parametrize("name", [each for each in NETWORKS if each != "half_flow"])
def test_converted_control_flow_runs_anywhere_and_keeps_kernel_graphs(name):
    """As an ONNX model a network runs on onnxruntime, and the loader finds the same operators and graphs."""
    file = DATA / f"{name}.mindir"
    model = loader.standard(file)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    fed = {each.name: value for each, value in zip(session.get_inputs(), inputs(name), strict=True)}

    for right, value in zip(NETWORKS[name]["results"][0], session.run(None, fed), strict=False):
        np.testing.assert_allclose(value, right, rtol=1e-5, atol=1e-5)  # sums are rounded in another order
    original, read = (
        [[(node.operator, node.kernel_graph) for node in inner.operators] for inner in graph.walk()]
        for graph in (loader.load(file), loader.load(model))
    )
    assert original == read
    assert loader.load(file).kernel_graphs == loader.load(model).kernel_graphs


def test_kernel_graphs_of_a_model_must_exist():
    """An operator in a kernel graph that the model does not have is refused."""
    model = loader.standard(DATA / "if_tensor.mindir")
    (count,) = (entry for entry in model.metadata_props if entry.key == "msdump.kernel_graphs")
    count.value = "2"

    with pytest.raises(GraphError, match="an operator is in none of its 2 kernel graphs"):
        loader.load(model)


def test_inputs_from_other_kernel_graphs_have_files(door):
    """Values and weights that cross the border of a kernel graph have files, unlike MindSpore's."""
    run(door, "if_tensor", CPU)

    files = door.rank.glob("Net/2/0/MatMul.*.input.*.npy")
    assert ["0", "1", "2", "3"] == sorted(path.name.split(".input.")[1][0] for path in files)


def test_parameters_lie_with_the_kernels_that_read_them(door):
    """A kernel graph of the main graph has the inputs and weights that its kernels read."""
    run(door, "flow_updates", CPU)

    found = sorted(path.relative_to(door.rank / "Net") for path in door.rank.glob("Net/*/*/Parameter.*"))
    parts = [(*path.parts[:2], path.name.split(".")[1]) for path in found if path.parts[1] != "constants"]
    assert [("0", "0", "best"), ("0", "0", "x"), ("0", "1", "best"), ("0", "1", "x")] == parts


def test_ids_follow_those_of_networks_before(door):
    """The kernel graphs of a network take the next ids."""
    run(door, "while_tensor", CPU)
    run(door, "if_tensor", CPU)

    assert ["Default/Greater-op0"] == listed(door.rank, 4)
    assert {"0", "1", "3", "4", "5", "6"} == {key.partition("/")[0] for key in passes(door.rank)}


def test_operators_around_an_unobserved_branch_keep_their_graphs(door):
    """Rows of operators that run in one session with a branch between them lie in their graphs' folders."""
    wanted = ["Default/Greater-op0", "Default/ReLU-op0"]
    run(door, "if_tensor", O0, dump_mode=1, kernels=wanted, saved_data="statistic", input_output=2)

    rows = {
        path.parts[-3]: [row["Op Type"] for row in csv.DictReader(path.open(encoding="utf-8"))]
        for path in door.rank.glob("Net/*/*/statistic.csv")
    }
    assert {"0": ["Greater"], "1": ["ReLU"]} == rows


@pytest.mark.parametrize("context", [O0, O1])
def test_kernel_graphs_on_ascend(door, context):
    """On Ascend the passes of a loop lie in the folders of its kernel graphs, too."""
    run(door, "while_tensor", context, input_output=2)

    assert [4, 3, 1] == [max(passes(door.rank)[f"{graph}/0"].values()) for graph in (0, 1, 3)]
