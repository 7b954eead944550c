"""What is known of pairs of operators, and how sure it makes that they belong together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msdump.analysis.align.sides import (
    UNKNOWN,
    UNTOLD,
    Colouring,
    Colours,
    IndexedGraph,
    Producer,
    aligned,
    is_commutative,
    is_weight,
    passes_on,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from msdump.read import ValueForm


# How sure each kind of evidence makes, if it is all there is: each one takes away that share of the doubt.
_UNIQUE_SIDE: Final = 0.9
"""All operators before, or all behind, are equal, and of no other operator."""
_SIDE: Final = 0.5
"""The same, but other operators have such surroundings, too."""
_AROUND: Final = ((0.5, 0.2), (0.7, 0.3), (0.8, 0.4))
"""Neighbours up to a radius are equal: of this operator alone, and of others, too."""
_ORDER: Final = 0.4
"""Beside equal neighbours also the same place in the order that both graphs share."""
_INPUTS: Final = 0.8
_READERS: Final = 0.7
_WEIGHT: Final = 0.6
_NAME: Final = 0.6
_NODE: Final = 0.6
_SCOPE: Final = 0.15
_FORM: Final = 0.1
_SAME_ELEMENTS: Final = 0.95
_LIKE_ELEMENTS: Final = 0.5

# What is left of the certainty where something speaks against it.
_OTHER_INPUTS: Final = 0.6
_OTHER_READERS: Final = 0.7
_OTHER_FORM: Final = 0.5
_OTHER_ORDER: Final = 0.5
"""One of the two leads to what the other one reads, or what reads the other one leads to it."""
_OTHER_CAST: Final = 0.8
"""Casts to other types: of two in a row, one side's first is not the other side's second."""
_OTHER_ELEMENTS: Final = 0.7

LIKE: Final = 0.85


class PairEvidence:
    """Weighs what is known of pairs of operators, while pairs are found."""

    def __init__(self, mine: IndexedGraph, golden: IndexedGraph, colours: Colours) -> None:
        """Begin without pairs."""
        self.mine = mine
        self.golden = golden
        self.golden_of: list[int | None] = [None] * len(mine.operators)
        self.mine_of: list[int | None] = [None] * len(golden.operators)
        self.reads_contents = False
        self._colours = colours
        self.in_order = aligned(_forms_in_order(mine), _forms_in_order(golden))
        self._golden_at = dict(self.in_order)

    def pair(self, mine: int, golden: int) -> None:
        """Take in that two operators belong together."""
        self.golden_of[mine] = golden
        self.mine_of[golden] = mine

    def certainty(self, mine: int, golden: int) -> float:
        """Return how sure it is that two operators belong together, 0 to 1."""
        if self.mine.types[mine] != self.golden.types[golden]:
            return 0.0
        inputs, readers = self.inputs(mine, golden), self.readers(mine, golden)
        doubt = math.prod(1 - each for each in self._reasons(mine, golden, inputs[0], readers[0]))
        against = (1 - (1 - _OTHER_INPUTS) * inputs[1]) * (1 - (1 - _OTHER_READERS) * readers[1])
        if against < 1 and not self.is_in_order(mine, golden):
            against *= _OTHER_ORDER
        forms = self._forms(mine, golden)
        if forms is False:
            against *= _OTHER_FORM
        if self._are_other_casts(mine, golden):
            against *= _OTHER_CAST
        likeness = self.likeness(mine, golden) if self.reads_contents else None
        if likeness is not None:
            doubt *= 1 - (_SAME_ELEMENTS if likeness == 1 else _LIKE_ELEMENTS if likeness >= LIKE else 0.0)
            # where the structure tells, or both read the same, one of them may have written something wrong
            is_told = inputs[0] == 1 or self.is_told_apart(mine, golden)
            against *= 1 if likeness or is_told else _OTHER_ELEMENTS
        return (1 - doubt * (1 - _FORM if forms else 1)) * against

    def is_in_order(self, mine: int, golden: int) -> bool:
        """Tell whether neither of two operators leads to what the other one reads, nor from its readers."""
        return _is_between(self.mine, mine, self.golden_of, self.golden, golden) and _is_between(
            self.golden, golden, self.mine_of, self.mine, mine
        )

    def is_told_apart(self, mine: int, golden: int) -> bool:
        """Tell whether what is around two operators is around no other ones."""
        colourings = (self._colours.before, self._colours.behind, *self._colours.around)
        return any(each.joins(mine, golden) and each.is_unique(mine) for each in colourings)

    def may_fit(self, mine: int, golden: int) -> bool:
        """Tell whether the outputs of two operators may have the same shapes, and elements alike.

        Where both read the same, their elements may differ: one of them may be wrong.
        """
        if not self.may_have_form(mine, golden):
            return False
        return self.inputs(mine, golden)[0] == 1 or self.may_be_alike(mine, golden)

    def may_have_form(self, mine: int, golden: int) -> bool:
        """Tell whether the outputs of two operators may have the same shapes."""
        return self._forms(mine, golden) is not False

    def may_be_alike(self, mine: int, golden: int) -> bool:
        """Tell whether the first outputs of two operators are alike, or not known."""
        likeness = self.likeness(mine, golden) if self.reads_contents else None
        return likeness is None or likeness >= LIKE

    def are_unlike(self, mine: int, golden: int) -> bool:
        """Tell whether the first outputs of two operators are known to hold other elements."""
        likeness = self.likeness(mine, golden)
        return likeness is not None and likeness < LIKE

    def _are_other_casts(self, mine: int, golden: int) -> bool:
        """Tell whether two operators that pass values on are declared to write other element types."""
        if not passes_on(self.mine.types[mine]):
            return False
        outputs = self.mine.operators[mine].outputs, self.golden.operators[golden].outputs
        types = {each[0].dtype for each in outputs if each} - {""}
        return len(types) > 1

    def _forms(self, mine: int, golden: int) -> bool | None:
        return _forms(self.mine.operators[mine].outputs, self.golden.operators[golden].outputs)

    def _reasons(self, mine: int, golden: int, inputs: float, readers: float) -> Iterator[float]:
        for side in (self._colours.before, self._colours.behind):
            if side.joins(mine, golden):
                yield _UNIQUE_SIDE if side.is_unique(mine) else _SIDE
        yield _of_radius(self._colours.around, mine, golden)
        if self._golden_at.get(mine) == golden and self._colours.around[0].joins(mine, golden):
            yield _ORDER
        yield _INPUTS * inputs
        yield _READERS * readers
        if self._shares_weight(mine, golden):
            yield _WEIGHT
        yield from self._names(mine, golden)

    def _names(self, mine: int, golden: int) -> Iterator[float]:
        own, other = self.mine.operators[mine], self.golden.operators[golden]
        if own.full_name == other.full_name:
            yield _NAME
        if own.onnx_names and own.onnx_names == other.onnx_names:
            yield _NODE
        if own.scope == other.scope:
            yield _SCOPE

    def _shares_weight(self, mine: int, golden: int) -> bool:
        labels = {each.label for each in self.golden.producers[golden] if is_weight(each)}
        return any(is_weight(each) and each.label in labels for each in self.mine.producers[mine])

    def inputs(self, mine: int, golden: int) -> tuple[float, float]:
        """Return the shares of the inputs that are known to be the same, and known to be other ones."""
        own, other = self.mine.producers[mine], self.golden.producers[golden]
        count = max(len(own), len(other))
        if not count:
            return 0.0, 0.0
        if is_commutative(self.mine.types[mine]):
            other = self._rearranged(own, other)
        answers = [self._is_same(*each) for each in zip(own, other, strict=False)]
        answers += [False] * (count - len(answers))
        return answers.count(True) / count, answers.count(False) / count

    def _rearranged(self, own: Sequence[Producer], other: Sequence[Producer]) -> tuple[Producer, ...]:
        """Return the golden inputs, those in front that are known to be the same as mine."""
        rest = list(other)
        same: dict[int, Producer] = {}
        for slot, each in enumerate(own):
            partner = next((golden for golden in rest if self._is_same(each, golden)), None)
            if partner is not None:
                same[slot] = partner
                rest.remove(partner)
        unlike = iter(rest)
        arranged = (same.get(slot) or next(unlike, None) for slot in range(max(len(own), len(other))))
        return tuple(each for each in arranged if each is not None)

    def _is_same(self, own: Producer, other: Producer) -> bool | None:
        if UNTOLD in {own.label, other.label}:
            return None
        if own.position < 0 and other.position < 0:
            return None if UNKNOWN in {own.label, other.label} else own.label == other.label
        if own.position < 0 or other.position < 0:
            return False
        counterpart, source = self.golden_of[own.position], self.mine_of[other.position]
        if counterpart is None and source is None:
            return None
        return counterpart == other.position and own.slot == other.slot

    def readers(self, mine: int, golden: int) -> tuple[float, float]:
        """Return the shares of the readers that are known to be the same, and known to be other ones."""
        own, other = self.mine.readers[mine], self.golden.readers[golden]
        count = max(len(own), len(other))
        if not count:
            return 0.0, 0.0
        rest = {(each.position, each.output) for each in other}
        same = unknown = 0
        for reader in own:
            position = -1 if reader.position < 0 else self.golden_of[reader.position]
            unknown += position is None
            same += position is not None and (position, reader.output) in rest
        paired = sum(each.position < 0 or self.mine_of[each.position] is not None for each in other)
        return same / count, max(len(own) - unknown - same, paired - same, 0) / count

    def likeness(self, mine: int, golden: int) -> float | None:
        """Return how alike the elements of the first outputs are, None where that is not known."""
        own, other = (
            graph.side.content_of(graph.operators[position].full_name, 0)
            for graph, position in ((self.mine, mine), (self.golden, golden))
        )
        if own is None or other is None or not other.is_telling:
            return None
        return own.likeness(other)


def _is_between(
    graph: IndexedGraph, place: int, partner_of: Sequence[int | None], other: IndexedGraph, partner: int
) -> bool:
    """Tell whether a partner leads to none of what the operator reads, and none of its readers to it."""
    before = (partner_of[each.position] for each in graph.producers[place] if each.position >= 0)
    behind = (partner_of[each.position] for each in graph.readers[place] if each.position >= 0)
    return not (
        any(each is not None and other.leads_to(partner, each) for each in before)
        or any(each is not None and other.leads_to(each, partner) for each in behind)
    )


def _forms_in_order(graph: IndexedGraph) -> list[Hashable]:
    """Return types and shapes of the outputs of operators, in their order."""
    return [
        (op_type, tuple(form.shape for form in operator.outputs))
        for op_type, operator in zip(graph.types, graph.operators, strict=True)
    ]


def _of_radius(around: tuple[Colouring, ...], mine: int, golden: int) -> float:
    """Return what the largest radius up to which the neighbours are equal makes sure."""
    for (unique, shared), colouring in reversed(list(zip(_AROUND, around, strict=True))):
        if colouring.joins(mine, golden):
            return unique if colouring.is_unique(mine) else shared
    return 0.0


def _forms(mine: Sequence[ValueForm], golden: Sequence[ValueForm]) -> bool | None:
    """Tell whether outputs may have the same shapes; None where that is not known."""
    shapes = [(own.shape, other.shape) for own, other in zip(mine, golden, strict=False)]
    known = [(own, other) for own, other in shapes if own is not None and other is not None]
    if not known:
        return None
    return all(
        len(own) == len(other)
        and all(one == two or -1 in {one, two} for one, two in zip(own, other, strict=True))
        for own, other in known
    )
