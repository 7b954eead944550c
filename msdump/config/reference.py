"""The reference page and the JSON Schema of MINDSPORE_DUMP_CONFIG files, from the models and the rules.

python -m msdump.config.reference docs/reference/config.md docs/schema/mindspore_dump.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from msdump import env
from msdump.config import grammar, rules, watch
from msdump.config.models import BLOCKS, CommonDumpSettings, E2eDumpSettings, MsdumpSettings, Section, about
from msdump.config.settings import allowed_of
from msdump.statistics import STATISTICS
from msdump.watch import CONDITIONS, Condition, Role

_HEAD: Final = """\
# Configuration

A dump configuration is a `.json` file with the objects below. `MINDSPORE_DUMP_CONFIG` or
`msdump run --config FILE` names the file. The file is read once, when the first network is loaded. One error
lists all faults, each with line, value and allowed values. Unknown keys only warn. Keys that begin with
`_` are comments; MindSpore ignores them too. `msdump init` writes a file with comments. `msdump check FILE`
shows the effect of a configuration.

`docs/schema/mindspore_dump.schema.json` describes the file for editors. This page is generated from the
same models: `python -m msdump.config.reference docs/reference/config.md`.
"""

_TEXTS: Final = "## Texts\n\n```text\n{grammar}\n```\n"

_WATCH: Final = """\
## Watch rules

The list `watch`, also in a file for `msdump watch --rules`, holds rules. A rule has a `condition`, the
condition's parameters, and keys that select tensors. A missing key selects all. Names and parameters are the
ones of MindSpore's debugger, with the same meaning.
"""

_CONDITIONS: Final = """\
A limit hits if the quantity is greater (`_gt`), greater or equal (`_ge`) or less (`_lt`); `null` removes a
limit. Shares are in percent. Saved statistics suffice for some limits. A limit that needs elements warns if a
tensor has only statistics.
"""

_CONSEQUENCES: Final[dict[Callable[..., Any], str]] = {
    rules.refuse: "error",
    rules.note: "warning",
    rules.disable: "warning, nothing is dumped",
    rules.keep_device_statistics: "warning, the others are left out",
}
_FORCED: Final = "warning, a value that fits is used"


def reference_text() -> str:
    """Return the reference page as Markdown."""
    # the grammar stands in the docstring of its parser, below the first line
    texts = _TEXTS.format(grammar=(grammar.__doc__ or "").partition("\n\n")[2].strip())
    rows = ((f"`{variable.name}`", variable.meaning) for variable in env.VARIABLES)
    return "\n".join(
        (
            *(_HEAD, *(_block(name) for name in BLOCKS), texts),
            *(
                _statistics(),
                _watch_rules(),
                _rules(),
                _section("Environment variables", ("variable", "meaning"), rows),
            ),
        )
    )


def _block(name: str) -> str:
    model = BLOCKS[name]
    return _section(f"{name}\n\n{model.__doc__}", ("key", "takes", "default", "meaning"), _keys(model))


def _keys(model: type[Section]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each key with its values, default and meaning."""
    for key, field in model.model_fields.items():
        allowed = allowed_of(model, key)
        takes = f"{allowed.text}; each is {allowed.item}" if allowed.item else allowed.text
        given = None if field.is_required() else json.dumps(field.get_default(call_default_factory=True))
        yield f"`{key}`", takes, "required" if given is None else f"`{given}`", field.description or ""


def _statistics() -> str:
    rows = (
        (
            ", ".join(f"`{name}`" for name in each.accepted),
            each.title,
            each.definition,
            "host and device" if each.device else "host",
        )
        for each in STATISTICS
    )
    head = "Statistics\n\nThe values of `statistic_category`, and the columns of `statistic.csv`:"
    return _section(head, ("name", "column", "meaning", "computed by"), rows)


def _watch_rules() -> str:
    return "\n".join(
        (
            _WATCH,
            table(("key", "takes", "default", "meaning"), _keys(watch.RuleSettings)),
            _CONDITIONS,
            table(("condition", "tensors", "hits if", "parameters"), map(_condition, CONDITIONS.values())),
        )
    )


def _condition(condition: Condition) -> tuple[str, str, str, str]:
    """Return a row: name, tensors, meaning, and the parameters with their defaults."""
    names = (*condition.limits, *condition.settings)
    fields = watch.models()[condition.name].model_fields
    parameters = (f"`{name}` ({json.dumps(fields[name].get_default())})" for name in names)
    tensors = {None: "every tensor", Role.LOSS: "the loss"}.get(condition.role, f"{condition.role}s")
    return f"`{condition.name}`", tensors, condition.meaning, ", ".join(parameters)


def _rules() -> str:
    # reasons are templates for str.format, in which a brace of the text stands twice
    rows = (
        (
            _modes(rule),
            f"`{rule.key}`",
            rule.why.replace("{{", "{").replace("}}", "}"),
            _CONSEQUENCES.get(rule.then, _FORCED),
        )
        for rule in rules.RULES
    )
    head = "Rules between keys\n\nDemands that depend on the mode or on another key:"
    return _section(head, ("mode", "key", "reason", "consequence"), rows)


def _modes(rule: rules.Rule) -> str:
    is_every = rule.modes == frozenset(rules.Mode)
    return "all" if is_every else ", ".join(mode.value for mode in rules.Mode if mode in rule.modes)


def _section(head: str, titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return f"## {head}\n\n{table(titles, rows)}"


def table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of a page; a bar in a cell is escaped."""
    # chr(92) is the backslash, which an f-string of Python 3.11 cannot hold
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        for cells in (titles, ("---",) * len(titles), *rows)
    )


_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class DumpConfig(Section):
    """A MINDSPORE_DUMP_CONFIG file."""

    common_dump_settings: CommonDumpSettings
    e2e_dump_settings: E2eDumpSettings = E2eDumpSettings()
    msdump: MsdumpSettings = MsdumpSettings()
    schema_url: Annotated[
        str, Field(alias="$schema"), about("Address of this schema, for editors; it has no effect.")
    ] = ""


def schema_text() -> str:
    """Return the schema as the text of its file."""
    schema = DumpConfig.model_json_schema(by_alias=True)
    # models of rules derive from the table of conditions
    schema["$defs"]["MsdumpSettings"]["properties"]["watch"]["items"] = watch.rule_schema()
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(_with_whole_bounds(described), indent=2, ensure_ascii=False) + "\n"


def _with_whole_bounds(value: Any) -> Any:
    """Return a schema with whole bounds as integers, as newer versions of pydantic write them."""
    if isinstance(value, list):
        return [_with_whole_bounds(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: int(item) if key in _BOUNDS and item == int(item) else _with_whole_bounds(item)
        for key, item in value.items()
    }


def main(files: list[str]) -> None:
    """Write files: the schema where the name ends in .json, else the page."""
    if not files:
        sys.exit("usage: python -m msdump.config.reference FILE...")
    for name in files:
        text = schema_text() if name.endswith(".json") else reference_text()
        Path(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
