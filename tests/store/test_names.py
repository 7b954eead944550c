"""Names of files in both directions: of tensors, operators, graphs, and torch.compile's graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.plan import DeviceTarget, Naming
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.store import (
    CapturedTensorName,
    GraphFileKind,
    GraphFileName,
    OperatorFileKind,
    OperatorName,
    TensorName,
    graph_names,
    names,
    operator_names,
)

TIME = 1795216920861338
LONG_TIME = "20240112093000000042"
FAILED_AT = "20240112093000123"
CONV = OperatorRef("Conv2D", "Default/_backbone-LeNet/conv1-Conv2d/Conv2D-op0")
WEIGHT = OperatorRef("Parameter", "conv1.weight")


def record(operator=CONV, io=IO.OUTPUT, slot=0, dtype="float32", memory_format="DefaultFormat"):
    """Return a tensor of an operator."""
    row = dtypes.from_name(dtype)
    return TensorRecord(operator, io, slot, row, np.zeros(1, row.saved), TIME, memory_format)


SCOPED = "Conv2D.Default__backbone-LeNet_conv1-Conv2d_Conv2D-op0"
SHORT = "Conv2D.Conv2D-op0"
NAMED = {
    (Naming.V2_5, DeviceTarget.CPU): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.npy",
    (Naming.V2_5, DeviceTarget.GPU): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.npy",
    (Naming.V2_5, DeviceTarget.ASCEND): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.float32.npy",
    (Naming.V2_7, DeviceTarget.CPU): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.Float32.npy",
    (Naming.V2_7, DeviceTarget.GPU): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.Float32.npy",
    (Naming.V2_7, DeviceTarget.ASCEND): f"{SCOPED}.0.0.{TIME}.output.0.DefaultFormat.float32.npy",
    (Naming.CLASSIC, DeviceTarget.CPU): f"{SHORT}.0.0.{TIME}.output.0.DefaultFormat.npy",
    (Naming.CLASSIC, DeviceTarget.GPU): f"{SHORT}.0.0.{TIME}.output.0.DefaultFormat.npy",
    (Naming.CLASSIC, DeviceTarget.ASCEND): f"{SHORT}.0.0.{TIME}.output.0.DefaultFormat.npy",
}
"""The name of one tensor in each generation and on each device."""

CPU, _, ASCEND, NEW_CPU, *_ = NAMED
OLD_WEIGHT = OperatorRef("Parameter", "block/conv1.weight")
HOSTILE = OperatorRef("my.domain/Op", "a b/../c\\d:é-op0")
NAMES = [
    *((style, record(), name) for style, name in NAMED.items()),
    (
        NEW_CPU,
        record(io=IO.INPUT, slot=2, dtype="bool"),
        f"{SCOPED}.0.0.{TIME}.input.2.DefaultFormat.Bool.npy",
    ),
    (
        ASCEND,
        record(dtype="bfloat16", memory_format="NC1HWC0"),
        f"{SCOPED}.0.0.{TIME}.output.0.NC1HWC0.bfloat16.npy",
    ),
    (NEW_CPU, record(WEIGHT), f"Parameter.conv1_weight.0.0.{TIME}.output.0.DefaultFormat.Float32.npy"),
    (
        (Naming.CLASSIC, DeviceTarget.CPU),
        record(OLD_WEIGHT),
        f"Parameter.block_conv1_weight.0.0.{TIME}.output.0.DefaultFormat.npy",
    ),
    (CPU, record(names.constant(3)), f"Parameter.data-3.0.0.{TIME}.output.0.DefaultFormat.npy"),
    (
        ASCEND,
        record(names.constant(3), dtype="int64"),
        f"Parameter.data-3.0.0.{TIME}.output.0.DefaultFormat.int64.npy",
    ),
    (CPU, record(HOSTILE), f"my_domain_Op.a_b____c_d__-op0.0.0.{TIME}.output.0.DefaultFormat.npy"),
]


@pytest.mark.parametrize(("generation", "tensor", "expected"), NAMES)
def test_names_of_each_generation(generation, tensor, expected):
    """Each generation and device gives its documented name, the second time as the first."""
    name = names.namer(*generation)

    assert [expected, expected] == [name(tensor), name(tensor)]


def shown(value):
    """Return how a function or a text is called in the name of a test."""
    return getattr(value, "__qualname__", ascii(value)[:40])


PARSED = {
    names.parse: {
        f"{SCOPED}.0.0.{TIME}.input.0.DefaultFormat.Float32.npy": (
            TensorName(
                "Conv2D",
                "Default__backbone-LeNet_conv1-Conv2d_Conv2D-op0",
                TIME,
                IO.INPUT,
                0,
                dtype="Float32",
            )
        ),
        "ReduceSum.Expand__SumExt_ReduceSum-op0.0.0.1795219089575874.input.2.DefaultFormat.Bool.npy": (
            TensorName(
                "ReduceSum", "Expand__SumExt_ReduceSum-op0", 1795219089575874, IO.INPUT, 2, dtype="Bool"
            )
        ),
        "Parameter.moments_fc1_weight.0.0.1795219098150890.output.0.DefaultFormat.Float32.npy": (
            TensorName("Parameter", "moments_fc1_weight", 1795219098150890, IO.OUTPUT, 0, dtype="Float32")
        ),
        "Conv2d.Conv2D-op12.0.0.1623124369613540.output.0.DefaultFormat.npy": (
            TensorName("Conv2d", "Conv2D-op12", 1623124369613540, IO.OUTPUT, 0)
        ),
        "Conv2d.Conv2D-op12.0.0.1623124369613540.output.0.DefaultFormat.float16.npy": (
            TensorName("Conv2d", "Conv2D-op12", 1623124369613540, IO.OUTPUT, 0, dtype="float16")
        ),
        "Parameter.conv1.weight.0.0.1623124369613540.output.0.DefaultFormat.npy": (
            TensorName("Parameter", "conv1.weight", 1623124369613540, IO.OUTPUT, 0)
        ),
        "Conv2D.Default_conv3-Conv2d_Conv2D-op12.2.7.161243956333802.output.1.NC1HWC0.float16.npy": (
            TensorName(
                "Conv2D",
                "Default_conv3-Conv2d_Conv2D-op12",
                161243956333802,
                IO.OUTPUT,
                1,
                "NC1HWC0",
                "float16",
                2,
                7,
            )
        ),
    },
    operator_names.parse: {
        "Conv2D.Default_network-WithLossCell_Conv2D-op12.2.7.161243956333802": (
            OperatorName("Conv2D", "Default_network-WithLossCell_Conv2D-op12", 2, 7, 161243956333802)
        ),
        f"Data.x.65535.65535.{TIME}": OperatorName("Data", "x", 65535, 65535, TIME),
        f"Opdebug.Node_OpDebug.3.1.{TIME}": OperatorName("Opdebug", "Node_OpDebug", 3, 1, TIME),
        f"Add.add1.4.7.{TIME}.4.0.1.0": OperatorName("Add", "add1", 4, 7, TIME, (4, 0, 1, 0)),
    },
    graph_names.parse: {
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
        f"dynamo_optimized_graph_2_rank_0_pid_4711_ts_{LONG_TIME}.txt": GraphFileName(
            GraphFileKind.DYNAMO, graph=2, stage="optimized", rank=0, pid=4711, time=LONG_TIME, suffix="txt"
        ),
    },
    graph_names.parse_captured: {
        "mm-aten.mm.default.OUTPUT.0": CapturedTensorName("mm", "aten.mm.default", IO.OUTPUT, (0,)),
        f"mm-aten.mm.default.INPUT.1.{LONG_TIME}.npy": (
            CapturedTensorName("mm", "aten.mm.default", IO.INPUT, (1,), LONG_TIME)
        ),
        f"cat_2-aten.cat.default.INPUT.0.11.{LONG_TIME}.npy": (
            CapturedTensorName("cat_2", "aten.cat.default", IO.INPUT, (0, 11), LONG_TIME)
        ),
        "getitem-getitem.OUTPUT.0": CapturedTensorName("getitem", "getitem", IO.OUTPUT, (0,)),
    },
}
"""Names of real dumps and of the vendor's documents, by what parses them."""


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [(parse, *each) for parse, found in PARSED.items() for each in found.items()],
    ids=shown,
)
def test_documented_names(parse, text, expected):
    """Names of real dumps and of the vendor's documents give their fields, and the fields the names."""
    found = parse(text)

    assert expected == found
    assert text == str(found)


