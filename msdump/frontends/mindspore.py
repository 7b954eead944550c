"""MindSpore's door: the configuration of MINDSPORE_DUMP_CONFIG, ``set_context`` and ``set_dump``."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from msdump import env
from msdump.capture.process import PROCESS, Process
from msdump.config import mindspore as config
from msdump.config.source import read as read_config
from msdump.errors import InputError
from msdump.execute import runtime
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.session import Network, Operator, Scope

_KEYS: Final = {
    "device_target": "device_target",
    "jit_level": "jit_level",
    "device_id": "device_id",
    "reserve_class_name_in_scope": "reserves_class_names",
}
"""Arguments of ``set_context`` and the fields of Context that they set."""

_VARIABLES: Final = {
    env.DEVICE_TARGET: "device_target",
    env.JIT_LEVEL: "jit_level",
    env.DEVICE_ID: "device_id",
}


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
    """

    process: Process = PROCESS
    options: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, str] | None = None
    config: tuple[str, bytes] | None = None
    is_read: bool = False
    plans: dict[Context, DumpPlan] = field(default_factory=dict)
    networks: weakref.WeakSet[Network] = field(default_factory=weakref.WeakSet)


_state = State()


def set_context(**settings: Any) -> None:
    """Say where networks that are loaded from now on run.

    Args:
        settings: ``device_target`` ("CPU", "GPU" or "Ascend"), ``jit_level`` ("O0", "O1" or "O2"),
            ``device_id`` (a number), ``reserve_class_name_in_scope`` (False: scopes without class
            names, for shorter file names). An explicit call beats the environment variables
            DEVICE_TARGET, JIT_LEVEL and DEVICE_ID.

    Raises:
        ValueError: An unknown setting or value.
    """
    checked = {}
    for name, value in settings.items():
        if name not in _KEYS:
            raise InputError(f"set_context has no setting {name!r}; it has {', '.join(_KEYS)}")
        checked[_KEYS[name]] = _value(name, _KEYS[name], value)
    _state.calls |= checked


def set_options(**options: Any) -> None:
    """Take the command line's values of ``set_context``'s settings; they beat the environment."""
    for name, value in options.items():
        if value is not None:
            _state.options[_KEYS[name]] = _value(name, _KEYS[name], value)


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
    told = {}
    for variable, key in _VARIABLES.items():
        text = env.read(variable)
        if text is not None and key not in _state.calls and key not in _state.options:
            told[key] = _value(variable, key, text)
    return replace(Context(), **told, **(_state.options | _state.calls))


def _value(name: str, key: str, value: Any) -> Any:
    match key:
        case "device_target":
            return _choice(name, value, DeviceTarget)
        case "jit_level":
            return _choice(name, value, JitLevel)
        case "device_id":
            return _device_id(name, value)
    if not isinstance(value, bool):
        raise InputError(f"{name} = {value!r}: True or False is expected")
    return value


def _choice(name: str, value: Any, choices: type[DeviceTarget | JitLevel]) -> Any:
    for choice in choices:
        if str(value).lower() == choice.lower():
            return choice
    raise InputError(f"{name} = {value!r}: {', '.join(choices)} are allowed")


def _device_id(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal():
        raise InputError(f"{name} = {value!r}: a device number (0, 1, ...) is expected")
    return int(text)


def load(model: Any) -> Network:
    """Compile a model; its runs dump as MINDSPORE_DUMP_CONFIG says.

    The configuration is read once, at the first load of the process; without one
    nothing is written and nothing is slower.

    Args:
        model: Path of an .onnx file, an ``onnx.ModelProto``, or a serialised one.

    Raises:
        ConfigError: The configuration is faulty; every fault is told.
        GraphError: The model is.
        NotAvailableError: The configuration asks for what this version cannot execute.
        DumpWriteError: The dump path cannot be written.
    """
    context = current_context()
    plan = _plan(context)
    if context.device_target is DeviceTarget.GPU:
        runtime.use_gpu()
    graph = loader.load(model, keeps_classes=context.reserves_class_names)
    network = Network(graph, plan, _state.process)
    _state.networks.add(network)
    return network


def _plan(context: Context) -> DumpPlan | None:
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
        _state.process.marks[target] = enabled
        for network in _state.networks:
            network.mark_named(target, enabled=enabled)
    else:
        target.set_dump(enabled=enabled)


def finish() -> None:
    """Flush every dump of the process and name, once, the ``kernels`` items that matched nothing."""
    _state.process.close()
