"""Dumps read back: trees of msdump, and trees named as MindSpore 2.10 names them; graphs that ranks share."""

import json
import math
import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes, open_dump
from msdump.encode import npy
from msdump.errors import DumpReadError
from msdump.plan import DeviceTarget, Naming
from msdump.read import read_statistics
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.store import Layout, PathKind, names, operator_names
from msdump.store.write import SyncSink
from scripts.bench import rank_tree
from tests.read.written import put

CONV = OperatorRef("Conv2D", "Default/conv1-Conv2d/Conv2D-op0")
RELU = OperatorRef("ReLU", "Default/relu-ReLU/ReLU-op0")
WEIGHT = OperatorRef("Parameter", "conv1.weight")
TITLE = "NodeExecutionOrder-FullNameWithScope\n"
ORDER = f"{CONV.full_name}\n{RELU.full_name}\n"
TIME = 1795219073857172
IMAGE = np.arange(8, dtype="<f4").reshape(2, 1, 2, 2)

REFERENCE_FILES = [
    "rank_0/Net/1/2/Add.Default_Add-op0.0.0.1795219089580885.input.0.DefaultFormat.Float32.npy",
    "rank_0/Net/1/2/Add.Default_Add-op0.0.0.1795219089580915.output.0.DefaultFormat.Float32.npy",
    "rank_0/Net/1/2/Add.Default_Add-op0.0.0.1795219089581186.input.0.DefaultFormat.Float32.npy",
    "rank_0/Net/1/2/Add.Default_Add-op1.0.0.1795219089580946.input.1.DefaultFormat.Int32.npy",
    "rank_0/Net/1/2/Add.Default_Add-op1.0.0.1795219089581240.input.1.DefaultFormat.Int32.npy",
    "rank_0/Net/1/2/Sin.Default_Sin-op0.0.0.1795219089580835.output.0.DefaultFormat.Float32.npy",
    "rank_0/Net/3/0/ReduceSum.Expand__SumExt_ReduceSum-op0.0.0.1795219089575874.input.2.DefaultFormat.Bool.npy",
    "rank_0/Net/3/0/Parameter.fc_bias.0.0.1795219073860607.output.0.DefaultFormat.Float32.npy",
]
REFERENCE_ORDER = f"{TITLE}Default/Sin-op0\nDefault/Add-op1\nDefault/Add-op0\n"


def tensor_bytes(array):
    """Return the bytes of a .npy file."""
    return b"".join(npy.encode(np.asarray(array)))


def graphs_of(path):
    """Return the graphs of the first rank of a dump."""
    return open_dump(path).ranks[0].networks["Net"].graphs


class Writer:
    """Writes a dump as a run does."""

    def __init__(self, root, rank=0, naming=Naming.V2_7, target=DeviceTarget.CPU):
        """Start at a fixed time."""
        self.layout = Layout(str(root), rank, "Net")
        self.sink = SyncSink()
        self.name = names.namer(naming, target)
        self.time = TIME

    def tensor(self, folder, operator, io, array, dtype="float32"):
        """Write one tensor, a microsecond after the one before."""
        self.time += 1
        record = TensorRecord(operator, io, 0, dtypes.from_name(dtype), array, self.time)
        data = npy.encode(dtypes.widen(array, record.dtype))
        self.sink.write(Artifact(folder, self.name(record), data, array.nbytes))

    def graph(self, graph, iterations):
        """Write a graph with two operators and a weight for some iterations."""
        order = self.layout.path(PathKind.EXECUTION_ORDER, graph)
        self.sink.append(order, ORDER.encode(), TITLE.encode())
        for iteration in iterations:
            folder = self.layout.path(PathKind.ITERATION, graph, iteration)
            self.tensor(folder, CONV, IO.INPUT, IMAGE + iteration)
            self.tensor(folder, CONV, IO.OUTPUT, IMAGE)
            self.tensor(folder, RELU, IO.OUTPUT, IMAGE)
            self.tensor(folder, WEIGHT, IO.OUTPUT, IMAGE)
            self.sink.append(self.layout.path(PathKind.ITERATIONS_RUN, graph), f"{iteration}\n".encode())


