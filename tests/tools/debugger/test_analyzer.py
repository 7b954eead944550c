"""MindInsight's words over dumps: nodes, tensors, watchpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import msdump
from msdump import debugger
from msdump.errors import ConfigValueError
from tests.dump.settings import common

LENET = Path(__file__).parents[3] / "graphs" / "lenet.onnx"
CONV = "Default/conv1-Conv2d/Conv2D-op0"


@pytest.fixture
def dumped(tmp_path):
    """Return a function that dumps runs of lenet on given images, and returns the path."""

    def dump(*images, context=None, **settings):
        root = tmp_path / "dump"
        end_to_end = {"enable": True, "trans_flag": True}
        config = {"common_dump_settings": common(root) | settings, "e2e_dump_settings": end_to_end}
        network = msdump.load(LENET, config=config, context=context or {})
        for image in images:
            network.run({"x": np.full((1, 1, 32, 32), image, np.float32)})
        return root

    return dump


@pytest.fixture
def analyzer(dumped):
    """Return an analyzer of two equal iterations and one that differs."""
    return msdump.DumpAnalyzer(dumped(1, 1, 2))


def test_places(analyzer):
    """Ranks and iterations are those that dumped."""
    assert [0] == analyzer.get_ranks()
    assert [0, 1, 2] == analyzer.get_iterations() == analyzer.get_iterations(ranks=0)
    assert [] == analyzer.get_iterations(ranks=[3])


@pytest.mark.parametrize(
    ("query", "options", "names"),
    [
        ("conv1", {}, ["conv1.weight", CONV]),
        ("CONV1", {}, []),
        ("CONV1", {"case_sensitive": False}, ["conv1.weight", CONV]),
        ("Conv2D-op[0-9]$", {"use_regex": True}, [CONV, "Default/conv2-Conv2d/Conv2D-op0"]),
        ("op.Flatten", {"select_by": "code_stack"}, ["Default/flatten-Flatten/Flatten-op0"]),
        ("conv1", {"ranks": [1]}, []),
    ],
)
def test_nodes(analyzer, query, options, names):
    """Nodes are selected by their names or their source lines."""
    assert names == [node.name for node in analyzer.select_nodes(query, **options)]


def test_one_node(analyzer):
    """A node knows its rank, its graph, its source lines, its neighbours and its tensors."""
    (node,) = analyzer.select_nodes(CONV)
    assert (0, f"kernel_graph_{node.root_graph_id}") == (node.rank, node.graph_name)
    assert {"file_path", "line_no", "code_line"} == set(node.stack[0])
    assert ["x", "conv1.weight"] == [each.name for each in analyzer.get_input_nodes(node)]
    assert ["Default/relu-ReLU/ReLU-op0"] == [each.name for each in analyzer.get_output_nodes(node)]
    image, weight = node.get_input_tensors(iterations=[2])
    assert [2.0] == np.unique(image.value()).tolist()
    assert (4, 1, 5, 5) == weight.value().shape
    (output,) = node.get_output_tensors(iterations=[2], slots=[0])
    assert ("Default/relu-ReLU/ReLU-op0",) == tuple(
        each.name for each in analyzer.list_affected_nodes(output)
    )
    assert [] == node.get_output_tensors(slots=[4])
    place = f"rank: 0\ngraph_name: {node.graph_name}\nnode_name: {CONV}"
    assert f"{place}\nslot: 0\niteration: 2" == str(output)


def test_parameters_without_files(dumped):
    """On Ascend, where weights have no files, their values are what operators have read."""
    analyzer = msdump.DumpAnalyzer(dumped(1, context={"device_target": "Ascend"}))
    (weight,) = analyzer.select_tensors("conv1.weight")
    assert (4, 1, 5, 5) == weight.value().shape


def test_tensors(analyzer):
    """Tensors are the outputs of selected nodes, in the iterations that are asked for."""
    tensors = analyzer.select_tensors("ReLU", iterations=1)
    assert 4 == len(tensors)
    assert {(0, 1, 0)} == {(tensor.slot, tensor.iteration, tensor.rank) for tensor in tensors}
    assert 12 == len(analyzer.select_tensors("ReLU"))
    assert [] == analyzer.select_tensors("ReLU", iterations=[9])


@pytest.mark.parametrize(
    ("condition", "name", "iterations"),
    [
        (debugger.TensorTooLargeCondition(max_gt=3), "x", []),
        (debugger.TensorTooLargeCondition(max_gt=1.5, mean_gt=9), "x", [2]),
        (debugger.TensorTooSmallCondition(abs_mean_lt=1.5), "x", [0, 1]),
        (debugger.TensorRangeCondition(0, 1, range_percentage_lt=50), "x", [2]),
        (debugger.TensorRangeCondition(max_min_lt=1), "x", [0, 1, 2]),
        (debugger.TensorAllZeroCondition(100), "x", []),
        (debugger.TensorOverflowCondition(), CONV, []),
        (debugger.TensorUnchangedCondition(), CONV, [1]),
        (debugger.TensorChangeBelowThresholdCondition(0.1), "x", [1]),
        (debugger.TensorChangeAboveThresholdCondition(0.9), "x", [2]),
        (debugger.OperatorOverflowCondition(), CONV, []),
    ],
)
def test_conditions(analyzer, condition, name, iterations):
    """Each condition is met where MindInsight's is."""
    tensors = [tensor for tensor in analyzer.select_tensors(name) if tensor.node.name == name]
    hits = analyzer.check_watchpoints([debugger.Watchpoint(tensors, condition)])
    assert iterations == [hit.tensor.iteration for hit in hits if not hit.error_code]


