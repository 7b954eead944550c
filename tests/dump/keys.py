"""The keys of the documents' "Dump in Ascend O0/O1 Mode", each with the values that it takes."""

from __future__ import annotations

STATISTICS = (
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "md5", "l2norm"),
    *("hash", "hash:md5", "hash:sha1"),  # since MindSpore 2.7
)

KEYS = {
    "op_debug_mode": ("0", "3", "4"),
    "dump_mode": ("0", "1", "2"),
    "path": ("given", "from the environment"),
    "net_name": ("given",),
    "iteration": ("all", "one", "range", "several", "with spaces"),
    "saved_data": ("tensor", "statistic", "full"),
    "input_output": ("0", "1", "2"),
    "kernels": ("names", "type", "expression", "none"),
    "support_device": ("with", "without"),
    "statistic_category": ("default", *STATISTICS),
    "overflow_number": ("0", "2"),
    "initial_iteration": ("5",),
    "enable": ("missing",),  # true and false are the two ways of every test
    "trans_flag": ("true", "false"),
    "stat_calc_mode": ("host", "device"),
    "device_stat_precision_mode": ("high", "low"),
    "sample_mode": ("0", "1"),
    "sample_num": ("default", "4"),
    "save_kernel_args": ("true", "false"),
}

ALL = {f"{key} {value}" for key, values in KEYS.items() for value in values}
"""Names of the rows of tests, such as ``iteration all``."""
