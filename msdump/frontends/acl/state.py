"""The state of pyACL in a process: dumps, objects behind handles, loaded models, memory, streams."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

import numpy as np

from msdump import dtypes, env
from msdump.capture import PROCESS, Process
from msdump.capture.compiled import SingleOperator
from msdump.communication import current as current_rank
from msdump.config.acl import AclCode, AclFaults, invalid, out_of_turn
from msdump.config.acl import plan as config
from msdump.counters import Counters
from msdump.dtypes import STRING, DType
from msdump.encode import pack, unpack
from msdump.errors import (
    AclError,
    DumpWriteError,
    ExecutionError,
    FormatError,
    GraphError,
    InputError,
    MsdumpError,
    NotAvailableError,
)
from msdump.frontends import settings
from msdump.frontends.acl.memory import Memory
from msdump.graph import UNKNOWN_RANK, Value
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Scene, Trigger
from msdump.session import Network
from msdump.store import CLOCK
from msdump.threads import new_lock

_log = logging.getLogger("msdump.acl")


@dataclass(slots=True)
class Configuration:
    """A configured dump, and the models that were loaded under it."""

    plan: DumpPlan
    time: str = field(default_factory=CLOCK.seconds)  # when it was configured, the name of its directory
    process: Process = field(default_factory=PROCESS.beside)  # sinks and counters that its models share
    # file names and graph names of its models, in the order of loading
    names: dict[str, None] = field(default_factory=dict)
    runs: int = 0  # number of runs of the model that ran most often
    has_dumped: bool = False  # whether the plan's iterations included the step of any run

    def ran(self, step: int) -> None:
        """Note that a model has run as a step; its first run is step 0."""
        self.runs = max(self.runs, step + 1)
        self.has_dumped |= step in self.plan.when.iterations

    def flush(self) -> None:
        """Complete every file and warn, once, of models and steps of the plan that were never met.

        A configuration under which nothing was loaded or run gives no warning: it was not used at all.
        """
        self.process.close()
        wanted = (item.model_name for item in self.plan.compiled.models or () if item.model_name is not None)
        unmet = [name for name in dict.fromkeys(wanted) if name not in self.names]
        if self.names and unmet:
            _log.warning(
                "%s: model_name %s: no such model was loaded; the loaded models are %s",
                self.plan.source,
                *(", ".join(map(repr, names)) for names in (unmet, self.names)),
            )
        if self.runs and not self.has_dumped:
            _log.warning(
                "%s: dump_step %s was not reached: no model ran beyond step %d, counted from 0",
                self.plan.source,
                self.plan.when.iterations,
                self.runs - 1,
            )
        self.names, self.runs = {}, 0

    def stop(self) -> None:
        """Stop dumping; every tensor captured so far is on disk afterwards."""
        self.process.is_dumping = False
        self.flush()


class Dumps:
    """The dump configurations of a process.

    Models keep the configuration that they were loaded under; the last one counts for models that
    are loaded later. Exception dumps are apart: the first one stays, whatever comes later.
    """

    def __init__(self) -> None:
        self.is_initialised = False  # between ``init_dump`` and ``finalize_dump``
        self._armed: Configuration | None = None  # for models that are loaded from now on
        self._exceptions: Configuration | None = None
        self._is_of_environment = False  # whether variables turned the exception dump on
        self._started: list[Configuration] = []  # all that may have files to complete

    def read_environment(self) -> None:
        """Turn on the exception dump of the environment, once."""
        if self._exceptions is None:
            plan = config.exception_plan(context(0))
            self._exceptions = None if plan is None else self._start(plan)
            self._is_of_environment = plan is not None

    def configure(self, path: str, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG) -> None:
        """Configure a dump by a file; a file without one leaves the dumps as they are.

        Raises:
            AclError: The file or one of its values cannot be used, or the environment has turned on an
                exception dump that excludes data dumps.
        """
        # device 0 is a placeholder: ``plan_of`` sets the device on which a model is loaded
        plan = config.read(path, context(0), malformed=malformed)
        if plan is None:
            return
        if plan.when.trigger is Trigger.EXCEPTION and self._exceptions is not None:
            _log.warning(
                "%s: dump_scene %s is not turned on: exception dump %s is on already",
                plan.source,
                plan.compiled.scene,
                self._exceptions.plan.compiled.scene,
            )
            return
        if plan.when.trigger is Trigger.EXCEPTION:
            self._exceptions = self._start(plan)
            return
        # vendor: of the environment's exception dumps only that of NPU_COLLECT_PATH excludes data dumps
        if self._is_of_environment and env.read(env.NPU_COLLECT_PATH) is not None:
            reason = f"data dump and the exception dump of {env.NPU_COLLECT_PATH} cannot both be enabled"
            raise AclFaults(path).conflict(reason, AclCode.INTERNAL_ERROR)
        self._armed = self._start(plan)

    def _start(self, plan: DumpPlan) -> Configuration:
        configuration = Configuration(plan)
        self._started.append(configuration)
        return configuration

    def current(self) -> Configuration | None:
        """Return the configuration of a model that is loaded now, None where it dumps nothing."""
        return self._armed or self._exceptions

    def plan_of(self, configuration: Configuration, device_id: int) -> DumpPlan:
        """Return a configuration's plan for a device; an exception dump that is on is added to it."""
        plan, own = configuration.plan, self._exceptions
        context = replace(plan.context, device_id=device_id)
        if own is None or configuration is own:
            return replace(plan, context=context)
        scene = plan.compiled.scene or own.plan.compiled.scene
        compiled = replace(plan.compiled, scene=scene, exception_path=own.plan.files.path)
        return replace(plan, context=context, compiled=compiled)

    def stop(self) -> None:
        """End every dump but an exception dump that cannot be turned off again."""
        # an exception dump of the environment, or of the detail scene, cannot be turned off
        is_lasting = self._exceptions is not None and (
            self._is_of_environment or self._exceptions.plan.compiled.scene is Scene.DETAIL_EXCEPTION
        )
        lasting = self._exceptions if is_lasting else None
        for configuration in self._started:
            if configuration is not lasting:
                configuration.stop()
        self._armed, self._exceptions = None, lasting
        self._started = [] if lasting is None else [lasting]

    def flush(self) -> None:
        """Complete every file and warn of models and steps that were never met."""
        for configuration in self._started:
            configuration.flush()


