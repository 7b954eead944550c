"""The world of a test: the program, models and configurations, and MindSpore's door with a dump."""

import json
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import msdump
from msdump import env
from msdump.capture import Process
from msdump.cli import main
from msdump.config.models import E2eDumpSettings, MsdumpSettings
from msdump.frontends import mindspore

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = ROOT / "graphs"
CPU, GPU = {"device_target": "CPU"}, {"device_target": "GPU"}
O0, O1, O2 = ({"device_target": "Ascend", "jit_level": level} for level in ("O0", "O1", "O2"))


def cli(*arguments, **options):
    """Run the program in this process; return its exit code and texts, as click gives them."""
    return CliRunner().invoke(main, [*map(str, arguments)], **options)


def completed(*command, check=False, **options):
    """Run a program to its end in a process of its own; return its exit code and texts."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=check, **options)


def files(folder):
    """Return the paths of the files below a folder, relative to it, in the order of their names."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def common_settings(root, **changes):
    """Return ``common_dump_settings`` that dump everything below a root; a key of None is taken away."""
    everything = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(root),
        "net_name": "Net",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
    }
    return {key: value for key, value in (everything | changes).items() if value is not None}


def config(root, **changes):
    """Return a configuration that dumps everything, with keys of any block; a key of None is taken away."""
    blocks = {"common_dump_settings": {}, "e2e_dump_settings": {"enable": True}, "msdump": {}}
    homes = {"msdump": MsdumpSettings, "e2e_dump_settings": E2eDumpSettings}
    for key, value in changes.items():
        home = next((each for each in homes if key in homes[each].model_fields), "common_dump_settings")
        blocks[home][key] = value
        if value is None and home in homes:
            del blocks[home][key]
    return blocks | {"common_dump_settings": common_settings(root, **blocks["common_dump_settings"])}


def compiled_config(root, *, fuses=False, **changes):
    """Return a configuration that dumps everything of a graph that Ascend O2 compiles."""
    return {
        "common_dump_settings": common_settings(root, **changes),
        "msdump": {"fusion_switch": "on" if fuses else "off"},
    }


def write_config(path, root, /, *, own=None, is_synchronous=True, **changes):
    """Write a configuration that dumps everything below a root, with keys replaced; return its path.

    ``own`` holds msdump's own keys.
    """
    blocks = {
        "common_dump_settings": common_settings(root, **changes),
        "e2e_dump_settings": {"enable": is_synchronous},
    }
    path.write_text(json.dumps(blocks | ({"msdump": own} if own else {})), encoding="utf-8")
    return path


@dataclass
class Door:
    """One process's worth of MindSpore's door."""

    folder: Path  # a directory of the test; the dump stands in its ``dump``
    monkeypatch: pytest.MonkeyPatch  # sets the environment
    process: Process = field(default_factory=Process)  # state that the networks share

    @property
    def path(self):
        """Root of the dump."""
        return self.folder / "dump"

    @property
    def rank(self):
        """Directory of the rank."""
        return self.path / "rank_0"

    def configure(self, blocks=None, **changes):
        """Write a configuration and point the environment to it."""
        file = self.folder / "data_dump.json"
        file.write_text(json.dumps(blocks or config(self.path, **changes), indent=1))
        self.monkeypatch.setenv(env.DUMP_CONFIG, str(file))
        return file

    def load(self, model, **context):
        """Set the context and load a network."""
        msdump.set_context(**context)
        return msdump.load(model)

    def dump(self, model, feeds, *, steps=1, context=None, **changes):
        """Configure, load and run a network; return it."""
        self.configure(**changes)
        network = self.load(model, **(context or {}))
        for _ in range(steps):
            network.run(feeds)
        return network

    def aside(self, name, model, feeds, **changes):
        """Dump a run into a directory of its own, the model beside it, and start anew; return it."""
        if isinstance(model, onnx.ModelProto):
            onnx.save(model, self.folder / f"{name}.onnx")
            model = self.folder / f"{name}.onnx"
        self.dump(model, feeds, path=str(self.folder / name), **changes)
        self.again()
        return self.folder / name

    def programs(self, model, *feeds, **changes):
        """Dump a run of each of some inputs into one place, each as a program of its own."""
        for fed in feeds:
            self.dump(model, fed, **changes)
            self.again()

    def twice(self, model, feeds, **changes):
        """Dump a run and copy the dump; return the copy, which a test may spoil, and the dump."""
        golden = self.aside("golden", model, feeds, naming="2.7", **changes)
        return shutil.copytree(golden, self.folder / "mine"), golden

    def again(self):
        """Start anew as a second process would."""
        self.process.close()
        self.process = Process()
        self.monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(process=self.process))


@contextmanager
def opened(folder):
    """Give the door to a dump below a directory; no variable of the machine reaches it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for variable in env.VARIABLES:
            if variable.name != env.THREADS:
                monkeypatch.delenv(variable.name, raising=False)
        monkeypatch.setenv(env.GE_GRAPH_PATH, str(folder / "ge"))  # else the working directory
        door = Door(folder, monkeypatch)
        door.again()
        yield door
        door.process.close()
