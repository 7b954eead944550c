"""Dumps of the soak: small networks under every kind of configuration."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cache

import numpy as np

import msdump
from msdump import env
from msdump.capture import Process
from msdump.frontends import mindspore
from msdump.threads import cores
from tests.texts import parsed
from tests.world import GRAPHS, O2, compiled_config, config

ASCEND_O0 = {"device_target": "Ascend", "jit_level": "O0"}


@dataclass(frozen=True)
class Setup:
    """A configuration and where it holds.

    Attributes:
        name: For messages.
        context: Of ``msdump.set_context``.
        changes: Keys of the configuration.
        compiled: Whether the whole graph is compiled (O2), which has keys of its own.
        threads: Threads of each operator; the threads of all cores leave the files of a queue to sessions.
    """

    name: str
    context: dict
    changes: dict = field(default_factory=dict)
    compiled: bool = False
    threads: int = 1

    def configure(self, folder, **changes):
        """Write the configuration into a folder, point the environment to it, begin with a fresh process."""
        given = self.changes | changes
        if self.compiled:
            own = {key: given.pop(key) for key in ("on_write_error",) if key in given}
            blocks = compiled_config(folder / "dump", **given)
            blocks["msdump"] |= own
        else:
            blocks = config(folder / "dump", **given)
        (folder / "data_dump.json").write_text(json.dumps(blocks))
        for variable in env.VARIABLES:
            os.environ.pop(variable.name, None)
        os.environ[env.DUMP_CONFIG] = str(folder / "data_dump.json")
        os.environ[env.THREADS] = str(self.threads)
        mindspore._state = mindspore.ProcessState(process=Process())
        msdump.set_context(**self.context)


SETUPS = (
    Setup("CPU, tensors", {"device_target": "CPU"}),
    Setup("GPU, tensors and statistics", {"device_target": "GPU"}, {"saved_data": "full"}),
    Setup("CPU, kernel arguments", {"device_target": "CPU"}, {"save_kernel_args": True}),
    Setup("Ascend, sync", ASCEND_O0, {"saved_data": "full"}),
    Setup("Ascend, async", ASCEND_O0, {"enable": False, "saved_data": "full"}),
    Setup("Ascend, all cores", ASCEND_O0, threads=cores()),
    Setup("Ascend, async, all cores", ASCEND_O0, {"enable": False}, threads=cores()),
    Setup("Ascend, small queue", ASCEND_O0, {"enable": False, "queue_bytes": 1 << 16, "writer_threads": 2}),
    Setup("O2, files of operators", O2, compiled=True),
    Setup("O2, npy", O2, {"file_format": "npy"}, compiled=True),
)


@cache
def network():
    """Return the bytes of a model, and its inputs."""
    feeds = {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)}
    return (GRAPHS / "mini.onnx").read_bytes(), feeds


@cache
def wide():
    """Return the bytes of a model with tensors that go through the queue of an asynchronous dump."""
    body = " ".join(f"[relu{n}] v{n + 1} = Relu(v{n})" for n in range(6))
    model = parsed(f"graph (float[40,1000] v0) => (float[40,1000] v6) {{ {body} }}")
    return model.SerializeToString(), {"v0": np.ones((40, 1000), np.float32)}
