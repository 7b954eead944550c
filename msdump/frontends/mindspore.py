"""MindSpore's door: the configuration of MINDSPORE_DUMP_CONFIG, ``set_context`` and ``set_dump``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from msdump.capture import PROCESS, Process, graph_files
from msdump.communication import current, own
from msdump.device import Ascend
from msdump.errors import InputError, keeping_stops
from msdump.execute import TrainingState, emulated
from msdump.frontends import settings
from msdump.frontends.settings import Config, Configurations
from msdump.graph import Graph, compile_graph, loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.session import ModelState, Network, Operator, Scope
from msdump.threads import SignalSafeWeakSet, new_lock


@dataclass(slots=True)
class ProcessState:
    """Settings, configurations and networks of the process; each test has a state of its own."""

    process: Process = PROCESS
    # fields of Context from command line options; they beat the environment
    options: dict[str, Any] = field(default_factory=dict)
    # fields of Context from ``set_context`` calls; they beat both
    calls: dict[str, Any] = field(default_factory=dict)
    configurations: Configurations = field(default_factory=Configurations)
    # weak references: the user's program alone keeps networks alive
    # the networks that are in use, for ``set_dump`` by name
    networks: SignalSafeWeakSet[Network] = field(default_factory=SignalSafeWeakSet)
    # held while marks by name are applied to networks, old and new
    lock: threading.RLock = field(default_factory=new_lock)


_state = ProcessState()


def _current() -> ProcessState:
    """Return the state of the process, or of the rank that the thread works as."""
    world = own()
    return _state if world is None else world.keep(ProcessState, _state_of_rank)


def _state_of_rank() -> ProcessState:
    """Return the state of a new rank: settings copied from the process, configurations shared with it."""
    state = ProcessState(Process(), dict(_state.options), dict(_state.calls), _state.configurations)
    current().call_at_end(state.process.close)
    return state


def set_context(**named_settings: Any) -> None:
    """Set the device, level and options for later calls of ``load``.

    Args:
        named_settings: ``device_target`` ("CPU", "GPU" or "Ascend"), ``jit_level`` ("O0", "O1" or "O2"),
            ``device_id`` (a number), ``reserve_class_name_in_scope`` (False: scopes without class
            names, for shorter file names), ``ascend_config`` (``precision_mode``;
            ``fusion_switch``, "on" or "off"; ``exception_dump``, "1": dump a failing operator of Ascend O2),
            ``max_device_memory`` ("32GB"). A call has priority over the environment variables.

    Raises:
        ValueError: An unknown setting or value.
    """
    _current().calls |= settings.checked(named_settings)


def set_options(**options: Any) -> None:
    """Set values of ``set_context`` from the command line; they have priority over the environment."""
    _current().options |= settings.checked_options(options)


def set_config(config: Config, giver: str) -> None:
    """Set a replacement of MINDSPORE_DUMP_CONFIG's file, before the first load; messages name ``giver``."""
    _current().configurations.substitute = (config, giver)


def set_path(root: str) -> None:
    """Set a directory in place of the ``path`` of configurations, before the first load."""
    _current().configurations.root = os.path.abspath(root)  # noqa: PTH100 - also removes ".."


def current_context() -> Context:
    """Return the context of a network that is loaded now: calls beat options, options the environment.

    Raises:
        ValueError: An environment variable has an unknown value.
    """
    return replace(Context(), **(settings.from_environment() | _current().options | _current().calls))