@pytest.fixture
def root(tmp_path):
    """Give a dump of two ranks, graphs 0 and 2, and iterations 0 and 10."""
    for rank in (0, 1):
        writer = Writer(tmp_path / "dump", rank)
        writer.graph(0, [0, 10])
        writer.graph(2, [10])
        writer.tensor(writer.layout.path(PathKind.CONSTANTS, 0), names.constant(0), IO.OUTPUT, IMAGE)
    return tmp_path / "dump"


class TestWhatWasWritten:
    """Everything that a run writes is found again."""

    def test_tree(self, root):
        """Ranks, networks, graphs and iterations are found with their numbers; representations name them."""
        dump = open_dump(root)

        found = [
            (number, name, graph.number, [*graph.iterations])
            for number, rank in dump.ranks.items()
            for name, network in rank.networks.items()
            for graph in network.graphs.values()
        ]
        assert [(rank, "Net", *each) for rank in (0, 1) for each in ((0, [0, 10]), (2, [10]))] == found
        numbers = [(each.key.rank, each.key.graph, each.number) for each in dump.iterations]
        assert [(rank, *each) for rank in (0, 1) for each in ((0, 0), (0, 10), (2, 10))] == numbers
        assert (24, ()) == (len(list(dump.records)), dump.ignored)
        assert f"<Dump '{root}': ranks [0, 1], networks ['Net'], 6 iterations>" == repr(dump)
        assert repr(dump.ranks[0]) == "<Rank 0: networks ['Net']>"
        network = dump.ranks[0].networks["Net"]
        assert repr(network) == "<Network 'Net': graphs [0, 2]>"
        assert repr(network.graphs[0]) == "<Graph 0 of 'Net': iterations [0, 10]>"
        assert repr(network.graphs[0].iterations[0]).startswith("<Iteration 0 of 'Net' graph 0: ")

    def test_records_stand_in_execution_order(self, root):
        """Tensors come by timestamp with the fields of their names; the order of execution has full names."""
        graph = graphs_of(root)[0]
        records = graph.iterations[10].records

        found = [(*(r.op_type, r.op_name, r.io, r.is_parameter), r.full_name) for r in records]

        conv = "Conv2D", "Default_conv1-Conv2d_Conv2D-op0"
        assert found == [
            (*conv, IO.INPUT, False, CONV.full_name),
            (*conv, IO.OUTPUT, False, CONV.full_name),
            ("ReLU", "Default_relu-ReLU_ReLU-op0", IO.OUTPUT, False, RELU.full_name),
            ("Parameter", "conv1_weight", IO.OUTPUT, True, None),  # without .ir its name is unknown
        ]
        assert {(0, "DefaultFormat")} == {(record.slot, record.format) for record in records}
        assert sorted(record.timestamp for record in records) == [record.timestamp for record in records]
        assert records[3:] == graph.iterations[10].parameters
        assert f"Conv2D {CONV.full_name} input 0" == str(records[0])
        assert ["data-0"] == [record.full_name for record in graph.constants]

    def test_plain_names_of_parameters(self, root):
        """The .ir file gives the plain names of parameters, unless two of them have one file name."""
        line = "%para{}_{}: <Ref[Tensor[Float32]], (8), ref_key={}, is_parameter>  :  has_default"
        for graph, weights in ((0, ("conv1.weight", "x")), (2, ("conv1.weight", "conv1/weight"))):
            lines = [line.format(n, name, name) for n, name in enumerate(weights, 1)]
            path = root / f"rank_0/graphs/ms_output_trace_code_graph_{graph}.ir"
            put(path, "\n".join(["", "# Params:", *lines, "", "  %0(y) = ReLU(%para2_x)"]))

        graphs = graphs_of(root)

        found = {n: [r.full_name for r in graphs[n].iterations[10].parameters] for n in (0, 2)}
        assert found == {0: ["conv1.weight"], 2: [None]}

    def test_metadata(self, root):
        """The configuration and the device are read where they were kept."""
        rank_dir = root / "rank_0" / ".dump_metadata"
        put(rank_dir / "data_dump.json", json.dumps({"common_dump_settings": {"net_name": "Net"}}))
        put(rank_dir / "config.json", '{"device_target":"CPU","ms_version":"2.10.0"}')

        ranks = open_dump(root).ranks

        assert ranks[0].config["common_dump_settings"] == {"net_name": "Net"}
        assert ranks[0].device == {"device_target": "CPU", "ms_version": "2.10.0"}
        assert ranks[1].config is None
        assert ranks[1].device is None

    def test_statistics(self, root):
        """Rows of statistic.csv come with their titles, with or without the reference's last comma."""
        header = "Op Type,Op Name,Slot,Shape,Max Value"
        rows = 'Add,Default_Add-op0,0,"(2,3)",6,\nAdd,Default_Add-op0,1,"()",-inf\n'
        put(root / "rank_0/Net/0/0/statistic.csv", f"{header}\n{rows}")

        found = graphs_of(root)[0].iterations

        assert [row["Shape"] for row in found[0].statistics] == ["(2,3)", "()"]
        assert [row["Max Value"] for row in found[0].statistics] == [6, -math.inf]
        assert found[10].statistics == ()
        assert ["()"] == [row["Shape"] for row in found[0].statistics if row["Slot"] == 1]
        assert found[0].statistics[0] == open_dump(root).iterations[0].statistics[0]

    def test_kernel_args(self, root):
        """Arguments of operators come by type and name."""
        name = operator_names.kernel_args(OperatorRef("MatMul", "Default/fc/MatMul-op0"))
        put(root / "rank_0/Net/0/0" / name, '{"transpose_a": "True"}')

        found = graphs_of(root)[0].iterations[0].kernel_args

        assert found == {("MatMul", "Default_fc_MatMul-op0"): {"transpose_a": "True"}}


