"""Every rule between keys, in every mode."""

import re

import pytest

from msdump.config import KEYS
from msdump.config.rules import RULES, Mode
from msdump.errors import ConfigValueError
from msdump.plan import NO_OPERATOR_DTYPES, FileFormat, StatisticSpec, Trigger
from msdump.selector import DumpMode, IterationSet
from tests import plans

GONE = "<gone>"  # the file does not hold this key

ALL_MODES = ("CPU", "GPU", "O0", "O1", "O2")
HOST = ("CPU", "GPU")
KERNEL_BY_KERNEL = ("O0", "O1")
ASCEND = ("O0", "O1", "O2")


def _modes(modes, *rows):
    """Return each row once per mode; all that follows the fragment of a row becomes one value."""
    return [
        pytest.param(mode, changes, fragment, *([outcome] if outcome else []), id=f"{mode}-{changes}")
        for mode in modes
        for changes, fragment, *outcome in rows
    ]


REFUSED = [
    *_modes(("CPU",), ({"saved_data": "statistic"}, "the CPU has no statistics")),
    *_modes(("CPU",), ({"saved_data": "full"}, "use 'tensor', or device_target GPU or Ascend")),
    *_modes(HOST, *[({"op_debug_mode": n}, "only Ascend detects overflows") for n in (1, 2, 3, 4)]),
    *_modes(ALL_MODES, ({"overflow_number": 0}, "has an effect only with op_debug_mode 3; remove it")),
    *_modes(
        ASCEND,
        ({"overflow_number": 1, "op_debug_mode": 4, "input_output": 1}, "has an effect only with op_debug"),
    ),
    *_modes(("O2",), ({"saved_data": "statistic"}, "need file_format 'npy'")),
    *_modes(("O2",), ({"saved_data": "full", "file_format": "bin"}, "need file_format 'npy'")),
]


