"""Files of acl.json that cannot be read, and their return codes."""

import os

import pytest

from msdump.config.acl import AclCode, plan
from msdump.errors import AclError
from msdump.plan import Context, DeviceTarget, JitLevel

CONTEXT = Context(DeviceTarget.ASCEND, JitLevel.O2)


def code_of(path, **options):
    """Return code and message with which a file is refused."""
    with pytest.raises(AclError) as caught:
        plan.read(str(path), CONTEXT, **options)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.json", "No such file or directory"),
        (".", "it is not a regular file"),
        ("acl\0.json", "no file can have this name"),
    ],
    ids=["missing", "directory", "impossible"],
)
def test_no_file(tmp_path, name, reason):
    """A path that leads to no regular file is 100003, not an exception of another kind."""
    code, message = code_of(tmp_path / name)

    assert 100003 == code
    assert message.startswith(f"EP0004: Failed to parse file {tmp_path}")
    assert f". Reason: {reason}" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    """A file that the user may not read is 100003."""
    path = tmp_path / "acl.json"
    path.write_text("{}")
    path.chmod(0)

    assert 100003 == code_of(path)[0]


@pytest.mark.parametrize(("extra", "is_refused"), [(0, False), (1, True)], ids=["10 MiB", "one byte more"])
def test_biggest_file(tmp_path, extra, is_refused):
    """A file may have 10 MiB and not a byte more: 100003."""
    path = tmp_path / "acl.json"
    path.write_bytes(b"{}".ljust((10 << 20) + extra))

    if is_refused:
        assert 100003 == code_of(path)[0]
    else:
        assert plan.read(str(path), CONTEXT) is None


NESTINGS = {
    "ten objects": ('{"a":' * 9 + "{}" + "}" * 9, None),
    "eleven objects": ('{"a":' * 10 + "{}" + "}" * 10, "{}"),
    "ten arrays": ('{"a":' + "[" * 10 + "]" * 10 + "}", None),
    "eleven arrays": ('{"a":' + "[" * 11 + "]" * 11 + "}", "[]"),
    "both kinds apart": ('{"a":[' * 9 + "{}" + "]}" * 9, None),
    "in a text": ('{"a": "' + "{" * 10 + '"}', "{}"),
    "side by side": ('{"a":[' + ",".join(["{}"] * 50) + "]}", None),
}


@pytest.mark.parametrize(("text", "brackets"), NESTINGS.values(), ids=NESTINGS)
def test_nesting(tmp_path, text, brackets):
    """Objects and arrays may be nested ten deep each, counted as CANN does: 100006 beyond."""
    path = tmp_path / "acl.json"
    path.write_text(text)

    if brackets is None:
        assert plan.read(str(path), CONTEXT) is None
    else:
        code, message = code_of(path)
        assert 100006 == code
        assert f"Reason: more than 10 levels of {brackets} are nested." in message


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"profiler": {"switch": "on"}}', '{"dump": {}}'],
    ids=["empty file", "empty object", "no object", "other sections", "empty section"],
)
def test_nothing_configured(tmp_path, text, caplog):
    """A file without a dump section is fine and silent."""
    path = tmp_path / "acl.json"
    path.write_text(text)

    assert plan.read(str(path), CONTEXT) is None
    assert caplog.messages == []


MALFORMED = {
    "blank": (" ", "the file is empty"),
    "unfinished": ('{"dump": {', "line 1: invalid JSON at column 11"),
    "missing comma": ('{"dump": {\n"a": 1\n"b": 2}}', "line 3: invalid JSON at column 1"),
    "trailing comma": ('{"dump": {"a": 1,}}', "remove the comma before the closing bracket"),
    "not UTF-8": (b'{"dump": "\xff"}'.decode("latin-1"), "not UTF-8 text"),
    "comment": ('{"dump": {} // on\n}', "JSON has no comments"),
}


@pytest.mark.parametrize(("text", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_json(tmp_path, text, reason):
    """A file that is no JSON is 100009 from set_dump and 100006 from init, with line, column and remedy."""
    path = tmp_path / "acl.json"
    path.write_bytes(text.encode("latin-1"))

    code, message = code_of(path)

    assert 100009 == code
    assert message.startswith(f"EP0004: Failed to parse file {path}. Reason: ")
    assert reason in message
    assert 100006 == code_of(path, malformed=AclCode.PARSE_FILE)[0]
