"""onnxruntime, set up for hundreds of one-operator sessions.

Sessions share one allocator. They are native sessions: the public InferenceSession wraps every value in a
Python object, so a call with OrtValues takes ten times as long.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import ExecutionError, MsdumpError, NotAvailableError, is_final, is_foreign, shortage
from msdump.execute.native import native
from msdump.graph.kernel import onenode
from msdump.observer import Array
from msdump.statistics import StatisticNeed
from msdump.threads import SignalSafeWeakSet, SignalSafeWeakValues, new_lock, thread_count

OrtValue = Any
"""A native value: tensor, sequence or optional (the runtime ships no type stubs)."""

Run = Callable[[Mapping[str, OrtValue], list[str], None], Any]
"""Takes (values by feed name, output names, options) and returns the outputs in order."""

_log = logging.getLogger("msdump.execute")

_CPU: Final = "CPUExecutionProvider"
_CUDA: Final = "CUDAExecutionProvider"
_ERRORS_ONLY: Final = 3
_WORTH_TRIMMING: Final = 16 << 20
"""Bytes of a session's weights from which freed memory goes back to the system: onnxruntime's copies of
unaligned weights leave holes between the packed ones."""

_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""GNU's C library returns freed memory to the system by it; None in other libraries."""

_GLOBAL_POOL: Final = "use_per_session_threads must be false"
_DEFAULT_LIMITS: Final = onenode.RuntimeLimits(ir_version=10, opset=20)
_NEWEST_IR: Final = re.compile(r"max supported IR version: (\d+)")
_NEWEST_OPSET: Final = re.compile(r"domain ai\.onnx is till opset (\d+)")

_SETTING_UP: Final = new_lock()
"""Held while the process's runtimes are made: each is made once, whichever threads ask first."""

_RUNTIMES: Final = SignalSafeWeakSet["Runtime"]()
_SESSIONS: Final = SignalSafeWeakSet[Any]()
_INHERITED: Final[list[Any]] = []
"""Sessions of the process that this one was forked from: one that ends waits for its threads, or crashes,
since only the parent has them."""


@dataclass(frozen=True, slots=True)
class SessionUse:
    """Settings of a session."""

    level: Any = native.GraphOptimizationLevel.ORT_DISABLE_ALL  # how far the runtime optimises the model
    spins: bool = False  # whether the session's threads spin between the operators of a run
    spins_on: bool = False  # whether the threads spin for a while after a run, too (the runtime's default)
    # whether memory patterns are enabled: a memory plan is cached for each set of input shapes
    plans: bool = False
    looks: bool = False  # whether the session measures or writes values itself (``statistics.insession``)


ONE_OPERATOR: Final = SessionUse()
"""A single operator, as it stands."""


@functools.cache
def _share_allocator() -> None:
    """Register one allocator for all sessions: an arena for each of them takes three times the memory."""
    memory = native.OrtMemoryInfo(
        "Cpu", native.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, native.OrtMemType.DEFAULT
    )
    # twice, because of swap; without a limit a refused request makes the next region as large as itself
    most = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    native.create_and_register_allocator(memory, native.OrtArenaCfg({"max_mem": most}))


