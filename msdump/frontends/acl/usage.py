"""Models loaded and steps run under a dump configuration, to warn of names and steps that were never met."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from msdump.plan import DumpPlan

_log = logging.getLogger("msdump.acl")


@dataclass(slots=True)
class Usage:
    """Models and steps that one configuration has met.

    Attributes:
        names: Names of the models that were loaded, those of files and of graphs, in order.
        runs: Most runs of one model.
        has_dumped: Some run was a step that is dumped.
    """

    names: dict[str, None] = field(default_factory=dict)
    runs: int = 0
    has_dumped: bool = False

    def loaded(self, *names: str) -> None:
        """Note a model by its names."""
        self.names |= dict.fromkeys(filter(None, names))

    def ran(self, step: int, plan: DumpPlan) -> None:
        """Note that a model has run, for the first time as step 0."""
        self.runs = max(self.runs, step + 1)
        self.has_dumped |= step in plan.when.iterations

    def warn_of_unmet(self, plan: DumpPlan) -> None:
        """Warn of models and steps that the plan names and that were never met, once.

        A configuration under which nothing was loaded or run gives no warning: it was not used at all.
        """
        wanted = (item.model_name for item in plan.compiled.models or () if item.model_name is not None)
        unmet = [name for name in dict.fromkeys(wanted) if name not in self.names]
        if self.names and unmet:
            _log.warning(
                "%s: model_name %s: no such model was loaded; loaded were %s",
                *(plan.source, _listed(unmet), _listed(self.names)),
            )
        if self.runs and not self.has_dumped:
            _log.warning(
                "%s: dump_step %s was not reached: no model ran beyond step %d, counted from 0",
                *(plan.source, plan.when.iterations, self.runs - 1),
            )
        self.names, self.runs = {}, 0  # so that a second flush says nothing again


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
