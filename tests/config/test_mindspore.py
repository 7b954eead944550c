"""Every clause of the key tables, every cross rule, every mode of MINDSPORE_DUMP_CONFIG."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.config.mindspore import parse, read
from msdump.errors import ConfigError, ConfigSyntaxError, ConfigValueError
from msdump.plan import (
    Context,
    DeviceTarget,
    DumpMode,
    FileFormat,
    IterationSet,
    JitLevel,
    Naming,
    OnWriteError,
    StatisticSpec,
    Trigger,
)

GONE = "<gone>"  # stands in the tables for the sentinel of the fixture
ALL_MODES = ("CPU", "GPU", "O0", "O1", "O2")
HOST = ("CPU", "GPU")
KERNEL_BY_KERNEL = ("O0", "O1")
ASCEND = ("O0", "O1", "O2")


def _modes(modes, *rows):
    return [pytest.param(mode, *row, id=f"{mode}-{row[0]}") for mode in modes for row in rows]


def _with_gone(changes, gone):
    return {key: gone if value == GONE else value for key, value in changes.items()}


@pytest.mark.parametrize("mode", ALL_MODES)
def test_base_config_compiles_silently(mode, compile_plan):
    """A configuration as documented compiles in its mode without a warning."""
    plan, warnings = compile_plan(mode, {})

    assert [] == warnings
    assert "/dump" == plan.path
    assert "Net" == plan.net_name
    assert plan.iterations.spans is None


GOOD_VALUES = [
    # key, mode, changes, plan field, expected
    ("dump_mode-0", "CPU", {"dump_mode": 0}, "selector.mode", DumpMode.ALL),
    ("dump_mode-1", "CPU", {"dump_mode": 1}, "selector.mode", DumpMode.KERNELS),
    ("dump_mode-2-cpu", "CPU", {"dump_mode": 2}, "selector.mode", DumpMode.MARKED),
    ("dump_mode-2-gpu", "GPU", {"dump_mode": 2}, "selector.mode", DumpMode.MARKED),
    ("dump_mode-2-o0", "O0", {"dump_mode": 2}, "selector.mode", DumpMode.MARKED),
    ("dump_mode-2-o2", "O2", {"dump_mode": 2}, "selector.mode", DumpMode.MARKED),
    ("path-trailing-slash", "CPU", {"path": "/a//b/"}, "path", "/a/b"),
    ("path-root", "CPU", {"path": "/"}, "path", "/"),
    ("net_name", "CPU", {"net_name": "a-B_9"}, "net_name", "a-B_9"),
    ("net_name-longest", "CPU", {"net_name": "n" * 255}, "net_name", "n" * 255),
    ("iteration", "O2", {"iteration": "0|5-8"}, "iterations", IterationSet(((0, 0), (5, 8)))),
    ("iteration-spaces", "CPU", {"iteration": "0 | 2-3"}, "iterations", IterationSet(((0, 0), (2, 3)))),
    ("initial_iteration-default", "CPU", {}, "initial_iteration", 0),
    ("initial_iteration", "CPU", {"initial_iteration": 5}, "initial_iteration", 5),
    ("saved_data-default", "O0", {}, "statistics", None),
    ("saved_data-tensor", "O0", {"saved_data": "tensor"}, "keeps_tensors", True),
    ("saved_data-statistic", "O0", {"saved_data": "statistic"}, "keeps_tensors", False),
    ("saved_data-full", "O0", {"saved_data": "full"}, "keeps_tensors", True),
    ("saved_data-full-columns", "O0", {"saved_data": "full"}, "statistics", StatisticSpec()),
    ("saved_data-gpu", "GPU", {"saved_data": "statistic"}, "statistics", StatisticSpec()),
    (
        "saved_data-o2-npy",
        "O2",
        {"saved_data": "full", "file_format": "npy"},
        "statistics",
        StatisticSpec(),
    ),
    ("input_output-0-inputs", "CPU", {"input_output": 0}, "keeps_inputs", True),
    ("input_output-0-outputs", "CPU", {"input_output": 0}, "keeps_outputs", True),
    ("input_output-1-inputs", "CPU", {"input_output": 1}, "keeps_inputs", True),
    ("input_output-1-outputs", "CPU", {"input_output": 1}, "keeps_outputs", False),
    ("input_output-2-inputs", "CPU", {"input_output": 2}, "keeps_inputs", False),
    ("input_output-2-outputs", "CPU", {"input_output": 2}, "keeps_outputs", True),
    ("op_debug_mode-missing", "O0", {"op_debug_mode": GONE}, "trigger", Trigger.ALWAYS),
    ("op_debug_mode-missing-cpu", "CPU", {"op_debug_mode": GONE}, "trigger", Trigger.ALWAYS),
    ("op_debug_mode-3", "O0", {"op_debug_mode": 3}, "trigger", Trigger.OVERFLOW),
    ("op_debug_mode-3-o2", "O2", {"op_debug_mode": 3}, "trigger", Trigger.OVERFLOW),
    ("op_debug_mode-4", "O1", {"op_debug_mode": 4, "input_output": 1}, "trigger", Trigger.EXCEPTION),
    ("op_debug_mode-4-o2", "O2", {"op_debug_mode": 4, "input_output": 1}, "trigger", Trigger.EXCEPTION),
    ("overflow_number-default", "O0", {"op_debug_mode": 3}, "overflow_limit", 0),
    ("overflow_number", "O0", {"op_debug_mode": 3, "overflow_number": 2}, "overflow_limit", 2),
    (
        "overflow_number-o2",
        "O2",
        {"op_debug_mode": 3, "overflow_number": 2, "file_format": "npy"},
        "overflow_limit",
        2,
    ),
    ("statistic_category-unread", "CPU", {"statistic_category": ["md5"]}, "statistics", None),
    (
        "statistic_category-order",
        "O0",
        {"saved_data": "full", "statistic_category": ["l2norm", "max", "nan count", "zero count"]},
        "statistics.categories",
        ("l2norm", "max", "nan count", "zero count"),
    ),
    (
        "statistic_category-empty",
        "O0",
        {"saved_data": "statistic", "statistic_category": []},
        "statistics.categories",
        (),
    ),
    (
        "statistic_category-hashes",
        "O0",
        {"saved_data": "full", "statistic_category": ["md5", "hash", "hash:md5", "hash:sha1"]},
        "statistics.categories",
        ("md5", "sha1", "md5", "sha1"),
    ),
    ("file_format-default", "O2", {}, "file_format", FileFormat.BIN),
    ("file_format-npy", "O2", {"file_format": "npy"}, "file_format", FileFormat.NPY),
    ("file_format-bin", "O2", {"file_format": "bin"}, "keeps_device_format", True),
    ("file_format-npy-is-host", "O2", {"file_format": "npy"}, "keeps_device_format", False),
    ("support_device-cpu-empty", "CPU", {"support_device": []}, "is_enabled", True),
    ("support_device-cpu-negative", "CPU", {"support_device": [-1]}, "is_enabled", True),
    ("enable-true", "O0", {"enable": True}, "is_async", False),
    ("enable-false", "O0", {"enable": False}, "is_async", True),
    ("enable-missing", "O0", {"enable": GONE}, "is_async", True),
    ("enable-o2", "O2", {}, "is_async", True),
    ("trans_flag-default", "O0", {}, "keeps_device_format", False),
    ("trans_flag-true", "O0", {"trans_flag": True}, "keeps_device_format", False),
    ("trans_flag-false", "O0", {"trans_flag": False}, "keeps_device_format", True),
    ("trans_flag-cpu", "CPU", {"trans_flag": False}, "keeps_device_format", False),
    ("save_kernel_args", "O0", {"save_kernel_args": True}, "saves_kernel_args", True),
    ("save_kernel_args-cpu", "CPU", {"save_kernel_args": True}, "saves_kernel_args", True),
    (
        "stat_calc_mode-device",
        "O0",
        {"saved_data": "statistic", "stat_calc_mode": "device"},
        "statistics.on_device",
        True,
    ),
    (
        "device_stat_precision_mode-low",
        "O0",
        {"saved_data": "statistic", "stat_calc_mode": "device", "device_stat_precision_mode": "low"},
        "statistics.high_precision",
        False,
    ),
    ("sample_mode-default", "O0", {}, "sample_count", None),
    ("sample_mode-0", "O0", {"sample_mode": 0, "sample_num": 5}, "sample_count", None),
    ("sample_mode-1", "O1", {"sample_mode": 1}, "sample_count", 100),
    ("sample_num", "O0", {"sample_mode": 1, "sample_num": 20}, "sample_count", 20),
    ("naming-default", "CPU", {}, "naming", Naming.V2_5),
    ("naming-2.7", "CPU", {"naming": "2.7"}, "naming", Naming.V2_7),
    ("naming-classic", "CPU", {"naming": "classic"}, "naming", Naming.CLASSIC),
    ("queue_bytes-default", "CPU", {}, "queue_bytes", 268435456),
    ("queue_bytes", "CPU", {"queue_bytes": 1 << 40}, "queue_bytes", 1 << 40),
    ("writer_threads", "CPU", {"writer_threads": 4}, "writer_threads", 4),
    ("max_bytes", "CPU", {"max_bytes": 10}, "max_bytes", 10),
    ("on_write_error-default", "CPU", {}, "on_write_error", OnWriteError.RAISE),
    ("on_write_error", "CPU", {"on_write_error": "warn"}, "on_write_error", OnWriteError.WARN),
    ("precision_mode-default", "O0", {}, "precision_mode", None),
    ("precision_mode", "O2", {"precision_mode": "force_fp16"}, "precision_mode", "force_fp16"),
    ("initial_iteration-biggest", "CPU", {"initial_iteration": 4294967295}, "initial_iteration", 4294967295),
]


@pytest.mark.parametrize(
    ("mode", "changes", "field", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in GOOD_VALUES],
)
def test_good_value_reaches_the_plan(mode, changes, field, expected, compile_plan, gone):
    """A documented value of a key is accepted silently and becomes its field of the plan."""
    plan, warnings = compile_plan(mode, _with_gone(changes, gone))

    for name in field.split("."):
        plan = getattr(plan, name)
    assert expected == plan
    assert [] == warnings


PRECISION_MODES = (
    "allow_fp32_to_fp16",
    "force_fp16",
    "force_fp32",
    "must_keep_origin_dtype",
    "allow_fp32_to_bf16",
)


@pytest.mark.parametrize("precision", PRECISION_MODES)
def test_each_precision_mode_is_accepted(precision, compile_plan):
    """Each precision mode reaches the plan on Ascend."""
    plan, _ = compile_plan("O0", {"precision_mode": precision})

    assert precision == plan.precision_mode


REQUIRED = ("dump_mode", "net_name", "iteration", "input_output", "kernels", "support_device")
NOT_UNSIGNED = ("1", -1, True, 1.0, None, [], 4294967296)

BAD_VALUES = [
    # mode, key, value, fragment
    *[("CPU", key, GONE, f"$.common_dump_settings.{key} is missing: must be ") for key in REQUIRED],
    *[("O2", key, GONE, f"$.common_dump_settings.{key} is missing: must be ") for key in REQUIRED],
    ("O2", "op_debug_mode", GONE, "op_debug_mode is missing: Ascend O2 needs it"),
    *[("CPU", "dump_mode", value, "must be 0 (all operators), 1") for value in (*NOT_UNSIGNED, 3, False)],
    *[("CPU", "input_output", value, "must be 0 (inputs and outputs)") for value in (*NOT_UNSIGNED, 3)],
    *[("O0", "op_debug_mode", value, "must be 0 (off), 3") for value in (*NOT_UNSIGNED, 5)],
    *[("CPU", "initial_iteration", value, "must be a whole number from 0") for value in NOT_UNSIGNED],
    ("CPU", "path", 1, "= 1: must be a text, an absolute path"),
    ("CPU", "path", None, "= null: must be a text, an absolute path"),
    ("CPU", "path", "relative/a", "= 'relative/a': the path must be absolute"),
    ("CPU", "path", "/a.b", "= '/a.b': a path holds only letters, digits, '_', '-' and '/'"),
    ("CPU", "path", "/a/../b", "a path holds only"),
    ("CPU", "path", "/a b", "a path holds only"),
    ("CPU", "path", "~/a", "a path holds only"),
    ("CPU", "path", "/ä", "a path holds only"),
    ("CPU", "path", "", "path is missing or empty: give an absolute path, or set MS_DIAGNOSTIC_DATA_PATH"),
    ("CPU", "path", GONE, "path is missing or empty: give an absolute path"),
    *[
        ("CPU", "net_name", value, "must be 1 to 255 letters, digits, '_' or '-'")
        for value in ("My Net", "a.b", "a/b", "..", "*", "", "Nétz", "a\n", "n" * 256, 1, None)
    ],
    *[("CPU", "iteration", value, "must be a text such as '0|5-8|100-120'") for value in (1, None, [0])],
    *[
        ("O0", "saved_data", value, "must be 'tensor', 'statistic' or 'full'")
        for value in ("", "Tensor", "all", 1)
    ],
    ("CPU", "kernels", "Conv2D", "= 'Conv2D': must be a list of texts"),
    ("CPU", "kernels", None, "= null: must be a list of texts"),
    ("CPU", "support_device", "0", "= '0': must be a list of device numbers"),
    ("CPU", "support_device", ["0"], "support_device[0] = '0': must be a whole number"),
    ("CPU", "support_device", [0, 1.0], "support_device[1] = 1.0: must be a whole number"),
    ("O2", "file_format", "xyz", "= 'xyz': must be 'npy' or 'bin'"),
    *[
        ("O0", key, value, f"{key} = {json.dumps(value)}: must be true or false")
        for key in ("enable", "trans_flag", "save_kernel_args")
        for value in (1, None)
    ],
    ("O0", "stat_calc_mode", "foo", "= 'foo': must be 'host' or 'device'"),
    ("O0", "stat_calc_mode", 1, "= 1: must be 'host' or 'device'"),
    ("O0", "device_stat_precision_mode", "foo", "= 'foo': must be 'high' or 'low'"),
    *[("O0", "sample_mode", value, "must be 0 (whole tensors) or 1") for value in (2, -1, "1", True)],
    ("CPU", "e2e_dump_settings", 5, "$.e2e_dump_settings = 5: must be an object"),
    ("CPU", "e2e_dump_settings", None, "$.e2e_dump_settings = null: must be an object"),
    ("CPU", "msdump", [], "$.msdump = []: must be an object"),
    ("CPU", "common_dump_settings", "x", "$.common_dump_settings = 'x': must be an object"),
    ("CPU", "common_dump_settings", GONE, "$.common_dump_settings is missing: it must hold dump_mode,"),
    ("CPU", "naming", 2.5, "= 2.5: must be '2.5', '2.7' or 'classic' (did you mean '2.5'?)"),
    ("CPU", "naming", "3", "= '3': must be '2.5', '2.7' or 'classic'"),
    ("CPU", "queue_bytes", 0, "= 0: must be a whole number of bytes from 1"),
    ("CPU", "writer_threads", 0, "= 0: must be a whole number from 1 to 1024"),
    ("CPU", "max_bytes", -1, "= -1: must be a whole number of bytes, 0 for no limit"),
    ("CPU", "on_write_error", "ignore", "= 'ignore': must be 'raise' or 'warn'"),
    ("O0", "precision_mode", "force_fp61", "(did you mean 'force_fp16'?)"),
]


@pytest.mark.parametrize(
    ("mode", "key", "value", "fragment"),
    [
        pytest.param(*row, id=f"{row[0]}-{row[1]}-{str(row[2])[:12] or 'empty'}-{number}")
        for number, row in enumerate(BAD_VALUES)
    ],
)
def test_bad_value_is_refused(mode, key, value, fragment, compile_plan, gone):
    """A wrong or missing value is one error that names the place, the value and what is allowed."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan(mode, _with_gone({key: value}, gone))

    assert fragment in str(caught.value)
    assert str(caught.value).startswith("dump.json")
    assert {problem.path.partition("[")[0].rpartition(".")[2] for problem in caught.value.problems} <= {key}


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"saved_data": "statistic", "statistic_category": ["maxx"]}, "[0] = 'maxx': must be max, min, avg"),
        ({"saved_data": "statistic", "statistic_category": ["maxx"]}, "(did you mean 'max'?)"),
        ({"saved_data": "full", "statistic_category": "max"}, "= 'max': must be a list of statistics"),
        ({"saved_data": "full", "statistic_category": [1]}, "statistic_category[0] = 1: must be max"),
        ({"sample_mode": 1, "sample_num": 0}, "= 0: must be a whole number from 1"),
        ({"sample_mode": 1, "sample_num": "5"}, "sample_num = '5': must be a whole number from 1"),
        ({"sample_mode": 1, "sample_num": -5}, "sample_num = -5: must be a whole number from 1"),
        ({"dump_mode": 1, "kernels": ["Conv2D", 3]}, "kernels[1] = 3: must be a text"),
        ({"dump_mode": 1, "kernels": [["ReLU"]]}, 'kernels[0] = ["ReLU"]: must be a text'),
        ({"op_debug_mode": 3, "overflow_number": "2"}, "= '2': must be a whole number from 0"),
        ({"op_debug_mode": 3, "overflow_number": -1}, "= -1: must be a whole number from 0"),
    ],
)
def test_bad_value_that_another_key_brings_into_play_is_refused(changes, fragment, compile_plan):
    """A wrong value of a key that another key makes MindSpore read is an error."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan("O0", changes)

    assert fragment in str(caught.value)
    assert 1 == len(caught.value.problems)


@pytest.mark.parametrize(
    ("mode", "changes", "fragment"),
    [
        ("O0", {"statistic_category": ["maxx"]}, "statistic_category[0] = 'maxx'"),
        ("CPU", {"statistic_category": None}, "statistic_category = null"),
        ("O0", {"sample_mode": 0, "sample_num": 0}, "sample_num = 0"),
        ("CPU", {"kernels": [3]}, "kernels[0] = 3"),
        ("O0", {"file_format": "xyz"}, "file_format = 'xyz'"),
        ("CPU", {"precision_mode": "force_fp61"}, "precision_mode = 'force_fp61'"),
    ],
)
def test_bad_value_that_nothing_reads_only_warns(mode, changes, fragment, compile_plan):
    """A wrong value that MindSpore does not look at in these settings is one warning."""
    plan, warnings = compile_plan(mode, changes)

    assert "/dump" == plan.path
    assert 1 == len(warnings)
    assert fragment in warnings[0]
    assert warnings[0].endswith("; not read with these settings")


REFUSED = [
    *_modes(("CPU",), ({"saved_data": "statistic"}, "the CPU has no statistics")),
    *_modes(("CPU",), ({"saved_data": "full"}, "use 'tensor', or device_target GPU or Ascend")),
    *_modes(HOST, *[({"op_debug_mode": n}, "only Ascend detects overflows") for n in (1, 2, 3, 4)]),
    *_modes(ALL_MODES, ({"overflow_number": 0}, "belongs to op_debug_mode 3; remove it")),
    *_modes(ASCEND, ({"overflow_number": 1, "op_debug_mode": 4, "input_output": 1}, "belongs to op_debug")),
    *_modes(("O2",), ({"saved_data": "statistic"}, "need file_format 'npy'")),
    *_modes(("O2",), ({"saved_data": "full", "file_format": "bin"}, "need file_format 'npy'")),
]


@pytest.mark.parametrize(("mode", "changes", "fragment"), REFUSED)
def test_contradiction_is_refused(mode, changes, fragment, compile_plan):
    """Keys that contradict each other in a mode are exactly one error, with the reason and the remedy."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan(mode, changes)

    assert 1 == len(caught.value.problems)
    assert fragment in str(caught.value)


