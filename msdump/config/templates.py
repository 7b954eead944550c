"""Configuration files with comments, for a first dump in each mode.

JSON has no comments, and MindSpore and CANN refuse a file with ``//``. Both ignore unknown keys: a comment
is the key ``_key`` in front of the key. The same file works with msdump, MindSpore and CANN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msdump.config.acl import plan as acl
from msdump.config.mindspore import parse
from msdump.config.models import BLOCKS
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel

_CPU: Final = Context()
_ASCEND: Final = Context(DeviceTarget.ASCEND, JitLevel.O0)
_ASCEND_O2: Final = Context(DeviceTarget.ASCEND, JitLevel.O2)

_HEADER: Final = "Keys that begin with _ are comments. MindSpore, CANN and msdump ignore them."

_NUMBERS: Final = re.compile(r"\[\n +([0-9,\s]+)\n +\]")

_ACL_COMMENTS: Final = {
    "dump_path": "An existing directory. CANN does not create it.",
    "dump_mode": "Which tensors of an operator are dumped: input, output or all.",
    "dump_list": "Models: {} is every model; model_name selects one, layer lists operators.",
    "dump_op_switch": "on: operators that are called alone are dumped, too.",
    "dump_data": "tensor: the elements are saved. stats: statistics are saved.",
    "dump_step": 'Iterations to dump, from 0: numbers and ranges joined by "|"; empty: all.',
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The choices of a user."""

    path: str  # absolute directory of the dump
    net_name: str = "Net"  # name of the network's directory
    iteration: str = "0"  # iterations to dump, such as ``0|5-8`` or ``all``
    kernels: tuple[str, ...] = ()  # operators to dump; none: all


@dataclass(frozen=True, slots=True)
class ConfigMode:
    """A mode of the dump and its configuration."""

    title: str  # the mode in words
    context: Context  # the device and level on which the mode dumps
    common: Mapping[str, Any]  # values of common_dump_settings that only this mode has
    e2e: Mapping[str, Any] | None = None  # value of e2e_dump_settings; None: the object is absent
    is_acl: bool = False  # whether the file is an acl.json of CANN
    selects: bool = True  # whether the mode takes a list of operators

    def check(self, data: bytes, source: str) -> DumpPlan | None:
        """Return the plan of a file of this mode, or raise the errors of the reader."""
        read: Callable[[bytes, str, Context], DumpPlan | None] = acl.parse if self.is_acl else parse
        return read(data, source, self.context)


_SYNC: Final = {"enable": True, "trans_flag": True}
_STATISTICS: Final = {"saved_data": "statistic", "statistic_category": ["max", "min", "avg", "l2norm"]}

MODES: Final = {
    "sync": ConfigMode("tensors on Ascend O0/O1, operator by operator", _ASCEND, {}, _SYNC),
    "async": ConfigMode(
        "tensors on Ascend O0/O1, without waiting", _ASCEND, {}, {"enable": False, "trans_flag": True}
    ),
    "statistics": ConfigMode("statistics on Ascend O0/O1, no tensors", _ASCEND, _STATISTICS, _SYNC),
    "overflow": ConfigMode(
        "operators that overflow, on Ascend O0/O1",
        _ASCEND,
        {"op_debug_mode": 3, "overflow_number": 0},
        _SYNC,
        selects=False,
    ),
    "o2": ConfigMode("tensors of whole graphs on Ascend O2", _ASCEND_O2, {"file_format": "npy"}),
    "cpu": ConfigMode("tensors on CPU", _CPU, {}, _SYNC),
    "acl": ConfigMode("acl.json of CANN's acl", _ASCEND_O2, {}, is_acl=True),
    "torchair": ConfigMode("acl.json of torchair", _ASCEND_O2, {}, is_acl=True),
}
"""The modes by name."""


def render(mode: ConfigMode, answers: Answers) -> str:
    """Return the text of a configuration file with comments."""
    blocks = _acl(answers) if mode.is_acl else _mindspore(mode, answers)
    text = json.dumps({"_": _HEADER, **blocks}, indent=2)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def _mindspore(mode: ConfigMode, answers: Answers) -> dict[str, dict[str, Any]]:
    common: dict[str, Any] = {
        "dump_mode": int(bool(answers.kernels)),
        "path": answers.path,
        "net_name": answers.net_name,
        "iteration": answers.iteration,
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": list(answers.kernels),
        "support_device": [*range(8)],
        "op_debug_mode": 0,
    }
    blocks = {"common_dump_settings": {**common, **mode.common}}
    if mode.e2e is not None:
        blocks["e2e_dump_settings"] = {**mode.e2e}
    return {name: _commented(block, _descriptions(name)) for name, block in blocks.items()}


def _descriptions(block: str) -> dict[str, str]:
    fields = BLOCKS[block].model_fields
    return {key: field.description or "" for key, field in fields.items()}


def _acl(answers: Answers) -> dict[str, dict[str, Any]]:
    item = {"layer": list(answers.kernels)} if answers.kernels else {}
    dump = {
        "dump_path": answers.path,
        "dump_mode": "all",
        "dump_list": [item],
        "dump_op_switch": "off",
        "dump_data": "tensor",
        "dump_step": "" if answers.iteration == "all" else answers.iteration,
    }
    return {"dump": _commented(dump, _ACL_COMMENTS)}


def _commented(block: Mapping[str, Any], comments: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with each comment in front of its key."""
    commented = {}
    for key, value in block.items():
        commented[f"_{key}"] = comments[key]
        commented[key] = value
    return commented
