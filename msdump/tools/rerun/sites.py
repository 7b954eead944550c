"""Which operator of the model each dumped operator is, and what stands where the model has another one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msdump.graph.graph import Graph
from msdump.record import IO
from msdump.store import names
from msdump.tools.matching.sides import canonical_type, kinds
from msdump.tools.rerun.compiled_model import CompiledModel, ModelOperator, file_names, written_type
from msdump.tools.rerun.dumped import INPUTS, RerunOperator


@dataclass(frozen=True, slots=True)
class Sites:
    """The operators of the model beside those of a dump.

    Attributes:
        found: The operator of the model that each dumped one is, or whose place it takes; None for neither.
        replaced: Names of the model's operators in whose place a dumped one stands, by its position.
    """

    found: tuple[ModelOperator | None, ...]
    replaced: Mapping[int, str]


def sites(model: CompiledModel, operators: Sequence[RerunOperator]) -> Sites:
    """Return the operators of the model that dumped ones are.

    Where several operators share a name, as in files of the ``classic`` generation, they ran in the order
    of the model. The name of the golden operator that matching found counts before the own one. A dumped
    operator that the model lacks takes the place of those that the dump lacks and that stand between the
    same neighbours.

    Args:
        model: The model as the examined side was compiled.
        operators: The dumped operators, in the order in which they ran.
    """
    found = _named(model, operators)
    odd = dict(_odd(model, operators, found))
    replaced = odd | dict(_kindred(model, operators, found))
    for strangers, unused in _gaps(model, operators, found):
        if not odd.keys() & set(strangers):
            replaced[strangers[0]] = _listed(unused)
        if len(strangers) == len(unused) == 1:
            found[strangers[0]] = unused[0]
    for position, name in [*replaced.items()]:
        if found[position] is not None and kinds(name) and _may_be(operators[position].name, name):
            del replaced[position]  # the same under another number
    _site_inserted(model, operators, found)
    return Sites(tuple(found), replaced)


def _odd(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> Iterator[tuple[int, str]]:
    """Yield, of several strangers in a gap, the first that is no part of what stood there, and that.

    The others may do what the rest of the parts did, each as a kernel of its own.
    """
    for strangers, unused in _gaps(model, operators, found):
        parts = {canonical_type(part) for each in unused for part in kinds(file_names(each.node)[0])}
        types = {each: {*map(canonical_type, kinds(operators[each].name))} for each in strangers}
        odd = next((each for each in strangers if not types[each] <= parts), None)
        if odd is not None and len(strangers) > 1:
            yield odd, _listed(unused)


def _listed(unused: Iterable[ModelOperator]) -> str:
    return ", ".join(file_names(each.node)[0] for each in unused)


def _kindred(
    model: CompiledModel, operators: Sequence[RerunOperator], found: list[ModelOperator | None]
) -> Iterator[tuple[int, str]]:
    """Find the places of strangers, those in bodies too; yield their positions, and what stood there.

    That is what matching says that they replace; else the only operator of the model that the dump lacks, in
    the stranger's scope, whose parts are some of the stranger's, or the reverse; else what a body lacks
    whose only stranger it is.
    """
    used = {_identity(site) for site in found if site is not None}
    unused = {
        name: sites[0]
        for name, sites in model.sites.items()
        if len(sites) == 1 and _identity(sites[0]) not in used and not sites[0].node.is_added
    }
    strangers = [
        (position, operator)
        for position, operator in enumerate(operators)
        if found[position] is None and not operator.is_inserted and operator.op_type not in INPUTS
    ]
    in_bodies = [name for name, site in unused.items() if site.graph is not model.graph]
    alone = _alone({operator.name for _, operator in strangers}, in_bodies)
    for position, operator in strangers:
        names_here = [operator.replaces] if operator.replaces in unused else _akin(operator.name, unused)
        names_here = names_here or alone.get(operator.name, [])
        if len(names_here) == 1:
            found[position] = unused[names_here[0]]
            yield position, names_here[0]


def _alone(strangers: Iterable[str], unused: Iterable[str]) -> dict[str, list[str]]:
    """Return what a scope lacks by the name of its only stranger."""
    here, lacked = _by_scope(strangers), _by_scope(unused)
    return {names[0]: lacked.get(scope, []) for scope, names in here.items() if scope and len(names) == 1}


def _by_scope(operators: Iterable[str]) -> dict[str, list[str]]:
    scopes: defaultdict[str, list[str]] = defaultdict(list)
    for name in operators:
        scopes[_scope(name)].append(name)
    return scopes


def _identity(site: ModelOperator) -> tuple[int, str]:
    return site.graph.index, site.node.name


def _akin(name: str, others: Iterable[str]) -> list[str]:
    """Return those operators in the scope of another one whose parts are some of its, or the reverse."""
    own, scope = kinds(name), _scope(name)
    if not (own and scope):
        return []
    return [
        other
        for other in others
        if _scope(other) == scope and (_is_within(own, kinds(other)) or _is_within(kinds(other), own))
    ]


def _scope(name: str) -> str:
    return name.rpartition("_")[0]


def _is_within(parts: Sequence[str], whole: Sequence[str]) -> bool:
    """Tell whether parts stand in a whole in their order, others between them."""
    rest = iter(whole)
    return bool(parts) and all(part in rest for part in parts)


def _site_inserted(
    model: CompiledModel, operators: Sequence[RerunOperator], found: list[ModelOperator | None]
) -> None:
    """Find the inserted operators by what wrote their inputs: a number says only how many were before.

    Where nothing tells what wrote an input the number counts, unless other operators have moved it.
    """
    has_moved = _has_moved(model, operators, found)
    written: dict[tuple[str, int], tuple[Graph, str]] = {
        (names.sanitize(value.name), 0): (model.graph, value.name) for value in model.graph.inputs
    }
    for position, operator in enumerate(operators):
        if operator.is_inserted:
            forms = _forms_of(model, operator, written)
            named = found[position]
            if forms and named not in forms:
                found[position] = forms[0]
            elif not forms and has_moved:
                found[position] = None
        site = found[position]
        if site is not None:
            for slot, value in enumerate(site.node.declared_outputs):
                written[operator.name, slot] = site.graph, value


def _has_moved(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> bool:
    """Tell whether inserted operators may have other numbers than the model's."""
    own = {operator.name for operator in operators if operator.is_inserted}
    if len(own) != sum(node.is_added for graph in model.graph.walk() for node in graph.operators):
        return True
    return any(
        site is None and not (operator.is_inserted or operator.op_type in INPUTS)
        for operator, site in zip(operators, found, strict=True)
    )