FORCED = [
    # modes, changes, fragment of the warning, plan field, value
    *_modes(
        HOST,
        ({"enable": False}, "enable = false: the documents ask for true on CPU", "is_async", False),
        ({"enable": GONE}, "enable is missing: the documents ask for true on CPU", "is_async", False),
        ({"e2e_dump_settings": GONE}, "$.e2e_dump_settings.enable is missing", "is_async", False),
        ({"stat_calc_mode": "device"}, "only Ascend computes statistics on the device", "statistics", None),
        ({"sample_mode": 1}, "only Ascend O0 and O1 sample tensors; 0 is used", "sample_count", None),
        ({"precision_mode": "force_fp16"}, "has an effect only on Ascend", "precision_mode", None),
    ),
    *_modes(
        (*HOST, *KERNEL_BY_KERNEL),
        ({"file_format": "bin"}, "has an effect only under Ascend O2", "file_format", FileFormat.NPY),
    ),
    *_modes(
        KERNEL_BY_KERNEL,
        ({"e2e_dump_settings": GONE}, "$.e2e_dump_settings is missing: the dump is async", "is_async", True),
        (
            {"op_debug_mode": 3, "iteration": "1-2", "saved_data": "full"},
            "the documents promise statistics only with op_debug_mode 0",
            "statistics",
            StatisticSpec(),
        ),
        (
            {"stat_calc_mode": "device", "saved_data": "full"},
            "the device computes statistics only with saved_data 'statistic'; 'host' is used",
            "statistics.on_device",
            False,
        ),
        (
            {"stat_calc_mode": "device"},
            "the device computes statistics only with saved_data 'statistic'; 'host' is used",
            "statistics",
            None,
        ),
        (
            {"stat_calc_mode": "device", "saved_data": "statistic", "statistic_category": ["md5", "avg"]},
            'the device computes only max, min, avg and l2norm; ["avg"] is used',
            "statistics.categories",
            ("avg",),
        ),
        (
            {"sample_mode": 1, "op_debug_mode": 3},
            "op_debug_mode 3 dumps whole tensors; 0 is used",
            "sample_count",
            None,
        ),
        (
            {"sample_mode": 1, "op_debug_mode": 4, "input_output": 1},
            "op_debug_mode 4 dumps whole tensors; 0 is used",
            "sample_count",
            None,
        ),
        (
            {"save_kernel_args": True, "enable": False},
            "an asynchronous dump saves no kernel arguments; false is used",
            "saves_kernel_args",
            False,
        ),
    ),
    *_modes(
        ("O2",),
        (
            {"e2e_dump_settings": {"enable": True}},
            "is given: has no effect under jit_level O2",
            "is_async",
            True,
        ),
        (
            {"op_debug_mode": 3, "overflow_number": 2},
            "takes effect only with file_format 'npy'; 0 is used",
            "overflow_limit",
            0,
        ),
        (
            {"op_debug_mode": 3, "iteration": "1-2"},
            "iteration = '1-2': op_debug_mode 3 watches every iteration under Ascend O2; 'all' is used",
            "iterations",
            IterationSet(),
        ),
        (
            {"dump_mode": 1, "kernels": ["Conv2D"]},
            "Ascend O2 documents full names and name-regex(...), not types",
            "selector.mode",
            DumpMode.KERNELS,
        ),
    ),
    *_modes(
        ASCEND,
        (
            {"op_debug_mode": 1},
            "= 1: an old number of overflow detection; 3 is used",
            "trigger",
            Trigger.OVERFLOW,
        ),
        (
            {"op_debug_mode": 2},
            "= 2: an old number of overflow detection; 3 is used",
            "trigger",
            Trigger.OVERFLOW,
        ),
        (
            {"op_debug_mode": 3, "dump_mode": 1},
            "dump_mode = 1: op_debug_mode 3 chooses the operators; 0 is used",
            "selector.mode",
            DumpMode.ALL,
        ),
        (
            {"op_debug_mode": 4, "dump_mode": 2, "input_output": 1},
            "dump_mode = 2: op_debug_mode 4 chooses the operators; 0 is used",
            "selector.mode",
            DumpMode.ALL,
        ),
        (
            {"op_debug_mode": 3, "input_output": 2},
            "op_debug_mode 3 dumps inputs and outputs; 0 is used",
            "keeps_inputs",
            True,
        ),
        (
            {"op_debug_mode": 4},
            "op_debug_mode 4 dumps the inputs of the failing operator; 1 is used",
            "keeps_outputs",
            False,
        ),
        (
            {"op_debug_mode": 4, "input_output": 1, "iteration": "1-2"},
            "iteration = '1-2': op_debug_mode 4 watches every iteration; 'all' is used",
            "iterations",
            IterationSet(),
        ),
        (
            {"op_debug_mode": 4, "input_output": 1, "saved_data": "full"},
            "op_debug_mode 4 has no statistics; 'tensor' is used",
            "statistics",
            None,
        ),
    ),
    *_modes(
        ("GPU", *ASCEND),
        (
            {"support_device": [1, 2]},
            "support_device = [1, 2]: device 0 is not among them: nothing is dumped",
            "is_enabled",
            False,
        ),
    ),
    *_modes(ALL_MODES, ({"support_device": [0, 0]}, "a device stands twice", "is_enabled", True)),
    *_modes(
        ALL_MODES[:-1],
        (
            {"dump_mode": 1, "kernels": ["Add", "Add", "add"]},
            "kernels[1] = 'Add': stands more than once",
            "selector.mode",
            DumpMode.KERNELS,
        ),
    ),
]


