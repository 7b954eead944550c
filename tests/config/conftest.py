"""One valid configuration per mode, changed key by key and compiled."""

import json

import pytest

from msdump import env
from msdump.config.mindspore import parse
from msdump.plan import Context, DeviceTarget, JitLevel

GONE = "<gone>"  # in the tables of the tests: the file does not hold this key
E2E_KEYS = (
    "enable",
    "trans_flag",
    "stat_calc_mode",
    "device_stat_precision_mode",
    "sample_mode",
    "sample_num",
    "save_kernel_args",
)
OWN_KEYS = (
    "naming",
    "queue_bytes",
    "writer_threads",
    "max_bytes",
    "on_write_error",
    "existing",
    "precision_mode",
)
BLOCKS = ("common_dump_settings", "e2e_dump_settings", "msdump")
CONTEXTS = {
    "CPU": Context(),
    "GPU": Context(DeviceTarget.GPU),
    "O0": Context(DeviceTarget.ASCEND, JitLevel.O0),
    "O1": Context(DeviceTarget.ASCEND, JitLevel.O1),
    "O2": Context(DeviceTarget.ASCEND, JitLevel.O2),
    "Ascend": Context(DeviceTarget.ASCEND),
}


def base_config(mode):
    """Return a configuration that compiles without a warning in a mode."""
    common = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": "/dump",
        "net_name": "Net",
        "iteration": "all",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
    }
    if mode == "O2":
        return {"common_dump_settings": common}
    return {"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}


def changed(config, changes):
    """Return a configuration with keys (or whole blocks) replaced, added or gone."""
    for key, value in changes.items():
        target = config if key in BLOCKS else config.setdefault(_home(key), {})
        if value == GONE:
            target.pop(key, None)
        else:
            target[key] = value
    return config


def _home(key):
    if key in E2E_KEYS:
        return "e2e_dump_settings"
    return "msdump" if key in OWN_KEYS else "common_dump_settings"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """No variable of the machine reaches a test; relative paths start in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


@pytest.fixture
def compile_plan(caplog):
    """Return a function of (mode, changes) that gives the plan and the warnings."""

    def run(mode, changes, context=None):
        caplog.clear()
        data = json.dumps(changed(base_config(mode), changes)).encode()
        plan = parse(data, "dump.json", context or CONTEXTS[mode])
        return plan, [record.getMessage() for record in caplog.records]

    return run
