"""Every clause of the key tables: allowed values of each key, and refused ones."""

import json

import pytest

from msdump.errors import ConfigValueError
from msdump.plan import FileFormat, Naming, OnWriteError, PrecisionMode, StatisticSpec, Trigger
from msdump.selector import DumpMode, IterationSet
from tests import plans

GONE = "<gone>"  # the file does not hold this key


ALL_NAMES = ["l2norm", "max", "nan count", "zero count"]
DEVICE = {"saved_data": "statistic", "stat_calc_mode": "device"}
GOOD_VALUES = [
    # mode, changes, fields of the plan
    *[
        (mode, {"dump_mode": number}, {"selector.mode": meaning})
        for number, meaning in enumerate((DumpMode.ALL, DumpMode.KERNELS, DumpMode.MARKED))
        for mode in ("CPU", "GPU", "O0", "O2")
        if mode != "O2" or number != 1
    ],
    ("CPU", {"path": "/a//b/"}, {"path": "/a/b"}),
    *[("CPU", {"path": path}, {"path": path}) for path in ("/", "/A-z_0/9", "/" + 255 * "n", 1700 * "/n")],
    ("CPU", {"net_name": "a-B_9"}, {"net_name": "a-B_9"}),
    ("CPU", {"net_name": "n" * 255}, {"net_name": "n" * 255}),
    ("O2", {"iteration": "0|5-8"}, {"iterations": IterationSet(((0, 0), (5, 8)))}),
    ("CPU", {"initial_iteration": 4294967295}, {"initial_iteration": 4294967295}),
    ("O0", {}, {"statistics": None, "keeps_tensors": True}),
    ("O0", {"saved_data": "statistic"}, {"keeps_tensors": False, "statistics": StatisticSpec()}),
    ("O0", {"saved_data": "full"}, {"keeps_tensors": True, "statistics": StatisticSpec()}),
    ("GPU", {"saved_data": "statistic"}, {"statistics": StatisticSpec()}),
    ("O2", {"saved_data": "full", "file_format": "npy"}, {"statistics": StatisticSpec()}),
    ("CPU", {"input_output": 0}, {"keeps_inputs": True, "keeps_outputs": True}),
    ("CPU", {"input_output": 1}, {"keeps_inputs": True, "keeps_outputs": False}),
    ("CPU", {"input_output": 2}, {"keeps_inputs": False, "keeps_outputs": True}),
    *[(mode, {"op_debug_mode": GONE}, {"trigger": Trigger.ALWAYS}) for mode in ("CPU", "O0")],
    ("O0", {"op_debug_mode": 3}, {"trigger": Trigger.OVERFLOW, "overflow_limit": 0}),
    ("O0", {"op_debug_mode": 3, "overflow_number": 2}, {"overflow_limit": 2}),
    ("O2", {"op_debug_mode": 3, "overflow_number": 2, "file_format": "npy"}, {"overflow_limit": 2}),
    *[
        (mode, {"op_debug_mode": 4, "input_output": 1}, {"trigger": Trigger.EXCEPTION})
        for mode in ("O1", "O2")
    ],
    ("CPU", {"statistic_category": ["md5"]}, {"statistics": None}),
    *[
        ("O0", {"saved_data": "full", "statistic_category": names}, {"statistics.categories": columns})
        for names, columns in (
            (ALL_NAMES, tuple(ALL_NAMES)),
            ([], ()),
            (["md5", "hash", "hash:md5", "hash:sha1"], ("md5", "sha1")),
            (["max", "md5", "max"], ("max", "md5", "max")),
        )
    ],
    ("O2", {}, {"file_format": FileFormat.BIN, "keeps_device_format": True, "is_async": True}),
    ("O2", {"file_format": "npy"}, {"file_format": FileFormat.NPY, "keeps_device_format": False}),
    *[("CPU", {"support_device": devices}, {"is_enabled": True}) for devices in ([], [-1])],
    ("GPU", {"support_device": [7, 0]}, {"is_enabled": True}),
    ("O0", {"enable": True}, {"is_async": False, "keeps_device_format": False}),
    ("O0", {"enable": False}, {"is_async": True}),
    ("O0", {"enable": GONE}, {"is_async": True}),
    ("O0", {"trans_flag": True}, {"keeps_device_format": False}),
    ("O0", {"trans_flag": False}, {"keeps_device_format": True}),
    ("CPU", {"trans_flag": False, "save_kernel_args": True}, {"keeps_device_format": False}),
    *[(mode, {"save_kernel_args": True}, {"saves_kernel_args": True}) for mode in ("CPU", "O0")],
    ("O0", DEVICE, {"statistics.on_device": True, "statistics.high_precision": True}),
    ("O0", DEVICE | {"device_stat_precision_mode": "low"}, {"statistics.high_precision": False}),
    ("O0", {"sample_mode": 0, "sample_num": 5}, {"sample_count": None}),
    ("O1", {"sample_mode": 1}, {"sample_count": 100}),
    ("O0", {"sample_mode": 1, "sample_num": 20}, {"sample_count": 20}),
    (
        "CPU",
        {},
        {"naming": Naming.V2_5, "queue_bytes": 268435456, "on_write_error": OnWriteError.RAISE}
        | {"precision_mode": None, "initial_iteration": 0, "sample_count": None},
    ),
    ("CPU", {"naming": "2.7"}, {"naming": Naming.V2_7}),
    ("CPU", {"naming": "classic"}, {"naming": Naming.CLASSIC}),
    (
        "CPU",
        {"queue_bytes": 1 << 40, "writer_threads": 4, "max_bytes": 10, "on_write_error": "warn"},
        {"queue_bytes": 1 << 40, "writer_threads": 4, "max_bytes": 10, "on_write_error": OnWriteError.WARN},
    ),
    *[
        (mode, {"precision_mode": precision}, {"precision_mode": precision})
        for mode in ("O0", "O2")
        for precision in PrecisionMode
    ],
]


