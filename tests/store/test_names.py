"""Tensor file names in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.plan import DeviceTarget, Naming
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.store import names
from msdump.store.names import TensorName

TIME = 1795216920861338
CONV = OperatorRef("Conv2D", "Default/_backbone-LeNet/conv1-Conv2d/Conv2D-op0")
WEIGHT = OperatorRef("Parameter", "conv1.weight")


def record(operator=CONV, io=IO.OUTPUT, slot=0, dtype="float32", memory_format="DefaultFormat"):
    """Return a tensor of an operator."""
    row = dtypes.from_name(dtype)
    return TensorRecord(operator, io, slot, row, np.zeros(1, row.saved), TIME, memory_format)


SCOPED = f"Conv2D.Default__backbone-LeNet_conv1-Conv2d_Conv2D-op0.0.0.{TIME}.output.0.DefaultFormat"
SHORT = f"Conv2D.Conv2D-op0.0.0.{TIME}.output.0.DefaultFormat"

NAMES = {
    "2.5 CPU": (Naming.V2_5, DeviceTarget.CPU, record(), f"{SCOPED}.npy"),
    "2.5 GPU": (Naming.V2_5, DeviceTarget.GPU, record(), f"{SCOPED}.npy"),
    "2.5 Ascend": (Naming.V2_5, DeviceTarget.ASCEND, record(), f"{SCOPED}.float32.npy"),
    "2.7 CPU": (Naming.V2_7, DeviceTarget.CPU, record(), f"{SCOPED}.Float32.npy"),
    "2.7 GPU": (Naming.V2_7, DeviceTarget.GPU, record(), f"{SCOPED}.Float32.npy"),
    "2.7 Ascend": (Naming.V2_7, DeviceTarget.ASCEND, record(), f"{SCOPED}.float32.npy"),
    "classic CPU": (Naming.CLASSIC, DeviceTarget.CPU, record(), f"{SHORT}.npy"),
    "classic GPU": (Naming.CLASSIC, DeviceTarget.GPU, record(), f"{SHORT}.npy"),
    "classic Ascend": (Naming.CLASSIC, DeviceTarget.ASCEND, record(), f"{SHORT}.npy"),
    "input": (
        Naming.V2_7,
        DeviceTarget.CPU,
        record(io=IO.INPUT, slot=2, dtype="bool"),
        SCOPED.replace("output.0", "input.2") + ".Bool.npy",
    ),
    "device format": (
        Naming.V2_5,
        DeviceTarget.ASCEND,
        record(dtype="bfloat16", memory_format="NC1HWC0"),
        SCOPED.replace("DefaultFormat", "NC1HWC0") + ".bfloat16.npy",
    ),
    "weight": (
        Naming.V2_7,
        DeviceTarget.CPU,
        record(WEIGHT),
        f"Parameter.conv1_weight.0.0.{TIME}.output.0.DefaultFormat.Float32.npy",
    ),
    "classic weight": (
        Naming.CLASSIC,
        DeviceTarget.CPU,
        record(OperatorRef("Parameter", "block/conv1.weight")),
        f"Parameter.block_conv1_weight.0.0.{TIME}.output.0.DefaultFormat.npy",
    ),
    "constant": (
        Naming.V2_5,
        DeviceTarget.CPU,
        record(names.constant(3)),
        f"Parameter.data-3.0.0.{TIME}.output.0.DefaultFormat.npy",
    ),
    "constant on Ascend": (
        Naming.V2_5,
        DeviceTarget.ASCEND,
        record(names.constant(3), dtype="int64"),
        f"Parameter.data-3.0.0.{TIME}.output.0.DefaultFormat.int64.npy",
    ),
    "hostile op_type": (
        Naming.V2_5,
        DeviceTarget.CPU,
        record(OperatorRef("my.domain/Op", "a b/../c\\d:é-op0")),
        f"my_domain_Op.a_b____c_d__-op0.0.0.{TIME}.output.0.DefaultFormat.npy",
    ),
}


@pytest.mark.parametrize(("naming", "target", "tensor", "expected"), NAMES.values(), ids=NAMES)
def test_names_of_each_generation(naming, target, tensor, expected):
    """Each generation and device gives its documented name, the second time as the first."""
    name = names.namer(naming, target)

    assert expected == name(tensor)
    assert expected == name(tensor)


def test_a_namer_tells_slots_and_operators_apart():
    """The parts that a namer keeps are not mixed up between operators, sides, slots and types."""
    name = names.namer(Naming.V2_7, DeviceTarget.CPU)
    tensors = [
        record(operator, io, slot, dtype)
        for operator in (CONV, WEIGHT)
        for io in IO
        for slot in (0, 1)
        for dtype in ("float32", "int8")
    ]

    found = [names.parse(name(tensor)) for tensor in tensors * 2]

    expected = [(t.operator.op_type, t.io, t.slot, t.dtype.title) for t in tensors * 2]
    assert expected == [(n.op_type, n.io, n.slot, n.dtype) for n in found]


REFERENCE = {
    SCOPED.replace("output", "input") + ".Float32.npy": (
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
        TensorName("ReduceSum", "Expand__SumExt_ReduceSum-op0", 1795219089575874, IO.INPUT, 2, dtype="Bool")
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
}


@pytest.mark.parametrize(("text", "expected"), REFERENCE.items(), ids=lambda value: str(value)[:30])
def test_reference_names_are_parsed(text, expected):
    """Names of real dumps and of the vendor's documents give their fields and come back."""
    found = names.parse(text)

    assert expected == found
    assert text == str(found)


FOREIGN = [
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
]


@pytest.mark.parametrize("text", FOREIGN, ids=repr)
def test_other_names_are_not_parsed(text):
    """A name that is no tensor's gives None."""
    assert names.parse(text) is None


FIELDS = st.text(st.characters(exclude_characters="./", exclude_categories=["Cs"]), min_size=1)
TENSOR_NAMES = st.builds(
    TensorName,
    op_type=FIELDS,
    op_name=st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
    timestamp=st.integers(0, 10**17),
    io=st.sampled_from(IO),
    slot=st.integers(0, 10**6),
    format=FIELDS,
    dtype=st.none() | FIELDS,
    task_id=st.integers(0, 65535),
    stream_id=st.integers(0, 65535),
)


@settings(max_examples=150, deadline=None)
@given(TENSOR_NAMES)
def test_parse_inverts_format(name):
    """Every name gives back its fields, whatever an operator is called."""
    assert name == names.parse(str(name))


@settings(max_examples=300, deadline=None)
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


def test_every_generation_and_device_has_a_style():
    """The table of styles is complete."""
    assert {(n, t) for n in Naming for t in DeviceTarget} == set(names.STYLES)