def context(device_id: int) -> Context:
    """Return where models run: an Ascend that compiles whole graphs and keeps the names of their nodes."""
    text = env.read(env.CHECK_OVERFLOW_MODE)
    parse = settings.VARIABLES[env.CHECK_OVERFLOW_MODE]
    overflow_mode = {} if text is None else parse(env.CHECK_OVERFLOW_MODE, text)
    ascend = Context(DeviceTarget.ASCEND, JitLevel.O2, device_id, keeps_node_names=True)
    return replace(ascend, **overflow_mode)


T = TypeVar("T")

_FIRST: Final = 0x5500_0000_1000  # as a pointer of a C library would look
_STEP: Final = 0x40


class Handles:
    """Objects by their handles: ints that look like pointers and are never given twice."""

    def __init__(self) -> None:
        self._numbers = itertools.count(_FIRST, _STEP)
        self._objects: dict[int, object] = {}

    def add(self, item: object) -> int:
        """Return a new handle of an object."""
        handle = next(self._numbers)
        self._objects[handle] = item
        return handle

    def get(self, handle: Any, kind: type[T]) -> T:
        """Return the object of a handle; 100000 if no object of that kind has the handle."""
        item = self._objects.get(handle) if isinstance(handle, int) else None
        if not isinstance(item, kind):
            name = getattr(kind, "TITLE", kind.__name__)
            raise invalid(f"{handle!r} is not a handle of a {name}; was it destroyed?")
        return item

    def remove(self, handle: Any, kind: type[T]) -> T:
        """Remove a handle and return its object; 100000 as in ``get``."""
        item = self.get(handle, kind)
        del self._objects[handle]
        return item


@dataclass(slots=True)
class DataBuffer:
    """Memory of a tensor; address 0: the model reserves it when it runs."""

    TITLE: ClassVar = "data buffer"

    address: int
    size: int