FOREIGN = {
    names.parse: [
        "",
        ".npy",
        "123456789.npy",
        "statistic.csv",
        "Conv2D.Conv2D-op0.0.0.1.output.0.DefaultFormat",
        "Conv2D.Conv2D-op0.0.0.1.output.DefaultFormat.npy",
        "Conv2D.Conv2D-op0.0.0.1.result.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op0.0.x.1.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op0.0.0.\u0661.output.0.DefaultFormat.npy",
        "a/Conv2D.Conv2D-op0.0.0.1.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op0.0.0.1.output.0.DefaultFormat.npy\n",
        ".4711-99.tmp",
    ],
    operator_names.parse: [
        "",
        "mapping.csv",
        "statistic.csv",
        "606962476",
        f"Add.add1.4.{TIME}",
        f"Add.a.b.4.7.{TIME}",
        f"Add.add1.4.7.{TIME}.csv",
        f"Add.add1.4.7.{TIME}.input.0.ND.float32.npy",
        f"Add.add1.x.7.{TIME}",
    ],
    graph_names.parse: [
        "",
        "ge_proto_12_graph_1_Build.txt",
        "ge_proto_00000012_graph_1_Build.pbtxt",
        "trace_code_graph_3",
        "ms_output_trace_code_graph_0.ir",
        f"dynamo_other_graph_2_rank_0_pid_1_ts_{LONG_TIME}.txt",
        "statistic.csv",
    ],
    graph_names.parse_captured: [
        "",
        "mm.OUTPUT.0",
        "mm-aten.mm.default.output.0",
        "mm-aten.mm.default.OUTPUT",
        "mm-aten.mm.default.OUTPUT.0.npy",
        f"Conv2D.conv1.0.0.{TIME}.output.0.DefaultFormat.npy",
    ],
}


