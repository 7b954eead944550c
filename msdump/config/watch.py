"""Reads watch rules: each condition has a model, made from the table of conditions.

A rule is an object with a condition, its parameters, and keys that select tensors (``RuleSettings``):

    {"condition": "tensor_too_large", "max_gt": 1000, "role": "gradient", "scope": "fc1"}
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field, create_model

from msdump.config import source
from msdump.config.grammar import parse_iterations, parse_kernel
from msdump.config.models import Allowed, Section, about
from msdump.config.settings import value_faults
from msdump.config.source import FaultReport, GrammarError, Path, choice, did_you_mean, show
from msdump.record import IO
from msdump.selector import IterationSet, KernelPattern
from msdump.watch import CONDITIONS, SHARE_WITHIN, Condition, Domain, Limit, Role, WatchRule, WatchTarget

_PLACES: Final[tuple[Path, ...]] = ((), ("watch",), ("rules",), ("msdump", "watch"))
GIVER: Final = "--rules"
_FILE_TEXT: Final = 'the file must hold a list of rules, {"watch": [...]}, or a dump configuration with one'


class RuleSettings(Section):
    """Keys of a rule that select tensors, and its name."""

    name: Annotated[
        str,
        Allowed("a text of 1 to 80 characters"),
        Field(min_length=1, max_length=80),
        about("Name of the rule in messages and reports; the condition's name by default."),
    ] = ""
    operators: Annotated[
        list[str],
        Allowed("a list of texts", "a text: a full name, an operator type or name-regex(...)"),
        about(
            'Operators, in the form of `kernels`: full names, types, or "name-regex(expression)". Empty: all.'
        ),
    ] = Field(default_factory=list)
    types: Annotated[
        list[str],
        Allowed("a list of texts", "a text: an operator type"),
        about("Operator types, whole, in any case. Empty: all."),
    ] = Field(default_factory=list)
    scope: Annotated[
        str,
        Allowed("a text: a scope or a module's path"),
        about(
            "A scope of the full name, whole or in part, with or without class names: "
            '"Default/fc1-Dense", "h.3".'
        ),
    ] = ""
    role: Annotated[
        Literal["weight", "gradient", "activation", "loss", "any"],
        about(
            "Role of the tensor in training; fixed for conditions on weights, gradients, "
            "activations or the loss."
        ),
    ] = "any"
    io: Annotated[Literal["input", "output", "all"], about("Side of the operator.")] = "all"
    slot: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Allowed("a whole number from 0"),
        about("Index among the operator's inputs or outputs; all of them by default."),
    ] = None
    iterations: Annotated[
        str, Allowed("a text such as '0|5-8|100-120' or 'all'"), about("Iterations that the rule checks.")
    ] = "all"


_KINDS: Final[Mapping[Domain, Any]] = {
    Domain.NUMBER: Annotated[float, Field(allow_inf_nan=False)],
    Domain.NOT_NEGATIVE: Annotated[float, Field(ge=0, allow_inf_nan=False)],
    Domain.POSITIVE: Annotated[float, Field(gt=0, allow_inf_nan=False)],
    Domain.PERCENT: Annotated[float, Field(ge=0, le=100)],
    Domain.COUNT: Annotated[int, Field(ge=1, le=10_000)],
    Domain.TRUTH: bool,
}


def _parameters(condition: Condition) -> Iterator[tuple[str, Domain, float | None, str]]:
    """Yield name, domain, default and meaning of a condition's parameters, limits first."""
    for name, limit in condition.limits.items():
        meaning = f"A hit where {limit.quantity.text} is {limit.comparison.value} this."
        yield name, limit.domain, limit.default, meaning
    for name, setting in condition.settings.items():
        yield name, setting.domain, setting.default, f"{setting.meaning[0].upper()}{setting.meaning[1:]}."


def _model(condition: Condition) -> type[RuleSettings]:
    fields: dict[str, Any] = {
        "condition": (
            Annotated[Literal[condition.name], Allowed(f"'{condition.name}'")],
            Field(description=condition.meaning),
        )
    }
    for name, domain, default, meaning in _parameters(condition):
        kind = _KINDS[domain] | None
        value = bool(default) if domain is Domain.TRUTH else default
        allowed = Allowed(f"{domain.value}, or null for none")
        fields[name] = (Annotated[kind, allowed], Field(default=value, description=meaning))
    title = "".join(part.capitalize() for part in condition.name.split("_"))
    return create_model(f"{title}WatchRule", __base__=RuleSettings, __doc__=condition.meaning, **fields)


@functools.cache
def models() -> Mapping[str, type[RuleSettings]]:
    """Return the model of a rule by the name of its condition."""
    return {name: _model(condition) for name, condition in CONDITIONS.items()}


