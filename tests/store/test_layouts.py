"""The layouts of dumps in both directions."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store import Key, Layout, ModelLayout, PathKind, layouts

LAYOUT = Layout("/dump/", 2, "LeNet")
MODEL = ModelLayout("/dump/", 3, "lenet", 1)
TIME = "20240112093000"

WRITTEN = {
    "config": (LAYOUT.path(PathKind.CONFIG), "rank_2/.dump_metadata/data_dump.json"),
    "device": (LAYOUT.path(PathKind.DEVICE), "rank_2/.dump_metadata/config.json"),
    "ir": (LAYOUT.path(PathKind.IR, 1), "rank_2/graphs/ms_output_trace_code_graph_1.ir"),
    "pb": (LAYOUT.path(PathKind.PB, 1), "rank_2/graphs/ms_output_trace_code_graph_1.pb"),
    "order": (
        LAYOUT.path(PathKind.EXECUTION_ORDER, 1),
        "rank_2/execution_order/ms_execution_order_graph_1.csv",
    ),
    "iterations": (
        LAYOUT.path(PathKind.ITERATIONS_RUN, 1),
        "rank_2/execution_order/ms_global_execution_order_graph_1.csv",
    ),
    "iteration": (LAYOUT.path(PathKind.ITERATION, 1, 30), "rank_2/LeNet/1/30"),
    "constants": (LAYOUT.path(PathKind.CONSTANTS, 1), "rank_2/LeNet/1/constants"),
    "statistics": (LAYOUT.path(PathKind.STATISTICS, 1, 30), "rank_2/LeNet/1/30/statistic.csv"),
    "O2": (MODEL.execution(TIME, 2, 5), f"5/{TIME}/3/lenet/1/2"),
    "GE and acl": (MODEL.execution(TIME, 0), f"{TIME}/3/lenet/1/0"),
    "acl.json of O2": (MODEL.acl_config(), "acl_dump_3.json"),
    "single operators": (Key(PathKind.SINGLE, time=TIME, device=3).below("/dump/"), f"{TIME}/3"),
    "captured by torch.compile": (
        Key(PathKind.CAPTURED_STEP, 3, world=8, graph=1, iteration=4).below("/dump"),
        "worldsize8_global_rank3/graph_1/4",
    ),
    "exceptions": (Key(PathKind.EXCEPTIONS, device=3).below("/dump"), "extra-info/data-dump/3"),
}


@pytest.mark.parametrize(("path", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_documented_paths(path, expected):
    """Every path stands where MindSpore's documents say."""
    assert f"/dump/{expected}" == path


