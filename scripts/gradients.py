"""Write the reference page of gradient rules: scripts/gradients.py FILE."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msdump.config import table
from msdump.graph import MINDSPORE_DOMAIN, Use, primitive_name
from msdump.training import losses, operators  # noqa: F401 - they fill the tables
from msdump.training.rules import LOWERINGS, RULES, Rule, constant_zero

_HEAD: Final = """\
# Gradients

`msdump.training.step_graph` derives a training step from a model. Each operator between a parameter and the
loss must be in this table. Another operator raises an `UnsupportedOpError` with its name, scope and
source line. Then leave the parameters before it out (`trainable`), or register a rule with
`msdump.training.rules.gradient`. Comparisons, logic, indices and shapes need no rule: whole numbers and truth
values have no gradient.

The second column is the most common name in MindSpore. "In MindSpore's form" means: the operator is replaced
by operators of MindSpore, and their gradients are derived.

A training step has operators of ONNX and nodes of the domain `mindspore.ops`. Each such node is a function of
ONNX's operators; [Primitives](primitives.md) lists them with their inputs.

This page is generated from the tables of rules by `python scripts/gradients.py docs/reference/gradients.md`.
"""


def reference_text() -> str:
    """Return the page as Markdown."""
    return f"{_HEAD}\n{table(('operator', 'in MindSpore', 'rule'), _rules())}"


def _rules() -> Iterable[tuple[str, ...]]:
    keys = {key for key in (*RULES, *LOWERINGS) if key[0] != MINDSPORE_DOMAIN}
    for domain, op_type in sorted(keys, key=lambda key: (key[0], key[1].lower())):
        name = f"{domain}.{op_type}" if domain else op_type
        yield f"`{name}`", f"`{primitive_name(op_type, domain, Use())}`", _topic(RULES.get((domain, op_type)))


def _topic(rule: Rule | None) -> str:
    if rule is constant_zero:
        return "zero"
    return rule.__module__.rpartition(".")[2].replace("_", " ") if rule else "in MindSpore's form"


def main(arguments: list[str]) -> None:
    """Write the page to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: scripts/gradients.py FILE")
    Path(arguments[0]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
