"""File, environment and context become a plan, or all faults at once."""

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import env
from msdump.config import source
from msdump.config.mindspore import parse
from msdump.errors import ConfigError, ConfigValueError
from msdump.plan import Context, DeviceTarget, JitLevel, Tree, Trigger

GONE = "<gone>"  # the file does not hold this key


@pytest.mark.parametrize(
    ("target", "level", "block", "expected"),
    [
        ("Ascend", None, {"enable": True}, ("O0", False)),
        ("Ascend", None, {"enable": False}, ("O0", True)),
        ("Ascend", None, GONE, ("O2", True)),
        ("Ascend", "O0", {"enable": True}, ("O0", False)),
        ("Ascend", "O1", {"enable": True}, ("O1", False)),
        ("Ascend", "O1", {}, ("O1", True)),
        ("Ascend", "O0", GONE, ("O0", True)),
        ("Ascend", "O2", GONE, ("O2", True)),
        ("Ascend", "O2", {"enable": True}, ("O2", True)),
        ("CPU", None, {"enable": True}, (None, False)),
        ("CPU", "O2", {"enable": True}, (None, False)),
        ("GPU", "O0", GONE, (None, False)),
    ],
)
def test_level_is_explicit_or_implied(target, level, block, expected, compile_plan):
    """An explicit level wins; else e2e_dump_settings implies O0 and its absence O2; CPU and GPU have none."""
    context = Context(DeviceTarget(target), JitLevel(level) if level else None)

    plan, _ = compile_plan("CPU", {"e2e_dump_settings": block}, context)

    assert expected == (plan.context.jit_level, plan.files.is_async)


def test_block_without_effect_is_read(compile_plan):
    """Under an explicit O2 e2e_dump_settings has no effect, with one warning; its faults are errors."""
    plan, warnings = compile_plan("O2", {"e2e_dump_settings": {"enable": True, "sample_mode": 1}})

    assert plan.what.sample_count is None
    assert plan.files.is_async
    assert len(warnings) == 1
    assert "has no effect under jit_level O2" in str(warnings[0])
    with pytest.raises(ConfigValueError) as caught:
        compile_plan("O2", {"e2e_dump_settings": {"enable": "yes", "sample_mode": 9}})
    assert ["enable", "sample_mode"] == [p.path.rpartition(".")[2] for p in caught.value.problems]


def test_ge_dump_is_an_o2_matter(compile_plan, monkeypatch):
    """ENABLE_MS_GE_DUMP=1 chooses GE options under O2, with a warning, and nothing elsewhere."""
    monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")

    plan, warnings = compile_plan("O2", {})

    warning = "ENABLE_MS_GE_DUMP = 1: the GE dump is deprecated; unset it for the dump of Ascend O2"
    assert (Tree.MODELS, [warning]) == (plan.files.tree, warnings)
    assert Tree.RANKS is compile_plan("O0", {})[0].files.tree


GE_STEPS = {
    "one number": ("5", None),
    "range": ("5-6", None),
    "range of one": ("5-5", "the graph engine takes no range of one number; write 5"),
    "100 segments": ("|".join(map(str, range(100))), None),
    "101 segments": ("|".join(map(str, range(101))), "takes at most 100 segments, 101 are given"),
}


@pytest.mark.parametrize(("text", "message"), GE_STEPS.values(), ids=GE_STEPS)
def test_limits_of_ge_steps(compile_plan, monkeypatch, text, message):
    """The graph engine's own limits hold for iteration under ENABLE_MS_GE_DUMP=1, and nowhere else."""
    compile_plan("O2", {"iteration": text})
    monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")

    if message is None:
        plan, _ = compile_plan("O2", {"iteration": text})
        assert 5 in plan.when.iterations
    else:
        with pytest.raises(ConfigValueError, match=message):
            compile_plan("O2", {"iteration": text})


def test_ge_dump_forbids_exception_mode(compile_plan, monkeypatch):
    """ENABLE_MS_GE_DUMP=1 with op_debug_mode 4 is an error."""
    monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")

    with pytest.raises(ConfigValueError, match="not possible with ENABLE_MS_GE_DUMP=1; use 0 or 3"):
        compile_plan("O2", {"op_debug_mode": 4})


ODD = "/data/my.models/a b/c+d.e"
IN_FILE = f"dump.json:1: $.common_dump_settings.path = '{ODD}': MindSpore refuses a path with '. +'"
IN_VARIABLE = "dump.json: MS_DIAGNOSTIC_DATA_PATH = '/a.b/debug_dump': MindSpore refuses a path with '.'"
PATHS = {
    "empty": ("CPU", "/diag/", "", "/diag/debug_dump", []),
    "missing": ("CPU", "/diag/", GONE, "/diag/debug_dump", []),
    "of the file": ("CPU", "/diag", "/own", "/own", []),
    "odd variable": ("CPU", "/a.b", "", "/a.b/debug_dump", [IN_VARIABLE]),
    **{f"odd {mode}": (mode, "", ODD, ODD, [IN_FILE]) for mode in ("CPU", "O0", "O2")},
}


