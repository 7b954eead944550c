"""The numbers of a process that users see in the names of a dump: their meanings, and when each advances.

iteration
    The number of a run by which ``iteration`` and acl's ``dump_step`` select. The networks of a
    configuration share it: the end of each run sets it to that network's count of runs plus
    ``initial_iteration``, as MindSpore does since 2.7. Seen in ``{graph_id}/{iteration}``, ``{step}`` of O2.
step
    The iteration where the user counts it: ``set_init_iter`` sets it, ``dump_step`` advances it.
run, execution
    The runs of one model, from 0; the end of a run advances it, whether the run failed or not. Seen in
    ``{model_id}/{execution}``, which CANN calls data_index and MindSpore iteration_id. In acl and
    torchair it is the iteration, too.
pass
    The runs of an operator inside a branch or loop within one execution, from 0. No name holds it:
    readers distinguish passes by the times of files (``read/iteration.py``).
graph id
    The graphs of MindSpore's tree, each branch and loop body with one of its own, from 0; each network
    that is loaded advances it. Seen in ``{net_name}/{graph_id}``, ``ms_output_trace_code_graph_{graph_id}``.
model id
    The models that are compiled as a whole, from 1; each one that is loaded advances it. Seen in
    ``{model_name}/{model_id}``.
captured graph
    The graphs that torch.compile has captured, from 1. Seen in ``graph_{number}``; it is their model id.
GE graph, stage file
    The graphs that GE compiles and the stages of them that have files, each from 0. Seen in
    ``ge_proto_{stage file}_graph_{GE graph}_{stage}.txt``.
saved graph
    The graphs that ``MS_DEV_SAVE_GRAPHS`` saves, all kinds together, from 0. Seen in
    ``trace_code_graph_{saved graph}``.

Two others are not counted here. Task and stream ids are places in a compiled graph, the same in every run
(``device/tasks.py``). The dump time, ``YYYYMMDDHHMMSS``, is when a dump was configured, and the timestamp of
a file is when its tensor was captured; both come from the process's clock (``store/clock.py``).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from msdump.selector import IterationSet
from msdump.threads import new_lock

_log = logging.getLogger("msdump.counters")


@dataclass(frozen=True, slots=True)
class Run:
    """The numbers of one run of a model."""

    iteration: int  # its number in the dump, which the configuration selects by
    execution: int  # how often the model ran before it


class RunCounter:
    """The runs of a model with a counter of its own: a run's iteration equals its execution.

    CANN counts so where a model has no step counter of its own (acl's ``dump_step``), torchair
    counts the calls of a captured graph so, whatever the shapes of their tensors.
    """

    def __init__(self) -> None:
        self.count = 0  # how often the model has run, runs that failed included
        self._lock = new_lock()

    @property
    def next(self) -> Run:
        """The numbers of the current run, or of the next one between runs."""
        return Run(self.count, self.count)

    def ended(self, run: Run) -> None:
        """Count a run that has ended, failed or not.

        A captured graph and its network both report each run, since either of them may fail, or
        have nothing to run: a run that is reported twice counts once.
        """
        self.count = run.execution + 1  # not one more than it was: a run may be reported twice

    def take(self) -> Run:
        """Count a run that begins, for callers that let runs overlap; no two threads get the same numbers."""
        with self._lock:
            run = self.next
            self.ended(run)
            return run


class SharedRunCounter(RunCounter):
    """The runs of a network of MindSpore's; all networks of a configuration share iterations."""

    def __init__(self, counters: Counters, source: str, first: int) -> None:
        """Start before the first run; the source is the configuration, ``first`` is ``initial_iteration``."""
        super().__init__()
        self._counters = counters
        self._source = source
        self._first = first
        self._used = IterationSet(())

    @property
    def next(self) -> Run:
        """The numbers of the current run, or of the next one between runs.

        If this network has already used the shared iteration, it takes the next unused one, so that
        no run adds to the files of another. After ``set_init_iter`` the user's number is the
        iteration, used or not.
        """
        iteration = self._counters.step
        if iteration is None:
            shared = self._counters.shared_iteration(self._source)
            iteration = self._used.first_outside(self._first if shared is None else shared)
        return Run(iteration, self.count)

    def ended(self, run: Run) -> None:
        """Count a run that has ended, and set the iteration that the configuration's networks share."""
        super().ended(run)
        # vendor: since 2.7 the count of the network that ran last, not of all runs: A B A B gets 0 1 1 2
        self._used = self._used.including(run.iteration)
        self._counters.share_iteration(self._source, self.count + self._first)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Name, number and time that identify a compiled model in its process."""

    file_name: str = ""  # name of the model's file without suffix, "" where there is none
    model_id: int | None = None  # its number, None: the next one of the process
    # when the dump was configured, ``YYYYMMDDHHMMSS``, None: now. Where the tree has steps (Ascend O2),
    # each step is configured anew
    time: str | None = None
    # counter of the runs of all its networks (one for each set of shapes); None: a ``SharedRunCounter``, as
    # for MindSpore's networks
    runs: RunCounter | None = None


class Counters:
    """The numbers that the networks of a process share; any thread may use them.

    Their meanings stand at the head of the module.
    """

    def __init__(self) -> None:
        # The next of an itertools.count needs no lock: no other thread runs within the call.
        self.graph_ids: Iterator[int] = itertools.count()
        self.model_ids: Iterator[int] = itertools.count(1)
        self.captured_graphs: Iterator[int] = itertools.count(1)
        self.ge_graphs: Iterator[int] = itertools.count()
        self.stage_files: Iterator[int] = itertools.count()
        self.saved_graphs: Iterator[int] = itertools.count()
        self._lock = new_lock()
        self._step: int | None = None
        self._shared: dict[str, int] = {}

    def beside(self) -> Counters:
        """Return counters for models of acl or torchair beside MindSpore's networks.

        Numbers of graph files are shared with the returned counters, as these files stand in directories
        of the whole process; numbers of models, graphs and iterations start anew.
        """
        counters = Counters()
        counters.captured_graphs = self.captured_graphs
        counters.ge_graphs = self.ge_graphs
        counters.stage_files = self.stage_files
        counters.saved_graphs = self.saved_graphs
        return counters

    def runs(self, source: str, first: int) -> RunCounter:
        """Return a counter for the runs of a network of MindSpore's; arguments as of ``SharedRunCounter``."""
        return SharedRunCounter(self, source, first)

    @property
    def step(self) -> int | None:
        """The iteration of the next run where the user steps, None where runs count themselves."""
        return self._step

    def step_to(self, iteration: int) -> None:
        """Set the iteration of the next run; from now on the user steps (``set_init_iter``)."""
        self._step = iteration

    def step_by(self, count: int) -> None:
        """Advance the iteration of the next run where the user steps (``dump_step``)."""
        with self._lock:
            if self._step is None:
                _log.warning("dump_step has no effect before set_init_iter")
                return
            self._step += count

    def shared_iteration(self, source: str) -> int | None:
        """Return the iteration that a configuration's networks count; None before the first run.

        After each run of a network it becomes that network's count of runs plus ``initial_iteration``, as
        since MindSpore 2.7; with one network it counts 0, 1, 2, ...
        """
        return self._shared.get(source)

    def share_iteration(self, source: str, iteration: int) -> None:
        """Set the iteration that follows a run of one of a configuration's networks."""
        self._shared[source] = iteration
