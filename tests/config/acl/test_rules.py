"""Every rule of acl.json violated once: return code 100009 and the message."""

import json
import os

import pytest

from msdump.config.acl import plan
from msdump.errors import AclError
from msdump.plan import Context, DeviceTarget, JitLevel

CONTEXT = Context(DeviceTarget.ASCEND, JitLevel.O2)
STRING = "This configuration item must be of the string type"
ARRAY = "This configuration item must be of the array type"
OBJECT = "This configuration item must be of the object type"
STRING_MEMBER = "The member type of this configuration item must be string"
OBJECT_MEMBER = "The member type of this configuration item must be object"
EMPTY = "The configuration item value is empty"
NOT_DIGITS = "The value contains non-digit characters,  expected format: 1 or 5-10"
BACKWARDS = "The value has invalid format, start step must not exceed end step, expected format: 5-10"


def item(**keys):
    """Return a dump section with one item in its list, at level op."""
    return {"dump_path": ".", "dump_level": "op", "dump_list": [{"model_name": "m", **keys}]}


def invalid(where, reason):
    """Return the message of an item of the wrong type or without a value."""
    place = f"configuration item {where} in configuration file acl.json"
    return f"EP0001: The content of {place} is invalid. Reason: {reason}."


def unknown(value, where, allowed):
    """Return the message of a value that is none of a few."""
    place = f"configuration item {where} in configuration file acl.json"
    return f"EP0002: Value {value} for {place} is invalid. Expected value: {allowed}."


def wrong(value, where, reason):
    """Return the message of a value that breaks a rule."""
    place = f"configuration item {where} in configuration file acl.json"
    return f"EP0003: Value {value} for {place} is invalid. Reason: {reason}."


def conflict(reason):
    """Return the message of items that do not go together."""
    return f"EP0005: Conflict of configuration items in configuration file acl.json. Reason: {reason}."


def exclusion(condition, item, fate="configured"):
    """Return the message of an item that cannot stand beside the value of another one."""
    return conflict(f"When configuration item {condition}, configuration item {item} cannot be {fate}")


def refusal(section, **top):
    """Return the message with which a dump section is refused, always as 100009."""
    with pytest.raises(AclError) as caught:
        plan.parse(json.dumps({"dump": section, **top}).encode(), "acl.json", CONTEXT)
    assert 100009 == caught.value.code
    return str(caught.value)


STRINGS = (
    *("dump_path", "dump_mode", "dump_op_switch", "dump_level", "dump_scene"),
    *("dump_data", "dump_debug", "dump_kernel_data", "dump_step"),
)

TYPES = {
    **{f"dump {value!r}": (value, invalid("dump", OBJECT)) for value in (True, [], 123, None, "x")},
    **{f"{key} number": ({key: 3}, invalid(key, STRING)) for key in STRINGS},
    **{f"{key} array": ({key: ["x"]}, invalid(key, STRING)) for key in STRINGS},
    "null": ({"dump_path": None}, invalid("dump_path", STRING)),
    **{
        f"{key} {value}": ({key: value}, invalid(where, reason))
        for key, value, where, reason in (
            ("dump_stats", "Max", "dump_stats", ARRAY),
            ("dump_stats", {"a": "b"}, "dump_stats", ARRAY),
            ("dump_stats", ["Max", 1], "dump_stats[1]", STRING_MEMBER),
            ("dump_list", {"model_name": "m"}, "dump_list", ARRAY),
            ("dump_list", [{}, 123], "dump_list[1]", OBJECT),
        )
    },
    **{
        f"{key} {value}": ({"dump_list": [{key: value}]}, invalid(f"dump_list[0].{key}{path}", reason))
        for key, value, path, reason in (
            ("model_name", 1, "", STRING),
            ("layer", "conv1", "", ARRAY),
            ("layer", ["a", True], "[1]", STRING_MEMBER),
            ("watcher_nodes", 1, "", ARRAY),
            ("watcher_nodes", [1], "[0]", STRING_MEMBER),
            *(
                (key, *row)
                for key in ("optype_blacklist", "opname_blacklist")
                for row in (
                    ({"name": "Conv"}, "", ARRAY),
                    (["Conv"], "[0]", OBJECT_MEMBER),
                    ([{"name": 1}], "[0].name", STRING),
                    ([{"name": "Conv", "pos": "input0"}], "[0].pos", ARRAY),
                    ([{"pos": ["input0", 1]}], "[0].pos[1]", STRING_MEMBER),
                )
            ),
            ("opname_range", "a", "", ARRAY),
            ("opname_range", ["a"], "[0]", OBJECT_MEMBER),
            ("opname_range", [{"begin": 1}], "[0].begin", STRING),
            ("opname_range", [{"begin": "a", "end": ["b"]}], "[0].end", STRING),
        )
    },
}