def rule_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rule of any condition."""
    return {"oneOf": [model.model_json_schema(by_alias=True) for model in models().values()]}


def read(path: str) -> tuple[WatchRule, ...]:
    """Return the rules of a file.

    Raises:
        ConfigSyntaxError: The file cannot be read, or is not JSON.
        ConfigValueError: It holds no rules, or faulty ones; the error holds all faults.
    """
    document = source.parse(source.read(path, GIVER), path)
    report = FaultReport(document)
    found: dict[Path, list[Any]] = {}  # lists that may be the rules, by place
    for place in _PLACES:
        inner = document.value
        for key in place:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, list):
            found[place] = inner
    place, items = next(iter(found.items()), ((), None))
    if items is None:
        report.error((), f"= {show(document.value)}: {_FILE_TEXT}")
    elif not items:
        report.error(place, "holds no rule; add one")
    rules = parse(items or (), place, report)
    report.warn_of_duplicates()
    report.close()
    return rules


def rule(item: Mapping[str, Any], giver: str) -> WatchRule:
    """Return the rule of an object of an origin (``giver``); ConfigValueError with all of its faults."""
    document = source.parse(json.dumps([item]).encode(), giver, has_lines=False)
    report = FaultReport(document)
    rules = parse(document.value, (), report)
    report.close()
    return rules[0]


def parse(items: Sequence[Any], path: Path, report: FaultReport) -> tuple[WatchRule, ...]:
    """Return the rules of a list at a path; faulty ones are reported and left out."""
    rules: list[WatchRule] = []
    unnamed: Counter[str] = Counter()
    for index, item in enumerate(items):
        rule = _rule(item, (*path, index), report)
        if rule is None:
            continue
        name = rule.name
        if not name:
            unnamed[rule.condition] += 1
            number = unnamed[rule.condition]
            name = rule.condition if number == 1 else f"{rule.condition} {number}"
        if any(name == other.name for other in rules):
            report.error((*path, index), f"two rules have the name {name!r}; rename one of them")
        rules.append(replace(rule, name=name))
    return tuple(rules)


def _rule(item: Any, path: Path, report: FaultReport) -> WatchRule | None:
    if not isinstance(item, dict):
        report.error(path, f"= {show(item)}: must be an object with a condition")
        return None
    name = item.get("condition")
    if not isinstance(name, str) or name not in CONDITIONS:
        text = did_you_mean(name, CONDITIONS) or f": there are {choice(CONDITIONS, last='and')}"
        is_given = "condition" in item
        fault = f"= {show(name)} is no condition{text}" if is_given else f"is missing{text}"
        report.error((*path, "condition"), fault)
        return None
    condition, model = CONDITIONS[name], models()[name]
    known = tuple(model.model_fields)
    faults: list[tuple[Path, str]] = [
        ((key,), f"is unknown{did_you_mean(key, known) or f': there are {choice(known)}'}")
        for key in item
        if key not in known
    ]
    faults += value_faults(model, item)
    for place, message in faults:
        report.error((*path, *place), message)
    if faults:
        return None
    values = model.model_validate(item)
    given = {key: getattr(values, key) for key in condition.settings}
    settings = {key: float(value) for key, value in given.items() if value is not None}
    limits = [
        Limit(name, limit.quantity, limit.comparison, float(value))
        for name, limit in condition.limits.items()
        if (value := getattr(values, name)) is not None
    ]
    limits += [] if condition.fixed is None else [Limit("", *condition.fixed)]
    message = _missing(condition, limits, settings)
    if message:
        report.error(path, message)
        return None
    target = _target(condition, item, values, path, report)
    if target is None:
        return None
    return WatchRule(values.name, name, tuple(limits), settings, target, condition.is_first_only)


def _missing(condition: Condition, limits: Sequence[Limit], settings: Mapping[str, float]) -> str:
    """Return a message about missing parameters of a rule, "" if none is missing."""
    if not limits:
        return f"has no limit; give {choice(condition.limits)}"
    lacking = [name for name in condition.settings if name not in settings]
    if condition.settings and lacking:
        needs_range = any(limit.quantity is SHARE_WITHIN for limit in limits)
        has_default = [name for name in lacking if condition.settings[name].default is not None]
        if needs_range or has_default:
            return f"needs {choice(lacking, last='and')} too"
    start, end = settings.get("range_start_inclusive"), settings.get("range_end_inclusive")
    if start is not None and end is not None and start > end:
        return f"the range starts at {start:g}, above its end {end:g}; exchange the two"
    return ""


def _target(
    condition: Condition, item: Mapping[str, Any], values: RuleSettings, path: Path, report: FaultReport
) -> WatchTarget | None:
    patterns: list[KernelPattern] = []
    iterations = IterationSet()
    is_sound = True
    for index, text in enumerate(values.operators):
        try:
            pattern = parse_kernel(text, searches=False)
        except GrammarError as error:
            report.error_in_text((*path, "operators", index), error)
            is_sound = False
        else:
            patterns += [pattern] if pattern else []
    try:
        iterations = parse_iterations(values.iterations)
    except GrammarError as error:
        report.error_in_text((*path, "iterations"), error)
        is_sound = False
    types = condition.types if "types" not in item else values.types
    role = condition.role
    if "role" in item:
        role = None if values.role == "any" else Role(values.role)
    target = WatchTarget(
        tuple(patterns),
        frozenset(each.lower() for each in types),
        values.scope,
        role,
        None if values.io == "all" else IO(values.io),
        values.slot,
        iterations,
    )
    return target if is_sound else None
