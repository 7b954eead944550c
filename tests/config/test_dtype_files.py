"""Files that give single operators another precision: their grammar, and what is said of faulty ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config import operator_dtypes
from msdump.config.dtypes import parse_customized, parse_kept, parse_mix_lists
from msdump.errors import ConfigError

CUSTOM_FAULTS = {
    "add1::InputDtype:float16": "must be NAME::InputDtype",
    "add1": "must be NAME::InputDtype",
    "add1::InputDtype:int8,OutputDtype:float16": "not none of them",
    "add1::InputDtype:float16,float32,OutputDtype:float16": "not more than one of them",
    "add1::InputDtype:floot16,OutputDtype:float16": "'floot16' is no element type",
}

LIST_FAULTS = {
    "[]": "must hold one JSON object",
    '{"black-list": []}': '$["black-list"] = []: must be an object with to-add or to-remove',
    '{"black-list": {"to-add": "Exp"}}': "must be a list of operator types",
    '{"white-list": {"to-add": [1]}}': '$["white-list"]["to-add"][0] = 1: must be an operator type',
    '{"white-list": {"to-add": ["A"]}, "black-list": {"to-add": ["A"]}}': "is added to the white-list, too",
    '{"gray-list": {"to-remove": ["Exp"]}}': "add it to the black-list or the white-list instead",
    "{": "invalid JSON",
}


def test_names_and_types():
    """A line is a node name or OpType::Type; comments and empty lines say nothing."""
    rules = parse_kept("# why\n\n conv1/Conv \r\nOpType::ReLU\n", "/f.cfg")

    assert [("conv1/Conv", False, "/f.cfg:3"), ("ReLU", True, "/f.cfg:4")] == [
        (rule.name, rule.is_type, rule.place) for rule in rules
    ]


def test_types_of_their_own():
    """customize_dtypes takes ATC's lines, other element types included."""
    text = "a:0::InputDtype:float16,int8,OutputDtype:bf16\nOpType::Relu:InputDtype:fp32,OutputDtype:float\n"

    assert [("a:0", "float16", "bfloat16"), ("Relu", "float32", "float32")] == [
        (rule.name, rule.reads, rule.writes) for rule in parse_customized(text, "f")
    ]


@pytest.mark.parametrize(("text", "message"), CUSTOM_FAULTS.items())
def test_faulty_lines(text, message):
    """A faulty line is told with its number."""
    with pytest.raises(ConfigError) as caught:
        parse_customized(f"# first\n{text}\n", "/f.cfg")

    assert "/f.cfg:2" in str(caught.value)
    assert message in str(caught.value)


def test_all_faults_at_once():
    """Every faulty line of a file is told, a second meaning of an operator as well."""
    text = "OpType::\na::InputDtype:float16,OutputDtype:float16\n"

    with pytest.raises(ConfigError) as caught:
        parse_kept(text, "f")
    with pytest.raises(ConfigError) as twice:
        parse_customized(text[9:] + text[9:].replace("float16", "bfloat16"), "f")

    assert 2 == len(caught.value.problems)
    assert "'a' has other types in line 1" in str(twice.value)


def test_lists():
    """Removing a type from a list makes it gray; adding it elsewhere counts more."""
    lists = {
        "black-list": {"to-remove": ["Exp", "Log"], "to-add": ["MatMul"]},
        "white-list": {"to-remove": ["MatMul"], "to-add": ["Log"]},
    }

    found = parse_mix_lists(json.dumps(lists).encode(), "/f.json")

    assert (("MatMul",), ("Log",), ("Exp",)) == (found.blocked, found.trusted, found.follows)


@pytest.mark.parametrize(("text", "message"), LIST_FAULTS.items())
def test_faulty_lists(text, message):
    """A faulty list is told by its place in the file."""
    with pytest.raises(ConfigError) as caught:
        parse_mix_lists(text.encode(), "/f.json")

    assert message in str(caught.value)


def test_missing_files(tmp_path):
    """A file that cannot be read is told together with the key that names it."""
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, reason in (("none", "no such file"), ("", "is a directory"), ("bytes", "is no UTF-8 text")):
        with pytest.raises(ConfigError, match=reason) as caught:
            operator_dtypes({"keep_dtype": str(tmp_path / name)})
        assert "keep_dtype must be" in str(caught.value)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), max_size=5))
def test_any_text(lines):
    """Any text is read or refused in order."""
    for parse in (parse_kept, parse_customized):
        try:
            rules = parse("\n".join(lines), "f")
        except ConfigError:
            continue
        assert all(rule.name for rule in rules)
