"""MindSpore's door with a state of its own for each test, and scripts in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest

import msdump
from msdump import env
from msdump.capture import Process
from msdump.config.models import E2eDumpSettings, MsdumpSettings
from msdump.frontends import mindspore
from sample_nets.build import build
from tests.dump import settings

ROOT = Path(__file__).resolve().parents[2]


def config(root, **changes):
    """Return a configuration that dumps everything, with keys replaced; None takes a key away."""
    blocks = {
        "common_dump_settings": settings.common(root),
        "e2e_dump_settings": {"enable": True},
        "msdump": {},
    }
    for key, value in changes.items():
        homes = {"msdump": MsdumpSettings, "e2e_dump_settings": E2eDumpSettings}
        home = next((each for each in homes if key in homes[each].model_fields), "common_dump_settings")
        blocks[home][key] = value
        if value is None:
            del blocks[home][key]
    return blocks


@dataclass
class Door:
    """One process's worth of MindSpore's door.

    Attributes:
        folder: A directory of the test; the dump stands in its ``dump``.
        monkeypatch: Sets the environment.
        process: State that the networks share.
    """

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    process: Process = field(default_factory=Process)

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


@pytest.fixture
def door(tmp_path):
    """Give the door to a dump below the test's directory."""
    with opened(tmp_path) as door:
        yield door


@pytest.fixture(scope="session")
def sample_net(tmp_path_factory):
    """Return a function that builds a sample network once; the big files go at the end."""
    directory = tmp_path_factory.mktemp("sample_nets")
    yield lambda name: build(name, directory, batch="N")
    shutil.rmtree(directory)


@pytest.fixture
def python(tmp_path, forks):
    """Return a function that starts a Python program in a process of its own, which has imported msdump."""
    started = []

    def start(code, **variables):
        surroundings = {k: v for k, v in os.environ.items() if k not in {v.name for v in env.VARIABLES}}
        process = subprocess.Popen(
            [forks / "python", "-c", code],
            cwd=tmp_path,
            env=surroundings | {"PYTHONPATH": str(ROOT)} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
