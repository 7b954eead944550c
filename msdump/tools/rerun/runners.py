"""What runs the operators of a compiled model again, in any arithmetic."""

from __future__ import annotations

import threading

import numpy as np

from msdump.execute.operators.float64.evaluator import Change, Float64Runner
from msdump.execute.operators.float64.noise import Noise
from msdump.execute.operators.recent_sessions import RecentSessions
from msdump.execute.operators.runner import OperatorRunner
from msdump.execute.weights import WeightCopies
from msdump.observer import Array
from msdump.tools.rerun.arithmetic import Arithmetic
from msdump.tools.rerun.compiled_model import CompiledModel, ModelOperator
from msdump.tools.rerun.values import Given


class Runners:
    """Runs operators of a model and its bodies; any thread may use it.

    Kernels of bodies are kept, since they run pass by pass.
    """

    def __init__(self, model: CompiledModel) -> None:
        """Compile nothing yet."""
        self._model = model
        self._copies = WeightCopies()
        self._sessions = RecentSessions()
        self._mine = _ThreadRunners()

    def outputs(self, site: ModelOperator, given: Given, arithmetic: Arithmetic) -> tuple[Array, ...]:
        """Return the outputs of an operator in an arithmetic.

        Raises:
            ExecutionError: It refuses these inputs.
            UnsupportedOpError: Nothing can run it.
        """
        graph = site.graph
        runners = self._mine.of_operators
        runner = runners.get((arithmetic, graph.index))
        if runner is None:
            runner = OperatorRunner(
                graph,
                arithmetic.roundings,
                self._copies,
                on=self._sessions,
                around=self._model.around(graph),
                is_quiet=True,
            )
            runners[arithmetic, graph.index] = runner
        outputs = runner.run(site.node, given)
        if graph.index == 0:
            runner.forget(site.node)
        return outputs

    def exact(
        self,
        site: ModelOperator,
        given: Given,
        arithmetic: Arithmetic,
        noise: Noise | None = None,
        change: Change | None = None,
    ) -> tuple[np.ndarray | None, ...]:
        """Return the outputs of an operator in float64, its inputs and results rounded as an arithmetic says.

        Raises:
            MsdumpError: Nothing can run it in float64.
        """
        runner = self._mine.exact.setdefault(site.graph.index, Float64Runner(site.graph))
        return runner.run(site.node, given, arithmetic.roundings(site.node), noise, change)


class _ThreadRunners(threading.local):
    """What one thread runs operators with: what makes and keeps kernels does so for one caller at a time."""

    def __init__(self) -> None:
        self.of_operators: dict[tuple[Arithmetic, int], OperatorRunner] = {}
        self.exact: dict[int, Float64Runner] = {}