@pytest.mark.parametrize(("mode", "changes", "fragment"), REFUSED)
def test_contradiction_is_refused(mode, changes, fragment, compile_plan):
    """Keys that contradict each other in a mode are exactly one error, with the reason and the remedy."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan(mode, changes)

    assert len(caught.value.problems) == 1
    assert fragment in str(caught.value)


FORCED = [
    # modes, changes, fragment of the warning, plan field, value
    *_modes(
        HOST,
        ({"enable": False}, "enable = false: MindSpore documents true for CPU", "is_async", False),
        ({"enable": GONE}, "enable is missing: MindSpore documents true for CPU", "is_async", False),
        ({"e2e_dump_settings": GONE}, "$.e2e_dump_settings.enable is missing", "is_async", False),
        ({"stat_calc_mode": "device"}, "only Ascend computes statistics on the device", "statistics", None),
        ({"sample_mode": 1}, "only Ascend O0 and O1 sample tensors; 0 is used", "sample_count", None),
        ({"precision_mode": "force_fp16"}, "has an effect only on Ascend", "precision_mode", None),
        *(
            (
                {"msdump": {key: "/none"}},
                "has an effect only on Ascend",
                "operator_dtypes",
                NO_OPERATOR_DTYPES,
            )
            for key in KEYS
        ),
    ),
    *_modes(
        (*HOST, *KERNEL_BY_KERNEL),
        ({"file_format": "bin"}, "has an effect only under Ascend O2", "file_format", FileFormat.NPY),
    ),
    *_modes(
        (*HOST, *KERNEL_BY_KERNEL),
        ({"msdump": {"fusion_switch": "off"}}, "has an effect only under Ascend O2", "is_enabled", True),
    ),
    *_modes(
        KERNEL_BY_KERNEL,
        ({"e2e_dump_settings": GONE}, "$.e2e_dump_settings is missing: the dump is async", "is_async", True),
        (
            {"op_debug_mode": 3, "iteration": "1-2", "saved_data": "full"},
            "MindSpore documents statistics only for op_debug_mode 0",
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
            "has an effect only with file_format 'npy'; 0 is used",
            "overflow_limit",
            0,
        ),
        (
            {"op_debug_mode": 3, "iteration": "1-2"},
            "iteration = '1-2': op_debug_mode 3 covers every iteration under Ascend O2; 'all' is used",
            "iterations",
            IterationSet(),
        ),
        (
            {"op_debug_mode": 3, "saved_data": "full", "file_format": "npy"},
            "MindSpore documents statistics only for op_debug_mode 0",
            "statistics",
            StatisticSpec(),
        ),
        (
            {"dump_mode": 1, "kernels": ["Conv2D"]},
            "MindSpore documents full names and name-regex(...) for Ascend O2, not types",
            "selector.mode",
            DumpMode.KERNELS,
        ),
    ),
    *_modes(
        ASCEND,
        (
            {"op_debug_mode": 1},
            "= 1: an old value for overflow detection; 3 is used",
            "trigger",
            Trigger.OVERFLOW,
        ),
        (
            {"op_debug_mode": 2},
            "= 2: an old value for overflow detection; 3 is used",
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
            "iteration = '1-2': op_debug_mode 4 covers every iteration; 'all' is used",
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
            "support_device = [1, 2]: device 0 is not in the list: nothing is dumped",
            "is_enabled",
            False,
        ),
    ),
    *_modes(ALL_MODES, ({"support_device": [0, 0]}, "a device is listed twice", "is_enabled", True)),
    *_modes(
        ALL_MODES[:-1],
        (
            {"dump_mode": 1, "kernels": ["Add", "Add", "add"]},
            "kernels[1] = 'Add': is listed more than once",
            "selector.mode",
            DumpMode.KERNELS,
        ),
    ),
]


# modes, changes, fragments of the warnings in order, plan field, value
FORCED_TOGETHER = [
    *_modes(
        KERNEL_BY_KERNEL,
        (
            {"op_debug_mode": 3, "saved_data": "statistic", "stat_calc_mode": "device"},
            ("only for op_debug_mode 0", "op_debug_mode 3 computes statistics on the host; 'host' is used"),
            "statistics",
            StatisticSpec(),
        ),
        (
            {"op_debug_mode": 3, "saved_data": "statistic", "stat_calc_mode": "device", "enable": False},
            ("only for op_debug_mode 0", "op_debug_mode 3 computes statistics on the host; 'host' is used"),
            "statistics.on_device",
            False,
        ),
        (
            {"op_debug_mode": 1, "overflow_number": 2},
            ("an old value for overflow detection; 3 is used",),
            "overflow_limit",
            2,
        ),
        (
            {"op_debug_mode": 4, "dump_mode": 1, "iteration": "2", "saved_data": "statistic"}
            | {"stat_calc_mode": "device", "sample_mode": 1, "save_kernel_args": True, "enable": False},
            (
                "op_debug_mode 4 chooses the operators; 0 is used",
                "op_debug_mode 4 covers every iteration; 'all' is used",
                "op_debug_mode 4 dumps the inputs of the failing operator; 1 is used",
                "op_debug_mode 4 has no statistics; 'tensor' is used",
                "the device computes statistics only with saved_data 'statistic'; 'host' is used",
                "op_debug_mode 4 dumps whole tensors; 0 is used",
                "an asynchronous dump saves no kernel arguments; false is used",
            ),
            "keeps_tensors",
            True,
        ),
    ),
    *_modes(
        ("GPU",),
        (
            {"saved_data": "statistic", "stat_calc_mode": "device", "statistic_category": ["md5", "count"]},
            ("only Ascend computes statistics on the device; 'host' is used",),
            "statistics",
            StatisticSpec(("md5", "count")),
        ),
    ),
]


@pytest.mark.parametrize(("mode", "changes", "fragments", "outcome"), FORCED + FORCED_TOGETHER)
def test_rules_force_values_with_a_warning_each(mode, changes, fragments, outcome, compile_plan):
    """Rules replace a value (or keep it) with one warning each; later ones see forced values."""
    field, expected = outcome
    fragments = (fragments,) if isinstance(fragments, str) else fragments

    plan, warnings = compile_plan(mode, changes)

    assert expected == plans.value(plan, field)
    assert len(fragments) == len(warnings)
    assert all(fragment in warning for fragment, warning in zip(fragments, warnings, strict=True))
    assert "\n" not in "".join(warnings)


MODE_OF = {"CPU": Mode.CPU, "GPU": Mode.GPU, "O0": Mode.O0_O1, "O1": Mode.O0_O1, "O2": Mode.O2}
ELSEWHERE = {
    "Ascend O2 requires",  # with the keys that are missing
    "not possible with ENABLE_MS_GE_DUMP=1",  # with the variable
}


def _told(mode, changes, compile_plan):
    try:
        return compile_plan(mode, changes)[1]
    except ConfigValueError as error:
        return [str(error)]


def test_every_rule_has_a_row(compile_plan):
    """Each rule is met by a row of the tables above in each of its modes."""
    rows = [param.values for param in (*REFUSED, *FORCED, *FORCED_TOGETHER)]
    told = {
        mode: "\n".join(t for m, c, *_ in rows if m == mode for t in _told(m, c, compile_plan))
        for mode in ALL_MODES
    }

    missing = [
        f"{mode} {rule.key}: {rule.why}"
        for mode in ALL_MODES
        for rule in RULES
        if MODE_OF[mode] in rule.modes and not any(part in rule.why for part in ELSEWHERE)
        if not re.search(rf"{rule.key}\b.*: {_pattern(rule.why)}", told[mode])
    ]

    assert missing == []


def _pattern(why):
    """Return an expression for a rule's reason, whatever values stand in it."""
    return ".+".join(map(re.escape, re.split(r"\{\w+\}", why.replace("{{", "{").replace("}}", "}"))))