KERNEL_DATA = "all/assert/printf/tensor/timestamp"
SCENES = "aic_err_brief_dump/aic_err_detail_dump/aic_err_norm_dump/lite_exception/watcher"
STATISTICS = "Avg/L2norm/Max/Min/Nan/Negative Inf/Positive Inf"

VALUES = {
    **{
        f"{key} {value}": ({key: value}, unknown(value, key, allowed) if value else invalid(key, EMPTY))
        for key, wrong_value, allowed in (
            ("dump_mode", "Output", "all/input/output"),
            ("dump_data", "tensors", "stats/tensor"),
            ("dump_op_switch", "maybe", "off/on"),
            ("dump_level", "L0", "all/kernel/op"),
            ("dump_debug", "On", "off/on"),
            ("dump_scene", "overflow", SCENES),
            ("dump_kernel_data", "prints", KERNEL_DATA),
        )
        for value in (wrong_value, "")
    },
    "dump_kernel_data list": (
        {"dump_kernel_data": "all,prints"},
        unknown("prints", "dump_kernel_data", KERNEL_DATA),
    ),
    "dump_kernel_data comma": ({"dump_kernel_data": "all,"}, invalid("dump_kernel_data", EMPTY)),
    "dump_stats": ({"dump_stats": ["Max", "max"]}, unknown("max", "dump_stats[1]", STATISTICS)),
    "dump_stats empty text": ({"dump_stats": [""]}, invalid("dump_stats[0]", EMPTY)),
}

SCENE_CONFLICTS = [
    *(
        ({"dump_scene": scene, key: "on"}, exclusion(f"dump_scene is set to {scene}", key, "set to on"))
        for scene in SCENES.split("/")
        for key in ("dump_debug", "dump_op_switch")
    ),
    *(
        (
            {"dump_scene": "watcher", "dump_mode": mode},
            exclusion("dump_scene is set to watcher", "dump_mode", f"set to {mode}"),
        )
        for mode in ("input", "all")
    ),
]

NO_PATH = invalid("dump_path", "The configuration item is not found")
NOWHERE = "The path does not exist"
LONG = "a" * 513
PATHS = [
    ({"dump_list": [{}]}, NO_PATH),
    ({"dump_scene": "watcher"}, NO_PATH),
    ({"dump_path": ""}, invalid("dump_path", EMPTY)),
    *(
        ({"dump_path": path}, wrong(shown, "dump_path", reason))
        for path, shown, reason in (
            (LONG, f"{LONG[:200]}...", "The path length exceeds the maximum limit of 512 characters"),
            (LONG[:300], f"{LONG[:200]}...", NOWHERE),
            ("a\0b", "a\\x00b", NOWHERE),
            (__file__, __file__[:200], "The path is not a directory path"),
            ("192.168.0.1:/da ta", "/da ta", "The value contains invalid characters"),
            *((path, path, NOWHERE) for path in ("./no", "$HOME", "256.0.0.1:/data", "192.168.0.1:")),
            *((path, path, NOWHERE) for path in (":/data", "192.168.0.x:/data", "1.2.3:/data")),
        )
    ),
]

HUNDRED_AND_ONE = "|".join(map(str, range(101)))
STEPS = [
    ({"dump_step": text}, wrong(segment, where, reason))
    for text, segment, where, reason in (
        ("1-2-3", "1-2-3", "dump_step[0]", "The value has invalid format, expected format: 5-10"),
        ("abc", "abc", "dump_step[0]", NOT_DIGITS),
        ("1|abc-3", "abc-3", "dump_step[1]", NOT_DIGITS),
        ("1|", "", "dump_step[1]", NOT_DIGITS),
        ("|1", "", "dump_step[0]", NOT_DIGITS),
        ("5-", "5-", "dump_step[0]", NOT_DIGITS),
        ("1 | 2", "1 ", "dump_step[0]", NOT_DIGITS),
        ("0|5-3", "5-3", "dump_step[1]", BACKWARDS),
        (
            HUNDRED_AND_ONE,
            f"{HUNDRED_AND_ONE[:200]}...",
            "dump_step",
            "The value exceeds the maximum limit of 100 intervals",
        ),
    )
]

