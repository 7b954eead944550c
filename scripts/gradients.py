"""Write the reference page of gradient rules and of MindSpore's operators: scripts/gradients.py FILE."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msdump.config import table
from msdump.graph import MINDSPORE_DOMAIN, SLOTS, Use, primitive_name
from msdump.training import losses, operators, optimizers, overflow_check  # noqa: F401 - they fill the tables
from msdump.training.body import OPERATORS, OperatorBody
from msdump.training.rules import LOWERINGS, RULES, Rule, constant_zero

_HEAD: Final = """\
# Gradients

`msdump.training.step_graph` derives a training step from a model whose operators stand in the first table,
wherever a parameter depends on them. Another operator between a parameter and the loss is an
`UnsupportedOpError` that names it with scope and source line; `trainable` leaves parameters out, and
`msdump.training.rules.gradient` registers a rule of one's own. Comparisons, logic, indices and shapes need
no rule: nothing flows through whole numbers and truth values.

This page is generated from the tables of rules by `python scripts/gradients.py docs/reference/gradients.md`.
"""

_RULES: Final = """\
## Operators of models

Names in MindSpore are those of the commonest use. Where the last column says so, the operator becomes
others that MindSpore has, whose gradients are derived.
"""

_OPERATORS: Final = """\
## Operators of MindSpore

What a training step has beside operators of ONNX: nodes of the domain `mindspore.ops`, each a function of
ONNX's own operators. Inputs are MindSpore's, in its order; attributes tell functions of one name apart
(`**structure`: strides, padding and dilations of windows, options of optimizers).
"""


def reference_text() -> str:
    """Return the page as Markdown."""
    rules = table(("operator", "in MindSpore", "rule"), _rules())
    bodies = (
        _operator(name, body) for name, body in sorted(OPERATORS.items(), key=lambda item: item[0].lower())
    )
    return "\n".join(
        (
            _HEAD,
            _RULES,
            rules,
            _OPERATORS,
            table(("operator", "inputs", "attributes", "what it does"), bodies),
        )
    )


def _rules() -> Iterable[tuple[str, ...]]:
    keys = {key for key in (*RULES, *LOWERINGS) if key[0] != MINDSPORE_DOMAIN}
    for domain, op_type in sorted(keys, key=lambda key: (key[0], key[1].lower())):
        name = f"{domain}.{op_type}" if domain else op_type
        yield f"`{name}`", f"`{primitive_name(op_type, domain, Use())}`", _topic(RULES.get((domain, op_type)))


def _topic(rule: Rule | None) -> str:
    if rule is constant_zero:
        return "zero"
    return rule.__module__.rpartition(".")[2].replace("_", " ") if rule else "in MindSpore's form"


def _operator(name: str, body: OperatorBody) -> tuple[str, ...]:
    inputs: list[str] = []
    attributes: list[str] = []
    for item in inspect.signature(body.build).parameters.values():
        is_attribute = item.kind in {item.KEYWORD_ONLY, item.VAR_KEYWORD}
        title = str(item).partition(":")[0].removeprefix("_")
        (attributes if is_attribute else inputs).append(title)
    inputs = [slot.name for slot in SLOTS.get(name, ())] or inputs
    return (
        f"`{name}`",
        ", ".join(inputs),
        ", ".join(attributes),
        (body.build.__doc__ or "").partition("\n")[0],
    )


def main(arguments: list[str]) -> None:
    """Write the page to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: scripts/gradients.py FILE")
    Path(arguments[0]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
