"""What rules find in a finished dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from msdump.errors import DumpReadError, FormatError
from msdump.store.read.reader import Dump
from msdump.tools.watching import dumped
from msdump.tools.watching.dumped import WatchedFile
from msdump.watch.known import exactly
from msdump.watch.rules import WatchRule, need_of
from msdump.watch.subjects import WatchedTensor
from msdump.watch.watch import Hit, RuleWatch, Sighting, Undecided


@dataclass(frozen=True, slots=True)
class DumpedHit:
    """A hit in a finished dump.

    Attributes:
        hit: The hit.
        source: The line of the program that made the operator, "" where the dump does not tell.
        path: File of the tensor, or directory of the table with its statistics.
        note: What the numbers do not tell, "" for nothing.
    """

    hit: Hit
    source: str
    path: str
    note: str = ""


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


def watch(dump: Dump, rules: Sequence[WatchRule]) -> WatchReport:
    """Return what rules find in a dump.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    check = _DumpCheck(tuple(rules))
    for folders in dumped.groups(dump):
        try:
            tensors = [*dumped.tensors(folders)]
        except DumpReadError as error:
            check.report.unreadable.append(str(error))
            continue
        for tensor in tensors:
            check.look(tensor)
    check.close()
    return check.report


class _DumpCheck:
    """A walk over a dump."""

    def __init__(self, rules: tuple[WatchRule, ...]) -> None:
        self.report = WatchReport(rules)
        self._watch = RuleWatch(rules)
        self._rules_for: dict[WatchedTensor, tuple[WatchRule, ...]] = {}
        self._undecided: Counter[tuple[str, str]] = Counter()
        self._first_undecided: dict[tuple[str, str], WatchedTensor] = {}
        self._ranks = _RankTable()
        self._iteration: int | None = None

    def look(self, tensor: WatchedFile) -> None:
        """Check the rules that look at a tensor."""
        if self._iteration not in {None, tensor.sighting.iteration}:
            self._compare_ranks()
        self._iteration = tensor.sighting.iteration
        rules = self._rules(tensor)
        if not rules:
            return
        for rule in rules:
            self.report.looked_at[rule.name] += 1
        try:
            self._check(tensor, rules)
        except (DumpReadError, FormatError) as error:
            self.report.unreadable.append(str(error))

    def _rules(self, tensor: WatchedFile) -> tuple[WatchRule, ...]:
        rules = self._rules_for.get(tensor.subject)
        if rules is None:
            rules = self._rules_for[tensor.subject] = self._watch.rules_for(tensor.subject)
        return tuple(rule for rule in rules if tensor.sighting.iteration in rule.target.iterations)

    def _check(self, tensor: WatchedFile, rules: tuple[WatchRule, ...]) -> None:
        of_ranks = [rule for rule in rules if rule.compares_ranks]
        others = [rule for rule in rules if not rule.compares_ranks]
        if of_ranks:
            self._ranks.add(tensor, of_ranks)
        if not others:
            return
        seen = tensor.see(need_of(others))
        for finding in self._watch.check(others, tensor.subject, tensor.sighting, seen, tensor.place):
            if isinstance(finding, Undecided):
                self._leave_open(finding.rule, finding.reason, finding.subject)
            else:
                self.report.hits.append(DumpedHit(finding, tensor.source, tensor.path))

    def _compare_ranks(self) -> None:
        self.report.hits += self._ranks.hits()
        for rule, subject in self._ranks.alone():
            reason = "one rank alone holds it, so that there is nothing that it could agree with"
            self._leave_open(rule, reason, subject)
        self._ranks = _RankTable()

    def close(self) -> None:
        """Finish the report."""
        self._compare_ranks()
        self.report.undecided += [
            UndecidedRule(rule, reason, count, self._first_undecided[rule, reason])
            for (rule, reason), count in self._undecided.items()
        ]

    def _leave_open(self, rule: WatchRule, reason: str, subject: WatchedTensor) -> None:
        self._undecided[rule.name, reason] += 1
        self._first_undecided.setdefault((rule.name, reason), subject)


class _RankTable:
    """What the ranks hold of the tensors that they should share, in one iteration."""

    def __init__(self) -> None:
        self._digests: dict[Hashable, dict[int, tuple[str, WatchedFile]]] = {}
        self._rules: dict[Hashable, list[WatchRule]] = {}

    def add(self, tensor: WatchedFile, rules: list[WatchRule]) -> None:
        """Take in what a rank holds; may raise DumpReadError and FormatError."""
        subject = tensor.subject
        key = (tensor.place, subject.name, subject.io, subject.slot, tensor.sighting.pass_number)
        self._digests.setdefault(key, {})[tensor.sighting.rank] = (dumped.digest_of(tensor), tensor)
        self._rules[key] = rules

    def alone(self) -> list[tuple[WatchRule, WatchedTensor]]:
        """Return the tensors that one rank alone holds, for each rule."""
        lone = [(key, held) for key, held in self._digests.items() if len(held) == 1]
        return [
            (rule, tensor.subject)
            for key, held in lone
            for _, tensor in held.values()
            for rule in self._rules[key]
        ]

    def hits(self) -> list[DumpedHit]:
        """Return the ranks that hold something else than most."""
        hits = []
        for key, held in self._digests.items():
            counts = Counter(digest for digest, _ in held.values())
            # of two ranks that disagree nobody can say which is right: the later one is told
            common = counts.most_common(1)[0][0]
            apart = {rank: tensor for rank, (digest, tensor) in held.items() if digest != common}
            for rank, tensor in apart.items():
                others = ", ".join(str(each) for each, (digest, _) in held.items() if digest == common)
                note = f"rank {rank} holds something else than rank {others}"
                hits += [_rank_hit(rule, tensor, len(apart), note) for rule in self._rules[key]]
        return sorted(hits, key=lambda each: (each.hit.moment.rank, each.hit.moment.time))


def _rank_hit(rule: WatchRule, tensor: WatchedFile, count: int, note: str) -> DumpedHit:
    sighting: Sighting = tensor.sighting
    hit = Hit(rule, rule.limits[0], tensor.subject, sighting, exactly(count))
    return DumpedHit(hit, tensor.source, tensor.path, note)