@pytest.mark.parametrize(("mode", "changes", "fragment", "field", "expected"), FORCED)
def test_rule_forces_a_value_with_one_warning(mode, changes, fragment, field, expected, compile_plan, gone):
    """A rule of a mode replaces a value (or keeps it) and says so in exactly one warning."""
    plan, warnings = compile_plan(mode, _with_gone(changes, gone))

    for name in field.split("."):
        plan = getattr(plan, name)
    assert expected == plan
    assert 1 == len(warnings)
    assert fragment in warnings[0]
    assert "\n" not in warnings[0]


def test_device_statistics_of_overflows_move_to_the_host(compile_plan):
    """op_debug_mode 3 computes statistics on the host, whatever stat_calc_mode says."""
    changes = {"op_debug_mode": 3, "saved_data": "statistic", "stat_calc_mode": "device"}

    plan, warnings = compile_plan("O0", changes)

    assert not plan.statistics.on_device
    assert "op_debug_mode 3 computes statistics on the host; 'host' is used" in warnings[1]


@pytest.mark.parametrize(
    ("target", "level", "has_block", "enable", "expected_level", "is_async"),
    [
        ("Ascend", None, True, True, "O0", False),
        ("Ascend", None, True, False, "O0", True),
        ("Ascend", None, False, None, "O2", True),
        ("Ascend", "O0", True, True, "O0", False),
        ("Ascend", "O1", True, True, "O1", False),
        ("Ascend", "O1", True, False, "O1", True),
        ("Ascend", "O0", False, None, "O0", True),
        ("Ascend", "O2", False, None, "O2", True),
        ("Ascend", "O2", True, True, "O2", True),
        ("CPU", None, True, True, None, False),
        ("CPU", "O2", True, True, None, False),
        ("GPU", "O0", False, None, None, False),
    ],
)
def test_level_is_explicit_or_implied(
    target, level, has_block, enable, expected_level, is_async, compile_plan, gone
):
    """An explicit level wins; else e2e_dump_settings implies O0 and its absence O2; CPU and GPU have none."""
    context = Context(DeviceTarget(target), JitLevel(level) if level else None)
    changes = {"e2e_dump_settings": {"enable": enable} if has_block else gone}

    plan, _ = compile_plan("CPU", changes, context)

    assert expected_level == plan.context.jit_level
    assert is_async == plan.is_async