@pytest.mark.parametrize(("mode", "changes", "expected"), GOOD_VALUES)
def test_good_value_reaches_the_plan(mode, changes, expected, compile_plan):
    """A documented value of a key is accepted silently and becomes its field of the plan."""
    plan, warnings = compile_plan(mode, changes)

    assert expected == {field: plans.value(plan, field) for field in expected}
    assert warnings == []


REQUIRED = ("dump_mode", "net_name", "iteration", "input_output", "kernels", "support_device")
NOT_UNSIGNED = ("1", -1, True, 1.0, None, [], 4294967296)

BAD_VALUES = [
    # mode, key, value, fragment
    *[("CPU", key, GONE, f"$.common_dump_settings.{key} is missing: must be ") for key in REQUIRED],
    *[("O2", key, GONE, f"$.common_dump_settings.{key} is missing: must be ") for key in REQUIRED],
    ("O2", "op_debug_mode", GONE, "op_debug_mode is missing: Ascend O2 requires"),
    *[("CPU", "dump_mode", value, "must be 0 (all operators), 1") for value in (*NOT_UNSIGNED, 3, False)],
    *[("CPU", "input_output", value, "must be 0 (inputs and outputs)") for value in (*NOT_UNSIGNED, 3)],
    *[("O0", "op_debug_mode", value, "must be 0 (off), 3") for value in (*NOT_UNSIGNED, 5)],
    *[("CPU", "initial_iteration", value, "must be a whole number from 0") for value in NOT_UNSIGNED],
    ("CPU", "path", 1, "= 1: must be a text, an absolute path"),
    ("CPU", "path", None, "= null: must be a text, an absolute path"),
    ("CPU", "path", "relative/a", "= 'relative/a': the path must be absolute"),
    ("CPU", "path", "~/a", "= '~/a': the path must be absolute"),
    ("CPU", "path", "/a\0", "= '/a\\x00': a path cannot hold '\\x00'"),
    ("CPU", "path", "/a/" + 256 * "b", "a part of the path has 256 bytes; a file system takes 255"),
    ("CPU", "path", "/" + 128 * "ä", "a part of the path has 256 bytes; a file system takes 255\n    /äää"),
    ("CPU", "path", 1701 * "/a", "the path has 3402 bytes; at most 3400 leave room"),
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


@pytest.mark.parametrize(("mode", "key", "value", "fragment"), BAD_VALUES)
def test_bad_value_is_refused(mode, key, value, fragment, compile_plan):
    """A wrong or missing value is one error that names the place, the value and the allowed ones."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan(mode, {key: value})

    assert fragment in str(caught.value)
    assert str(caught.value).startswith("dump.json")
    assert {problem.path.partition("[")[0].rpartition(".")[2] for problem in caught.value.problems} <= {key}


STATISTIC = {"saved_data": "statistic", "statistic_category": ["maxx"]}
READ = [
    ("O0", STATISTIC, "[0] = 'maxx': must be max, min, avg"),
    ("O0", STATISTIC, "(did you mean 'max'?)"),
    ("O0", {"saved_data": "full", "statistic_category": "max"}, "= 'max': must be a list of statistics"),
    ("O0", {"saved_data": "full", "statistic_category": [1]}, "statistic_category[0] = 1: must be max"),
    ("O0", {"sample_mode": 1, "sample_num": 0}, "= 0: must be a whole number from 1"),
    ("O0", {"sample_mode": 1, "sample_num": "5"}, "sample_num = '5': must be a whole number from 1"),
    ("O0", {"sample_mode": 1, "sample_num": -5}, "sample_num = -5: must be a whole number from 1"),
    ("O0", {"dump_mode": 1, "kernels": ["Conv2D", 3]}, "kernels[1] = 3: must be a text"),
    ("O0", {"dump_mode": 1, "kernels": [["ReLU"]]}, 'kernels[0] = ["ReLU"]: must be a text'),
    ("O0", {"op_debug_mode": 3, "overflow_number": "2"}, "= '2': must be a whole number from 0"),
    ("O0", {"op_debug_mode": 3, "overflow_number": -1}, "= -1: must be a whole number from 0"),
    # keys without effect under op_debug_mode or the level are checked, too
    ("O0", {"dump_mode": 1, "op_debug_mode": 3, "kernels": ["name-regex(()"]}, "kernels[0] = 'name-"),
    ("O0", {"dump_mode": 1, "op_debug_mode": 4, "kernels": [3]}, "kernels[0] = 3: must be a text"),
    ("O0", {"sample_mode": 1, "op_debug_mode": 3, "sample_num": 0}, "sample_num = 0: must be a whole"),
    ("O2", {"trans_flag": "no"}, "trans_flag = 'no': must be true or false"),
    ("O2", {"stat_calc_mode": "gpu"}, "stat_calc_mode = 'gpu': must be 'host' or 'device'"),
    # MindSpore looks at sample_num before it learns that this device or level samples nothing
    *(
        (mode, {"sample_mode": 1, "sample_num": number, "op_debug_mode": 0}, "$.e2e_dump_settings.sample_num")
        for mode in ("CPU", "GPU", "O0", "O2")
        for number in (0, -1, "1", 1.5, True, None)
    ),
]


@pytest.mark.parametrize(("mode", "changes", "fragment"), READ)
def test_bad_value_that_another_key_brings_into_play_is_refused(mode, changes, fragment, compile_plan):
    """A wrong value that MindSpore reads because of another key is one error, even without an effect."""
    with pytest.raises(ConfigValueError) as caught:
        compile_plan(mode, changes)

    assert fragment in str(caught.value)
    assert len(caught.value.problems) == 1


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

    assert plan.files.path == "/dump"
    assert len(warnings) == 1
    assert fragment in warnings[0]
    assert warnings[0].endswith("; ignored under the present settings")