ENTRY = [{"name": "Conv", "pos": ["input0"]}]
RANGE = [{"begin": "a", "end": "b"}]
INCOMPLETE = "The item is incomplete, begin and end must be configured together and non-empty"
NODES = {"model_name": "m", "watcher_nodes": ["a"]}
STATISTICS_OF_TENSORS = exclusion("dump_data is set to tensor", "dump_stats")
CONSTRAINTS = [
    (
        {"dump_debug": "on", "dump_op_switch": "on"},
        exclusion("dump_debug is set to on", "dump_op_switch", "set to on"),
    ),
    ({"dump_debug": "on", "dump_list": [{}]}, exclusion("dump_debug is set to on", "dump_list")),
    (item(model_name=""), invalid("dump_list[0].model_name", EMPTY)),
    (item(layer=[]), invalid("dump_list[0].layer", EMPTY)),
    ({"dump_list": [{}, {"layer": []}]}, invalid("dump_list[1].layer", EMPTY)),
    (
        {"dump_scene": "watcher", "dump_list": [{"layer": ["a"]}]},
        invalid("dump_list[0].watcher_nodes", EMPTY),
    ),
    (
        {"dump_scene": "watcher", "dump_list": [NODES]},
        exclusion("dump_scene is set to watcher", "dump_list[0].model_name"),
    ),
    (item(**NODES), exclusion("dump_scene is not set to watcher", "dump_list[0].watcher_nodes")),
    *(
        (
            item(**{key: [{"name": str(n)} for n in range(101)]}),
            wrong("101", f"dump_list[0].{key}", "The value size exceeds the maximum limit of 100"),
        )
        for key in ("optype_blacklist", "opname_blacklist")
    ),
    *(
        (
            item(**{key: value}) | {"dump_level": level},
            exclusion("dump_level is not set to op", f"dump_list[0].{key}"),
        )
        for key, value in (("optype_blacklist", ENTRY), ("opname_blacklist", ENTRY), ("opname_range", RANGE))
        for level in ("kernel", "all")
    ),
    (
        {"dump_level": "op", "dump_list": [{"opname_range": RANGE}]},
        invalid("dump_list[0].model_name", "The configuration item is not found"),
    ),
    (
        item(opname_range=RANGE, model_name="") | {"dump_op_switch": "on"},
        invalid("dump_list[0].model_name", EMPTY),
    ),
    (
        item(opname_range=[*RANGE, {"begin": "", "end": "b"}]),
        wrong("begin=, end=b", "dump_list[0].opname_range[1]", INCOMPLETE),
    ),
    (item(opname_range=[{"begin": "a"}]), wrong("begin=a, end=", "dump_list[0].opname_range[0]", INCOMPLETE)),
    ({"dump_data": "stats", "dump_stats": []}, invalid("dump_stats", EMPTY)),
    ({"dump_stats": ["Max"], "dump_data": "tensor"}, STATISTICS_OF_TENSORS),
    ({"dump_stats": ["Max"]}, STATISTICS_OF_TENSORS),
]

# Types come first, then values, then constraints, each in their order.
ORDER = [
    ({"dump_mode": "x", "dump_step": 3}, invalid("dump_step", STRING)),
    ({"dump_list": 1, "dump_stats": 1, "dump_mode": 1}, invalid("dump_mode", STRING)),
    ({"dump_scene": "x", "dump_op_switch": "x", "dump_data": "x"}, unknown("x", "dump_data", "stats/tensor")),
    ({"dump_path": "", "dump_mode": ""}, invalid("dump_mode", EMPTY)),
    (
        {"dump_scene": "watcher", "dump_debug": "on", "dump_path": ""},
        exclusion("dump_scene is set to watcher", "dump_debug", "set to on"),
    ),
    ({"dump_path": "./no", "dump_debug": "on", "dump_op_switch": "on"}, wrong("./no", "dump_path", NOWHERE)),
    ({"dump_path": ".", "dump_step": "abc", "dump_list": [{"layer": []}]}, STEPS[1][1]),
    (
        {"dump_path": ".", "dump_list": [{"layer": []}], "dump_stats": []},
        invalid("dump_list[0].layer", EMPTY),
    ),
    (
        {"dump_path": ".", "dump_list": [{"layer": [], "model_name": ""}]},
        invalid("dump_list[0].model_name", EMPTY),
    ),
]