@pytest.mark.parametrize(
    ("parse", "text"), [(parse, text) for parse, texts in FOREIGN.items() for text in texts], ids=shown
)
def test_other_names_are_not_parsed(parse, text):
    """The name of another file gives None."""
    assert parse(text) is None


def test_names_of_what_is_told_of_an_operator():
    """Arguments, overflows and failures of operators have files with names of their own."""
    overflow = OperatorName("Opdebug", "Node_OpDebug", 3, 1, TIME)
    norm, brief = (
        operator_names.norm_exception(CONV, 3, FAILED_AT),
        operator_names.brief_exception(3, 7, FAILED_AT),
    )
    arguments = operator_names.kernel_args(OperatorRef("MatMul", "Default/fc.1/MatMul-op0"))
    parse, kinds = operator_names.parse, OperatorFileKind

    assert "MatMul.Default_fc_1_MatMul-op0.json" == arguments
    assert OperatorName("MatMul", "Default_fc_1_MatMul-op0") == parse(arguments, kinds.ARGUMENTS)
    assert parse("config.json", kinds.ARGUMENTS) is None
    text = overflow.file_name(kinds.OVERFLOW_JSON)
    assert f"Opdebug.Node_OpDebug.3.1.{TIME}.output.0.json" == text
    assert overflow == parse(text, kinds.OVERFLOW_JSON)
    assert parse(f"Add.add1.3.1.{TIME}.output.0.json", kinds.OVERFLOW_JSON) is None
    assert f"exception_info.7.3.{FAILED_AT}" == brief  # the stream first
    assert [
        OperatorName("exception_info", "", 3, 7, int(FAILED_AT)),
        OperatorName("Conv2D", "Default__backbone-LeNet_conv1-Conv2d_Conv2D-op0", 3, 0, int(FAILED_AT)),
    ] == [operator_names.parse_exception(each) for each in (brief, norm)]
    assert (None, None) == (parse(brief), parse(norm))


def text_without(characters):
    """Draw texts that may stand in a field."""
    return st.text(st.characters(exclude_characters=characters, exclude_categories=["Cs"]), min_size=1)


