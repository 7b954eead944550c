"""Patterns of parameters' names: who updates a parameter, at which learning rate and weight decay.

In a pattern ``*`` stands for any text and ``?`` for one character. The first pattern that matches decides;
the pattern "" has all parameters that no other one matches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from msdump.errors import InputError, name_hint
from msdump.graph.primitives import op
from msdump.training import options
from msdump.training.learning_rates import COMMON, RATE, LearningRate, Rate
from msdump.training.optimizers import DECAYED, NUMBER, OPTIMIZERS, Optimizer, TrainedParameter
from msdump.training.options import Options, Rules
from msdump.training.variables import Trained, Variables
from msdump.training.writer import ROOT


@dataclass(frozen=True, slots=True)
class Group(Options):
    """Learning rate and weight decay of a group of parameters; None: the optimizer's."""

    learning_rate: Rate | None = None
    weight_decay: float | None = None
    rules: ClassVar[Rules] = {
        "learning_rate": options.optional(RATE),
        "weight_decay": options.optional(NUMBER),
    }


@dataclass(frozen=True, slots=True)
class Optimizers:
    """The optimizers of a training step.

    As in a MindSpore cell with several optimizers, each has a scope and variables of its own, which bear its
    name, or else its number: ``Default/optimizer_0-SGD``, ``optimizer_0.learning_rate``. One alone without a
    name has no prefix. Patterns with equal optimizers, name included, have one in common.

    A group of parameters that several optimizers update is a group in each of them. As in MindSpore, an
    optimizer with groups updates group by group, the other parameters last, and scales and shifts of
    normalisations have the weight decay of their group.

    Attributes:
        by_pattern: Optimizers by patterns of the names of their parameters.
        groups: Groups by patterns of names.
        normalizing: Names of scales and shifts of normalisations.
        order: Patterns in the order of updates; empty: group by group.
    """

    by_pattern: Mapping[str, Optimizer]
    groups: Mapping[str, Group]
    normalizing: Collection[str]
    order: Sequence[str] = ()

    def write(self, trained: Trained, state: Variables, scale: float = 1.0) -> None:
        """Write the operators of all optimizers, which divide the gradients by their factor ``scale``."""
        assigned = [*self._assigned(trained)]
        for number, (optimizer, parameters) in enumerate(assigned):
            name = optimizer.name or (f"optimizer_{number}" if len(assigned) > 1 else "")
            with op.at(ROOT.inside((name or "optimizer", optimizer.cell))):
                optimizer.write(parameters, _prefixed(state, f"{name}." if name else ""), scale)

    def arranged(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients optimizer by optimizer, group by group."""
        return [(item.variable, item.gradient) for _, part in self._assigned(trained) for item in part]

    def in_order(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients in the order in which the optimizers update them."""
        return [
            (item.variable, item.gradient)
            for optimizer, parameters in self._assigned(trained)
            for item in (reversed(parameters) if optimizer.is_last_first else parameters)
        ]

    def _assigned(self, trained: Trained) -> Iterator[tuple[Optimizer, Sequence[TrainedParameter]]]:
        """Yield the optimizers with their parameters.

        Raises:
            InputError: A pattern has no parameter, a parameter no optimizer or no place in the order, or two
                optimizers have one name.
        """
        parts = _partition(trained, self.by_pattern, "optimizer")
        others = [item.name for item, _ in parts[""]] if "" not in self.by_pattern else ()
        if others:
            raise InputError(
                f"no optimizer for {_listed(others)}; add an optimizer without a pattern, or "
                "leave them out of trainable"
            )
        if trained and not all(parts[pattern] for pattern in self.by_pattern):
            raise InputError("the optimizer without a pattern has no parameters: other optimizers have all")
        groups = _partition(trained, self.groups, "group")
        order = self._order(trained)
        distinct: dict[str, tuple[Optimizer, set[str]]] = {}
        for pattern, optimizer in self.by_pattern.items():
            values = [np.asarray(value).tolist() for value in astuple(optimizer)]  # lists of rates, too
            _, own = distinct.setdefault(f"{optimizer.cell} {values}", (optimizer, set()))
            own |= {item.name for item, _ in parts[pattern]}
        names = [item.name or f"optimizer_{number}" for number, (item, _) in enumerate(distinct.values())]
        if len(set(names)) < len(names):
            raise InputError(f"optimizers that differ have one name: {_listed(names)}; give each its own")
        for optimizer, own in distinct.values():
            grouped = {name: [pair for pair in part if pair[0].name in own] for name, part in groups.items()}
            parameters = self._parameters(optimizer, {name: part for name, part in grouped.items() if part})
            # stable: without an order the groups follow one another
            yield optimizer, sorted(parameters, key=lambda each: order.get(each.variable.name, 0))

    def _order(self, trained: Trained) -> Mapping[str, int]:
        """Return the places of parameters by name, empty for an order by groups."""
        if not self.order:
            return {}
        parts = _partition(trained, self.order, ORDER)
        if parts[""]:
            others = _listed([item.name for item, _ in parts[""]])
            raise InputError(f"{ORDER} lacks {others}; add the names, or a last pattern '*'")
        names = (item.name for pattern in self.order for item, _ in parts[pattern])
        return {name: place for place, name in enumerate(names)}

    def _parameters(self, optimizer: Optimizer, parts: Mapping[str, Trained]) -> list[TrainedParameter]:
        """Return the parameters of an optimizer, by groups, with rate and decay."""
        parameters = []
        # vendor: scales and shifts are no exception any more where there are groups
        exempt = () if any(pattern in self.groups for pattern in parts) else self.normalizing
        for number, (pattern, part) in enumerate(parts.items()):
            group = self.groups.get(pattern, Group())
            rate = LearningRate(COMMON, optimizer.learning_rate)
            if group.learning_rate is not None:
                rate = LearningRate(f"{COMMON}_group_{number}", group.learning_rate)
            decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
            for item, gradient in part:
                has_decay = DECAYED[optimizer.decayed](item, item.name in exempt)
                parameters.append(TrainedParameter(item, gradient, rate, decay if has_decay else 0.0))
        return parameters


def _prefixed(state: Variables, prefix: str) -> Variables:
    return lambda name, *arguments, **choices: state(prefix + name, *arguments, **choices)


def _partition(trained: Trained, patterns: Iterable[str], title: str) -> dict[str, Trained]:
    """Return the parameters by the first pattern that matches their names.

    Raises:
        InputError: A pattern without parameters.
    """
    parts: dict[str, Trained] = {}
    rest = list(trained)
    names = [item.name for item, _ in trained]
    for pattern in filter(None, patterns):
        matches = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL).fullmatch
        parts[pattern] = [pair for pair in rest if matches(pair[0].name)]
        if not parts[pattern] and any(map(matches, names)):
            raise InputError(f"{title} {pattern!r}: earlier patterns have all its parameters")
        if not parts[pattern] and names:
            raise InputError(
                f"{title} {pattern!r}: no trained parameter has this name; there are {_listed(names)}"
                f"{name_hint(pattern, names)}"
            )
        rest = [pair for pair in rest if not matches(pair[0].name)]
    return {**parts, "": rest}


_MOST: Final = 12
"""Names that a message lists."""


def _listed(names: Sequence[str]) -> str:
    others = f", ... ({len(names)} in all)" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + others


OptimizerChoice = str | Optimizer | Mapping[str, str | Optimizer]

ORDER: Final = "order_params"
"""The key among the groups that has the order of updates, as in MindSpore."""

GroupChoices = Mapping[str, Any]
"""By pattern a Group or its options as a text or mapping; under ``ORDER`` names as a text or a sequence."""


def optimizers_of(choice: OptimizerChoice, groups: GroupChoices, normalizing: Collection[str]) -> Optimizers:
    """Return the optimizers of a step.

    Raises:
        InputError: An unknown name or option, or a value that an option does not take.
    """
    optimizers = choice if isinstance(choice, Mapping) else {"": choice}
    order = groups.get(ORDER, ())
    return Optimizers(
        {pattern: options.parsed(item, OPTIMIZERS, "optimizer") for pattern, item in optimizers.items()},
        {
            pattern: item if isinstance(item, Group) else options.built(Group, item, f"group {pattern!r}")
            for pattern, item in groups.items()
            if pattern != ORDER
        },
        normalizing,
        tuple(order.split() if isinstance(order, str) else order),
    )
