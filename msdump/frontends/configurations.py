"""The dump configurations of a process: the one of MINDSPORE_DUMP_CONFIG, and those of single networks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msdump import env
from msdump.config import mapping
from msdump.config import mindspore as config
from msdump.config.source import read
from msdump.errors import InputError
from msdump.plan import Context, DumpPlan
from msdump.threads import new_lock

Config = str | os.PathLike[str] | Mapping[str, Any]
"""A configuration: the path of its file, or its contents."""


class Configurations:
    """The plans of all networks of the process, each parsed once; its methods may be called from any thread.

    Attributes:
        substitute: The path of a configuration file that stands in for MINDSPORE_DUMP_CONFIG, and the name
            of the option that gave it, for messages.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.substitute: tuple[str, str] | None = None
        # reentrant: a warning of the parser may reach a log handler of the user that loads a network
        self._lock = new_lock()
        self._is_read = False
        self._default: tuple[str, bytes] | None = None
        self._sources: dict[str, bytes] = {}
        self._plans: dict[tuple[str, Context], DumpPlan] = {}

    def default(self, context: Context) -> DumpPlan | None:
        """Return the plan of networks that bring no configuration; None where no variable names a file.

        The file is read once; one with faults is read again at the next call, as MindSpore does.

        Raises:
            ConfigError: It is faulty.
        """
        with self._lock:
            if not self._is_read:
                path, giver = self.substitute or (env.read(env.DUMP_CONFIG), env.DUMP_CONFIG)
                if path is not None:
                    plan = self._from_file(path, giver, context)
                    self._default = plan.source, plan.source_bytes
                self._is_read = True
            return None if self._default is None else self._plan(*self._default, context)

    def own(self, config: Config, context: Context) -> DumpPlan:
        """Return the plan of a network's own configuration.

        Raises:
            ConfigError: It is faulty.
            ValueError: It is neither a path nor a mapping.
        """
        if not isinstance(config, (str, os.PathLike, Mapping)):
            raise InputError(f"config = {config!r}: the path of a .json file or a dictionary is expected")
        with self._lock:
            if isinstance(config, Mapping):
                return self._plan(mapping.SOURCE, mapping.to_bytes(config), context, is_mapping=True)
            return self._from_file(os.fspath(config), "config", context)

    def _from_file(self, path: str, giver: str, context: Context) -> DumpPlan:
        data = read(path, giver)
        return self._plan(str(Path(path).absolute()), data, context, shown=path)

    def _plan(
        self, source: str, data: bytes, context: Context, *, shown: str = "", is_mapping: bool = False
    ) -> DumpPlan:
        """Return the plan of a configuration in a context; parse it at the first call only.

        Args:
            source: What the configuration is called.
            data: Its bytes.
            context: Where the network runs.
            shown: What faults call it.
            is_mapping: Whether a program gave it as a mapping, so that line numbers would mislead.
        """
        # by contents, not by path alone: a file that was edited between two loads is another configuration,
        # and its warnings are told once, however many networks share it
        name = self._name(source, data)
        if (name, context) not in self._plans:
            plan = config.parse(data, shown or source, context, has_lines=not is_mapping)
            self._sources[name] = data
            self._plans[name, context] = replace(plan, source=name)
        return self._plans[name, context]

    def _name(self, source: str, data: bytes) -> str:
        """Return a source name that no other contents bear: ``config``, ``config (2)``, ..."""
        names = (source if number == 1 else f"{source} ({number})" for number in itertools.count(1))
        return next(name for name in names if self._sources.get(name, data) == data)