FIELDS = text_without("./")
NUMBERS = st.integers(0, 10**12)
WORDS = st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True)
LONG_TIMES = st.from_regex(r"[0-9]{20}", fullmatch=True)
FAILURE_TIMES = st.integers(10**16, 10**17 - 1)
TENSORS = st.builds(
    TensorName,
    op_type=FIELDS,
    op_name=text_without("/"),
    timestamp=st.integers(0, 10**17),
    io=st.sampled_from(IO),
    slot=st.integers(0, 10**6),
    format=FIELDS,
    dtype=st.none() | FIELDS,
    task_id=st.integers(0, 65535),
    stream_id=st.integers(0, 65535),
)
CAPTURED = st.builds(
    CapturedTensorName,
    node=text_without("-/"),
    target=text_without("/"),
    io=st.sampled_from(IO),
    place=st.lists(st.integers(0, 10**6), min_size=1, max_size=3).map(tuple),
    time=st.none() | LONG_TIMES,
)
OF_OPERATORS = {
    **dict.fromkeys(("op_type", "op_name"), FIELDS),
    **dict.fromkeys(("task_id", "stream_id", "timestamp"), NUMBERS),
    "suffix": st.just(()) | st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
}
OF_KIND = {
    OperatorFileKind.OVERFLOW_JSON: {"op_type": st.just("Opdebug")},
    OperatorFileKind.BRIEF_EXCEPTION: {"op_type": st.just("exception_info"), "timestamp": FAILURE_TIMES},
    OperatorFileKind.NORM_EXCEPTION: {"timestamp": FAILURE_TIMES},
}
OF_GRAPHS = {
    **dict.fromkeys(("number", "graph", "rank", "pid", "device"), NUMBERS),
    **dict.fromkeys(("stage", "suffix"), WORDS),
    "time": LONG_TIMES,
}


@st.composite
def of_operators(draw):
    """Draw the name of an operator's file, and it parsed by its kind."""
    kind = draw(st.sampled_from(OperatorFileKind))
    values = OF_OPERATORS | OF_KIND.get(kind, {})
    fields = {field: draw(values[field]) for field in operator_names.NAMES[kind].fields}
    name = OperatorName(**({"op_type": ""} | fields))
    return name, operator_names.parse(name.file_name(kind), kind)


@st.composite
def of_graphs(draw):
    """Draw the name of a file that shows a graph, and it parsed."""
    kind = draw(st.sampled_from(GraphFileKind))
    fields = {field: draw(OF_GRAPHS[field]) for field in graph_names.NAMES[kind].fields}
    if kind is GraphFileKind.DYNAMO:
        fields["stage"] = draw(st.sampled_from(["original", "optimized"]))
    if kind is GraphFileKind.TRACE:
        fields["suffix"] = draw(st.none() | WORDS)
    name = GraphFileName(kind, **fields)
    return name, graph_names.parse(str(name))


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        TENSORS.map(lambda name: (name, names.parse(str(name)))),
        CAPTURED.map(lambda name: (name, graph_names.parse_captured(str(name)))),
        of_operators(),
        of_graphs(),
    )
)
def test_parse_inverts_format(pair):
    """Every name gives back its fields, whatever an operator is called."""
    name, found = pair

    assert name == found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["Add", "0", "7", "input", "output", "npy", "", "٣", "a/b", "9" * 21]), max_size=11
    ),
    st.sampled_from(["", ".npy"]),
)
def test_the_quick_way_agrees_with_the_template(parts, suffix):
    """Names of the common form are parsed as the template parses them, and others not at all."""
    name = ".".join(parts) + suffix
    assert names.parse(name) == names._parse_any(name)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(OperatorRef, st.text(min_size=1), st.text(min_size=1).map("Default/{}/x".format)),
    st.sampled_from(IO),
    st.integers(0, 300),
    st.sampled_from([row.name for row in dtypes.DTYPES]),
    st.sampled_from(sorted(names.STYLES)),
)
def test_written_names_are_parsed(operator, io, slot, dtype, generation):
    """Whatever an operator is called, the reader finds its fields in the writer's name."""
    tensor = record(operator, io, slot, dtype)

    found = names.parse(names.namer(*generation)(tensor))

    assert found is not None
    assert (names.sanitize(operator.op_type), io, slot, TIME) == (
        found.op_type,
        found.io,
        found.slot,
        found.timestamp,
    )
    assert names.op_name(tensor.operator, names.STYLES[generation]) == found.op_name
    assert found.dtype in {None, tensor.dtype.name, tensor.dtype.title}


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_sanitize_replaces_one_for_one(name):
    """Names keep their length, their letters, digits, _ and -; all else becomes _."""
    found = names.sanitize(name)

    kept = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert "".join(char if char in kept else "_" for char in name) == found
