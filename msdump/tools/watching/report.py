"""What rules find in a finished dump."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msdump.store.read.reader import Dump
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.watching import checks, dumped
from msdump.tools.watching.checks import CheckedRank, DumpedHit, SharedTensor
from msdump.tools.watching.dumped import DumpedFolder, WatchedFile
from msdump.watch.known import exactly
from msdump.watch.ranks import ALONE, disagreeing
from msdump.watch.rules import WatchRule
from msdump.watch.subjects import WatchedTensor
from msdump.watch.watch import Hit


@dataclass(frozen=True, slots=True)
class UndecidedRule:
    """A rule that could not be checked on some tensors, for one reason.

    Attributes:
        rule: Name of the rule.
        reason: Why.
        count: On how many tensors, those of each iteration counted.
        first: The first of them.
    """

    rule: str
    reason: str
    count: int
    first: WatchedTensor


@dataclass(slots=True)
class WatchReport:
    """What rules find in a dump.

    Attributes:
        rules: The rules.
        hits: The limits that were passed, in the order of iterations, ranks and time.
        undecided: The rules that could not be checked, and why.
        unreadable: Files that could not be read, and why.
        looked_at: Number of tensors that a rule looked at, by the rule's name.
    """

    rules: tuple[WatchRule, ...]
    hits: list[DumpedHit] = field(default_factory=list)
    undecided: list[UndecidedRule] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)

    @property
    def unused(self) -> list[str]:
        """Names of the rules that looked at no tensor."""
        return [rule.name for rule in self.rules if not self.looked_at[rule.name]]

    @property
    def has_checked(self) -> bool:
        """Whether a rule could be checked on a tensor."""
        undecided = Counter({each.rule: 0 for each in self.undecided})
        for each in self.undecided:
            undecided[each.rule] += each.count
        return any(count > undecided[name] for name, count in self.looked_at.items())


def watch(
    dump: Dump,
    rules: Sequence[WatchRule],
    *,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> WatchReport:
    """Return what rules find in a dump.

    Args:
        dump: The dump.
        rules: The rules.
        executor: Who looks at the tensors.
        progress: Called with the bytes of what was looked at.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    checked = mapper.each(
        partial(checks.check, tuple(rules)),
        _parts(dump, looks_back=checks.looks_back(rules)),
        size=lambda groups: sum(folder.size for folders in groups for folder in folders),
        executor=executor,
        name=lambda groups: groups[0][0].iteration.path,
        paths=(dump.path,),
        progress=progress,
    )
    each = sorted(itertools.chain.from_iterable(checked), key=lambda rank: (rank.iteration, rank.rank))
    return _report(tuple(rules), each)


def _parts(dump: Dump, *, looks_back: bool) -> Iterable[list[list[DumpedFolder]]]:
    """Return the directories that one walk looks at: each iteration of a rank, or all of them in order."""
    groups = [*dumped.groups(dump)]
    if not looks_back:
        return [[folders] for folders in groups]
    by_rank: dict[int, list[list[DumpedFolder]]] = {}
    for folders in groups:
        by_rank.setdefault(folders[0].rank, []).append(folders)
    return by_rank.values()


def _report(rules: tuple[WatchRule, ...], ranks: Sequence[CheckedRank]) -> WatchReport:
    """Put together what was found, in the order of iterations and ranks."""
    report = WatchReport(rules)
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], WatchedTensor] = {}
    for _, of_iteration in itertools.groupby(ranks, lambda rank: rank.iteration):
        table = _RankTable()
        undecided: list[tuple[str, str, WatchedTensor]] = []
        for rank in of_iteration:
            report.hits += rank.hits
            report.unreadable += rank.unreadable
            report.looked_at += rank.looked_at
            undecided += rank.undecided
            table.add(rank.shared)
        report.hits += table.hits()
        for rule, reason, subject in (*undecided, *table.alone()):
            counts[rule, reason] += 1
            first.setdefault((rule, reason), subject)
    report.undecided += [
        UndecidedRule(rule, reason, count, first[rule, reason]) for (rule, reason), count in counts.items()
    ]
    return report


class _RankTable:
    """What the ranks hold of the tensors that they should share, in one iteration."""

    def __init__(self) -> None:
        self._held: dict[Hashable, dict[int, SharedTensor]] = {}

    def add(self, shared: Iterable[SharedTensor]) -> None:
        """Take in what a rank holds."""
        for each in shared:
            self._held.setdefault(each.key, {})[each.tensor.sighting.rank] = each

    def alone(self) -> list[tuple[str, str, WatchedTensor]]:
        """Return rule, reason and tensor where one rank alone holds it."""
        lone = [each for held in self._held.values() if len(held) == 1 for each in held.values()]
        return [(rule.name, ALONE, each.tensor.subject) for each in lone for rule in each.rules]

    def hits(self) -> list[DumpedHit]:
        """Return the ranks that hold something else than most."""
        hits = []
        for held in self._held.values():
            apart = disagreeing({rank: each.digest for rank, each in held.items()})
            for rank, note in apart.items():
                hits += [_rank_hit(rule, held[rank].tensor, len(apart), note) for rule in held[rank].rules]
        return sorted(hits, key=lambda each: (each.hit.moment.rank, each.hit.moment.time))


def _rank_hit(rule: WatchRule, tensor: WatchedFile, count: int, note: str) -> DumpedHit:
    hit = Hit(rule, rule.limits[0], tensor.subject, tensor.sighting, exactly(count), note)
    return DumpedHit(hit, tensor.source, tensor.path)
