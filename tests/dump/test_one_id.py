"""One id everywhere: csv, .ir, .pb and file names name the same operators, and ``kernels`` selects by it."""

import re

import numpy as np
import pytest

import msdump
from sample_nets.build import NETWORKS
from tests.dump import nets, trees
from tests.world import GRAPHS

LARGE = ("alexnet", "resnet50", "bert")  # built in seconds, hundreds of megabytes each
FILES = sorted(path.stem for path in GRAPHS.glob("*.onnx"))
BUILT = [
    pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name
    for name in NETWORKS
    if name not in FILES
]
VIRTUAL = re.compile(r".*/(TupleGetItem|MakeTuple|Return|If|Loop|Scan)-op\d+")
FULL_NAME = re.compile(r"full_name_with_scope: \((.+)\)$", re.MULTILINE)

# Operators that random inputs do not suit.
FEEDS = {
    "if": {"x": np.ones((2, 3), np.float32), "flag": np.array(True)},
    "loop": {"count": np.array(10), "start": np.array([1, 2, 3], np.float32)},
    "strings": {"words": np.array(["a", "B", "c"], object)},
    "transformer": {
        "input_ids": np.arange(16).reshape(2, 8),
        "attention_mask": np.ones((2, 8), np.int64),
        "token_type_ids": np.zeros((2, 8), np.int64),
    },
}


def feeds(name, network):
    """Return inputs for a network of graphs/."""
    return FEEDS.get(name) or {
        value.name: np.ones(
            [size if isinstance(size, int) else 2 for size in value.type.shape], value.type.dtype.numpy
        )
        for value in network.graph.inputs
    }


def numbered(rank, pattern):
    """Return the files of all graphs: the main one, then branches and loops."""
    found = list(rank.glob(pattern.replace("{}", "*")))
    return [rank / pattern.format(number) for number in range(len(found))]


def listed(rank):
    """Return the full names in the csv files."""
    paths = numbered(rank, "execution_order/ms_execution_order_graph_{}.csv")
    return [name for path in paths for name in path.read_text().splitlines()[1:]]


def in_text(rank):
    """Return the full names of the real operators in the .ir files."""
    texts = [path.read_text() for path in numbered(rank, "graphs/ms_output_trace_code_graph_{}.ir")]
    return [name for text in texts for name in FULL_NAME.findall(text) if not VIRTUAL.fullmatch(name)]


def in_message(rank):
    """Return the full names of the real operators in the .pb files."""
    messages = [path.read_bytes() for path in numbered(rank, "graphs/ms_output_trace_code_graph_{}.pb")]
    names = [name for message in messages for name in trees.pb_full_names(message)]
    return [name for name in names if not VIRTUAL.fullmatch(name)]


def spelled(full_name):
    """Return an operator's name as file names spell it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", full_name)


@pytest.mark.parametrize(
    "name",
    [*FILES, *(pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in BUILT)],
)
def test_graph_files(door, sample_net, name):
    """csv, .ir and .pb list the same operators in the same order, each once."""
    door.configure()

    network = door.load(GRAPHS / f"{name}.onnx" if name in FILES else sample_net(name))

    names = [operator.full_name for operator in network.operators]
    assert len(names) == len(set(names))
    assert names == listed(door.rank) == in_text(door.rank) == in_message(door.rank)


@pytest.mark.parametrize("name", FILES)
def test_files_of_small_graphs(door, name):
    """Every operator with tensors to dump has files under its name, of its type, and no other has."""
    door.configure(naming="2.7")
    network = door.load(GRAPHS / f"{name}.onnx")

    network.run(feeds(name, network))

    found = {(m["type"], m["name"]) for m, _ in trees.tensors(door.rank) if m["type"] != "Parameter"}
    ran = [operator for operator in network.operators if operator.full_name not in NOT_RUN.get(name, ())]
    expected = {(operator.op_type, spelled(operator.full_name)) for operator in ran}
    assert expected >= found
    assert WITHOUT_FILES.get(name, set()) == {op_type for op_type, _ in expected - found}


WITHOUT_FILES = {"strings": {"StringNormalizer", "StringConcat"}}
NOT_RUN = {"if": {"Default/If_0/else_branch/Neg-op0", "Default/If_0/else_branch/ReLU-op0"}}


@pytest.mark.parametrize("name", [*FILES, "names"])
def test_kernels_select_each_operator(door, name):
    """A full name in ``kernels`` selects its operator and no other."""
    model = odd_names() if name == "names" else GRAPHS / f"{name}.onnx"
    network = door.load(model)
    fed = feeds(name, network)
    if name == "names":
        assert len(network.operators) == 6

    for place, group in enumerate(told_apart(network.operators)):
        door.again()
        kernels = [operator.full_name for operator in group]
        door.configure(path=str(door.path / str(place)), dump_mode=1, kernels=kernels)
        door.load(model).run(fed)

        assert trees.operators(door.path / str(place)) == {
            spelled(operator.full_name)
            for operator in group
            if operator.op_type not in WITHOUT_FILES.get(name, ())
            and operator.full_name not in NOT_RUN.get(name, ())
        }


def told_apart(operators):
    """Return groups of operators: of any two operators, each is in a group without the other one."""
    halves = [
        [operator for number, operator in enumerate(operators) if number >> bit & 1 == value]
        for bit in range((len(operators) - 1).bit_length())
        for value in (0, 1)
    ]
    return halves if len(halves) < len(operators) else [[operator] for operator in operators]


def odd_names():
    """Return a network with node names that hold special characters of file names and expressions."""
    names = ["a.b/c d/n", "a+b/(n", "a*/n", "net[0]/n", "ä/n", "x/y-op1/n"]
    values = ["x", *(f"v{n}" for n in range(len(names)))]
    nodes = [
        nets.node("Relu", before, after, name)
        for before, after, name in zip(values, values[1:], names, strict=False)
    ]
    return nets.model(nodes, [nets.value("x", [2])], [values[-1]])


def test_parameters_have_their_plain_names(door):
    """The reader returns the model's names for parameters and constants."""
    door.dump(nets.mini(), nets.mini_feeds())

    records = [record for record in msdump.open_dump(door.path).records if record.is_parameter]

    assert {record.full_name for record in records} == {"conv1.weight", "fc.weight", "fc.bias", "x"}
