"""MindSpore's door with a state of its own for each test, and scripts in processes of their own."""

import os
import shutil
import subprocess

import pytest

from msdump import env
from sample_nets.build import build
from tests.world import ROOT, opened


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
