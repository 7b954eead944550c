"""The process's sessions: shared while they are used, and no burden for the program's own."""

import os

import numpy as np
import onnx.parser
import pytest

from msdump import env
from msdump.execute import runtime
from msdump.graph import loader
from msdump.graph.kernel import onenode
from msdump.plan import Context, DeviceTarget
from msdump.session import Network
from tests.world import completed

BESIDE = """
import numpy as np, onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native
from onnx import parser
head = '<ir_version: 8, opset_import: ["": 13]>'
model = parser.parse_model(head + "g (float[2] x) => (float[2] y) {{ y = Neg(x) }}")
x = np.ones(2, np.float32)
options = ort.SessionOptions()
{before}
import msdump
network = msdump.load(model)
session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
results = [network(x), session.run(None, {{"x": x}})[0], network(x)]
del network
results.append(session.run(None, {{"x": x}})[0])
print([result.tolist() for result in results])
"""
SETTINGS = {
    "none": "",
    "own session first": 'ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})',
    "shared thread pool": "ort.set_global_thread_pool_sizes(2, 1); options.use_per_session_threads = False",
    "shared allocator": """
info = native.OrtMemoryInfo("Cpu", native.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, native.OrtMemType.DEFAULT)
native.create_and_register_allocator(info, None)
options.add_session_config_entry("session.use_env_allocators", "1")
""",
}


@pytest.mark.parametrize("before", SETTINGS.values(), ids=SETTINGS)
def test_the_program_keeps_its_own_sessions(before, forks):
    """A program's own sessions and msdump's run side by side, whatever the program has set up for all."""
    variables = {name: text for name, text in os.environ.items() if name != env.DUMP_CONFIG}

    done = completed(forks / "python", "-c", BESIDE.format(before=before), env=variables)

    assert ("", f"{[[-1.0, -1.0]] * 4}\n") == (done.stderr, done.stdout)


def test_sessions_are_shared_while_they_are_used():
    """Equal models share a session, which ends with its last user."""
    model = onenode.identity_model(ir_version=7)
    shared = runtime.cpu_runtime()

    run = shared.session(model).run_with_ort_values

    assert shared.session(model).run_with_ort_values.__self__ is run.__self__
    key = (model, runtime.ONE_OPERATOR)
    assert shared._sessions.get(key)
    del run
    assert shared._sessions.get(key) is None


MESSAGES = {
    "status": ("[ONNXRuntimeError] : 1 : FAIL : wrong model", "wrong model"),
    "location": (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : /src/core/a.cc:12 void run(int) it was false",
        "it was false",
    ),
    "lines": ("one\ntwo", "one"),
    "plain": ("plain", "plain"),
    "empty": ("", "RuntimeError"),
}


@pytest.mark.parametrize(("text", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_short(text, expected):
    """A runtime's message loses its status, its source location and its further lines."""
    assert expected == runtime.short(RuntimeError(text))


@pytest.fixture
def fresh():
    """Forget whether there is a GPU, before and after."""
    runtime._cuda_runtime.cache_clear()
    runtime._cuda_or_cpu_runtime.cache_clear()
    yield
    runtime._cuda_runtime.cache_clear()
    runtime._cuda_or_cpu_runtime.cache_clear()


def test_a_gpu_that_does_not_answer(fresh, monkeypatch, caplog):
    """A provider without a device behind it is given up with one warning."""
    monkeypatch.setattr(runtime, "_CUDA", "NoSuchExecutionProvider")
    monkeypatch.setattr(runtime.native, "get_available_providers", lambda: ["NoSuchExecutionProvider"])

    assert runtime.gpu_runtime() is runtime.cpu_runtime()

    (record,) = caplog.records
    assert record.getMessage().startswith("no GPU answers (")


def test_a_gpu_network_leaves_others_on_the_cpu(fresh, monkeypatch):
    """After a network on the GPU one on the CPU runs there, in either order of compilation."""
    spare = next(name for name in runtime.native.get_available_providers() if name != "CPUExecutionProvider")
    monkeypatch.setattr(runtime, "_CUDA", spare)  # stands for a device that is there
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (y) { y = Abs(x) }'
    graph = loader.load(onnx.parser.parse_model(text))
    asked = []
    initialize = runtime.native.InferenceSession.initialize_session

    class Asked(runtime.native.InferenceSession):
        def initialize_session(self, providers, options, disabled):
            asked.append(tuple(providers))
            initialize(self, providers, options, disabled)

    monkeypatch.setattr(runtime.native, "InferenceSession", Asked)
    networks = [Network(graph, context=Context(DeviceTarget(name))) for name in ("GPU", "CPU")]
    asked.clear()

    for network in networks:
        network(np.ones(1, np.float32))

    assert [(spare, "CPUExecutionProvider"), ("CPUExecutionProvider",)] == asked


def test_limits_are_those_of_the_runtime():
    """A session takes the newest versions, and refuses the next ones."""
    found = runtime.cpu_runtime()
    limits = found.limits

    found.session(onenode.identity_model(ir_version=limits.ir_version, opset=limits.opset))

    with pytest.raises(Exception, match="IR version"):
        found.session(onenode.identity_model(ir_version=limits.ir_version + 1))
    with pytest.raises(Exception, match="opset"):
        found.session(onenode.identity_model(ir_version=limits.ir_version, opset=limits.opset + 1))
