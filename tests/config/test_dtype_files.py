"""Files that give single operators another precision: keep_dtype, customize_dtypes, modify_mixlist."""

import json

import pytest

from msdump.config import operator_dtypes
from msdump.errors import ConfigError

LISTS = {
    "black-list": {"to-remove": ["Exp", "Log"], "to-add": ["MatMul"]},
    "white-list": {"to-remove": ["MatMul"], "to-add": ["Log"]},
}
FAULTS = [
    ("customize_dtypes", "# first\nadd1::InputDtype:float16", ":2: must be NAME::InputDtype"),
    ("customize_dtypes", "add1", "must be NAME::InputDtype"),
    ("customize_dtypes", "add1::InputDtype:int8,OutputDtype:float16", "not none of them"),
    ("customize_dtypes", "add1::InputDtype:float16,float32,OutputDtype:float16", "not more than one of them"),
    ("customize_dtypes", "add1::InputDtype:floot16,OutputDtype:float16", "'floot16' is not an element type"),
    (
        "customize_dtypes",
        "a::InputDtype:float16,OutputDtype:float16\na::InputDtype:bfloat16,OutputDtype:float16",
        "'a' has other element types in line 1",
    ),
    ("keep_dtype", "OpType::", "must have one operator type after OpType::"),
    (
        "keep_dtype",
        "OpType::\na::InputDtype:float16,OutputDtype:float16",
        ":2: element types belong in a customize",
    ),
    ("keep_dtype", b"\xff", "is not UTF-8 text (byte 0); keep_dtype must be"),
    ("modify_mixlist", "[]", "must hold one JSON object"),
    (
        "modify_mixlist",
        '{"black-list": []}',
        '$["black-list"] = []: must be an object with to-add or to-remove',
    ),
    ("modify_mixlist", '{"black-list": {"to-add": "Exp"}}', "must be a list of operator types"),
    (
        "modify_mixlist",
        '{"white-list": {"to-add": [1]}}',
        '$["white-list"]["to-add"][0] = 1: must be an operator type',
    ),
    (
        "modify_mixlist",
        '{"white-list": {"to-add": ["A"]}, "black-list": {"to-add": ["A"]}}',
        "is added to the white-list too",
    ),
    (
        "modify_mixlist",
        '{"gray-list": {"to-remove": ["Exp"]}}',
        "add it to the black-list or the white-list instead",
    ),
    ("modify_mixlist", "{", "invalid JSON"),
]


@pytest.fixture
def read(tmp_path):
    """Return a function of (key, contents of its file) that gives the operators' types."""

    def run(key, contents):
        path = tmp_path / "f.cfg"
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return operator_dtypes({key: str(path)})

    return run


def test_names_and_types(read, tmp_path):
    """A line is a node name or OpType::Type; comments and empty lines say nothing."""
    rules = read("keep_dtype", "# why\n\n conv1/Conv \r\nOpType::ReLU\n").kept

    assert [("conv1/Conv", False, f"{tmp_path}/f.cfg:3"), ("ReLU", True, f"{tmp_path}/f.cfg:4")] == [
        (rule.name, rule.is_type, rule.place) for rule in rules
    ]


def test_types_of_their_own(read):
    """customize_dtypes takes ATC's lines, other element types included."""
    text = "a:0::InputDtype:float16,int8,OutputDtype:bf16\nOpType::Relu:InputDtype:fp32,OutputDtype:float\n"

    assert [("a:0", "float16", "bfloat16"), ("Relu", "float32", "float32")] == [
        (rule.name, rule.reads, rule.writes) for rule in read("customize_dtypes", text).customized
    ]


def test_lists(read):
    """Removing a type from a list makes it gray; adding it elsewhere counts more."""
    found = read("modify_mixlist", json.dumps(LISTS)).lists

    assert (("MatMul",), ("Log",), ("Exp",)) == (found.blocked, found.trusted, found.follows)


@pytest.mark.parametrize(("key", "contents", "message"), FAULTS)
def test_faulty_files(key, contents, message, read):
    """A faulty line, list or file is one message that names its place."""
    with pytest.raises(ConfigError) as caught:
        read(key, contents)

    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "reason"), [("none", "no such file"), ("", "is a directory")])
def test_missing_files(name, reason, tmp_path):
    """A file that cannot be read is an error that names its key."""
    with pytest.raises(ConfigError, match=reason) as caught:
        operator_dtypes({"keep_dtype": str(tmp_path / name)})

    assert "keep_dtype must be" in str(caught.value)
