"""The page of dump files: its lists are the program's."""

import re

import pytest

from msdump.encode import dump_data, dump_message, op_debug
from msdump.encode.dump_message import MESSAGES, SHAPE_DIM, FieldKind
from tests.world import ROOT

PAGE = (ROOT / "docs" / "dump-files.md").read_text(encoding="utf-8")
NAMES = {"outputs": "output", "inputs": "input", "buffers": "buffer", "attributes": "attr", "spaces": "space"}


def cells(message, field):
    """Return the page's line of a field."""
    name = NAMES.get(field.attribute, field.attribute)
    name = "buffer_type" if (message, name) == ("OpBuffer", "type") else name
    of = {
        FieldKind.SHAPE: ": Shape",
        FieldKind.MESSAGE: f": {field.of}",
        FieldKind.MESSAGES: f": {field.of}*",
    }
    return f"{name} {field.number}{of.get(field.kind, '')}"


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_told(message):
    """The page has each message with all its fields and numbers."""
    fields = ", ".join(cells(message, field) for field in MESSAGES[message])

    assert f"| {message} | {fields} |" in PAGE
    assert f"| Shape | dim {SHAPE_DIM}* |" in PAGE


@pytest.mark.parametrize(
    ("first", "table"), [("UNDEFINED", dump_message.DATA_TYPES), ("NCHW", dump_message.FORMATS)]
)
def test_every_number_is_told(first, table):
    """The page lists data types and formats in the order of their numbers."""
    listed = re.search(rf"```text\n({first} .*?)```", PAGE, re.DOTALL)[1].split()

    assert listed == [name for name in table if name != "MAX"]
    assert list(range(len(listed))) == [table[name] for name in listed]


def test_the_example_is_a_dump_file():
    """The bytes of the page are the file that they are said to be."""
    file = memoryview(bytes.fromhex(re.search(r"```text\n(25 .*?)```", PAGE, re.DOTALL)[1]))

    data, offset = dump_data.read_header(file)

    assert ("one", ()) == (data.op_name, data.inputs)
    assert [3.5] == dump_data.tensor(data.outputs[0], file[offset:]).tolist()


@pytest.mark.parametrize("unit", op_debug.Unit)
def test_every_unit_is_told(unit):
    """The page has the fields of each unit's overflow record."""
    assert f"| {unit.name} | {unit.value} | {', '.join(op_debug.FIELDS[unit])} |" in PAGE
