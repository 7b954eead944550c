"""The state of pyACL in a process: handles, memory, streams, models and dumps."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msdump.capture.compiled.single_dump import SingleOperator
from msdump.capture.process import PROCESS
from msdump.communication.world import current as current_rank
from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import out_of_turn
from msdump.counters import Counters
from msdump.errors import AclError
from msdump.frontends.acl.allocations import Memory
from msdump.frontends.acl.dumps import Dumps
from msdump.frontends.acl.handles import Handles
from msdump.frontends.acl.loaded import LoadedModel
from msdump.frontends.acl.objects import Stream
from msdump.session import Network
from msdump.threads import new_lock

DEVICES: Final = 8
"""Devices of the emulated server."""


@dataclass(slots=True)
class AclState:
    """The state of pyACL in one process; each test has one of its own.

    Attributes:
        is_initialised: Between ``init`` and ``finalize``.
        is_finalised: ``finalize`` was the last of the two.
        counters: Numbers of the models that are loaded.
        config: Bytes of the first configuration file that ``init`` was given.
        handles: Every handle.
        memory: Memory of device and host.
        dumps: The dumps that are configured.
        models: Loaded models by number.
        operators: Single operators that were called, by all that distinguishes their calls.
        lock: Held while a model or operator runs.
        default_stream: The stream that is there without being created.
        stream_numbers: Numbers of the streams that are created.
        device_id: The device that was set last; None: none was, and the one of the rank counts.
        contexts: The device of each thread.
    """

    is_initialised: bool = False
    is_finalised: bool = False
    counters: Counters = field(default_factory=PROCESS.counters.beside)
    config: bytes | None = None
    handles: Handles = field(default_factory=Handles)
    memory: Memory = field(default_factory=Memory)
    dumps: Dumps = field(default_factory=Dumps)
    models: dict[int, LoadedModel] = field(default_factory=dict)
    operators: dict[Hashable, tuple[Network, SingleOperator]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=new_lock)
    default_stream: Stream = field(default_factory=lambda: Stream(0))
    stream_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    device_id: int | None = None
    contexts: threading.local = field(default_factory=threading.local)

    def model(self, model_id: object) -> LoadedModel:
        """Return a loaded model.

        Raises:
            AclError: 145001 before ``init``, 145003 for a number that no loaded model has.
        """
        self.require_initialised("model")
        model = self.models.get(model_id) if isinstance(model_id, int) else None
        if model is None:
            loaded = ", ".join(map(str, self.models)) or "none is loaded"
            message = f"model {model_id!r} is not loaded ({loaded})"
            raise AclError(AclCode.GE_EXEC_MODEL_ID_INVALID, message)
        return model

    def require_initialised(self, task: str) -> None:
        """Refuse a task of the model API before ``init`` (145001)."""
        if not self.is_initialised:
            raise AclError(AclCode.GE_EXEC_NOT_INIT, f"{task}: acl.init must be called first")

    def stream(self, handle: object) -> Stream:
        """Return a stream by its handle; 0 is the default stream.

        Raises:
            AclError: No such stream.
        """
        is_default = isinstance(handle, int) and handle == 0
        return self.default_stream if is_default else self.handles.get(handle, Stream)

    @property
    def current_device(self) -> int:
        """Number of the device that the calling thread works on."""
        own = self.device_id
        if own is None:
            own = current_rank().identity.local_rank % DEVICES
        return getattr(self.contexts, "device_id", own)


_current = AclState()


def current() -> AclState:
    """Return the state of the process."""
    return _current


def replace(state: AclState) -> None:
    """Replace the state of the process, so that it starts anew as a second process would."""
    global _current  # noqa: PLW0603 - the process has one
    _current = state


def require_init(state: AclState, function: str) -> None:
    """Refuse a function of the dump API before ``init`` (100001)."""
    if not state.is_initialised:
        reason = f"aclInit must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.UNINITIALIZE)