@keeping_stops()
def load(
    model: Any,
    config: Config | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    update_binding: Mapping[str, str] | None = None,
    state_of: Network | None = None,
    weights: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Network:
    """Load a model as a network that dumps by its configuration.

    The default configuration is the file in MINDSPORE_DUMP_CONFIG, which the first load of the process reads.
    Networks with the same configuration share the iteration counter, ``max_bytes`` and ``overflow_number``.
    Functions for the process (``dump_start``, ``set_init_iter``, ``set_dump`` by name) affect all networks.

    Args:
        model: Path of an .onnx or .mindir file, an ``onnx.ModelProto``, or its bytes.
        config: Configuration of this network instead of MINDSPORE_DUMP_CONFIG: a path, or a dictionary
            with the same keys. Without either, runs write no files.
        context: Settings of ``set_context`` for this network only; they have priority over all others.
        update_binding: Graph output by initializer: after a training step (``network.train_step``) the
            initializer takes the output's value. For a model without ``training_info``.
        state_of: The network that trains the variables of this one: initializers with the name of a
            variable share its value. The model must not have a training step.
        weights: Arrays in place of initializers of the model, by name, of their types and shapes.

    Raises:
        ConfigError: The configuration has faults; the error lists all of them.
        GraphError: The model is not valid.
        DumpWriteError: The dump path cannot be written.
        InputError: A variable and the initializer with its name differ in type or shape.
        ValueError: An unknown setting or value.
    """
    where = replace(current_context(), **settings.checked(context or {}))
    plan = _plan(config, where)
    state = None if state_of is None else state_of.shared
    variables = frozenset() if state is None else state.variables.names
    graph = loader.load(
        model,
        context=where if plan is None else plan.context,
        update_binding=update_binding,
        variables=variables,
    )
    if weights:
        graph = replace(graph, weights={**graph.weights, **weights})
    if state is not None:
        _check_sharing(graph, state.variables)
    return _network(graph, where, plan, state)


def load_checked(
    model: Any, check: Callable[[Graph, Callable[[], Ascend | None]], None], seed: int | None
) -> Network:
    """Load a model like ``load``, and call ``check``, which may raise, before any file is written.

    ``check`` gets the graph and a function for the emulated device; ``seed`` is that of ``loader.load``.
    """
    where = current_context()
    plan = _plan(None, where)
    graph = loader.load(model, context=where if plan is None else plan.context, seed=seed)
    check(graph, lambda: emulated(graph, plan, where if plan is None else plan.context))
    return _network(graph, where, plan)


def _plan(config: Config | None, where: Context) -> DumpPlan | None:
    plans = _current().configurations
    return plans.default(where) if config is None else plans.own(config, where)


def _network(graph: Graph, where: Context, plan: DumpPlan | None, state: ModelState | None = None) -> Network:
    network = Network(graph, plan, _current().process, where, state=state)
    # under the lock: a concurrent set_dump by name reaches the network exactly once
    with _current().lock:
        network.take_names()
        _current().networks.add(network)
    counters, write = _current().process.counters, _current().process.stream(plan)
    # without fusion: MS_DEV_SAVE_GRAPHS shows the graph before the backend takes it over
    if (where if plan is None else plan.context).jit_level is JitLevel.O2:
        graph_files.save(compile_graph(graph, fuses=False), counters, write=write)
    else:
        graph_files.save(graph, counters, network.device, write)
    return network


def load_graph(model: Any, seed: int | None = None, device: DeviceTarget | None = None) -> Graph:
    """Return the graph of a model, as for ``load``, for tools that run it themselves; ``seed`` as there."""
    where = current_context()
    where = where if device is None else replace(where, device_target=device)
    return loader.load(model, context=where, seed=seed)


def _check_sharing(graph: Graph, variables: TrainingState) -> None:
    """Refuse a graph that trains itself, or with variables that another network does not have."""
    if graph.training is not None:
        raise InputError(
            f"{graph.source}: the model describes its own training and has its own state; leave state_of out"
        )
    if not graph.variables:
        raise InputError(f"{graph.source}: no initializer has the name of a trained variable")
    faults = variables.differences({name: graph.weights[name] for name in graph.variables})
    if faults:
        raise InputError(f"{graph.source}: {'; '.join(faults)}")


def set_dump(target: Network | Scope | Operator | str, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - MindSpore's signature
    """Select operators for ``dump_mode`` 2.

    Args:
        target: A network, one of its scopes (``network.scope("conv1")``), one of its operators
            (``network.operator("Default/conv1-Conv2d/Conv2D-op0")``), or the name of a scope or
            operator in every present and later network of the process.
        enabled: Whether the target is dumped.

    Raises:
        ValueError: A wrong ``target``, or ``enabled`` is not bool, with MindSpore's message.
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


def dump_start() -> None:
    """Dump every later step until ``dump_stop``, regardless of the key ``iteration``."""
    _current().process.is_dumping = True


def dump_stop() -> None:
    """Dump no step until ``dump_start``."""
    _current().process.is_dumping = False


def set_init_iter(value: Any = 0) -> None:
    """Set the number of the next step. After this call, only ``dump_step`` changes the number.

    Raises:
        InputError: ``value`` is not an integer from 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"set_init_iter({value!r}): must be a number from 0")
    _current().process.counters.step_to(value)


def dump_step(step: Any = 1) -> None:
    """Increase the number of the next step. Before ``set_init_iter`` the call only logs a warning.

    Raises:
        InputError: ``step`` is not an integer.
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise InputError(f"dump_step({step!r}): must be a number")
    _current().process.counters.step_by(step)


def finish() -> None:
    """Flush every dump of the process and log, once, the ``kernels`` items without an operator."""
    _current().process.close()
