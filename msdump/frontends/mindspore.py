"""MindSpore's door: the configuration of MINDSPORE_DUMP_CONFIG, ``set_context`` and ``set_dump``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msdump import env
from msdump.capture import saved_graphs
from msdump.capture.process import PROCESS, Process
from msdump.config import mindspore as config
from msdump.config.source import read as read_config
from msdump.errors import InputError
from msdump.frontends import settings
from msdump.graph import loader
from msdump.graph.compile import compile_graph
from msdump.plan import Context, DumpPlan, JitLevel, Tree
from msdump.session import Network
from msdump.targets import Operator, Scope


@dataclass(slots=True)
class State:
    """What the process has been told so far; a test gives each case one of its own.

    Attributes:
        process: What all networks share.
        options: Values of command line options; they beat the environment.
        calls: Values of ``set_context`` calls; they beat both.
        given: The path of a configuration file that stands in for MINDSPORE_DUMP_CONFIG, and what gave it.
        config: The configuration file and its bytes, read at the first load; a faulty one is
            read again at the next.
        plans: The plan of each context that a network was loaded in.
        networks: The networks that are in use, for ``set_dump`` by name.
        lock: Held while the configuration is read, and while networks and marks meet.
    """

    process: Process = PROCESS
    options: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, str] | None = None
    config: tuple[str, bytes] | None = None
    is_read: bool = False
    plans: dict[Context, DumpPlan] = field(default_factory=dict)
    networks: weakref.WeakSet[Network] = field(default_factory=weakref.WeakSet)
    lock: threading.RLock = field(default_factory=threading.RLock)


_state = State()


def set_context(**given: Any) -> None:
    """Say where networks that are loaded from now on run.

    Args:
        given: ``device_target`` ("CPU", "GPU" or "Ascend"), ``jit_level`` ("O0", "O1" or "O2"),
            ``device_id`` (a number), ``reserve_class_name_in_scope`` (False: scopes without class
            names, for shorter file names), ``ascend_config`` (``precision_mode``;
            ``fusion_switch``, "on" or "off"; ``exception_dump``, "1": a failing operator of Ascend O2
            is dumped too), ``max_device_memory`` ("32GB"). An explicit call beats the environment variables.

    Raises:
        ValueError: An unknown setting or value.
    """
    _state.calls |= settings.checked(given)


def set_options(**options: Any) -> None:
    """Take the command line's values of ``set_context``'s settings; they beat the environment."""
    given = {name: value for name, value in options.items() if value is not None}
    _state.options |= settings.checked(given)


def set_config(path: str, giver: str) -> None:
    """Take a configuration file in place of MINDSPORE_DUMP_CONFIG's, before the first load.

    Args:
        path: The file, absolute or relative.
        giver: What gave the path, for messages: a command line option.
    """
    _state.given = (path, giver)


def current_context() -> Context:
    """Return where a network that is loaded now runs: calls, then options, then environment.

    Raises:
        ValueError: An environment variable has an unknown value.
    """
    return replace(Context(), **(settings.from_environment() | _state.options | _state.calls))


def load(model: Any) -> Network:
    """Compile a model; its runs dump as MINDSPORE_DUMP_CONFIG says.

    The configuration is read once, at the first load of the process; without one
    nothing is written and nothing is slower.

    Args:
        model: Path of an .onnx file, an ``onnx.ModelProto``, or a serialised one.

    Raises:
        ConfigError: The configuration is faulty; every fault is told.
        GraphError: The model is.
        DumpWriteError: The dump path cannot be written.
    """
    context = current_context()
    plan = _plan(context)
    graph = loader.load(model, keeps_classes=context.reserves_class_names)
    network = Network(graph, plan, _state.process, context)
    with _state.lock:
        network.take_names()
        _state.networks.add(network)
    where = context if plan is None else plan.context
    write = _state.process.stream(plan)
    if where.jit_level is JitLevel.O2:
        saved_graphs.save(compile_graph(graph, fuses=False), write=write)
    else:
        saved_graphs.save(graph, network.device, write)
    return network


def _plan(context: Context) -> DumpPlan | None:
    with _state.lock:
        return _configured(context)


def _configured(context: Context) -> DumpPlan | None:
    if not _state.is_read:
        path, giver = _state.given or (env.read(env.DUMP_CONFIG), env.DUMP_CONFIG)
        if path is not None:
            plan = config.parse(read_config(path, giver), path, context)
            _state.config = (str(Path(path).absolute()), plan.source_bytes)
            _state.plans[context] = replace(plan, source=_state.config[0])
        _state.is_read = True
    if _state.config is None:
        return None
    if context not in _state.plans:
        source, data = _state.config
        _state.plans[context] = config.parse(data, source, context)
    return _state.plans[context]


def set_dump(target: Network | Scope | Operator | str, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - MindSpore's signature
    """Choose what ``dump_mode`` 2 dumps.

    Args:
        target: A network, one of its scopes (``network.scope("conv1")``), one of its operators
            (``network.operator("Default/conv1-Conv2d/Conv2D-op0")``), or the name of a scope or
            operator in every network of the process, also later ones.
        enabled: Whether it is dumped.

    Raises:
        ValueError: Neither of them, or ``enabled`` is not bool, with MindSpore's words.
    """
    if not isinstance(target, (Network, Scope, Operator, str)):
        raise InputError(
            'The "target" parameter must be an instance of Network, Scope, Operator or str, '
            f"but got an instance of {type(target)}."
        )
    if not isinstance(enabled, bool):
        raise InputError('The "enabled" parameter must be bool.')
    if isinstance(target, str):
        with _state.lock:
            _state.process.marks[target] = enabled
            for network in _state.networks:
                network.mark_named(target, enabled=enabled)
    else:
        target.set_dump(enabled=enabled)


def data_sink(network: Network, dataset: Iterable[Any], sink_size: Any = 1) -> Callable[[], Any]:
    """Return a function that runs a network on the next elements of a dataset, again and again.

    Args:
        network: The network.
        dataset: Elements that are inputs in order (a tuple), inputs by name (a mapping), or the one
            input; it can be iterated over again and again.
        sink_size: Steps of each call; 1 where a compiled graph is dumped (Ascend O2, GE), whose dump
            is configured anew before each call.

    Raises:
        InputError: The size is no number from 1, or more than 1 where that is not possible.
    """
    if isinstance(sink_size, bool) or not isinstance(sink_size, int) or sink_size < 1:
        raise InputError(f"data_sink: sink_size = {sink_size!r}: a number from 1 is expected")
    plan = network.plan
    if plan is not None and plan.tree is not Tree.RANKS and sink_size != 1:
        raise InputError(
            f"{plan.source}: where a compiled graph is dumped (jit_level O2) in data sink mode, "
            f"sink size must be 1, but got {sink_size}; call data_sink with sink_size=1"
        )
    elements = _repeated(dataset)
    lock = threading.RLock()

    def run() -> Any:
        result = None
        for _ in range(sink_size):
            with lock:
                element = next(elements)
            result = _fed(network, element)
        return result

    return run


def _repeated(dataset: Iterable[Any]) -> Iterator[Any]:
    while True:
        is_empty = True
        for element in dataset:
            is_empty = False
            yield element
        if is_empty:
            raise InputError(
                "data_sink: the dataset has no elements left; give one that can be iterated again"
            )


def _fed(network: Network, element: Any) -> Any:
    if isinstance(element, Mapping):
        return network(**element)
    return network(*element) if isinstance(element, tuple) else network(element)


def dump_start() -> None:
    """Dump every step from now on, whatever ``iteration`` says, until ``dump_stop``."""
    _state.process.is_dumping = True


def dump_stop() -> None:
    """Dump no step from now on, until ``dump_start``."""
    _state.process.is_dumping = False


def set_init_iter(value: Any = 0) -> None:
    """Set the number of the next step, which from now on only ``dump_step`` changes.

    Raises:
        ValueError: No number from 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"set_init_iter({value!r}): a number from 0 is expected")
    _state.process.step_to(value)


def dump_step(step: Any = 1) -> None:
    """Advance the number of the next step; before ``set_init_iter`` this has no effect but a warning.

    Raises:
        ValueError: No number.
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise InputError(f"dump_step({step!r}): a number is expected")
    _state.process.step_by(step)


def finish() -> None:
    """Flush every dump of the process and name, once, the ``kernels`` items that matched nothing."""
    _state.process.close()
