"""The dumps of a process that ``acl.init``, ``acl.mdl.set_dump`` and the environment have configured."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from msdump import env
from msdump.capture.process import PROCESS, Process
from msdump.config.acl import environment
from msdump.config.acl import plan as config
from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import AclFaults
from msdump.frontends import settings
from msdump.frontends.acl.usage import Usage
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Scene, Trigger
from msdump.store.clock import CLOCK

_log = logging.getLogger("msdump.acl")

_LASTING: frozenset[Scene] = frozenset({Scene.DETAIL_EXCEPTION})
"""Exception scenes that cannot be turned off again."""


@dataclass(slots=True)
class Configuration:
    """One configured dump.

    Attributes:
        plan: What is dumped.
        time: When it was configured, the name of its directory.
        process: Sinks and counters that the models loaded under it share.
        usage: Names and runs of those models.
    """

    plan: DumpPlan
    time: str = field(default_factory=CLOCK.seconds)
    process: Process = field(default_factory=PROCESS.beside)
    usage: Usage = field(default_factory=Usage)

    def flush(self) -> None:
        """Complete every file and warn of models and steps that were never met."""
        self.process.close()
        self.usage.warn_of_unmet(self.plan)

    def stop(self) -> None:
        """Stop dumping; every tensor captured so far is on disk afterwards."""
        self.process.is_dumping = False
        self.flush()


class Dumps:
    """The dump configurations of a process.

    Models keep the configuration that they were loaded under; the last one counts for models that
    are loaded later. Exception dumps are apart: the first one stays, whatever comes later.

    Attributes:
        is_initialised: Between ``init_dump`` and ``finalize_dump``.
    """

    def __init__(self) -> None:
        """Start without a configured dump."""
        self.is_initialised = False
        self._armed: Configuration | None = None  # for models that are loaded from now on
        self._exceptions: Configuration | None = None
        self._is_of_environment = False  # the exception dump
        self._started: list[Configuration] = []  # all that may have files to complete

    def read_environment(self) -> None:
        """Turn on the exception dump that the environment asks for, once."""
        if self._exceptions is None:
            plan = environment.exception_plan(context(0))
            self._exceptions = None if plan is None else self._start(plan)
            self._is_of_environment = plan is not None

    def configure(self, path: str, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG) -> None:
        """Configure a dump by a file; a file that asks for none leaves the dumps as they are.

        Raises:
            AclError: The file or one of its values cannot be used, or goes with no exception dump
                that the environment has turned on.
        """
        # device 0 stands in for the one that a model is loaded on, which is known then
        plan = config.read(path, context(0), malformed=malformed)
        if plan is None:
            return
        if plan.when.trigger is Trigger.EXCEPTION:
            self._configure_exceptions(plan)
            return
        self._refuse_with_collect_path(path)
        self._armed = self._start(plan)

    def _configure_exceptions(self, plan: DumpPlan) -> None:
        if self._exceptions is not None:
            _log.warning(
                "%s: dump_scene %s is not turned on: exception dump %s is on already",
                plan.source,
                plan.compiled.scene,
                self._exceptions.plan.compiled.scene,
            )
            return
        self._exceptions = self._start(plan)

    def _refuse_with_collect_path(self, path: str) -> None:
        # vendor: of the environment's exception dumps only that of NPU_COLLECT_PATH excludes data dumps
        if self._is_of_environment and env.read(env.NPU_COLLECT_PATH) is not None:
            reason = f"data dump and the exception dump of {env.NPU_COLLECT_PATH} cannot both be enabled"
            raise AclFaults(path).conflict(reason, AclCode.INTERNAL_ERROR)

    def _start(self, plan: DumpPlan) -> Configuration:
        configuration = Configuration(plan)
        self._started.append(configuration)
        return configuration

    def current(self, device_id: int) -> Configuration | None:
        """Return the configuration of a model that is loaded now, None where it dumps nothing.

        Args:
            device_id: The device that it is loaded on.
        """
        armed = self._armed or self._exceptions
        if armed is None:
            return None
        return Configuration(self._plan(armed, device_id), armed.time, armed.process, armed.usage)

    def _plan(self, armed: Configuration, device_id: int) -> DumpPlan:
        """Return the plan for a device; an exception dump goes along with any other."""
        plan = armed.plan
        context = replace(plan.context, device_id=device_id)
        if self._exceptions is None or armed is self._exceptions:
            return replace(plan, context=context)
        exceptions = self._exceptions.plan
        scene = plan.compiled.scene or exceptions.compiled.scene
        compiled = replace(plan.compiled, scene=scene, exception_path=exceptions.files.path)
        return replace(plan, context=context, compiled=compiled)

    def stop(self) -> None:
        """End every dump but an exception dump that cannot be turned off again."""
        lasting = self._exceptions if self._is_lasting() else None
        for configuration in self._started:
            if configuration is not lasting:
                configuration.stop()
        self._armed, self._exceptions = None, lasting
        self._started = [] if lasting is None else [lasting]

    def _is_lasting(self) -> bool:
        """Tell whether the exception dump stays: the environment's, or that of the detail scene."""
        exceptions = self._exceptions
        return exceptions is not None and (
            self._is_of_environment or exceptions.plan.compiled.scene in _LASTING
        )

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
