"""Names of files that show graphs, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store.graph_names import NAMES, GraphFileKind, GraphFileName, parse

TIME = "20240112093000000042"

DOCUMENTED = {
    "pid_4711_deviceid_3": GraphFileName(GraphFileKind.GE_DIRECTORY, pid=4711, device=3),
    "ge_proto_00000012_graph_1_PreRunBegin.txt": (
        GraphFileName(GraphFileKind.GE_PROTO, 12, 1, stage="PreRunBegin")
    ),
    "ge_onnx_00000013_graph_0_OptimizeOriginalGraph_FeGraphFusionAfter.pbtxt": (
        GraphFileName(GraphFileKind.GE_ONNX, 13, 0, stage="OptimizeOriginalGraph_FeGraphFusionAfter")
    ),
    "graph_build_0_0002.ir": GraphFileName(GraphFileKind.BUILT, 2, 0, suffix="ir"),
    "trace_code_graph_0003": GraphFileName(GraphFileKind.TRACE, 3),
    "trace_code_graph_0003.dot": GraphFileName(GraphFileKind.TRACE, 3, suffix="dot"),
    f"dynamo_optimized_graph_2_rank_0_pid_4711_ts_{TIME}.txt": GraphFileName(
        GraphFileKind.DYNAMO, graph=2, stage="optimized", rank=0, pid=4711, time=TIME, suffix="txt"
    ),
}


@pytest.mark.parametrize(("text", "name"), DOCUMENTED.items(), ids=DOCUMENTED)
def test_documented_names(text, name):
    """Every documented name gives its fields, and the fields give the name."""
    assert name == parse(text)
    assert text == str(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ge_proto_12_graph_1_Build.txt",
        "ge_proto_00000012_graph_1_Build.pbtxt",
        "trace_code_graph_3",
        "ms_output_trace_code_graph_0.ir",
        f"dynamo_other_graph_2_rank_0_pid_1_ts_{TIME}.txt",
        "statistic.csv",
    ],
)
def test_other_names_are_not_parsed(text):
    """A name that no graph file has gives None."""
    assert parse(text) is None


NUMBERS = st.integers(0, 10**12)
WORDS = st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True)
VALUES = {
    **dict.fromkeys(("number", "graph", "rank", "pid", "device"), NUMBERS),
    **dict.fromkeys(("stage", "suffix"), WORDS),
    "time": st.from_regex(r"[0-9]{20}", fullmatch=True),
}


@st.composite
def graph_names(draw):
    """Draw a name of any kind with the fields of its kind."""
    kind = draw(st.sampled_from(GraphFileKind))
    fields = {field: draw(VALUES[field]) for field in NAMES[kind].fields}
    if kind is GraphFileKind.DYNAMO:
        fields["stage"] = draw(st.sampled_from(["original", "optimized"]))
    if kind is GraphFileKind.TRACE:
        fields["suffix"] = draw(st.none() | WORDS)
    return GraphFileName(kind, **fields)


@settings(max_examples=200, deadline=None)
@given(graph_names())
def test_parse_inverts_format(name):
    """Every name gives back its kind and its fields."""
    assert name == parse(str(name))


def test_every_kind_has_a_name():
    """The table of names is complete."""
    assert set(GraphFileKind) == set(NAMES)
