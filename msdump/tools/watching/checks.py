"""What rules find in some directories of a dump, which another process may look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Never

from msdump.errors import DumpReadError, FormatError
from msdump.statistics.totals import StatisticNeed
from msdump.tools.watching import dumped
from msdump.tools.watching.dumped import DumpedFolder, WatchedFile
from msdump.watch.quantities import Past
from msdump.watch.rules import WatchRule, need_of
from msdump.watch.subjects import WatchedTensor
from msdump.watch.watch import Hit, RuleWatch, Undecided


@dataclass(frozen=True, slots=True)
class DumpedHit:
    """A hit in a finished dump.

    Attributes:
        hit: The hit.
        source: The line of the program that made the operator, "" where the dump does not tell.
        path: File of the tensor, or directory of the table with its statistics.
    """

    hit: Hit
    source: str
    path: str


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """What a rank holds of a tensor that ranks should share.

    Attributes:
        key: What it has in common with those of the other ranks.
        digest: What tells whether another one has the same elements.
        tensor: The tensor; it cannot be read.
        rules: The rules that compare it.
    """

    key: Hashable
    digest: str
    tensor: WatchedFile
    rules: tuple[WatchRule, ...]


@dataclass(slots=True)
class CheckedRank:
    """What rules find in one iteration of one rank.

    Attributes:
        iteration: Number of the iteration.
        rank: Number of the rank.
        hits: The limits that were passed.
        undecided: Rule, reason and tensor of each check that could not be made.
        unreadable: Files that could not be read, and why.
        looked_at: Number of tensors that a rule looked at, by the rule's name.
        shared: The tensors that ranks should share.
    """

    iteration: int
    rank: int
    hits: list[DumpedHit] = field(default_factory=list)
    undecided: list[tuple[str, str, WatchedTensor]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)
    shared: list[SharedTensor] = field(default_factory=list)


def looks_back(rules: Sequence[WatchRule]) -> bool:
    """Tell whether what a rule finds in an iteration depends on those before."""
    pasts = (limit.quantity.past for rule in rules for limit in rule.limits)
    return any(rule.is_first_only for rule in rules) or any(past is not Past.NOTHING for past in pasts)


def check(rules: tuple[WatchRule, ...], groups: Sequence[Sequence[DumpedFolder]]) -> list[CheckedRank]:
    """Return what rules find in the iterations of one rank.

    Args:
        rules: The rules.
        groups: The directories of each iteration, in order.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    watch = RuleWatch(rules)
    rules_for: dict[WatchedTensor, tuple[WatchRule, ...]] = {}
    checked = []
    for folders in groups:
        rank = _RankCheck(watch, rules_for, CheckedRank(folders[0].number, folders[0].rank))
        checked.append(rank.checked)
        try:
            tensors = [*dumped.tensors([*folders])]
        except DumpReadError as error:
            rank.checked.unreadable.append(str(error))
            continue
        for tensor in tensors:
            rank.look(tensor)
    return checked


@dataclass(frozen=True, slots=True)
class _RankCheck:
    """A walk over one iteration of one rank."""

    watch: RuleWatch
    rules_for: dict[WatchedTensor, tuple[WatchRule, ...]]
    checked: CheckedRank

    def look(self, tensor: WatchedFile) -> None:
        """Check the rules that look at a tensor."""
        rules = self._rules(tensor)
        for rule in rules:
            self.checked.looked_at[rule.name] += 1
        try:
            self._check(tensor, rules)
        except (DumpReadError, FormatError) as error:
            self.checked.unreadable.append(str(error))

    def _rules(self, tensor: WatchedFile) -> tuple[WatchRule, ...]:
        rules = self.rules_for.get(tensor.subject)
        if rules is None:
            rules = self.rules_for[tensor.subject] = self.watch.rules_for(tensor.subject)
        return tuple(rule for rule in rules if tensor.sighting.iteration in rule.target.iterations)

    def _check(self, tensor: WatchedFile, rules: tuple[WatchRule, ...]) -> None:
        of_ranks = tuple(rule for rule in rules if rule.compares_ranks)
        others = [rule for rule in rules if not rule.compares_ranks]
        if of_ranks:
            self.checked.shared.append(_shared(tensor, of_ranks))
        if not others:
            return
        seen = tensor.see(need_of(others))
        for finding in self.watch.check(others, tensor.subject, tensor.sighting, seen, tensor.place):
            if isinstance(finding, Undecided):
                self.checked.undecided.append((finding.rule.name, finding.reason, finding.subject))
            else:
                self.checked.hits.append(DumpedHit(finding, tensor.source, tensor.path))


def _shared(tensor: WatchedFile, rules: tuple[WatchRule, ...]) -> SharedTensor:
    subject = tensor.subject
    key = (tensor.place, subject.name, subject.io, subject.slot, tensor.sighting.pass_number)
    return SharedTensor(key, dumped.digest_of(tensor), replace(tensor, see=_unread), rules)


def _unread(need: StatisticNeed) -> Never:
    raise AssertionError(f"a tensor that was looked at is read no more: {need}")