GENERATIONS = [(naming, target) for naming in Naming for target in DeviceTarget]


@pytest.mark.parametrize("generation", GENERATIONS, ids=" ".join)
def test_every_generation_of_names(tmp_path, generation):
    """Names of each generation give operators, full names and types."""
    writer = Writer(tmp_path, 0, *generation)
    writer.graph(0, [0])
    folder = writer.layout.path(PathKind.ITERATION, 0, 0)
    writer.tensor(folder, RELU, IO.INPUT, np.ones(3, ml_dtypes.bfloat16), "bfloat16")

    records = graphs_of(tmp_path)[0].iterations[0].records

    has_dtype = names.STYLES[generation].dtype is not names.DTypeField.ABSENT
    assert [CONV.full_name, CONV.full_name, RELU.full_name, None, RELU.full_name] == [
        record.full_name for record in records
    ]
    assert ("bfloat16" if has_dtype else "float32") == records[4].dtype
    assert np.float32 == records[4].array.dtype


PARTS = {
    "": 24,
    "rank_1": 12,
    "rank_1/Net": 12,
    "rank_1/Net/0": 8,
    "rank_1/Net/0/10": 4,
    "rank_1/../rank_0/Net/2/10/": 4,
}


@pytest.mark.parametrize(("part", "count"), PARTS.items(), ids=repr)
def test_any_directory_of_a_dump_opens(root, part, count):
    """A rank, network, graph or iteration opens as the part of the dump that it is."""
    dump = open_dump(f"{root}/{part}")

    assert count == len(list(dump.records))
    assert {CONV.full_name, RELU.full_name, None} == {record.full_name for record in dump.records}
    assert dump.ignored == ()


def test_a_copied_directory_of_tensors_opens(root, tmp_path):
    """Tensor files without a dump around them open as one iteration."""
    (root / "rank_0/Net/0/10").rename(tmp_path / "7")

    dump = open_dump(tmp_path / "7")

    assert [iteration.number for iteration in dump.iterations] == [7]
    assert len(list(dump.records)) == 4
    assert [record.full_name for record in dump.records] == [None] * 4


