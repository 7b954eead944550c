"""Names of operators' files in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.plan import DeviceTarget, Naming
from msdump.record import OperatorRef
from msdump.store import names, operator_names
from msdump.store.operator_names import NAMES, OperatorFileKind, OperatorName, parse

TIME = 1795216920861338
CONV = OperatorRef("Conv2D", "Default/_backbone-LeNet/conv1-Conv2d/Conv2D-op0")


def test_kernel_args_name_is_parsed():
    """The name of an operator's arguments gives back op_type and op_name."""
    name = operator_names.kernel_args(OperatorRef("MatMul", "Default/fc.1/MatMul-op0"))

    assert name == "MatMul.Default_fc_1_MatMul-op0.json"
    assert OperatorName("MatMul", "Default_fc_1_MatMul-op0") == parse(name, OperatorFileKind.ARGUMENTS)
    assert parse("config.json", OperatorFileKind.ARGUMENTS) is None


OPERATOR_NAMES = {
    "O2": (
        "Conv2D.Default_network-WithLossCell__backbone-AlexNet_conv3-Conv2d_Conv2D-op12.2.7.161243956333802",
        OperatorName(
            "Conv2D",
            "Default_network-WithLossCell__backbone-AlexNet_conv3-Conv2d_Conv2D-op12",
            2,
            7,
            161243956333802,
        ),
    ),
    "no task": (f"Data.x.65535.65535.{TIME}", OperatorName("Data", "x", 65535, 65535, TIME)),
    "overflow": (
        f"Opdebug.Node_OpDebug.3.1.{TIME}",
        OperatorName("Opdebug", "Node_OpDebug", 3, 1, TIME),
    ),
    "FFTS+": (f"Add.add1.4.7.{TIME}.4.0.1.0", OperatorName("Add", "add1", 4, 7, TIME, (4, 0, 1, 0))),
}


@pytest.mark.parametrize(("text", "expected"), OPERATOR_NAMES.values(), ids=OPERATOR_NAMES)
def test_names_of_operator_files(text, expected):
    """The name of an operator's file gives its fields, and the fields give the name."""
    assert expected == parse(text)
    assert text == str(expected)


@pytest.mark.parametrize(
    "text",
    [
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
)
def test_other_names_are_not_those_of_operators(text):
    """The name of another file gives None."""
    assert parse(text) is None


def test_operator_file_is_named_after_the_scoped_name():
    """Every character of a scoped name that tools refuse becomes one underscore."""
    operator = OperatorRef("Conv2D", "Default/net.a/conv 1/Conv2D-op3")
    style = names.STYLES[Naming.V2_5, DeviceTarget.ASCEND]

    name = operator_names.of(operator, style, 2, 7, TIME)

    assert f"Conv2D.Default_net_a_conv_1_Conv2D-op3.2.7.{TIME}" == str(name)


def test_json_of_an_overflow():
    """The JSON form of an overflow file carries its name; other JSON files are not one."""
    name = OperatorName("Opdebug", "Node_OpDebug", 3, 1, TIME)
    text = name.file_name(OperatorFileKind.OVERFLOW_JSON)

    assert f"Opdebug.Node_OpDebug.3.1.{TIME}.output.0.json" == text
    assert name == parse(text, OperatorFileKind.OVERFLOW_JSON)
    assert parse(f"Add.add1.3.1.{TIME}.output.0.json", OperatorFileKind.OVERFLOW_JSON) is None


EXCEPTIONS = {
    "brief": (
        operator_names.brief_exception(3, 7, "20240112093000123"),
        OperatorName("exception_info", "", 3, 7, 20240112093000123),
    ),
    "norm": (
        operator_names.norm_exception(CONV, 3, "20240112093000123"),
        OperatorName("Conv2D", "Default__backbone-LeNet_conv1-Conv2d_Conv2D-op0", 3, 0, 20240112093000123),
    ),
}


@pytest.mark.parametrize(("text", "expected"), EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_names_of_failed_operators(text, expected):
    """The name of a failed operator's file gives its task; a brief one has its stream before it."""
    assert expected == operator_names.parse_exception(text)
    assert parse(text) is None


def test_brief_name_has_the_stream_first():
    """Stream, then task, then the time."""
    assert "exception_info.7.3.20240112093000123" == operator_names.brief_exception(3, 7, "20240112093000123")


FIELDS = st.text(st.characters(exclude_characters="./", exclude_categories=["Cs"]), min_size=1)
NUMBERS = st.integers(0, 10**16)
VALUES = {
    "op_type": FIELDS,
    "op_name": FIELDS,
    "task_id": NUMBERS,
    "stream_id": NUMBERS,
    "timestamp": NUMBERS,
    "suffix": st.just(()) | st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
}
FAILURE_TIMES = st.integers(10**16, 10**17 - 1)
OF_KIND = {
    OperatorFileKind.OVERFLOW_JSON: {"op_type": st.just("Opdebug")},
    OperatorFileKind.BRIEF_EXCEPTION: {"op_type": st.just("exception_info"), "timestamp": FAILURE_TIMES},
    OperatorFileKind.NORM_EXCEPTION: {"timestamp": FAILURE_TIMES},
}


@st.composite
def named(draw):
    """Draw a kind of file, and a name with the fields of its kind."""
    kind = draw(st.sampled_from(OperatorFileKind))
    values = VALUES | OF_KIND.get(kind, {})
    fields = {field: draw(values[field]) for field in NAMES[kind].fields}
    return kind, OperatorName(**({"op_type": ""} | fields))


@settings(max_examples=200, deadline=None)
@given(named())
def test_parse_inverts_format(named):
    """The name of every kind of file gives back its fields, whatever an operator is called."""
    kind, name = named

    assert name == parse(name.file_name(kind), kind)


def test_every_kind_has_a_name():
    """The table of names is complete."""
    assert set(OperatorFileKind) == set(NAMES)