def test_faults_of_an_ignored_block_do_not_matter(compile_plan):
    """Under an explicit O2 whatever e2e_dump_settings holds is ignored with one warning."""
    plan, warnings = compile_plan("O2", {"e2e_dump_settings": {"enable": "yes", "sample_mode": 9}})

    assert plan.sample_count is None
    assert 1 == len(warnings)


def test_other_device_numbers_select(compile_plan):
    """support_device is compared with the number of the context's device."""
    context = Context(DeviceTarget.GPU, device_id=3)

    plan, warnings = compile_plan("GPU", {"support_device": [0, 3]}, context)

    assert plan.is_enabled
    assert [] == warnings


def test_ge_dump_is_an_o2_matter(compile_plan, monkeypatch):
    """ENABLE_MS_GE_DUMP=1 chooses GE options under O2 and nothing elsewhere."""
    monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")

    assert compile_plan("O2", {})[0].uses_ge_options
    assert not compile_plan("O0", {})[0].uses_ge_options


def test_ge_dump_forbids_exception_mode(compile_plan, monkeypatch):
    """ENABLE_MS_GE_DUMP=1 with op_debug_mode 4 is an error."""
    monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")

    with pytest.raises(ConfigValueError, match="not possible with ENABLE_MS_GE_DUMP=1; use 0 or 3"):
        compile_plan("O2", {"op_debug_mode": 4})


