"""Patterns of parameters' names: who updates a parameter, at which learning rate and weight decay.

In a pattern ``*`` stands for any text and ``?`` for one character. The first pattern that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from msdump.errors import InputError, name_hint
from msdump.training import options
from msdump.training.learning_rates import COMMON, RATE, LearningRate, Rate
from msdump.training.optimizers import DECAYED, Optimizer, TrainedParameter, optimizer_of
from msdump.training.options import Options, Rules
from msdump.training.single_numbers import by_number
from msdump.training.tape import op
from msdump.training.variables import Trained, Variables
from msdump.training.writer import ROOT, Place, StepTensor


@dataclass(frozen=True, slots=True)
class Group(Options):
    """Learning rate and weight decay of a group of parameters; None: the optimizer's."""

    learning_rate: Rate | None = None
    weight_decay: float | None = None
    rules: ClassVar[Rules] = {
        "learning_rate": options.optional(RATE),
        "weight_decay": options.optional(options.at_least(0.0)),
    }


@dataclass(frozen=True, slots=True)
class Share:
    """An optimizer of a training step with the parameters that it updates.

    Attributes:
        optimizer: The optimizer.
        cell: Its name in the training cell: ``optimizer``, of several ``optimizer_0``, ...
        trained: Its parameters with their gradients.
    """

    optimizer: Optimizer
    cell: str
    trained: Trained

    @property
    def place(self) -> Place:
        """The optimizer's scope."""
        return ROOT.inside((self.cell, self.optimizer.cell))


@dataclass(frozen=True, slots=True)
class Optimizers:
    """The optimizers of a training step.

    As in a MindSpore cell with several optimizers, each has a scope and variables of its own, which bear its
    name: ``Default/optimizer_0-SGD``, ``optimizer_0.learning_rate``. One alone has neither number nor prefix.

    A group of parameters that several optimizers update is a group in each of them. As in MindSpore, an
    optimizer with groups updates group by group, the other parameters last, and the weight decay of a group
    is that of all its parameters, scales and shifts of normalisations included.

    Attributes:
        by_pattern: Optimizers by patterns of the names of their parameters.
        groups: Groups by patterns of names.
    """

    by_pattern: Mapping[str, Optimizer]
    groups: Mapping[str, Group]

    def __post_init__(self) -> None:
        """Refuse ``decayed`` with groups, which decide about the weight decay themselves.

        Raises:
            InputError: An optimizer has both.
        """
        for optimizer in self.by_pattern.values() if self.groups else ():
            if optimizer.decayed != "weights":
                raise InputError(
                    f"{optimizer.cell}: decayed={optimizer.decayed} does not go with groups, where all "
                    "parameters of a group decay; give a group weight_decay=0"
                )

    def shares(self, trained: Trained) -> Sequence[Share]:
        """Return the optimizers with their parameters.

        Raises:
            InputError: A pattern has no parameter, or a parameter no optimizer.
        """
        parts = _partition(trained, self.by_pattern, "optimizer")
        others = [item.name for item, _ in parts.pop("")]
        if others:
            raise InputError(
                f"no optimizer for {_listed(others)}; add one without a pattern, or do not train them"
            )
        is_one = len(parts) == 1
        return [
            Share(self.by_pattern[pattern], "optimizer" if is_one else f"optimizer_{number}", part)
            for number, (pattern, part) in enumerate(parts.items())
        ]

    def scaled(self, trained: Trained, factor: float) -> Trained:
        """Write the product of each gradient and a factor, in the scope of the parameter's optimizer."""
        scaled: dict[str, StepTensor] = {}
        for share in self.shares(trained):
            with op.at(share.place):
                scaled |= {item.name: by_number("Mul", dy, factor) for item, dy in share.trained}
        return [(item, scaled[item.name]) for item, _ in trained]

    def write(self, trained: Trained, state: Variables, normalizing: Collection[str]) -> None:
        """Write the operators of all optimizers.

        Args:
            trained: The parameters in the network's order, each with its gradient.
            state: Adds a variable to the step.
            normalizing: Names of scales and shifts of normalisations.
        """
        shares, group_of = self.shares(trained), self._group_of(trained)
        for share in shares:
            parameters = list(self._parameters(share, group_of, normalizing))
            prefix = f"{share.cell}." if len(shares) > 1 else ""
            with op.at(share.place):
                share.optimizer.write(parameters, _prefixed(state, prefix))

    def in_order(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients in the order in which the optimizers update them."""
        group_of, order = self._group_of(trained), [*self.groups, ""]
        pairs: list[tuple[StepTensor, StepTensor]] = []
        for share in self.shares(trained):
            part = sorted(share.trained, key=lambda pair: order.index(group_of[pair[0].name]))
            pairs += part[::-1] if share.optimizer.is_last_first else part
        return pairs

    def _group_of(self, trained: Trained) -> dict[str, str]:
        """Return the pattern of each parameter's group by name, "" for none."""
        parts = _partition(trained, self.groups, "group")
        return {item.name: pattern for pattern, part in parts.items() for item, _ in part}

    def _parameters(
        self, share: Share, group_of: Mapping[str, str], normalizing: Collection[str]
    ) -> Iterator[TrainedParameter]:
        """Yield the parameters of an optimizer with rate and decay, in the optimizer's order."""
        optimizer = share.optimizer
        present = {group_of[item.name] for item, _ in share.trained}
        patterns = [pattern for pattern in (*self.groups, "") if pattern in present]
        is_grouped = patterns != [""]
        for number, pattern in enumerate(patterns):
            group = self.groups.get(pattern, Group())
            rate = LearningRate(COMMON, optimizer.learning_rate)
            if group.learning_rate is not None:
                rate = LearningRate(f"{COMMON}_group_{number}", group.learning_rate)
            decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
            for item, gradient in share.trained:
                if group_of[item.name] == pattern:
                    decays = is_grouped or DECAYED[optimizer.decayed](item, item.name in normalizing)
                    yield TrainedParameter(item, gradient, rate, decay if decays else 0.0)


def _prefixed(state: Variables, prefix: str) -> Variables:
    return lambda name, *arguments, **choices: state(prefix + name, *arguments, **choices)


def _partition(trained: Trained, patterns: Iterable[str], title: str) -> dict[str, Trained]:
    """Return the parameters by the first pattern that matches their names, "" where none does.

    Raises:
        InputError: A pattern without parameters.
    """
    parts: dict[str, Trained] = {}
    rest = list(trained)
    for pattern in patterns:
        matches = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL).fullmatch
        parts[pattern] = [pair for pair in rest if matches(pair[0].name)]
        if trained and not parts[pattern]:  # a loss that depends on no parameter leaves all patterns without
            names = [item.name for item, _ in trained]
            if any(map(matches, names)):
                raise InputError(f"{title} {pattern!r}: earlier patterns have all its parameters")
            raise InputError(
                f"{title} {pattern!r}: no trained parameter has this name; there are {_listed(names)}"
                f"{name_hint(pattern, names)}"
            )
        rest = [pair for pair in rest if not matches(pair[0].name)]
    return parts | {"": rest}


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
    optimizers = choice if isinstance(choice, Mapping) else {"*": choice}
    if not optimizers:
        raise InputError("no optimizer is given")
    return Optimizers(
        {pattern: optimizer_of(text) for pattern, text in optimizers.items()},
        {pattern: _group_of(pattern, values) for pattern, values in groups.items()},
    )


def _group_of(pattern: str, values: str | Mapping[str, Any] | Group) -> Group:
    return values if isinstance(values, Group) else options.built(Group, values, f"group {pattern!r}")
