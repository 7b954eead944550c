"""What a directory of a dump should hold files of, by the dump's configuration and its other iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from msdump.config import grammar
from msdump.config.faults import GrammarError
from msdump.record import IO
from msdump.selector import KernelPattern
from msdump.store import names

_ACL: Final = "dump"
_ACL_SIDES: Final = {"all": 0, "input": 1, "output": 2}
"""Values of ``input_output`` by those of ``dump_mode`` in acl's configuration."""

_SETTINGS: Final = "common_dump_settings"
_OWN_SETTINGS: Final = "msdump"
_LIMITING: Final = frozenset({"watch", "history", "max_bytes"})
"""Settings of msdump under which files are left out, or dropped again."""

_NUMBER: Final = "-op0"
"""Behind a type that stands for an operator whose name is not known: types are parts of such names."""

_SIDES: Final = {0: frozenset(IO), 1: frozenset({IO.INPUT}), 2: frozenset({IO.OUTPUT})}
"""What is dumped by the value of ``input_output``."""


FileSlot = tuple[str, IO, int]
"""Operator as files call it, side and number of one of its tensors."""


def _nothing() -> frozenset[FileSlot]:
    return frozenset()


@dataclass(frozen=True)
class DumpExpectation:
    """What a directory should hold files of.

    Attributes:
        config: The configuration that the dump was made with; None where it was not kept.
        is_compiled: Whether the graph was compiled, so that expressions of ``kernels`` match parts of names.
    """

    config: Any = None
    is_compiled: bool = False
    _list_elsewhere: Callable[[], frozenset[FileSlot]] = _nothing

    @property
    def selects_all(self) -> bool | None:
        """Whether all operators were to be dumped; None where no configuration tells."""
        settings = self._settings
        if settings is None:
            return None
        own = self.config.get(_OWN_SETTINGS)
        is_limited = isinstance(own, Mapping) and not _LIMITING.isdisjoint(own)
        return not (settings.get("dump_mode") or settings.get("op_debug_mode") or is_limited)

    @property
    def sides(self) -> frozenset[IO] | None:
        """Whether inputs, outputs or both were to be dumped; None where no configuration tells."""
        return None if self._settings is None else _SIDES.get(self._settings.get("input_output", 0))

    def has_chosen(self, full_name: str, op_type: str) -> bool:
        """Tell whether an operator was to be dumped: it was listed, or another iteration has files of it.

        Args:
            full_name: Its full name, "" where it is not known.
            op_type: Its type.
        """
        subject = full_name or f"{op_type}{_NUMBER}"
        is_listed = any(pattern.matches(subject) for pattern in self._patterns)
        return is_listed or any(name == names.sanitize(full_name) for name, *_ in self.elsewhere)

    def excludes(self, full_name: str, op_type: str) -> bool:
        """Tell whether a configuration leaves an operator out; arguments as those of ``has_chosen``."""
        return self.selects_all is False and not self.has_chosen(full_name, op_type)

    @cached_property
    def _patterns(self) -> tuple[KernelPattern, ...]:
        """The items of ``kernels`` that can be read."""
        listed = (self._settings or {}).get("kernels")
        items = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
        return tuple(pattern for pattern in map(self._pattern, items) if pattern is not None)

    def _pattern(self, item: str) -> KernelPattern | None:
        try:
            return grammar.parse_kernel(item, searches=self.is_compiled)
        except GrammarError:
            return None

    @cached_property
    def elsewhere(self) -> frozenset[FileSlot]:
        """The tensors that other iterations have files of."""
        return self._list_elsewhere()

    @cached_property
    def _settings(self) -> Mapping[str, Any] | None:
        if not isinstance(self.config, Mapping):
            return None
        for_acl = self.config.get(_ACL)
        settings = _of_acl(for_acl) if isinstance(for_acl, Mapping) else self.config.get(_SETTINGS)
        return settings if isinstance(settings, Mapping) else None


def _of_acl(dump: Mapping[str, Any]) -> dict[str, Any]:
    """Return what acl's configuration, which O2 keeps beside a dump, says in the words of MindSpore's."""
    listed = dump.get("dump_list")
    models = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    layers = [name for each in models for name in each.get("layer") or ()]
    is_debugging = bool({"dump_debug", "dump_scene"} & dump.keys())
    return {
        "dump_mode": int(bool(layers)),
        "kernels": layers,
        "op_debug_mode": int(is_debugging),
        "input_output": _ACL_SIDES.get(str(dump.get("dump_mode", "all")), 0),
    }