@pytest.mark.parametrize("path", ["", GONE], ids=["empty", "missing"])
def test_diagnostic_path_is_the_fallback(path, compile_plan, gone, monkeypatch):
    """Without a path the dump goes to $MS_DIAGNOSTIC_DATA_PATH/debug_dump."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "/diag/")

    plan, _ = compile_plan("CPU", _with_gone({"path": path}, gone))

    assert "/diag/debug_dump" == plan.path


def test_path_beats_the_diagnostic_path(compile_plan, monkeypatch):
    """A path of the file wins over MS_DIAGNOSTIC_DATA_PATH."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "/diag")

    plan, _ = compile_plan("CPU", {"path": "/own"})

    assert "/own" == plan.path


def test_diagnostic_path_follows_the_rules_of_a_path(compile_plan, monkeypatch):
    """A bad MS_DIAGNOSTIC_DATA_PATH is an error that names the variable and shows a caret."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "/a.b")

    with pytest.raises(ConfigValueError) as caught:
        compile_plan("CPU", {"path": ""})

    assert (
        "dump.json: MS_DIAGNOSTIC_DATA_PATH = '/a.b/debug_dump': "
        "a path holds only letters, digits, '_', '-' and '/'\n"
        "    /a.b/debug_dump\n"
        "      ^"
    ) == str(caught.value)


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
            "$.common_dump_settings.trans_flag is unknown and ignored (it belongs into $.e2e_dump_settings)",
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

    assert [
        "dump.json:1: $.e2e_dump_setting is unknown and ignored (did you mean 'e2e_dump_settings'?)",
        'dump.json:1: $["odd key"] is unknown and ignored',
        (
            "dump.json:1: $.e2e_dump_settings.enable is missing: "
            "the documents ask for true on CPU and GPU; true is used"
        ),
    ] == sorted((record.getMessage() for record in caplog.records), key=lambda text: "is missing" in text)


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

    assert (
        "d.json:6: $.common_dump_settings.net_name = 'My Net': must be 1 to 255 letters, digits, '_' or '-'\n"
        "d.json:7: $.common_dump_settings.iteration = '0 | 8-5 | x': "
        "the range 8-5 runs backwards; write 5-8\n"
        "    0 | 8-5 | x\n"
        "        ^^^\n"
        "d.json:7: $.common_dump_settings.iteration = '0 | 8-5 | x': 'x' is neither a number nor a range; "
        "write numbers and ranges joined by '|', as in '0|5-8|100-120', or 'all' alone\n"
        "    0 | 8-5 | x\n"
        "              ^\n"
        "d.json:8: $.common_dump_settings.saved_data = 'tensors': must be 'tensor', 'statistic' or 'full' "
        "(did you mean 'tensor'?)\n"
        "d.json:9: $.common_dump_settings.input_output = 3: "
        "must be 0 (inputs and outputs), 1 (inputs) or 2 (outputs)\n"
        "d.json:10: $.common_dump_settings.kernels[1] = 'name-regex(a[b)': "
        "not a regular expression: unterminated character set\n"
        "    name-regex(a[b)\n"
        "                ^\n"
        "d.json:13: $.e2e_dump_settings.enable = 'true': must be true or false (did you mean true?)"
    ) == str(caught.value)
    assert [
        "d.json:4: $.common_dump_settings.dump_mode stands more than once in its object; the last one counts",
        "d.json:13: $.e2e_dump_settings.tran_flag is unknown and ignored (did you mean 'trans_flag'?)",
    ] == [record.getMessage() for record in caplog.records]
    assert {"msdump.config"} == {record.name for record in caplog.records}
    assert {logging.WARNING} == {record.levelno for record in caplog.records}


def test_config_error_is_a_runtime_error(compile_plan):
    """A faulty configuration raises what MindSpore raises, a RuntimeError."""
    with pytest.raises(RuntimeError):
        compile_plan("CPU", {"dump_mode": 9})


def test_a_faulty_key_does_not_cause_further_faults(compile_plan):
    """Rules that depend on a wrong value stay silent."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan("O0", {"op_debug_mode": 7, "overflow_number": 1})

    assert 1 == len(caught.value.problems)


