"""Files that the reader of .mindir files refuses, each in one sentence; hostile files end the same way.

The files in ``refused`` are MindSpore 2.10's own; the others are made of a network by a change.
"""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.errors import GraphError
from msdump.graph import loader
from msdump.graph.mindir.file import Kind, message_class
from tests.world import cli, write_config

DATA = Path(__file__).parent / "refused"
NETWORKS = Path(__file__).parent / "networks"
SMALL = NETWORKS / "mlp16_weights.mindir"
LOOP = NETWORKS / "while_tensor.mindir"
BRANCHES = NETWORKS / "if_tensor.mindir"
MANY = 1 << 40
COMPLEX64 = 14


def model(path=SMALL):
    """Return the message of a network."""
    return message_class("ModelProto").FromString(path.read_bytes())


def changed(change, path=SMALL):
    """Return a network with a change."""
    message = model(path)
    change(message)
    return message.SerializeToString()


def fields(path=SMALL, **values):
    """Return a network with other fields of the model."""
    return changed(lambda message: message.MergeFrom(type(message)(**values)), path)


def parameter(path=SMALL, **values):
    """Return a network with other fields of its first parameter."""

    def change(message):
        first = message.graph.parameter[0]
        for key in values:
            first.ClearField(key)
        first.MergeFrom(type(first)(**values))

    return changed(change, path)


def operators(**kinds):
    """Return a network with other types of operators."""

    def change(message):
        for each in message.primitives:
            each.op_type = kinds.get(each.op_type, each.op_type)

    return changed(change)


def kernel(message, kind):
    """Return the first node of a type."""
    names = {f"REF::{each.name}" for each in message.primitives if each.op_type == kind}
    return next(node for node in message.graph.node if node.op_type in names)


def operands(kind, *names):
    """Return a network where the first node of a type reads other values; "" is its own one."""

    def change(message):
        node = kernel(message, kind)
        node.input[:] = [name or node.output[0] for name in names]

    return changed(change)


def abstract(message, value):
    """Give the first node another abstract value."""
    attribute = next(each for each in message.graph.node[-1].attribute if each.name == "shape")
    attribute.Clear()
    attribute.MergeFrom(type(attribute)(name="shape", **value))


def nested(depth):
    """Return a network with a tuple of tuples as a constant."""

    def change(message):
        constant = next(node for node in message.graph.node if node.op_type == "Constant")
        value = constant.attribute[0]
        value.Clear()
        for _ in range(depth):
            value.type = Kind.TUPLE
            value = value.values.add()

    return changed(change)


def later(message):
    """Let the first operator read the result of the last one."""
    kernel(message, "Cast").input[0] = message.graph.node[-1].output[0]


def calls_itself(message):
    """Let a branch end with a call of itself."""
    function = message.functions[0]
    function.node[-1].op_type = f"REF::{function.name}"
    del function.node[-1].input[:]
    function.node[-1].input.extend(each.name for each in function.input)


def computed_call(message):
    """Call the result of an operator."""
    call = next(node for node in message.graph.node if not node.input and node.op_type != "Constant")
    call.op_type = "REF::" + message.graph.node[-1].input[0]


def doubled(count, times=2):
    """Return a network with a tuple of so many tuples, one in the other, each ``times`` in the next one."""

    def change(message):
        graph, name = message.graph, message.graph.node[-1].output[0]
        own = next(each.name for each in message.primitives if each.op_type == "MakeTuple")
        for number in range(count):
            graph.node.add(input=[name] * times, output=[f"own:{number}"], op_type=f"REF::{own}")
            name = f"own:{number}"
        graph.output[0].name = name

    return changed(change)