def _forms_of(
    model: CompiledModel, operator: RerunOperator, written: Mapping[tuple[str, int], tuple[Graph, str]]
) -> list[ModelOperator]:
    """Return the model's operators that bring what an inserted one reads into the form that it writes."""
    source = operator.sources.get(0)
    if source is None or source not in written:
        return []
    tensor = operator.tensors.get((IO.OUTPUT, 0))
    return [
        site
        for site in model.inserted(*written[source])
        if site.node.operator.op_type == operator.op_type
        and (tensor is None or written_type(site.graph, site.node) in {"", tensor.dtype})
    ]


def _named(model: CompiledModel, operators: Sequence[RerunOperator]) -> list[ModelOperator | None]:
    counts: Counter[str] = Counter()
    found: list[ModelOperator | None] = []
    # where an operator was dropped or added, those behind it may have the names of others
    moved = {each.partner for each in operators if each.partner not in {"", each.name}} & model.sites.keys()
    for operator in operators:
        is_told = operator.partner in model.sites and _may_be(operator.name, operator.partner)
        name = operator.partner if is_told else operator.name
        is_taken = name in moved and operator.partner != name
        named = () if operator.op_type in INPUTS or is_taken else model.sites.get(name, ())
        number = counts[name] % max(len(named), 1)
        counts[name] += 1
        found.append(named[number] if named else None)
    return found


def _may_be(name: str, partner: str) -> bool:
    """Tell whether an operator has the parts of another one, as far as their names tell."""
    if name == partner:
        return True
    own, other = (tuple(map(canonical_type, kinds(each))) for each in (name, partner))
    return own == other or not (own and other)


def _gaps(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> Iterator[tuple[list[int], list[ModelOperator]]]:
    """Yield the strangers between two operators of the main graph, and what the dump lacks there."""
    # what the device adds to bring tensors into its types and formats stands in the place of nothing
    main = [
        ModelOperator(node, model.graph)
        for node in model.graph.operators
        if not node.is_added and model.is_dumped(node)
    ]
    places = {each.node.name: place for place, each in enumerate(main)}
    used = {site.node.name for site in found if site is not None}
    strangers: list[int] = []
    last = -1
    for position, (operator, site) in enumerate(zip(operators, found, strict=True)):
        if operator.op_type in INPUTS or operator.is_inserted:
            continue
        if site is None:
            strangers.append(position)
        elif site.node.name in places:
            place = places[site.node.name]
            unused = [each for each in main[last + 1 : place] if each.node.name not in used]
            if strangers and unused:
                yield strangers, unused
            strangers, last = [], max(last, place)
    unused = [each for each in main[last + 1 :] if each.node.name not in used]
    if strangers and unused:
        yield strangers, unused