@dataclass(slots=True)
class Dataset:
    """Handles of the buffers of a model's inputs or outputs; shapes by index from tensor descriptions."""

    TITLE: ClassVar = "dataset"

    buffers: list[int] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class ModelDesc:
    """A description of a loaded model; empty before ``get_desc``."""

    TITLE: ClassVar = "model description"

    model_id: int = 0


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Type (aclDataType), shape and format (aclFormat) of a tensor of a single operator."""

    TITLE: ClassVar = "tensor description"

    dtype: int
    shape: tuple[int, ...]
    format: int


@dataclass(slots=True)
class OperatorAttributes:
    """Attributes of a single operator by name; tensors are arrays."""

    TITLE: ClassVar = "attribute list"

    values: dict[str, int | float | str | list[Any] | np.ndarray] = field(default_factory=dict)


class AclContext:
    """A context of a device, by its handle alone."""

    TITLE: ClassVar = "context"


@dataclass(slots=True)
class Stream:
    """A stream by number, from 0, the default stream."""

    TITLE: ClassVar = "stream"

    number: int
    failure: int = 0  # code of the first call on it that failed since the last synchronisation
    tasks: int = 0  # single operators that it has run


@dataclass(slots=True)
class LoadedModel:
    """A loaded model: number, from 1, network, dump, and the shapes of its outputs in the last run."""

    model_id: int
    network: Network
    dump: Configuration | None = None
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Inputs of the model."""
        return self.network.graph.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Outputs of the model."""
        return self.network.graph.outputs

    def execute(
        self, inputs: Sequence[memoryview], shapes: Mapping[int, tuple[int, ...]]
    ) -> list[np.ndarray]:
        """Run once on the bytes of each input and the shapes of open ones; return the outputs.

        Raises:
            AclError: Inputs that are too many, too few, or too small.
            MsdumpError: As for ``Network.run``.
        """
        if len(inputs) != len(self.inputs):
            raise AclError(
                AclCode.MODEL_INPUT_NOT_MATCH,
                f"model {self.model_id} has {len(self.inputs)} inputs, the dataset has {len(inputs)}",
            )
        arrays_by_name = {
            value.name: _from_bytes(value, view, shapes.get(index))
            for index, (value, view) in enumerate(zip(self.inputs, inputs, strict=True))
        }
        if self.dump is not None:
            self.dump.ran(self.network.runs)
        results = self.network.run(arrays_by_name)
        arrays = [_tensor(name, item) for name, item in results.items()]
        self.shapes = [array.shape for array in arrays]
        return arrays


def _from_bytes(value: Value, view: memoryview, set_shape: tuple[int, ...] | None) -> np.ndarray:
    """Return the tensor of an input in the shape set in the dataset; without one, in the model's shape."""
    dtype = value.type.dtype
    if dtype is None or dtype is STRING or value.type.kind != "tensor":
        raise AclError(
            AclCode.UNSUPPORTED_DATA_TYPE,
            f"input {value.name!r} is not a tensor of numbers; memory cannot hold the value",
        )
    shape = _shape_of(value, dtype, len(view)) if set_shape is None else set_shape
    return to_array(view, dtype, shape, f"input {value.name!r}", AclCode.MODEL_INPUT_NOT_MATCH)