class Runtime:
    """Creates onnxruntime sessions on CPU or CUDA; caches them by the bytes of their models."""

    def __init__(self, threads: int, providers: tuple[str, ...] = (_CPU,)) -> None:
        """Set up the shared allocator.

        A thread pool shared by all sessions would forbid the user's own sessions in
        the same process, so each session has its own; equal operators share one.
        """
        self.providers = providers  # onnxruntime's providers in order of preference
        self._threads = threads
        self._has_own_threads = True
        _share_allocator()
        # weak references: a network's sessions, and their threads, end with the network
        self._sessions = SignalSafeWeakValues[tuple[bytes, SessionUse], Any]()
        _RUNTIMES.add(self)

    def forget(self) -> None:
        """Stop sharing all present sessions: in a forked child they have no threads."""
        self._sessions.clear()

    def session(
        self,
        model: bytes,
        shared: Sequence[np.ndarray] = (),
        *,
        has_memory: bool = False,
        use: SessionUse = ONE_OPERATOR,
    ) -> Any:
        """Return a session of a model; equal models share a session as long as it is referenced.

        Sessions with shared initializers, or with state that depends on earlier runs, are always new.

        Args:
            model: A serialised model.
            shared: External initializers in the order of their numbers (``onenode.placeholder``), in C order;
                the caller keeps them alive and unchanged as long as the session.
            has_memory: Whether the model's results depend on the number of earlier runs (random numbers).
            use: Settings of the session.
        """
        if shared or has_memory:
            return self._create(model, shared, use)
        session = self._sessions.get((model, use))
        if session is None:
            session = self._create(model, (), use)
            self._sessions.put((model, use), session)
        return session

    def _create(self, model: bytes, shared: Sequence[np.ndarray] = (), use: SessionUse = ONE_OPERATOR) -> Any:
        try:
            return self._opened(model, shared, use)
        except RuntimeError as error:
            if not self._has_own_threads or _GLOBAL_POOL not in str(error):
                raise
            self._has_own_threads = False  # the program has set up onnxruntime's global thread pool
            return self._opened(model, shared, use)

    def _opened(self, model: bytes, shared: Sequence[np.ndarray], use: SessionUse) -> Any:
        session = native.InferenceSession(self._options(shared, use), model, False, True)
        session.initialize_session(list(self.providers), [{} for _ in self.providers], set())
        _SESSIONS.add(session)
        if sum(each.nbytes for each in shared) >= _WORTH_TRIMMING and _trim is not None:
            _trim(0)
        return session

    def _options(self, shared: Sequence[np.ndarray], use: SessionUse) -> Any:
        options = native.SessionOptions()
        options.use_per_session_threads = self._has_own_threads
        if self._has_own_threads:
            options.intra_op_num_threads = self._threads
        # for one operator, optimisation only makes creation three times as long; it may also insert layout
        # transforms, which change last bits
        options.graph_optimization_level = use.level
        options.enable_mem_pattern = use.plans
        options.log_severity_level = _ERRORS_ONLY + 1  # failures come back as exceptions
        # outputs reuse pages of earlier operators, instead of page faults for every output
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Waking threads takes tens of microseconds for each operator: in sessions of many operators they spin
        # during a run. Spinning after a run would take cores from the next session and the writers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if use.spins else "0")
        if use.spins and not use.spins_on:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        if use.looks:
            from msdump.statistics import compiled

            options.register_custom_ops_library(str(compiled.LIBRARY))
        if shared:
            # an aligned array is read where it lies; a runtime that does not know the entry copies it
            options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")
            data = [each.reshape(-1).view(np.uint8) for each in shared]
            names, sizes = [*map(str, range(len(data)))], [*map(len, data)]
            options.add_external_initializers_from_files_in_memory(names, data, sizes)
        return options

    @functools.cached_property
    def limits(self) -> onenode.RuntimeLimits:
        """The newest IR version and opset that the installed onnxruntime reads.

        onnxruntime has no API for these numbers; its errors on models of much newer versions state them.
        """
        return onenode.RuntimeLimits(
            ir_version=self._newest(
                _NEWEST_IR, onenode.identity_model(ir_version=9999), _DEFAULT_LIMITS.ir_version
            ),
            opset=self._newest(_NEWEST_OPSET, onenode.identity_model(opset=9999), _DEFAULT_LIMITS.opset),
        )

    @functools.cached_property
    def can_measure(self) -> bool:
        """Whether sessions can measure values: the compiled library is installed, and its operator runs."""
        from msdump.graph.kernel import linked
        from msdump.statistics import SessionMeasures, compiled, stand_ins

        if compiled.KERNEL is None or self.providers != (_CPU,):
            return False
        need = StatisticNeed(extremes=True)
        try:
            session = self._create(linked.probe_model(need), use=SessionUse(looks=True))
            found = SessionMeasures(1)
            feeds = {"x": np.array([-1, 2], np.float32), linked.ADDRESSES: found.addresses}
            session.run([linked.made_name("y")], feeds, None)
        except Exception as error:
            if is_final(error):
                raise
            _log.info(
                "statistics are computed outside of onnxruntime's sessions, more slowly: %s", short(error)
            )
            return False
        arrays = stand_ins(found.kinds) or []
        return [(each.low, each.high) for each in found.totals(arrays)] == [(-1, 2)]

    def _newest(self, pattern: re.Pattern[str], model: bytes, default: int) -> int:
        try:
            self._create(model)
        except Exception as error:
            if is_final(error):
                raise
            match = pattern.search(str(error))
            return int(match[1]) if match else default
        return default


def _inherit() -> None:
    _INHERITED.extend(_SESSIONS)
    for each in _RUNTIMES:
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)


def cpu_runtime() -> Runtime:
    """Return the process's runtime on the CPU, set up at the first call."""
    with _SETTING_UP:
        return _cpu_runtime()


def gpu_runtime() -> Runtime:
    """Return the process's runtime on CUDA; without CUDA, warn once and return the CPU's runtime."""
    with _SETTING_UP:
        return _cuda_or_cpu_runtime()


def cuda_runtime() -> Runtime:
    """Return the process's runtime on CUDA; NotAvailableError, with the reason, if it cannot be used."""
    with _SETTING_UP:
        available = _cuda_runtime()
    if isinstance(available, str):
        raise NotAvailableError(available)
    return available


@functools.cache
def _cpu_runtime() -> Runtime:
    return Runtime(thread_count())


@functools.cache
def _cuda_or_cpu_runtime() -> Runtime:
    available = _cuda_runtime()
    if isinstance(available, Runtime):
        return available
    _log.warning("%s: operators run on the CPU", available)
    return cpu_runtime()


@functools.cache
def _cuda_runtime() -> Runtime | str:
    """Return the runtime on CUDA, or the reason for its absence as text."""
    if _CUDA not in native.get_available_providers():
        return "the installed onnxruntime has no CUDA provider"
    on_gpu = Runtime(thread_count(), (_CUDA, _CPU))
    try:
        on_gpu.session(onenode.identity_model())
    except Exception as error:
        if is_final(error):
            raise
        return f"no GPU answers ({short(error)})"
    return on_gpu


def short(error: Exception) -> str:
    """Return the runtime's message without its prefix and source location."""
    # a message begins with its code and, often, file, line and function of the source
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error).strip())
    text = re.sub(r"/\S+\.(?:cc|h):\d+ .*?\) (?=\S)", "", text)
    return text.splitlines()[0] if text else type(error).__name__


def failure(full_name: str, inputs: Sequence[Array], error: Exception) -> ExecutionError:
    """Return an operator's failure with reason, types and shapes; raise an error of msdump or the program."""
    if isinstance(error, MsdumpError) or is_foreign(error):
        raise error
    shown = ", ".join(_described(array) for array in inputs)
    lacking = shortage(error)
    reason = f"{lacking}: {short(error)}" if lacking else short(error)
    return ExecutionError(full_name, f"{reason} (inputs: {shown})")


def _described(array: Array) -> str:
    if array is None:
        return "none"
    return f"{dtypes.from_numpy(array.dtype).name}{list(array.shape)}"
