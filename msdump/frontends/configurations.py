"""The configurations of a process: one for all networks, and those that networks bring along."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msdump import env
from msdump.config import given
from msdump.config import mindspore as config
from msdump.config.source import read
from msdump.errors import InputError
from msdump.plan import Context, DumpPlan

Config = str | os.PathLike[str] | Mapping[str, Any]
"""A configuration: the path of its file, or its contents."""


class Configurations:
    """What networks dump; any thread may ask.

    Attributes:
        given: The path of a configuration file that stands in for MINDSPORE_DUMP_CONFIG, and what gave it.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.given: tuple[str, str] | None = None
        self._lock = threading.RLock()
        self._is_read = False
        self._default: tuple[str, bytes] | None = None
        self._sources: dict[str, bytes] = {}
        self._plans: dict[tuple[str, Context], DumpPlan] = {}

    def default(self, context: Context) -> DumpPlan | None:
        """Return the plan of networks that bring no configuration; None without one.

        Its file is read once; a faulty one is read again the next time.

        Raises:
            ConfigError: It is faulty.
        """
        with self._lock:
            if not self._is_read:
                path, giver = self.given or (env.read(env.DUMP_CONFIG), env.DUMP_CONFIG)
                if path is not None:
                    plan = self._from_file(path, giver, context)
                    self._default = plan.source, plan.source_bytes
                self._is_read = True
            return None if self._default is None else self._known(*self._default, context)

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
                data = given.to_bytes(config)
                return self._known(given.SOURCE, data, context, is_mapping=True)
            return self._from_file(os.fspath(config), "config", context)

    def _from_file(self, path: str, giver: str, context: Context) -> DumpPlan:
        data = read(path, giver)
        return self._known(str(Path(path).absolute()), data, context, shown=path)

    def _known(
        self, source: str, data: bytes, context: Context, *, shown: str = "", is_mapping: bool = False
    ) -> DumpPlan:
        """Return the plan of a configuration in a context, parsed once.

        Args:
            source: What the configuration is called.
            data: Its bytes.
            context: Where the network runs.
            shown: What faults call it.
            is_mapping: Whether its lines mean nothing to who gave it.
        """
        name = self._name(source, data)
        if (name, context) not in self._plans:
            plan = config.parse(data, shown or source, context, has_lines=not is_mapping)
            self._sources[name] = data
            self._plans[name, context] = replace(plan, source=name)
        return self._plans[name, context]

    def _name(self, source: str, data: bytes) -> str:
        """Return a name that no other contents have: ``config``, ``config (2)``, ..."""
        names = (source if number == 1 else f"{source} ({number})" for number in itertools.count(1))
        return next(name for name in names if self._sources.get(name, data) == data)
