"""MindSpore's door: the configuration of MINDSPORE_DUMP_CONFIG, ``set_context`` and ``set_dump``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msdump.capture.graphs import saved_graphs
from msdump.capture.process import PROCESS, Process
from msdump.communication.world import current, own
from msdump.errors import InputError
from msdump.frontends import settings
from msdump.frontends.configurations import Config, Configurations
from msdump.graph import loader
from msdump.graph.compile.compilation import compile_graph
from msdump.graph.graph import Graph
from msdump.plan import Context, DumpPlan, JitLevel, Tree
from msdump.session import Network
from msdump.targets import Operator, Scope


@dataclass(slots=True)
class ProcessState:
    """Settings, configurations and networks of the process; each test has a state of its own.

    Attributes:
        process: Sinks, counters and marks that all networks share.
        options: Fields of Context from command line options; they beat the environment.
        calls: Fields of Context from ``set_context`` calls; they beat both.
        configurations: The dump configurations of networks.
        networks: The networks that are in use, for ``set_dump`` by name.
        lock: Held while networks and marks meet.
    """

    process: Process = PROCESS
    options: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, Any] = field(default_factory=dict)
    configurations: Configurations = field(default_factory=Configurations)
    # weak: a network ends with the last reference of the user's program
    networks: weakref.WeakSet[Network] = field(default_factory=weakref.WeakSet)
    lock: threading.RLock = field(default_factory=threading.RLock)


_state = ProcessState()


def _current() -> ProcessState:
    """Return the state of the process, or that of the one of its ranks that the thread works as.

    A rank reads the process's configurations, and has settings, numbers, files and networks of its own.
    """
    world = own()
    if world is None:
        return _state
    return world.keep(ProcessState, lambda: _of_rank(_state))


def _of_rank(shared: ProcessState) -> ProcessState:
    state = ProcessState(Process(), dict(shared.options), dict(shared.calls), shared.configurations)
    current().call_at_end(state.process.close)
    return state


def set_context(**named_settings: Any) -> None:
    """Set the device, level and options of networks that are loaded from now on.

    Args:
        named_settings: ``device_target`` ("CPU", "GPU" or "Ascend"), ``jit_level`` ("O0", "O1" or "O2"),
            ``device_id`` (a number), ``reserve_class_name_in_scope`` (False: scopes without class
            names, for shorter file names), ``ascend_config`` (``precision_mode``;
            ``fusion_switch``, "on" or "off"; ``exception_dump``, "1": a failing operator of Ascend O2
            is dumped too), ``max_device_memory`` ("32GB"). An explicit call beats the environment variables.

    Raises:
        ValueError: An unknown setting or value.
    """
    _current().calls |= settings.checked(named_settings)


def set_options(**options: Any) -> None:
    """Set the command line's values of ``set_context``'s settings; they beat the environment."""
    named_settings = {name: value for name, value in options.items() if value is not None}
    _current().options |= settings.checked(named_settings)


def set_config(path: str, giver: str) -> None:
    """Set a configuration file in place of MINDSPORE_DUMP_CONFIG's, before the first load.

    Args:
        path: The file, absolute or relative.
        giver: The command line option that holds the path, for messages.
    """
    _current().configurations.substitute = (path, giver)


def current_context() -> Context:
    """Return the context of a network that is loaded now: calls beat options, options the environment.

    Raises:
        ValueError: An environment variable has an unknown value.
    """
    return replace(Context(), **(settings.from_environment() | _current().options | _current().calls))


def load(
    model: Any,
    config: Config | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    update_binding: Mapping[str, str] | None = None,
) -> Network:
    """Compile a model; its runs dump as its configuration says.

    Without ``config`` that is MINDSPORE_DUMP_CONFIG's, which is read once, at the first load of the
    process; where there is none nothing is written and nothing is slower. Networks of one
    configuration share the iteration counter, ``max_bytes`` and ``overflow_number``; those of
    another one count by themselves. What is said to the process (``dump_start``, ``set_init_iter``,
    ``set_dump`` by name, ...) holds for all of them.

    Args:
        model: Path of an .onnx file, an ``onnx.ModelProto``, or a serialised one.
        config: What this network dumps, in place of MINDSPORE_DUMP_CONFIG: the path of a file like
            that of the variable, read now, or a dictionary of the same contents.
        context: Settings of ``set_context`` for this network alone; they beat all others.
        update_binding: The graph output that each initializer takes after a training step
            (``network.train_step``), for a model without ``training_info``.

    Raises:
        ConfigError: The configuration is faulty; every fault is told.
        GraphError: The model is.
        DumpWriteError: The dump path cannot be written.
        ValueError: An unknown setting or value.
    """
    where = replace(current_context(), **settings.checked(context or {}))
    plans = _current().configurations
    plan = plans.default(where) if config is None else plans.own(config, where)
    graph = loader.load(model, keeps_classes=where.reserves_class_names, update_binding=update_binding)
    network = Network(graph, plan, _current().process, where)
    # a mark by name that another thread sets meanwhile reaches the network once, not never
    with _current().lock:
        network.take_names()
        _current().networks.add(network)
    _save_graphs(graph, network, plan, where if plan is None else plan.context)
    return network


def _save_graphs(graph: Graph, network: Network, plan: DumpPlan | None, where: Context) -> None:
    counters, write = _current().process.counters, _current().process.stream(plan)
    # without fusion: MS_DEV_SAVE_GRAPHS shows the graph before the backend takes it over
    if where.jit_level is JitLevel.O2:
        saved_graphs.save(compile_graph(graph, fuses=False), counters, write=write)
    else:
        saved_graphs.save(graph, counters, network.device, write)


def set_dump(target: Network | Scope | Operator | str, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - MindSpore's signature
    """Choose the operators that ``dump_mode`` 2 dumps.

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
        with _current().lock:
            _current().process.named_marks.add(target, enabled=enabled)
            for network in _current().networks:
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
    if plan is not None and plan.files.tree is not Tree.RANKS and sink_size != 1:
        raise InputError(
            f"{plan.source}: where a compiled graph is dumped (jit_level O2) in data sink mode, "
            f"sink size must be 1, but got {sink_size}; call data_sink with sink_size=1"
        )
    elements = _repeated(dataset)
    lock = threading.RLock()

    def run() -> Any:
        result = None
        for _ in range(sink_size):
            with lock:  # a generator that two threads advance at once raises ValueError
                element = next(elements)
            result = _fed(network, element)
        return result

    return run


def _repeated(dataset: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of a dataset over and over."""
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
    """Run a network on an element: inputs by name, inputs in order, or the one input."""
    if isinstance(element, Mapping):
        return network(**element)
    return network(*element) if isinstance(element, tuple) else network(element)


def dump_start() -> None:
    """Dump every step from now on, whatever ``iteration`` says, until ``dump_stop``."""
    _current().process.is_dumping = True


def dump_stop() -> None:
    """Dump no step from now on, until ``dump_start``."""
    _current().process.is_dumping = False


def set_init_iter(value: Any = 0) -> None:
    """Set the number of the next step, which from now on only ``dump_step`` changes.

    Raises:
        ValueError: No number from 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"set_init_iter({value!r}): a number from 0 is expected")
    _current().process.counters.step_to(value)


def dump_step(step: Any = 1) -> None:
    """Advance the number of the next step; before ``set_init_iter`` this has no effect but a warning.

    Raises:
        ValueError: No number.
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise InputError(f"dump_step({step!r}): a number is expected")
    _current().process.counters.step_by(step)


def finish() -> None:
    """Flush every dump of the process and name, once, the ``kernels`` items that matched nothing."""
    _current().process.close()
