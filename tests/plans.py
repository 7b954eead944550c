"""Plans for tests: fields by their own names, without the part of the plan."""

import dataclasses

from msdump.plan import Context, DumpPlan, FilePlan, ModelDump, What, When

_PARTS = {"files": FilePlan, "what": What, "when": When, "compiled": ModelDump}
_PART = {field.name: part for part, made in _PARTS.items() for field in dataclasses.fields(made)}


def changed(plan, **fields):
    """Return a plan with some fields changed, of its parts, too."""
    for name, value in fields.items():
        part = _PART.get(name)
        if part is None:
            plan = dataclasses.replace(plan, **{name: value})
        else:
            inner = dataclasses.replace(getattr(plan, part), **{name: value})
            plan = dataclasses.replace(plan, **{part: inner})
    return plan


def made(source="data_dump.json", context=None, path="/dump", **fields):
    """Return a plan that dumps everything but for the given fields."""
    return changed(DumpPlan(source, b"{}", context or Context(), FilePlan(path)), **fields)


def value(plan, path):
    """Return a field of a plan, ``iterations`` or ``selector.mode``, of any part."""
    first, *further = path.split(".")
    part_value = getattr(getattr(plan, _PART[first]) if first in _PART else plan, first)
    for name in further:
        part_value = getattr(part_value, name)
    return part_value