def chained(count, times=2):
    """Return a network of so many functions, each with calls of the next one."""

    def change(message):
        graph = message.graph
        for number in range(count):
            function = message.functions.add(name=f"f{number}")
            function.input.add(name=f"f{number}:x").tensor.add(dims=[2], data_type=1)
            name = f"f{number}:x"
            for place in range(times if number + 1 < count else 0):
                output = f"f{number}:{place}"
                function.node.add(input=[name], output=[output], op_type=f"REF::f{number + 1}")
                name = output
            function.output.add(name=name)
        graph.node.add(input=[graph.output[0].name], output=["own"], op_type="REF::f0")
        graph.output[0].name = "own"

    return changed(change)


REFUSED = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello", 'not a MindIR file; write one with mindspore.export(..., file_format="MINDIR")'),
    "onnx": (b"\x08\x0a\x12\x07pytorch", "its first field is ONNX's; rename it to .onnx"),
    "cut": (SMALL.read_bytes()[:2000], "truncated: "),
    "gcm": (b"\xd8\x5e\x3a\x7f" + bytes(64), "encrypted (AES-GCM); export it again without enc_key"),
    "cbc": (b"\xd9\x5e\x3a\x7f" + bytes(64), "encrypted (AES-CBC); export it again without enc_key"),
    "lite": (b"\x18\0\0\0MSL2" + bytes(64), "a .ms file of MindSpore Lite"),
    "newer": (fields(mind_ir_version=4), "mind_ir_version 4 is newer than this reader"),
    "big_endian": (fields(little_endian=False), "big-endian; export the network on a little-endian"),
    "parallel": (fields(parallel={"layout": [{"name": "w"}]}), "sharded over ranks (parallel layout)"),
    "other_producer": (fields(producer_name="other"), "it names no producer MindSpore"),
    "compressed": (parameter(compression_type=3), "is compressed or quantised by converter_lite"),
    "quantised": (parameter(quant_params=[{"quant_algo_name": "q"}]), "is compressed or quantised"),
    "map_parameter": (None, "M_construct_4:m' is a MapParameter (hash table)"),
    "custom_pyfunc": (None, "Custom (Default/Custom-op0); the code of a Custom is not in the file"),
    "quant_op": (None, "primitives that cannot run here: Quant (Default/Quant-op0)"),
    "complex": (None, "Complex (Default/Complex-op0), Real (Default/Real-op0)"),
    "unknown": (
        operators(MatMul="Own", Tanh="Other"),
        "Own (Default/fc1-Dense/MatMul-op0), Other (Default/act-Tanh/Tanh-op0); docs/reference/primitives.md",
    ),
    "complex_weight": (
        parameter(dims=[16, 2], data_type=COMPLEX64),
        "fc1.weight' is of complex64, which cannot run",
    ),
    "text_weight": (parameter(data_type=8), "fc1.weight' is of string, which cannot run"),
    "unknown_element": (parameter(data_type=99), "element type 99"),
    "dynamic_length": (
        changed(lambda each: abstract(each, {"type": Kind.TUPLE, "seq_info": {"is_dyn_len": True}})),
        "node 'Default/Depend-op0': a tuple of dynamic length cannot run here; export a network with",
    ),
    "nested_tuple": (nested(80), "tuples are nested more than 64 deep"),
    "deeply_nested_tuple": (nested(3000), "the protobuf message cannot be parsed"),
    "huge_weight": (parameter(dims=[MANY, MANY]), "bytes of data"),
    "negative_weight": (parameter(dims=[-16, -8]), "the shape (-16, -8): sizes must be 0 or more"),
    "twice": (changed(lambda each: each.graph.parameter.add().CopyFrom(each.graph.parameter[0])), "twice"),
    "later_node": (changed(later), "which no input, parameter or earlier node provides"),
    "own_value": (operands("Tanh", ""), "which no input, parameter or earlier node provides"),
    "fewer_operands": (operands("Load"), "Default/Load-op0: Load needs 1 operands, not 0"),
    "no_operands": (operands("MatMul"), "Default/fc1-Dense/MatMul-op0: "),
    "tuples": (doubled(60), "node 'own:20': a tuple has more than 1048576 values inside"),
    "deep_tuples": (doubled(5000, 1), "nested too deeply"),
    "calls": (chained(40), "functions call each other in more than 4096 ways"),
    "deep_calls": (chained(1100, 1), "nested too deeply"),
    "no_result": (changed(lambda each: each.graph.ClearField("output")), "returns nothing"),
    "no_text": (SMALL.read_bytes().replace(b"act-Tanh", b"act-\xffanh"), "cannot be parsed"),
    "recursion": (changed(calls_itself, BRANCHES), "✗cell_Net_construct_22' has no end"),
    "computed_call": (changed(computed_call, BRANCHES), "which no input, parameter or earlier node provides"),
}
"""By name: the contents, None for a file of MindSpore's, and a part of the refusal."""


