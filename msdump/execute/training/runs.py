"""Runs of a network whose variables live over them: inference, and steps of training."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.program import Program
from msdump.execute.runtime import OrtValue, short
from msdump.execute.training.joined import SHORT, JoinedStep, can_join
from msdump.execute.training.non_finite import first_fault
from msdump.execute.training.state import TrainingState, Values
from msdump.observer import Observer

_log = logging.getLogger("msdump.execute")

Feeds = Mapping[str, OrtValue | None]


class Runs:
    """A program with the variables that it reads, and writes after a step of training."""

    def __init__(self, program: Program, state: TrainingState, *, joins: bool) -> None:
        """Join a program and a state.

        Args:
            program: The network.
            state: The variables; the programs of a model share them.
            joins: Whether steps that nobody observes may run as a whole: on a CPU that emulates no device.
        """
        self._program = program
        self._state = state
        self._may_join = joins and bool(program.graph.bindings) and can_join(program.graph)
        self._joined: JoinedStep | None = None
        self._bound = frozenset(program.graph.bindings.values())

    def infer(self, inputs: Mapping[str, Any], observer: Observer | None) -> list[Any]:
        """Run the network; return its outputs.

        Args:
            inputs: What the caller feeds, by name.
            observer: Sees the operators.

        Raises:
            MsdumpError: As for ``Program.run``.
        """
        return self._program.run(self._feeds(inputs, self._state.values), observer)

    def train(self, inputs: Mapping[str, Any], observer: Observer | None) -> list[Any]:
        """Run a step; return the outputs that are not bound, the others are what the variables hold then.

        Args:
            inputs: What the caller feeds, by name.
            observer: Sees the operators.

        Raises:
            InputError: A variable would get a value of another shape; none has changed.
            MsdumpError: As for ``Program.run``.
        """
        fed = self._feeds(inputs, self._state.values)
        frame = self._program.completed(fed, observer) if observer is not None else self._unobserved(fed)
        outputs = self._program.outputs(frame, fed, dropped=self._bound)
        self._state.take(self._program.bound(frame, inputs))
        return outputs

    def _unobserved(self, fed: Feeds) -> Frame:
        """Run a step that nobody looks at: as a whole, once its operators have turned out to be short."""
        if self._joined is not None:
            try:
                return self._joined.completed(fed)
            except Exception as error:  # noqa: BLE001 - the runtime's classes vary
                self._part(error)
        is_warm, start = self._program.has_run, time.perf_counter()
        frame = self._program.completed(fed)
        is_short = time.perf_counter() - start < SHORT * len(self._program.graph.nodes)
        if self._may_join and is_warm and is_short:
            self._join(fed)
        return frame

    def _join(self, fed: Feeds) -> None:
        try:
            self._joined = JoinedStep(self._program, fed)
        except Exception as error:  # noqa: BLE001 - the runtime's classes vary
            self._part(error)

    def _part(self, error: Exception) -> None:
        """Run operators one by one from now on: where one fails, it fails under its name."""
        _log.debug("%s: the step does not run as a whole: %s", self._program.graph.source, short(error))
        self._joined, self._may_join = None, False

    def fault(self, inputs: Mapping[str, Any], before: Values) -> str:
        """Return what made a value that is not finite, in words; a step runs once more to find it.

        Args:
            inputs: What the caller fed to the step.
            before: What the variables held before it.
        """
        return first_fault(self._program, self._feeds(inputs, before))

    def _feeds(self, inputs: Mapping[str, Any], variables: Values) -> dict[str, OrtValue | None]:
        """Return everything that a run is fed: the variables that the graph has, and the caller's inputs."""
        graph = self._program.graph
        fed = {name: variables[name] for name in graph.variables}
        for name, item in inputs.items():
            fed[name] = values.from_python(item, graph.type_of(name).dtype)
        return fed