@pytest.mark.parametrize(("mode", "variable", "path", "root", "expected"), PATHS.values(), ids=PATHS)
def test_path(mode, variable, path, root, expected, compile_plan, monkeypatch):
    """A path of the file beats MS_DIAGNOSTIC_DATA_PATH; one that only MindSpore refuses is one warning."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", variable)

    plan, warnings = compile_plan(mode, {"path": path})

    assert (root, expected) == (plan.files.path, warnings)


def test_diagnostic_path_follows_the_rules_of_a_path(compile_plan, monkeypatch):
    """A bad MS_DIAGNOSTIC_DATA_PATH is an error that names the variable and shows a caret."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "a")

    with pytest.raises(ConfigValueError) as caught:
        compile_plan("CPU", {"path": ""})

    assert str(caught.value) == (
        "dump.json: MS_DIAGNOSTIC_DATA_PATH = 'a/debug_dump': "
        "the path must be absolute, starting with '/'\n"
        "    a/debug_dump\n"
        "    ^"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"dump_modes": 0},
            "$.common_dump_settings.dump_modes is unknown and ignored (did you mean 'dump_mode'?)",
        ),
        ({"whatever": 0}, "$.common_dump_settings.whatever is unknown and ignored"),
        (
            {"common_dump_settings": {"trans_flag": True}},
            "$.common_dump_settings.trans_flag is unknown and ignored (it belongs in $.e2e_dump_settings)",
        ),
    ],
)
def test_unknown_key_warns(changes, expected, compile_plan, caplog):
    """An unknown key is ignored with a warning that suggests the key or block that was meant."""
    if "common_dump_settings" in changes:
        with pytest.raises(ConfigValueError):
            compile_plan("CPU", changes)
    else:
        compile_plan("CPU", changes)

    assert [f"dump.json:1: {expected}"] == [record.getMessage() for record in caplog.records]


def test_unknown_top_key_warns(compile_plan, caplog):
    """An unknown block is ignored with a warning; $schema is known."""
    data = b'{"$schema": "s.json", "e2e_dump_setting": {}, "odd key": 1}'

    with pytest.raises(ConfigValueError):
        parse(data, "dump.json", Context())

    assert sorted(
        (record.getMessage() for record in caplog.records), key=lambda text: "is missing" in text
    ) == [
        "dump.json:1: $.e2e_dump_setting is unknown and ignored (did you mean 'e2e_dump_settings'?)",
        'dump.json:1: $["odd key"] is unknown and ignored',
        (
            "dump.json:1: $.e2e_dump_settings.enable is missing: "
            "MindSpore documents true for CPU and GPU; true is used"
        ),
    ]


RANK = "{name} = '{text}' has no effect: there is one rank, and files go to rank_0"
USELESS = "{name} = '{text}' has no effect under {where}: every output is dumped"
VARIABLES = [
    ("CPU", "RANK_ID", "4", RANK),
    ("O0", "RANK", "1", RANK),
    ("GPU", "RANK_ID", "0", None),
    ("CPU", "RANK", "", None),
    ("O2", "RANK_ID", "4", None),
    ("CPU", "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", "1", USELESS),
    ("GPU", "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", "1", None),
    ("O0", "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", "1", None),
    ("O2", "MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", "1", USELESS),
]


@pytest.mark.parametrize(("mode", "name", "text", "message"), VARIABLES)
def test_variable_without_effect_warns(mode, name, text, message, compile_plan, monkeypatch):
    """A variable that would change files elsewhere is one warning where it does not."""
    monkeypatch.setenv(name, text)

    _, warnings = compile_plan(mode, {})

    where = {"CPU": "CPU", "O2": "Ascend O2"}.get(mode)
    assert ([message.format(name=name, text=text, where=where)] if message else []) == warnings


@pytest.mark.parametrize("text", ["[]", "null", "5", '"x"', "[{}]"])
def test_anything_but_an_object_is_refused(text):
    """A file that holds a list, a number, a text or null is an error that shows it."""
    with pytest.raises(ConfigValueError) as caught:
        parse(text.encode(), "dump.json", Context())

    shown = text.replace('"', "'")
    assert f"dump.json:1: $ = {shown}: the file must hold one JSON object" == str(caught.value)


ALL_FAULTS = b"""{
  "common_dump_settings": {
    "dump_mode": 0,
    "dump_mode": 1,
    "path": "/dump",
    "net_name": "My Net",
    "iteration": "0 | 8-5 | x",
    "saved_data": "tensors",
    "input_output": 3,
    "kernels": ["Conv2D", "name-regex(a[b)"],
    "support_device": [0]
  },
  "e2e_dump_settings": {"enable": "true", "tran_flag": false}
}
"""