def test_names_of_a_real_dump(tmp_path):
    """A tree named by MindSpore 2.10 gives operators in execution order with their full names."""
    for path in REFERENCE_FILES:
        put(tmp_path / path, tensor_bytes(np.float32(0)))
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_1.csv", REFERENCE_ORDER)
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", TITLE)
    put(tmp_path / "rank_0/execution_order/ms_global_execution_order_graph_0.csv", "0\n2\n0\n")

    graphs = graphs_of(tmp_path)

    assert [(r.full_name, r.io, r.slot) for r in graphs[1].iterations[2].records] == [
        ("Default/Sin-op0", IO.OUTPUT, 0),
        ("Default/Add-op0", IO.INPUT, 0),
        ("Default/Add-op0", IO.OUTPUT, 0),
        ("Default/Add-op1", IO.INPUT, 1),
        ("Default/Add-op0", IO.INPUT, 0),
        ("Default/Add-op1", IO.INPUT, 1),
    ]
    assert [0, 0, 0, 0, 1, 1] == [record.pass_number for record in graphs[1].iterations[2].records]
    assert (0, 2, 0) == open_dump(tmp_path).ranks[0].iterations_run(0)
    assert graphs[1].iterations_run is None
    assert [record.dtype for record in graphs[3].iterations[0].records] == ["float32", "bool"]
    assert [record.full_name for record in graphs[3].iterations[0].records] == [None, None]


def test_stand_ins_are_resolved(tmp_path):
    """A file with a stand-in has the fields of its original name; one without a line is ignored."""
    operator = OperatorRef("ReLU", f"Default/{'very_long_' * 30}/ReLU-op0")
    writer = Writer(tmp_path)
    writer.tensor(writer.layout.path(PathKind.ITERATION, 0, 0), operator, IO.INPUT, IMAGE)
    put(tmp_path / "rank_0/Net/0/0/606962476.npy", tensor_bytes(IMAGE))

    dump = open_dump(tmp_path)

    (record,) = dump.records
    assert (names.sanitize(operator.full_name), TIME + 1) == (record.op_name, record.timestamp)
    np.testing.assert_array_equal(IMAGE, record.array)
    assert dump.ignored == (f"{tmp_path}/rank_0/Net/0/0/606962476.npy",)


def test_ambiguous_short_names_stay_unknown(tmp_path):
    """Where two operators share a last component, its classic name stands for neither."""
    order = f"{TITLE}Default/a/ReLU-op0\nDefault/b/ReLU-op0\nDefault/a/Add-op0\n"
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", order)
    for name in ("ReLU.ReLU-op0", "Add.Add-op0"):
        path = tmp_path / f"rank_0/Net/0/0/{name}.0.0.{TIME}.output.0.DefaultFormat.npy"
        put(path, tensor_bytes(IMAGE))

    found = {record.op_type: record.full_name for record in open_dump(tmp_path).records}

    assert found == {"ReLU": None, "Add": "Default/a/Add-op0"}


FOREIGN = [
    "notes.txt",
    "rank_x/a",
    "rank_0/.dump_metadata/hccl.json",
    "rank_0/Net/README",
    "rank_0/Net/0/latest/x",
    "rank_0/Net/0/0/.4711-1.tmp",
    "rank_0/Net/0/0/photo.npy",
    "rank_0/Net/0/0/sub/x",
    "rank_0/Net/0/constants/x.bin",
]


def test_links_that_lead_nowhere_are_no_directories(root):
    """A link that the system does not follow may stand beside a dump, or in place of a directory."""
    for folder in (root.parent, root, root / "rank_0", root / "rank_0/Net/0"):
        (folder / "rank_7").symlink_to("rank_7")
    (root / "rank_0/Net/5").symlink_to("5")

    assert [0, 1] == list(open_dump(root).ranks)
    assert [0, 2] == list(graphs_of(root.parent))


