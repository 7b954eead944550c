"""``CompilerConfig``: torchair's options in groups, checked when they are set, and the process's rank."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msdump.communication import current
from msdump.config import torchair
from msdump.store import Key, PathKind


def world() -> tuple[int, int]:
    """Return the number of processes and this one's global rank, (1, 0) for a process alone.

    They name the directory of its dump, ``worldsize{world}_global_rank{rank}`` (``store/layouts.py``).
    """
    # not imported here: without an import by the user only the launcher's variables count
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        identity = current().identity
        return identity.size, identity.rank
    return distributed.get_world_size(), distributed.get_rank()


Check = Callable[[Any], None]
"""Raises where a value cannot be taken."""

_log = logging.getLogger("msdump.torchair")


class Option:
    """One option; ``value`` is its text, as GE options are texts."""

    __slots__ = ("_check", "_value", "default")

    def __init__(self, default: Any = None, check: Check | None = None) -> None:
        """Hold the default; without a check every value is taken."""
        self.default = default  # the value until another one is set
        self._value = default
        self._check = check

    @property
    def value(self) -> Any:
        """The text: "1" and "0" for booleans, a function itself, None where there is nothing."""
        if isinstance(self._value, bool):
            return "1" if self._value else "0"
        return self._value if self._value is None or callable(self._value) else str(self._value)

    @value.setter
    def value(self, value: Any) -> None:
        if self._check is not None:
            self._check(value)
        self._value = value

    def __bool__(self) -> bool:
        """Return whether the value is true."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Show the value."""
        return f"Option({self._value!r})"


class Group:
    """Options and groups of options by name; a name that it lacks is an error."""

    __slots__ = ("_members", "_name")

    _members: dict[str, Any]
    _name: str

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        # bypasses this class's __setattr__, which sets options
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_members", dict(members))

    def __getattr__(self, key: str) -> Any:
        """Return a member."""
        # copy and pickle ask for special methods before there are members
        if key.startswith("__") or key not in self._members:
            raise AttributeError(f"{self._name!r} object has no attribute {key!r}")
        return self._members[key]

    def __setattr__(self, key: str, value: Any) -> None:
        """Set an option.

        Raises:
            ValueError: There is no such option, or the value is not allowed.
            FileNotFoundError: The value names a file or directory that is not there.
            TypeError: The value is of the wrong type, or the name stands for a group.
        """
        member = self._members.get(key)
        if member is None:
            raise ValueError(f"{self._name} has no option {key}, all options {list(self._members)}")
        if isinstance(member, Option):
            member.value = value
        elif isinstance(value, Group):
            self._members[key] = value
        else:
            raise TypeError(f"{self._name}.{key} is a group of options, got {type(value)}: set its options")

    def __dir__(self) -> list[str]:
        """List the members."""
        return sorted(self._members)

    def __getstate__(self) -> tuple[str, dict[str, Any]]:
        """Return name and members: copying and pickling must not go through ``__getattr__``."""
        return self._name, self._members

    def __setstate__(self, state: tuple[str, dict[str, Any]]) -> None:
        """Take over the name and members of the original."""
        Group.__init__(self, *state)


class TolerantGroup(Group):
    """Options of the real device's compiler: they are taken and have no effect here."""

    __slots__ = ()

    def __setattr__(self, key: str, value: Any) -> None:
        """Accept any option and value, with a warning."""
        if isinstance(self._members.get(key), Group):
            super().__setattr__(key, value)
            return
        _log.warning("%s.%s = %r: has no effect on the emulated device", self._name, key, value)
        self._members.setdefault(key, Option()).value = value


def one_of(*allowed: Any) -> Check:
    """Return the check that a value is one of a few."""

    def check(value: Any) -> None:
        # 1 and 0 pass as True and False, as they are equal
        if value not in allowed:
            raise ValueError(
                f"Value {value!r} (type: {type(value)}) not in optional list {list(allowed)!r}"
                f" (type: {type(allowed[0])})."
            )

    return check


def unless_none(check: Check) -> Check:
    """Return a check that takes None, too."""
    return lambda value: None if value is None else check(value)


def text_like(expression: str, example: str, *, shown: str = "") -> Check:
    """Return a check that a text matches an expression; messages show the format and an example."""
    pattern: Final = re.compile(expression)

    def check(value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"value must be str, got {type(value)}")
        if not pattern.match(value):  # vendor: match, not fullmatch, so that a line feed at the end passes
            raise ValueError(
                f"Please set legal regex value format match {shown or expression},"
                f" {value} is Illegal format, correct example:{example}."
            )

    return check


def function(value: Any) -> None:
    """Check that a value is None or a function."""
    if value is not None and not callable(value):
        raise TypeError(f"value must be Callable or None, got {type(value)}")


def directory(value: Any) -> None:
    """Check that a value is the path of a directory."""
    if value is None or not os.path.isdir(value):
        raise FileNotFoundError(
            f"Please set legal dir path, {value} is not found or is not a file directory!"
        )


