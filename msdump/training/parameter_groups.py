"""Patterns of parameters' names: who updates a parameter, at which learning rate and weight decay.

In a pattern ``*`` stands for any text and ``?`` for one character. The first pattern that matches decides;
the pattern "" has all parameters that no other one matches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from msdump.errors import InputError, name_hint
from msdump.training import options
from msdump.training.learning_rates import COMMON, RATE, LearningRate, Rate
from msdump.training.optimizers import DECAYED, NUMBER, Optimizer, TrainedParameter, optimizer_of
from msdump.training.options import Options, Rules
from msdump.training.tape import op
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
    name: ``Default/optimizer_0-SGD``, ``optimizer_0.learning_rate``. One alone has neither number nor prefix.

    A group of parameters that several optimizers update is a group in each of them. As in MindSpore, an
    optimizer with groups updates group by group, the other parameters last, and scales and shifts of
    normalisations have the weight decay of their group.

    Attributes:
        by_pattern: Optimizers by patterns of the names of their parameters.
        groups: Groups by patterns of names.
    """

    by_pattern: Mapping[str, Optimizer]
    groups: Mapping[str, Group]

    def write(
        self, trained: Trained, state: Variables, normalizing: Collection[str], scale: float = 1.0
    ) -> None:
        """Write the operators of all optimizers.

        Args:
            trained: The parameters with their gradients.
            state: Adds a variable to the step.
            normalizing: Names of scales and shifts of normalisations.
            scale: Factor of the gradients, by which the optimizers divide.
        """
        group_of = self._group_of(trained)
        for number, (optimizer, part) in enumerate(self._parts(trained)):
            is_one = len(self.by_pattern) == 1
            cell, prefix = ("optimizer", "") if is_one else (f"optimizer_{number}", f"optimizer_{number}.")
            parameters = list(self._parameters(optimizer, part, group_of, normalizing))
            with op.at(ROOT.inside((cell, optimizer.cell))):
                optimizer.write(parameters, _prefixed(state, prefix), scale)

    def arranged(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients optimizer by optimizer, group by group."""
        return [pair for _, part in self._parts(trained) for pair in part]

    def in_order(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients in the order in which the optimizers update them."""
        parts = self._parts(trained)
        return [
            pair
            for optimizer, part in parts
            for pair in (reversed(part) if optimizer.is_last_first else part)
        ]

    def _group_of(self, trained: Trained) -> dict[str, str]:
        """Return the pattern of each parameter's group by name."""
        parts = _partition(trained, self.groups, "group")
        return {item.name: pattern for pattern, part in parts.items() for item, _ in part}

    def _parts(self, trained: Trained) -> list[tuple[Optimizer, Trained]]:
        """Return the optimizers with their parameters, group by group.

        Raises:
            InputError: A pattern has no parameter, or a parameter no optimizer.
        """
        parts = _partition(trained, self.by_pattern, "optimizer")
        others = [item.name for item, _ in parts[""]] if "" not in self.by_pattern else ()
        if others:
            raise InputError(
                f"no optimizer for {_listed(others)}; add one without a pattern, or do not train them"
            )
        if trained and not all(parts[pattern] for pattern in self.by_pattern):
            raise InputError("the optimizer without a pattern has no parameters: others have them all")
        group_of, order = self._group_of(trained), [*filter(None, self.groups), ""]
        return [
            (optimizer, sorted(parts[pattern], key=lambda pair: order.index(group_of[pair[0].name])))
            for pattern, optimizer in self.by_pattern.items()
        ]

    def _parameters(
        self,
        optimizer: Optimizer,
        trained: Trained,
        group_of: Mapping[str, str],
        normalizing: Collection[str],
    ) -> Iterator[TrainedParameter]:
        """Yield the parameters of an optimizer with rate and decay."""
        present = list(dict.fromkeys(group_of[item.name] for item, _ in trained))
        is_grouped = any(pattern in self.groups for pattern in present)
        for item, gradient in trained:
            pattern = group_of[item.name]
            group = self.groups.get(pattern, Group())
            rate = LearningRate(COMMON, optimizer.learning_rate)
            if group.learning_rate is not None:
                rate = LearningRate(f"{COMMON}_group_{present.index(pattern)}", group.learning_rate)
            decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
            # vendor: the exception for scales and shifts ends where there are groups
            is_exempt = item.name in normalizing and not is_grouped
            has_decay = DECAYED[optimizer.decayed](item, is_exempt)
            yield TrainedParameter(item, gradient, rate, decay if has_decay else 0.0)


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

GroupChoices = Mapping[str, str | Mapping[str, Any] | Group]


def optimizers_of(choice: OptimizerChoice, groups: GroupChoices) -> Optimizers:
    """Return the optimizers of a step.

    Args:
        choice: An optimizer or its text, or several by patterns of parameters' names.
        groups: Options of groups of parameters by patterns: ``{"*.bias": {"weight_decay": 0.0}}``.

    Raises:
        InputError: An unknown name or option, or a value that an option does not take.
    """
    optimizers = choice if isinstance(choice, Mapping) else {"": choice}
    return Optimizers(
        {pattern: optimizer_of(text) for pattern, text in optimizers.items()},
        {pattern: _group_of(pattern, values) for pattern, values in groups.items()},
    )


def _group_of(pattern: str, values: str | Mapping[str, Any] | Group) -> Group:
    return values if isinstance(values, Group) else options.built(Group, values, f"group {pattern!r}")