CASES = [
    *(*TYPES.values(), *VALUES.values(), *SCENE_CONFLICTS, *PATHS, *ORDER),
    *(({"dump_path": ".", **section}, message) for section, message in (*STEPS, *CONSTRAINTS)),
]


@pytest.mark.parametrize(("section", "message"), CASES, ids=range(len(CASES)))
def test_rule_is_kept(section, message):
    """A section that breaks a rule, or several, is refused with the message of the first."""
    assert message == refusal(section)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_path_must_be_writable(tmp_path):
    """A directory that the user may not write into is refused."""
    tmp_path.chmod(0o500)

    message = refusal({"dump_path": str(tmp_path), "dump_list": [{}]})

    assert wrong(tmp_path, "dump_path", "The value is a path without read and write permissions") == message


ACCEPTED = {
    "step": {"dump_step": "3"},
    "steps": {"dump_step": "1|3-5|10"},
    "equal ends": {"dump_step": "5-5"},
    "no steps": {"dump_step": ""},
    "hundred segments": {"dump_step": "|".join(map(str, range(100)))},
    "hundred entries": {
        "dump_level": "op",
        "dump_list": [{"optype_blacklist": [{"name": str(n)} for n in range(100)]}],
    },
    "position of any kind": {
        "dump_level": "op",
        "dump_list": [{"optype_blacklist": [{"name": "Conv", "pos": ["workspace0", "input_0"]}]}],
    },
    "empty black list at any level": {"dump_list": [{"optype_blacklist": []}]},
    "empty names for single operators": {
        "dump_op_switch": "on",
        "dump_list": [{"model_name": "", "layer": []}],
    },
    "no list for single operators": {"dump_op_switch": "on", "dump_list": []},
    "overflow with an empty list": {"dump_debug": "on", "dump_list": []},
    "overflow with steps that nobody reads": {"dump_debug": "on", "dump_step": "abc"},
    "exception without a path": {"dump_scene": "aic_err_brief_dump", "dump_path": ""},
    "exception with keys that nobody reads": {"dump_scene": "lite_exception", "dump_stats": ["Max"]},
    "watcher": {"dump_scene": "watcher", "dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}]},
    "watcher with defaults": {"dump_scene": "watcher", "dump_mode": "output", "dump_debug": "off"},
    "trailing slash": {"dump_path": "./", "dump_list": [{}]},
    "kernel data": {"dump_kernel_data": "all,printf", "dump_list": [{}]},
    "remote": {"dump_path": "192.168.0.1:/home/output", "dump_list": [{}]},
    "unknown key": {"dump_everything": 1, "dump_list": [{"layers": 1}]},
}


@pytest.mark.parametrize("section", ACCEPTED.values(), ids=ACCEPTED)
def test_allowed_section_is_accepted(section):
    """Values at the limits of the rules are not refused."""
    plan.parse(json.dumps({"dump": {"dump_path": ".", **section}}).encode(), "acl.json", CONTEXT)


OWN = {
    "no object": ([], invalid("msdump", OBJECT)),
    "wrong value": (
        {"queue_bytes": 0},
        wrong("0", "msdump.queue_bytes", "It must be a whole number of bytes from 1"),
    ),
    "wrong choice": (
        {"fusion_switch": "maybe"},
        wrong("'maybe'", "msdump.fusion_switch", "It must be 'on' or 'off'"),
    ),
}


@pytest.mark.parametrize(("block", "message"), OWN.values(), ids=OWN)
def test_own_settings_are_checked(block, message):
    """Wrong settings of msdump's own object are refused in the same way."""
    assert message == refusal({"dump_path": ".", "dump_list": [{}]}, msdump=block)