def _shape_of(value: Value, dtype: DType, size: int) -> tuple[int, ...]:
    """Return the shape of an input; one open dimension follows from the size of its buffer."""
    shape = value.type.shown_shape
    fixed = math.prod(dim for dim in shape if dim >= 0) * dtype.numpy.itemsize
    elements = size * dtype.per_byte
    if shape == UNKNOWN_RANK or shape.count(-1) > 1 or (-1 in shape and (not fixed or elements % fixed)):
        raise AclError(
            AclCode.MODEL_INPUT_NOT_MATCH,
            f"input {value.name!r}: shape {value.type.shape} is open, and a buffer of {size} bytes does not"
            " define the shape; describe the input with acl.mdl.set_dataset_tensor_desc",
        )
    return tuple(elements // fixed if dim < 0 else dim for dim in shape)


def _tensor(name: str, item: Any) -> np.ndarray:
    if not isinstance(item, np.ndarray) or item.dtype.kind == "O":
        raise AclError(
            AclCode.UNSUPPORTED_DATA_TYPE,
            f"output {name!r} is not a tensor of numbers; memory cannot hold the value",
        )
    return item


DEVICES: Final = 8
"""Devices of the emulated server."""


@dataclass(slots=True)
class AclState:
    """The state of pyACL in one process; each test has one of its own."""

    is_initialised: bool = False
    is_finalised: bool = False
    counters: Counters = field(default_factory=PROCESS.counters.beside)
    config: bytes | None = None  # bytes of the first configuration file that ``init`` was given
    handles: Handles = field(default_factory=Handles)
    memory: Memory = field(default_factory=Memory)
    dumps: Dumps = field(default_factory=Dumps)
    models: dict[int, LoadedModel] = field(default_factory=dict)
    # single operators that were called, by all that distinguishes their calls
    operators: dict[Hashable, tuple[Network, SingleOperator]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=new_lock)  # held while a model or operator runs
    default_stream: Stream = field(default_factory=lambda: Stream(0))
    stream_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    device_id: int | None = None  # the device that was set last; None: the device of the rank
    contexts: threading.local = field(default_factory=threading.local)  # the device of each thread

    def model(self, model_id: object) -> LoadedModel:
        """Return a loaded model; 145001 before ``init``, 145003 for a number that no loaded model has."""
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
        """Return a stream by its handle; 0 is the default stream."""
        is_default = isinstance(handle, int) and handle == 0
        return self.default_stream if is_default else self.handles.get(handle, Stream)

    @property
    def current_device(self) -> int:
        """Number of the device that the calling thread works on."""
        of_rank = current_rank().identity.local_rank % DEVICES
        return getattr(self.contexts, "device_id", of_rank if self.device_id is None else self.device_id)


_current = AclState()


def current() -> AclState:
    """Return the state of the process."""
    return _current


def replace_state(state: AclState) -> None:
    """Replace the state of the process, so that it starts anew as a second process would."""
    global _current  # noqa: PLW0603 - the process has one
    _current = state


def require_init(state: AclState, function: str) -> None:
    """Refuse a function of the dump API before ``init`` (100001)."""
    if not state.is_initialised:
        reason = f"aclInit must be executed before {function} is called"
        raise out_of_turn(function, reason, AclCode.UNINITIALIZE)


def item_at(items: Sequence[T], index: Any) -> T:
    """Return the item at an index; 100000 if there is none."""
    if not isinstance(index, int) or not 0 <= index < len(items):
        raise invalid(f"index {index!r}: there are {len(items)}, counted from 0")
    return items[index]


def text(value: Any, name: str, expected: str = "a text") -> str:
    """Return an argument that must be a text; 100000 if it is none."""
    if not isinstance(value, str):
        raise invalid(f"{name} = {value!r}: must be {expected}")
    return value


def dimensions(value: Any) -> tuple[int, ...]:
    """Return an argument that must be a shape; 100000 if it is no list of numbers from 0."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(dim, int) and dim >= 0 for dim in value):
        raise invalid(f"shape {value!r}: must be a list of dimensions from 0")
    return tuple(value)


def handles(value: Any, name: str) -> list[Any]:
    """Return an argument that must be a list of handles; 100000 if it is none."""
    if not isinstance(value, (list, tuple)):
        raise invalid(f"{name} = {value!r}: must be a list of handles")
    return list(value)


P = ParamSpec("P")
N = TypeVar("N")
R = TypeVar("R")

_CODES: Final[tuple[tuple[type[Exception], AclCode], ...]] = (
    (DumpWriteError, AclCode.WRITE_FILE),
    (GraphError, AclCode.PARSE_MODEL),
    (InputError, AclCode.MODEL_INPUT_NOT_MATCH),
    (MemoryError, AclCode.BAD_ALLOC),
    (NotAvailableError, AclCode.API_NOT_SUPPORT),
    (FormatError, AclCode.UNSUPPORTED_DATA_TYPE),
    (ExecutionError, AclCode.GE_FAILURE),
)
"""Codes of errors that were not worded for this door; the first that fits counts."""

_recent: list[str] = []


def _answering(function: Callable[P, T], null: N, answer: Callable[[T | N, int], R]) -> Callable[P, R]:
    """Wrap a function so that it never raises: ``answer`` makes the result from its value and its code."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return answer(function(*arguments, **named), int(AclCode.SUCCESS))
        except Exception as error:  # noqa: BLE001 - pyACL's functions never raise
            return answer(null, code_of(error))

    return call


def code(function: Callable[P, None]) -> Callable[P, int]:
    """Make a function return a code alone: 0, or that of the error that it raised."""
    return _answering(function, None, lambda _, number: number)


def value_and_code(null: N) -> Callable[[Callable[P, T]], Callable[P, tuple[T | N, int]]]:
    """Make a function return its value and a code; the value is ``null`` where it raised an error."""
    return lambda function: _answering(function, null, lambda result, number: (result, number))


def value(null: N) -> Callable[[Callable[P, T]], Callable[P, T | N]]:
    """Make a function return its value alone, ``null`` where it raised an error."""
    return lambda function: _answering(function, null, lambda result, _: result)


def creator(kind: Callable[[], object]) -> Callable[[], int]:
    """Return a function of pyACL that returns the handle of a new, empty object."""

    @value(0)
    def create() -> int:
        return current().handles.add(kind())

    return create


def destroyer(kind: type[object]) -> Callable[[int], int]:
    """Return a function of pyACL that destroys the object of a handle."""

    @code
    def destroy(handle: int) -> None:
        current().handles.remove(handle, kind)

    return destroy


def fact(kind: type[T], read: Callable[[T], int]) -> Callable[[int], int]:
    """Return a function of pyACL that returns a number of the object of a handle, 0 for a wrong one."""

    @value(0)
    def get(handle: int) -> int:
        return read(current().handles.get(handle, kind))

    return get


def on_stream(stream: Stream, call: Callable[[], None]) -> None:
    """Do a stream's work at once; the code of its first failure stays until the stream is synchronised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the stream keeps its code
        number = code_of(error)  # logs the error, also of later failures
        stream.failure = stream.failure or number


def recent_message() -> str:
    """Return the message of the last failure and drop it; "" where nothing failed since the last call."""
    return _recent.pop() if _recent else ""


def code_of(error: Exception) -> int:
    """Log an error and return its code."""
    if isinstance(error, AclError):
        number = error.code
    else:
        codes = (number for kind, number in _CODES if isinstance(error, kind))
        number = next(codes, AclCode.INTERNAL_ERROR)
    is_known = isinstance(error, (MsdumpError, MemoryError))
    message = str(error) if is_known else f"internal error: {type(error).__name__}: {error}"
    _log.error("%s", message, exc_info=None if is_known else error)
    _recent[:] = [message]
    return int(number)


def device_view(acl: AclState, handle: int, *, writes: bool = False) -> memoryview:
    """Return the device memory of a data buffer; AclError if there is none, or if it is the host's.

    For a buffer that will be written and has no address yet the view is empty: ``write_result`` reserves it.
    """
    buffer = acl.handles.get(handle, DataBuffer)
    if writes and not buffer.address:
        return memoryview(b"")
    if buffer.address and not acl.memory.is_device(buffer.address):
        raise invalid(
            f"{buffer.address:#x} is not memory of the device; copy the tensor there with acl.rt.memcpy"
        )
    return acl.memory.view(buffer.address, buffer.size, writes=writes)


def nbytes(dtype: DType | None, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor, 0 where the type or a dimension is not known.

    >>> nbytes(dtypes.from_name("float16"), (2, 2)), nbytes(dtypes.from_name("int4"), (3,))
    (8, 2)
    """
    if dtype is None or dtype is STRING or any(dim < 0 for dim in shape):
        return 0
    return -(-math.prod(shape) // dtype.per_byte) * dtype.numpy.itemsize


def to_array(
    view: memoryview, dtype: DType, shape: tuple[int, ...], title: str, small: AclCode
) -> np.ndarray:
    """Return bytes as a tensor: a view, or an array of its own where elements share bytes.

    Bytes beyond the tensor are ignored; too few are an AclError of code ``small``.
    """
    needed = nbytes(dtype, shape)
    if len(view) < needed:
        raise AclError(small, f"{title} of shape {shape} needs {needed} bytes, its buffer has {len(view)}")
    if dtype.per_byte > 1:
        return unpack(np.frombuffer(view, np.uint8), dtype, shape)
    if not needed:
        return np.empty(shape, dtype.numpy)
    return np.frombuffer(view, dtype.numpy, math.prod(shape)).reshape(shape)


def write_result(acl: AclState, handle: int, array: np.ndarray) -> None:
    """Copy an output, packed, into its data buffer, which is reserved now if it has no memory.

    100018: the buffer is too small.
    """
    buffer, dtype = acl.handles.get(handle, DataBuffer), dtypes.from_numpy(array.dtype)
    if dtype.per_byte > 1:
        array = pack(array, dtype)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not buffer.address and data.size:
        buffer.address, buffer.size = acl.memory.malloc(data.size), data.size
    if data.size > buffer.size:
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"an output of {data.size} bytes does not fit into a buffer of {buffer.size}",
        )
    if data.size:
        acl.memory.view(buffer.address, data.size, writes=True)[:] = data.data