def test_all_faults_come_at_once_sorted_by_line(caplog):
    """Every fault is in one error, in the order of the file; warnings are logged line by line."""
    with pytest.raises(ConfigValueError) as caught:
        parse(ALL_FAULTS, "d.json", Context())

    assert str(caught.value) == (
        "d.json:6: $.common_dump_settings.net_name = 'My Net': must be 1 to 255 letters, digits, '_' or '-'\n"
        "d.json:7: $.common_dump_settings.iteration = '0 | 8-5 | x': "
        "the range 8-5 begins above its end; write 5-8\n"
        "    0 | 8-5 | x\n"
        "        ^^^\n"
        "d.json:7: $.common_dump_settings.iteration = '0 | 8-5 | x': 'x' is neither a number nor a range; "
        "write numbers and ranges joined by '|', such as '0|5-8|100-120', or 'all'\n"
        "    0 | 8-5 | x\n"
        "              ^\n"
        "d.json:8: $.common_dump_settings.saved_data = 'tensors': must be 'tensor', 'statistic' or 'full' "
        "(did you mean 'tensor'?)\n"
        "d.json:9: $.common_dump_settings.input_output = 3: "
        "must be 0 (inputs and outputs), 1 (inputs) or 2 (outputs)\n"
        "d.json:10: $.common_dump_settings.kernels[1] = 'name-regex(a[b)': "
        "not a regular expression: the class of characters is not closed\n"
        "    name-regex(a[b)\n"
        "                ^\n"
        "d.json:13: $.e2e_dump_settings.enable = 'true': must be true or false (did you mean true?)"
    )
    assert [record.getMessage() for record in caplog.records] == [
        (
            "d.json:4: $.common_dump_settings.dump_mode is given more than once in its object; the "
            "last value is used"
        ),
        "d.json:13: $.e2e_dump_settings.tran_flag is unknown and ignored (did you mean 'trans_flag'?)",
    ]
    assert {"msdump.config"} == {record.name for record in caplog.records}
    assert {logging.WARNING} == {record.levelno for record in caplog.records}


def test_faults_of_kernels_come_at_once(compile_plan):
    """An item that is no text hides no faulty expression beside it."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan("CPU", {"dump_mode": 1, "kernels": ["name-regex(a[b)", 5, "name-regex(a"]})

    paths = sorted(problem.path for problem in caught.value.problems)
    assert [f"$.common_dump_settings.kernels[{index}]" for index in range(3)] == paths


def test_a_faulty_key_does_not_cause_further_faults(compile_plan):
    """Rules that depend on a wrong value stay silent."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan("O0", {"op_debug_mode": 7, "overflow_number": 1})

    assert len(caught.value.problems) == 1


def test_read_keeps_source_and_bytes(tmp_path, monkeypatch):
    """A relative path is read, and the plan keeps the path and the bytes, BOM included."""
    data = b"\xef\xbb\xbf" + json.dumps(_minimal()).encode()
    (tmp_path / "dump.json").write_bytes(data)
    monkeypatch.chdir(tmp_path)

    plan = parse(source.read("dump.json", env.DUMP_CONFIG), "dump.json", Context())

    assert plan.source == "dump.json"
    assert data == plan.source_bytes


def test_msprobe_exception_config_is_accepted(compile_plan):
    """The exception dump that msprobe configures compiles under O2."""
    changes = {"op_debug_mode": 4, "file_format": "npy", "input_output": 0, "saved_data": "tensor"}

    plan, _ = compile_plan("O2", changes)

    assert Trigger.EXCEPTION is plan.when.trigger


def _minimal():
    return {
        "common_dump_settings": {
            "dump_mode": 0,
            "path": "/dump",
            "net_name": "Net",
            "iteration": "all",
            "input_output": 0,
            "kernels": [],
            "support_device": [],
        },
        "e2e_dump_settings": {"enable": True},
    }


KEYS = st.sampled_from(
    [
        *_minimal()["common_dump_settings"],
        "op_debug_mode",
        "overflow_number",
        "saved_data",
        "statistic_category",
        "file_format",
        "initial_iteration",
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["", "all"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
CONTEXTS = st.builds(
    Context, st.sampled_from(DeviceTarget), st.sampled_from([None, *JitLevel]), st.integers(0, 7)
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(KEYS, VALUES), st.dictionaries(st.text(), VALUES), CONTEXTS)
def test_any_json_gives_a_plan_or_a_config_error(common, e2e, context):
    """Whatever JSON the file holds, the reader raises nothing but ConfigError."""
    config = _minimal()
    config["common_dump_settings"] |= common
    config["e2e_dump_settings"] |= e2e

    outcome = None
    try:
        outcome = parse(json.dumps(config).encode(), "d.json", context).files.path.startswith("/")
    except ConfigError as error:
        outcome = bool(error.problems)

    assert outcome