def test_hit(analyzer):
    """A hit tells tensor, limits and what was measured."""
    (tensor,) = (each for each in analyzer.select_tensors("x", iterations=[2]) if each.node.name == "x")
    condition = debugger.TensorTooLargeCondition(max_gt=1.5, min_gt=5)
    (hit,) = analyzer.check_watchpoints([debugger.Watchpoint([tensor], condition)])
    assert (0, [], tensor) == (hit.error_code, hit.error_msg, hit.tensor)
    assert {"max_gt": 1.5, "min_gt": 5} == hit.get_threshold().param_dict
    assert {"max_gt": 2.0} == hit.get_hit_detail().param_dict
    told = "The setting for watchpoint is max_gt = 1.5. The actual value of the tensor is max_gt = 2.0."
    assert told == str(hit.get_hit_detail())
    assert str(hit).startswith("Watchpoint TensorTooLarge triggered on tensor:\nrank: 0\n")


def test_nothing_before(analyzer):
    """A condition on a change tells where there is no step before."""
    tensors = analyzer.select_tensors("Conv2D-op0", iterations=[0])
    (first, *_) = analyzer.check_watchpoints(
        [debugger.Watchpoint(tensors, debugger.TensorUnchangedCondition())]
    )
    assert (4, ["The previous step value cannot be found."]) == (first.error_code, first.error_msg)
    assert first.get_hit_detail() is None
    assert "check failed on tensor" in str(first)


def test_infinities(dumped):
    """Sizes of tensors with infinities are not told, the infinities are."""
    analyzer = msdump.DumpAnalyzer(dumped(np.inf))
    tensors = [tensor for tensor in analyzer.select_tensors("x") if tensor.node.name == "x"]
    (overflow,) = analyzer.check_watchpoints(
        [debugger.Watchpoint(tensors, debugger.TensorOverflowCondition())]
    )
    (large,) = analyzer.check_watchpoints(
        [debugger.Watchpoint(tensors, debugger.TensorTooLargeCondition(max_gt=1))]
    )
    assert (0, "None.") == (overflow.error_code, str(overflow.get_hit_detail()))
    assert (2, ["A tensor contains +/-INF."]) == (large.error_code, large.error_msg)


def test_tensors_without_value(dumped):
    """Tensors that were not dumped have no value, which is told where that is asked for."""
    analyzer = msdump.DumpAnalyzer(dumped(1, dump_mode=1, kernels=["Flatten"]))
    (tensor,) = (each for each in analyzer.select_tensors(CONV) if each.node.name == CONV)
    point = debugger.Watchpoint([tensor], debugger.TensorOverflowCondition())
    assert tensor.value() is None
    assert [] == analyzer.check_watchpoints([point])
    (hit,) = analyzer.check_watchpoints([point], error_on_no_value=True)
    assert (32, ["Tensor has no value."]) == (hit.error_code, hit.error_msg)


def test_operator_overflow(dumped):
    """Operators of which the device recorded an overflow are told, and no others."""
    ascend = {
        "device_target": "Ascend",
        "jit_level": "O2",
        "ascend_config": {"precision_mode": "force_fp16"},
    }
    analyzer = msdump.DumpAnalyzer(dumped(1e38, context=ascend, op_debug_mode=3, file_format="bin"))
    tensors = [each for each in analyzer.select_tensors("") if each.record is not None]
    hits = analyzer.check_watchpoints([debugger.Watchpoint(tensors, debugger.OperatorOverflowCondition())])
    assert hits
    assert {0} == {hit.error_code for hit in hits}
    assert {*tensors} == {hit.tensor for hit in hits}


def test_statistics(dumped):
    """Saved statistics are rows by rank, iteration and tensor; conditions are checked on them, too."""
    path = dumped(1, 2, context={"device_target": "Ascend"}, saved_data="statistic")
    analyzer = msdump.DumpAnalyzer(path)
    rows = analyzer.select_tensor_statistics(iterations=1)
    (row,) = rows[0][1]["Default_conv1-Conv2d_Conv2D-op0:input:0"]
    assert [1] == list(rows[0])
    assert (2.0, 2.0) == (row["Max Value"], row["Min Value"])
    tensors = [each for each in analyzer.select_tensors("x") if each.node.name == "x"]
    hits = analyzer.check_watchpoints(
        [debugger.Watchpoint(tensors, debugger.TensorTooLargeCondition(max_gt=1.5))]
    )
    assert [1] == [hit.tensor.iteration for hit in hits]
    assert tensors[0].value() is None


def test_without_graph_file(dumped):
    """Compiled graphs without a graph file have nodes by the names of files, and no neighbours."""
    context = {"device_target": "Ascend", "jit_level": "O2"}
    analyzer = msdump.DumpAnalyzer(dumped(1, context=context, file_format="bin"))
    nodes = analyzer.select_nodes("Conv2D")
    assert nodes
    assert all(tensor.value() is not None for node in nodes for tensor in node.get_output_tensors())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda analyzer: analyzer.select_nodes("(", use_regex=True), "no regular expression"),
        (lambda analyzer: analyzer.select_nodes("x", select_by="color"), "select_by = 'color'"),
        (lambda _: msdump.DumpAnalyzer("/", mem_limit=1), "mem_limit = 1"),
    ],
)
def test_wrong_arguments(analyzer, call, message):
    """Wrong arguments are told."""
    with pytest.raises(ValueError, match=message):
        call(analyzer)


@pytest.mark.parametrize(
    "make",
    [
        debugger.TensorTooLargeCondition,
        lambda: debugger.TensorRangeCondition(range_percentage_lt=3),
        lambda: debugger.TensorAllZeroCondition(zero_percentage_ge=101),
    ],
)
def test_wrong_conditions(make):
    """Conditions without a limit, or with a wrong one, are refused when they are made."""
    with pytest.raises(ConfigValueError):
        make()