@pytest.mark.parametrize("text", [b"[]", b"null", b"5", b"{}", b'"x"'])
def test_document_without_settings_is_refused(text):
    """A JSON value without common_dump_settings is an error."""
    with pytest.raises(ConfigValueError, match=r"\$\.common_dump_settings is missing"):
        parse(text, "d.json", Context())


def test_read_keeps_source_and_bytes(tmp_path, monkeypatch):
    """A relative path is read, and the plan keeps the path and the bytes, BOM included."""
    data = b"\xef\xbb\xbf" + json.dumps(_minimal()).encode()
    (tmp_path / "dump.json").write_bytes(data)
    monkeypatch.chdir(tmp_path)

    plan = read("dump.json", Context())

    assert "dump.json" == plan.source
    assert data == plan.source_bytes


def test_read_names_the_variable_when_the_file_is_missing(tmp_path):
    """A missing file is one error that names the file and MINDSPORE_DUMP_CONFIG."""
    with pytest.raises(ConfigSyntaxError) as caught:
        read(str(tmp_path / "none.json"), Context())

    assert (
        f"{tmp_path}/none.json: no such file; MINDSPORE_DUMP_CONFIG must be the path of a readable .json file"
    ) == str(caught.value)


MSPROBE_CONFIGS = [
    # as msprobe writes them: no op_debug_mode, empty statistic_category, hash names
    ({"saved_data": "statistic", "statistic_category": []}, ()),
    ({"saved_data": "statistic", "statistic_category": ["hash:md5"]}, ("md5",)),
    ({"saved_data": "statistic", "statistic_category": ["hash"]}, ("sha1",)),
    (
        {"saved_data": "statistic", "statistic_category": ["max", "min", "avg", "l2norm"]},
        ("max", "min", "avg", "l2norm"),
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MSPROBE_CONFIGS)
def test_msprobe_configs_are_accepted(changes, expected, compile_plan, gone):
    """Configurations that msprobe generates compile silently."""
    common = {"op_debug_mode": gone, "iteration": "1|2|3", "stat_calc_mode": "host", "trans_flag": True}

    plan, warnings = compile_plan("O0", common | changes)

    assert expected == plan.statistics.categories
    assert [] == warnings


def test_msprobe_exception_config_is_accepted(compile_plan):
    """The exception dump that msprobe configures compiles under O2."""
    changes = {"op_debug_mode": 4, "file_format": "npy", "input_output": 0, "saved_data": "tensor"}

    plan, _ = compile_plan("O2", changes)

    assert Trigger.EXCEPTION is plan.trigger


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


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES), st.dictionaries(st.text(), VALUES), CONTEXTS)
def test_any_json_gives_a_plan_or_a_config_error(common, e2e, context):
    """Whatever JSON the file holds, the reader raises nothing but ConfigError."""
    config = _minimal()
    config["common_dump_settings"] |= common
    config["e2e_dump_settings"] |= e2e

    outcome = None
    try:
        outcome = parse(json.dumps(config).encode(), "d.json", context).path.startswith("/")
    except ConfigError as error:
        outcome = bool(error.problems)

    assert outcome


@settings(max_examples=200, deadline=None)
@given(st.binary() | st.text(alphabet='{}[]":,\\ \n01eE-nulltrue/').map(str.encode))
def test_any_bytes_give_a_config_error(data):
    """Whatever bytes the file holds, the reader raises nothing but ConfigError."""
    with pytest.raises(ConfigError):
        parse(data, "d.json", Context())
