"""Runs of a network whose variables live over them: inference, and steps of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msdump.execute import values
from msdump.execute.program import Program
from msdump.execute.runtime import OrtValue
from msdump.execute.training.non_finite import first_fault
from msdump.execute.training.state import TrainingState, Values
from msdump.observer import Observer

Feeds = Mapping[str, OrtValue | None]


class Runs:
    """A program with the variables that it reads, and writes after a step of training."""

    def __init__(self, program: Program, state: TrainingState) -> None:
        """Join a program and a state.

        Args:
            program: The network.
            state: The variables; the programs of a model share them.
        """
        self._program = program
        self._state = state
        self._bound = frozenset(program.graph.bindings.values())

    def forget_sessions(self) -> None:
        """Let each session end once it has run: no run comes after the next one."""
        self._program.keeps_sessions = False

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
        frame = self._program.completed(fed, observer)
        outputs = self._program.outputs(frame, fed, dropped=self._bound)
        self._state.take(self._program.bound(frame, inputs))
        return outputs

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