def invoke(*arguments):
    """Run the program; return its exit code and errors."""
    done = cli(*arguments)
    return done.exit_code, done.stderr


def dump_everything(folder):
    """Return the file of a configuration that dumps all operators in each step."""
    return write_config(folder / "dump.json", folder / "dump")


def refusal(path, folder):
    """Return the message by which both commands refuse a file."""
    code, message = invoke("run", path)
    assert 2 == code, message
    assert (2, message) == invoke("check", dump_everything(folder), "--model", path)
    return message


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    """A file that cannot run is refused in one sentence with its name, the place and the next step."""
    data, expected = REFUSED[name]
    path = tmp_path / f"{name}.mindir"
    path.write_bytes((DATA / path.name).read_bytes() if data is None else data)

    message = refusal(path, tmp_path)

    assert f"{path}: " in message
    assert expected in message
    assert 1 == message.count("\n")
    assert len(message) < 600


SPLIT = {
    "missing": (lambda file: file.unlink(), {}, "cannot be read: No such file or directory; put the file"),
    "short": (lambda file: file.write_bytes(file.read_bytes()[:100]), {}, "has 100 bytes, bytes "),
    "outside": (None, {"location": "../data_0"}, "'../data_0' is outside the model's folder"),
    "absolute": (None, {"location": "/etc/passwd"}, "'/etc/passwd' is outside the model's folder"),
    "far": (None, {"offset": MANY}, "is the file truncated?"),
    "negative": (None, {"offset": -64}, "is the file truncated?"),
    "long": (None, {"length": MANY}, "is the file truncated?"),
}


@pytest.mark.parametrize("name", SPLIT)
def test_split_weights(name, tmp_path):
    """Weights in other files are read from the network's folder alone, and only where they are whole."""
    change, place, expected = SPLIT[name]
    folder = tmp_path / "model"
    shutil.copytree(DATA / "large_variables", folder / "large_variables")
    path = folder / "large_graph.mindir"
    path.write_bytes((DATA / path.name).read_bytes())
    assert 0 == invoke("run", path)[0]
    if change is not None:
        change(folder / "large_variables" / "data_0")
    own = {"location": "large_variables/data_0", "offset": 64, "length": 96, **place}
    path.write_bytes(parameter(path, external_data=own) if place else path.read_bytes())

    message = refusal(path, tmp_path)

    assert f"{path}: " in message
    assert expected in message


def test_skipped(tmp_path, caplog):
    """Free texts of the user and fields that the reader lacks are passed over."""
    path = tmp_path / "net.mindir"
    user_info = b"\x72\x07\x0a\x01k\x12\x02va"
    unknown = b"\xfa\x7f\x03abc"
    path.write_bytes(SMALL.read_bytes() + user_info + unknown)

    graph = loader.load(path)

    assert [node.name for node in loader.load(SMALL).nodes] == [node.name for node in graph.nodes]
    assert not caplog.records


def test_other_version(tmp_path, caplog):
    """A file of another MindSpore is read with a warning."""
    path = tmp_path / "net.mindir"
    path.write_bytes(fields(model_version="2.3.0"))

    assert loader.load(path).nodes
    (record,) = caplog.records
    assert logging.WARNING == record.levelno
    assert f"{path}: written by MindSpore 2.3.0; files of 2.10 are known" in record.getMessage()