def test_foreign_files_are_listed(root):
    """Foreign files are passed over and listed."""
    expected = []
    for path in FOREIGN:
        put(root / path, b"")
        is_file = path.rpartition("/")[2] not in {"a", "x"}
        expected.append(f"{root}/{path if is_file else path.rpartition('/')[0]}")

    dump = open_dump(root)

    assert sorted(expected) == list(dump.ignored)
    assert len(list(dump.records)) == 24


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "nowhere: no such directory; give the directory of a dump"),
        ("file", "file: a file, not a directory; give the directory of a dump"),
        (
            "empty",
            r"empty: not a dump: the directory has neither rank_N nor time directories nor tensor files",
        ),
    ],
)
def test_what_is_no_dump(tmp_path, path, message):
    """A path without a dump raises DumpReadError that names it and the remedy."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()

    with pytest.raises(DumpReadError, match=message):
        open_dump(tmp_path / path)


def _first(dump):
    return dump.ranks[0].networks["Net"].graphs[0].iterations[0].records[0]


CORRUPT = {
    "torn tensor": (
        "rank_0/Net/0/0/{first}",
        tensor_bytes(IMAGE)[:140],
        lambda dump: _first(dump).array,
        (140, r"truncated: shape \(2, 1, 2, 2\) of '<f4' needs 32 bytes, the file has 12"),
    ),
    "empty tensor file": (
        "rank_0/Net/0/0/{first}",
        b"",
        lambda dump: _first(dump).shape,
        (0, "not a .npy file"),
    ),
    "configuration": (
        "rank_0/.dump_metadata/data_dump.json",
        '{"ä": 1,}',
        lambda dump: dump.ranks[0].config,
        (9, "not JSON"),
    ),
    "text that is not UTF-8": (
        "rank_0/.dump_metadata/config.json",
        b'{"a": "\xff"}',
        lambda dump: dump.ranks[0].device,
        (7, "not UTF-8"),
    ),
    "execution order": (
        "rank_0/execution_order/ms_execution_order_graph_9.csv",
        "Default/Add-op0\n",
        lambda dump: dump.ranks[0].execution_order(9),
        (0, "the first line is 'Default/Add-op0', not 'NodeExecutionOrder-FullNameWithScope'"),
    ),
    "iterations run": (
        "rank_0/execution_order/ms_global_execution_order_graph_9.csv",
        "0\n1\nx\n",
        lambda dump: dump.ranks[0].iterations_run(9),
        (4, "'x' is not the number of an iteration"),
    ),
    "statistics": (
        "rank_0/Net/0/0/statistic.csv",
        "Op Type,Op Name\nAdd,a\nAdd,b,c\n",
        lambda dump: read_statistics(dump.iterations[0].statistic_files[None]),
        (22, "a row has 3 cells, the header has 2"),
    ),
    "kernel arguments": (
        "rank_0/Net/0/0/Add.Default_Add-op0.json",
        "[" * 100_000,
        lambda dump: dump.iterations[0].kernel_args,
        (None, "nested too deeply"),
    ),
}


@pytest.mark.parametrize(("path", "data", "touch", "fault"), CORRUPT.values(), ids=CORRUPT)
def test_corrupt_files_raise_when_touched(root, path, data, touch, fault):
    """A corrupt file does not disturb opening; touched, it raises with its path and the byte."""
    file = root / path.format(first=os.path.basename(_first(open_dump(root)).path))  # noqa: PTH119 - a str
    file.unlink(missing_ok=True)
    put(file, data)
    dump = open_dump(root)
    offset, message = fault

    with pytest.raises(DumpReadError, match=message) as raised:
        touch(dump)

    assert str(file) == raised.value.path
    assert offset == raised.value.offset


FIELD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def _spelt(operator):
    """Return the shortest name of an operator in files: two of one name are two executions."""
    op_type, name = operator
    return names.sanitize(op_type), names.sanitize(name.rpartition("/")[2] or "/")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=4, unique_by=_spelt), st.sampled_from(GENERATIONS)
)
def test_whatever_is_written_is_read(tmp_path_factory, operators, generation):
    """Tensors of operators with any name come back in order with type, name and elements."""
    root = tmp_path_factory.mktemp("dump")
    writer = Writer(root, 0, *generation)
    for number, (op_type, name) in enumerate(operators):
        operator = OperatorRef(op_type, f"Default/{name}")
        writer.tensor(
            writer.layout.path(PathKind.ITERATION, 0, 0), operator, IO.OUTPUT, np.full(2, number, "<f4")
        )

    records = list(open_dump(root).records)

    assert [names.sanitize(op_type) for op_type, _ in operators] == [record.op_type for record in records]
    assert [[number] * 2 for number in range(len(operators))] == [r.array.tolist() for r in records]


class TestAbove:
    """The directory above a dump, as ``msdump compare`` takes it."""

    @pytest.mark.parametrize("above", ["debug_dump", "out/debug_dump", "a/b/c"])
    def test_one_dump(self, tmp_path, above):
        """The only dump below a directory is opened."""
        Writer(tmp_path / above).graph(0, [3])

        dump = open_dump(tmp_path)

        assert 3 == dump.iterations[0].number
        assert [3] == [iteration.number for iteration in dump.iterations]

    def test_several_dumps(self, tmp_path):
        """Of several none is chosen."""
        for name in ("a", "b"):
            Writer(tmp_path / name).graph(0, [3])

        with pytest.raises(
            DumpReadError, match=r"the directory contains several dumps, such as .*/a and .*/b; give one"
        ):
            open_dump(tmp_path)


@pytest.mark.parametrize(
    ("damage", "reasons"),
    [
        ("none", []),
        ("torn file", ["1.npy"]),
        ("stranger", ["belongs to no dump"]),
        ("lost file", ["1 of 4 tensors with a row in statistic.csv have no file"]),
        ("lost rows", ["3 of 4 tensors have no row in statistic.csv"]),
        ("torn table", ["no titles of statistics"]),
        ("emptied table", ["the table is empty"]),
        ("torn rows", ["a row has 2 cells, the header has 9", "Slot is 'x', no number"]),
        ("torn row", ["the last row has no line feed"]),
    ],
)
def test_problems_name_what_is_torn_lost_and_foreign(root, damage, reasons):
    """A sound dump has no problems; each damaged one has the ones that a user would look for."""
    folder = root / "rank_1/Net/0/10"
    files = sorted(folder.iterdir())
    parsed = [names.parse(file.name) for file in files]
    rows = [f"{name.op_type},{name.op_name},0,0,0,{name.io},{name.slot},32,float32\n" for name in parsed]
    titles = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type\n"
    if damage in {"lost file", "lost rows"}:
        put(folder / "statistic.csv", titles + "".join(rows[: 1 if damage == "lost rows" else None]))
    match damage:
        case "torn file":
            files[0].write_bytes(files[0].read_bytes()[:-1])
            reasons = [str(files[0])]
        case "stranger":
            put(folder / "notes.txt", "")
        case "lost file":
            files[0].unlink()
        case "torn table":
            put(folder / "statistic.csv", b"\xff\n")
        case "emptied table":
            put(folder / "statistic.csv", b"")
        case "torn rows":
            faulty = "Add,b\n" + rows[0].replace("put,0", "put,x")
            put(folder / "statistic.csv", titles + faulty + "".join(rows))
        case "torn row":
            put(folder / "statistic.csv", f"{titles}{''.join(rows)}Conv2D,"[:-1])

    found = open_dump(root).problems

    assert len(reasons) == len(found)
    assert all(reason in problem.reason for reason, problem in zip(reasons, found, strict=True))
    assert all(problem.path.startswith(str(folder)) for problem in found)


def test_ranks_of_one_program_share_its_graphs(tmp_path):
    """A graph is one object for all ranks with equal files; another order makes another one."""
    dump = rank_tree.grow(tmp_path / "made", 4, operators=3, shape=(2,), scale=1.0)
    order, missing = (dump / f"rank_{rank}/execution_order/ms_execution_order_graph_0.csv" for rank in (2, 3))
    title, *names = order.read_text().splitlines()
    order.unlink()
    order.write_text("\n".join([title, *reversed(names), ""]))
    missing.unlink()

    graphs = [rank.operator_graphs[0] for rank in open_dump(dump).ranks.values()]

    assert [True, True, False, False] == [graph is graphs[0] for graph in graphs]
    assert names == list(graphs[0].operators)
    assert names[::-1] == list(graphs[2].operators)
    assert {*names} == {*graphs[3].operators}


def test_a_list_that_cannot_be_read_is_told_by_its_own_rank(tmp_path, caplog):
    """A rank with a broken list of operators is read without it, and hands its graph to no other one."""
    dump = rank_tree.grow(tmp_path / "made", 3, operators=2, shape=(2,), scale=1.0)
    order = dump / "rank_1/execution_order/ms_execution_order_graph_0.csv"
    order.unlink()
    order.write_text("broken\n")

    ranks = open_dump(dump).ranks
    graph = ranks[0].operator_graphs[0]
    broken = ranks[1].operator_graphs[0]
    assert (graph is ranks[2].operator_graphs[0], {*graph.operators}) == (True, {*broken.operators})
    assert broken is not graph
    (message,) = (record.getMessage() for record in caplog.records)
    assert "rank_1/execution_order" in message
    assert "read as if the file were missing" in message