READ = {
    "rank_0": Key(PathKind.RANK, 0),
    "rank_0/.dump_metadata": Key(PathKind.METADATA, 0),
    "rank_0/.dump_metadata/data_dump.json": Key(PathKind.CONFIG, 0),
    "rank_0/.dump_metadata/config.json": Key(PathKind.DEVICE, 0),
    "rank_0/graphs/ms_output_trace_code_graph_5.ir": Key(PathKind.IR, 0, graph=5),
    "rank_0/graphs/ms_output_trace_code_graph_5.pb": Key(PathKind.PB, 0, graph=5),
    "rank_0/execution_order/ms_execution_order_graph_5.csv": Key(PathKind.EXECUTION_ORDER, 0, graph=5),
    "rank_0/execution_order/ms_global_execution_order_graph_0.csv": Key(PathKind.ITERATIONS_RUN, 0, graph=0),
    "rank_11/Net": Key(PathKind.NETWORK, 11, "Net"),
    "rank_11/Net/3": Key(PathKind.GRAPH, 11, "Net", 3),
    "rank_11/Net/3/2": Key(PathKind.ITERATION, 11, "Net", 3, 2),
    "rank_11/Net/3/constants": Key(PathKind.CONSTANTS, 11, "Net", 3),
    "rank_11/Net/3/2/statistic.csv": Key(PathKind.STATISTICS, 11, "Net", 3, 2),
    "rank_11/Net/3/2/mapping.csv": Key(PathKind.MAPPING, 11, "Net", 3, 2),
    "rank_11/Net/3/2/MatMul.Default_MatMul-op0.json": (
        Key(PathKind.KERNEL_ARGS, 11, "Net", 3, 2, "MatMul.Default_MatMul-op0")
    ),
    "rank_11/Net/3/2/606962476.npy": Key(PathKind.TENSOR, 11, "Net", 3, 2, "606962476"),
    "rank_11/Net/3/constants/statistic.csv": Key(PathKind.CONSTANT_STATISTICS, 11, "Net", 3),
    "rank_11/Net/3/constants/mapping.csv": Key(PathKind.CONSTANT_MAPPING, 11, "Net", 3),
    "rank_11/Net/3/constants/1.npy": Key(PathKind.CONSTANT, 11, "Net", 3, name="1"),
    "acl_dump_7.json": Key(PathKind.ACL_CONFIG, device=7),
    "msdump_history_3.json": Key(PathKind.HISTORY, 3),
    "12": Key(PathKind.STEP, step=12),
    f"12/{TIME}": Key(PathKind.TIME, step=12, time=TIME),
    TIME: Key(PathKind.TIME, time=TIME),
    f"{TIME}/7": Key(PathKind.SINGLE, time=TIME, device=7),
    f"12/{TIME}/7/ge_default_1/2/3": (
        Key(PathKind.EXECUTION, step=12, time=TIME, device=7, model="ge_default_1", model_id=2, iteration=3)
    ),
    f"{TIME}/7/resnet50/1/0/Conv2D.conv1.3.7.1600000000000000": Key(
        PathKind.OPERATOR,
        time=TIME,
        device=7,
        model="resnet50",
        model_id=1,
        iteration=0,
        name="Conv2D.conv1.3.7.1600000000000000",
    ),
    f"worldsize1_global_rank0/{TIME}/7/graph_1/1": Key(
        PathKind.MODEL_NUMBER, 0, world=1, time=TIME, device=7, model="graph_1", model_id=1
    ),
    "worldsize8_global_rank3/graph_1": Key(PathKind.CAPTURED_GRAPH, 3, world=8, graph=1),
    "worldsize8_global_rank3/graph_1/0": Key(PathKind.CAPTURED_STEP, 3, world=8, graph=1, iteration=0),
    f"worldsize1_global_rank0/graph_2/4/mm-aten.mm.default.OUTPUT.0.{TIME}000042.npy": Key(
        PathKind.CAPTURED_TENSOR,
        0,
        graph=2,
        iteration=4,
        name=f"mm-aten.mm.default.OUTPUT.0.{TIME}000042",
        world=1,
    ),
    "worldsize8_global_rank3": Key(PathKind.WORLD, 3, world=8),
    "extra-info/data-dump/0/exception_info.7.3.20240112093000123": Key(
        PathKind.EXCEPTION, device=0, name="exception_info.7.3.20240112093000123"
    ),
}


@pytest.mark.parametrize(("path", "expected"), READ.items(), ids=READ)
def test_paths_of_real_dumps_are_parsed(path, expected):
    """Every path of a dump gives its key, and the key gives the path."""
    assert expected == layouts.parse(path)
    assert path == expected.path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/rank_0",
        "rank_",
        "rank_01",
        "rank_0/",
        "rank_0/a b",
        "rank_0/Net/x",
        "rank_0/Net/0/00",
        "rank_0/Net/0/0/a/b.npy",
        "rank_0/Net/0/0/README.md",
        "rank_0/graphs/ms_output_trace_code_graph_x.ir",
        "x/rank_0",
    ],
)
def test_other_paths_are_not_parsed(path):
    """A foreign path gives None."""
    assert layouts.parse(path) is None


def test_a_file_beside_models_is_an_operator_that_was_called_alone():
    """The same path is a model's directory or a single operator's file."""
    path = f"{TIME}/7/Add.add.0.0.1600000000000000"
    name = "Add.add.0.0.1600000000000000"

    found = (layouts.parse(path, is_directory=True), layouts.parse(path, is_directory=False))

    assert (
        Key(PathKind.MODEL, time=TIME, device=7, model=name),
        Key(PathKind.SINGLE_OPERATOR, time=TIME, device=7, name=name),
    ) == found


NUMBERS = st.integers(0, 10**12)
VALUES = {
    "rank": NUMBERS,
    "net": st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True),
    "graph": NUMBERS,
    "iteration": NUMBERS,
    "name": st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
    "time": st.from_regex(r"[0-9]{14}", fullmatch=True),
    "step": NUMBERS,
    "device": NUMBERS,
    "model": st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
    "model_id": NUMBERS,
    "world": NUMBERS,
}


BOOLS = st.booleans()


@st.composite
def keys(draw):
    """Draw a key of any kind with the fields of its kind."""
    kind = draw(st.sampled_from(PathKind))
    template = "".join(part for part in re.split(r"(\[[^]]*\])", kind.path) if part[:1] != "[" or draw(BOOLS))
    fields = {field: draw(value) for field, value in VALUES.items() if f"{{{field}}}" in template}
    return Key(kind, **fields)


@settings(max_examples=150, deadline=None)
@given(keys())
def test_parse_inverts_path(key):
    """Every place is found again under its path."""
    assert key == layouts.parse(key.path, is_directory=key.kind.is_directory)