def test_file_without_operators(caplog):
    """A network without operators is a whole one, and no reason to warn of MindSpore's ONNX files."""
    graph = loader.load(DATA / "tuple_input.mindir")

    assert () == graph.nodes
    assert not caplog.records


HOSTILE = (SMALL, LOOP, NETWORKS / "print_net.mindir", NETWORKS / "early_return.mindir")
NUMBERS = (0, 1, -1, -2, 3, 14, 17, 20, 27, 99, (1 << 31) - 1, -(1 << 31), 1 << 62, -(1 << 63))


def load(folder, data):
    """Load a file that may be hostile; every error but a refusal is a fault."""
    path = folder / "hostile.mindir"
    path.write_bytes(data)
    refusal = ""
    try:
        loader.load(path)
    except GraphError as error:
        refusal = str(error)
    assert not refusal or refusal.startswith(f"{path}: ")


@given(
    st.sampled_from(HOSTILE),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    st.integers(0, 1 << 16),
)
@settings(max_examples=60)
def test_random_bytes(tmp_path_factory, path, changes, end):
    """Other bytes and a cut lead to a graph or a refusal."""
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    load(tmp_path_factory.getbasetemp(), bytes(data[:end]) if end % 4 == 0 else bytes(data))


def messages(message):
    """Yield a message and all inside."""
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner)


def mutate(root, choose):
    """Take away, repeat, exchange or replace the value of a field somewhere."""
    inside = list(messages(root))
    message = choose.choice(inside)
    field = choose.choice(message.DESCRIPTOR.fields)
    texts = [node.name for node in root.graph.node] + ["", "Constant", "REF::x"]
    values = {
        field.TYPE_STRING: texts,
        field.TYPE_BYTES: [b"", b"\xff", b"SAME"],
        field.TYPE_BOOL: [True, False],
        field.TYPE_INT32: [each for each in NUMBERS if abs(each) < 1 << 31],
        field.TYPE_INT64: NUMBERS,
        field.TYPE_FLOAT: [0.0, np.nan, np.inf],
        field.TYPE_DOUBLE: [0.0, np.nan, np.inf],
    }
    same = [each for each in inside if each.DESCRIPTOR is field.message_type]
    if field.message_type and not same:
        return
    value = choose.choice(same if field.message_type else values[field.type])
    if field.message_type:
        value = type(value).FromString(value.SerializeToString())
    held = [*getattr(message, field.name)] if field.is_repeated else []
    message.ClearField(field.name)
    if not field.is_repeated:
        if choose.random() < 0.7:
            message.MergeFrom(type(message)(**{field.name: value}))
        return
    place = choose.randrange(len(held) + 1)
    held[place : place + choose.randrange(2)] = choose.choice([[], [value]])
    message.MergeFrom(type(message)(**{field.name: held}))


@given(st.sampled_from(HOSTILE), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_random_fields(tmp_path_factory, path, count, choose):
    """Other fields lead to a graph or a refusal."""
    root = model(path)
    for _ in range(count):
        mutate(root, choose)
    load(tmp_path_factory.getbasetemp(), root.SerializeToString())


def test_parameters_change(tmp_path):
    """Each step of a training network goes on with the weights of the step before."""
    config = dump_everything(tmp_path)
    path = NETWORKS / "train_momentum.mindir"

    assert 0 == invoke("run", path, "--steps", "3", "--config", config)[0]

    files = sorted(
        tmp_path.glob("dump/rank_0/Net/0/*/Parameter.fc1_weight.*.npy"), key=lambda file: file.parent
    )
    assert ["0", "1", "2"] == [file.parent.name for file in files]
    first, second, third = map(np.load, files)
    assert np.any(first != second)
    assert np.any(second != third)
