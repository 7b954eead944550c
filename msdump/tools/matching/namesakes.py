"""Operators of one name that both graphs have, wired otherwise, so that nothing around them pairs them."""

from __future__ import annotations

from collections.abc import Iterator

from msdump.device.tasks import INSERTED_PREFIX
from msdump.tools.matching import regions
from msdump.tools.matching.evidence import PairEvidence

_NUMBER = "-op"


def namesakes(evidence: PairEvidence) -> Iterator[tuple[int, int]]:
    """Yield the places of operators of one name, type and shape that have no partner.

    No number of their scope and type may have moved: others of them belong to operators of their names. Nor
    may one of the two lead to what the other one reads, or what reads the other one lead to it.

    Args:
        evidence: All pairs that were found otherwise.
    """
    mine, golden = evidence.mine, evidence.golden
    in_regions = {place for region in regions.region_pairs(evidence) for place in region.mine}
    moved = _moved(evidence)
    for place, operator in enumerate(mine.operators):
        name = operator.full_name
        partner = golden.positions.get(name)
        is_alone = evidence.golden_of[place] is None and place not in in_regions
        if partner is None or not is_alone or evidence.mine_of[partner] is not None:
            continue
        if name.startswith(INSERTED_PREFIX) or _stem(name) in moved:
            continue
        if mine.types[place] != golden.types[partner] or not evidence.may_have_form(place, partner):
            continue
        if evidence.is_in_order(place, partner):
            yield place, partner


def _moved(evidence: PairEvidence) -> frozenset[str]:
    """Return what stands in front of numbers that tell other operators on the two sides."""
    mine, golden = evidence.mine.operators, evidence.golden.operators
    names = (
        (mine[place].full_name, golden[partner].full_name)
        for place, partner in enumerate(evidence.golden_of)
        if partner is not None
    )
    return frozenset(_stem(name) for pair in names if pair[0] != pair[1] for name in pair)


def _stem(name: str) -> str:
    return name.rpartition(_NUMBER)[0] or name