def json_file(value: Any) -> None:
    """Check that a value is None or the path of a .json file."""
    if value is None:
        return
    if value == "":
        raise ValueError("File path cannot be empty!")
    if not (str(value).endswith(".json") and os.path.isfile(value)):
        raise FileNotFoundError(f"Please set legal file path, {value} is not found or is not '.json' file!")


MAX_AUTOTUNE: Final = "max-autotune"
"""The mode whose graphs are compiled as a whole, the only one that dumps operators."""

_BOOLEAN: Final = one_of(False, True)
_WITHOUT_EFFECT: Final = (
    "aoe_config",
    "export",
    "fusion_config",
    "experimental_config",
    "inference_config",
    "ge_config",
    "aclgraph_config",
)
_NESTED: Final = {"export": "experimental", "experimental_config": "aclgraph"}

_STEPS_SHOWN: Final = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
_STEPS: Final = r"^(?:\d(?:-\d)?\|?)*$"  # matches the same texts in linear time

_DUMP_OPTIONS: Final = {
    "dump_mode": torchair.MODE,
    "quant_dumpable": torchair.QUANT,
    "dump_step": torchair.STEP,
    "dump_layer": torchair.LAYER,
    "dump_data": torchair.DATA,
}
"""GE's name of each option that goes with enable_dump."""


class CompilerConfig(Group):
    """The settings of ``get_npu_backend``; every option is checked when it is set.

    ``dump_config`` configures the dump, ``debug.graph_dump`` the files of the captured graphs,
    ``debug.data_dump`` the dump of the graph that runs eagerly. The groups of options for the real
    device's compiler accept everything, with a warning.
    """

    __slots__ = ()

    def __init__(self) -> None:
        members = {
            "debug": _debug(),
            "dump_config": _dump_config(),
            **{name: _tolerant(name) for name in _WITHOUT_EFFECT},
            "mode": Option(MAX_AUTOTUNE, one_of(MAX_AUTOTUNE, "reduce-overhead")),
        }
        super().__init__("CompilerConfig", members)

    def as_dict(self, mode: str = MAX_AUTOTUNE) -> tuple[dict[str, str], dict[str, str]]:
        """Return the local and the global GE options of a mode, and make the directory of the dump."""
        dump = self.dump_config
        options: dict[str, str] = {}
        if dump.dump_config_path.value is not None:
            options[torchair.ACL_CONFIG] = dump.dump_config_path.value
        if not dump.enable_dump:
            return {}, options
        size, rank = world()
        path = Path(Key(PathKind.WORLD, rank, world=size).below(dump.dump_path.value))
        path.mkdir(parents=True, exist_ok=True)  # vendor: made here, before a graph is captured
        if mode == MAX_AUTOTUNE:
            # vendor: dump_step and dump_layer are passed on only where they are not empty
            values = {key: getattr(dump, name).value for name, key in _DUMP_OPTIONS.items()}
            options |= {torchair.ENABLE: "1", torchair.PATH: str(path)}
            return {}, options | {key: value for key, value in values.items() if value}
        captured = {"aclgraph.dumpPath": str(path), "aclgraph.dumpStage": dump.data_dump_stage.value}
        return {}, {**options, torchair.CAPTURE_ENABLE: "1", **captured}


def _dump_config() -> Group:
    return Group(
        "_DataDumpConfig",
        {
            "enable_dump": Option(False, _BOOLEAN),
            "dump_path": Option("./", directory),
            "dump_mode": Option("all", one_of("input", "output", "all")),
            "quant_dumpable": Option(False, _BOOLEAN),
            "dump_step": Option("", text_like(_STEPS, "0|1|2-5|6", shown=_STEPS_SHOWN)),
            "dump_layer": Option("", text_like(r'^[0-9a-zA-Z_" "/\\.]*$', "Mul_1 Add1 Conv2D_1")),
            "dump_data": Option("tensor", one_of("tensor", "stats")),
            "dump_config_path": Option(None, json_file),
            "data_dump_stage": Option("optimized", one_of("original", "optimized")),
        },
    )


def _debug() -> Group:
    return Group(
        "_DebugConfig",
        {
            "graph_dump": Group(
                "_Dump", {"path": Option(), "type": Option(None, unless_none(one_of("txt", "pbtxt", "py")))}
            ),
            "data_dump": Group(
                "_DataDump",
                {
                    "path": Option(),
                    "type": Option(None, unless_none(one_of("npy"))),
                    "filter": Option(None, function),
                },
            ),
            "fx_summary": TolerantGroup("_FxSummary", {"type": Option(), "skip_compile": Option(True)}),
            "aclgraph": TolerantGroup("debug.aclgraph", {}),
            "run_eagerly": Option(False, _BOOLEAN),
        },
    )


def _tolerant(name: str) -> Group:
    nested = _NESTED.get(name)
    members = {} if nested is None else {nested: TolerantGroup(f"{name}.{nested}", {})}
    return TolerantGroup(name, members)
