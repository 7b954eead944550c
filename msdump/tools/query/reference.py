"""The page of the views: every column with its type and meaning.

python -m msdump.tools.query.reference docs/reference/views.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from msdump.tools.query.columns import VIEWS

_HEAD: Final = """\
# Views of `msdump query`

The columns of every view, with DuckDB's names of their types. They are given to the readers of files, which
guess none. What a dump does not tell is NULL. `make schema` writes it from `msdump/tools/query/columns.py`;
[how to ask](../how-to/ask-questions.md).
"""


def reference_text() -> str:
    """Return the page."""
    parts = [_HEAD]
    for view, columns in VIEWS.items():
        rows = "".join(f"| `{each.name}` | {each.type} | {each.meaning} |\n" for each in columns)
        parts.append(f"\n## {view}\n\n| column | type | what |\n|---|---|---|\n{rows}")
    return "".join(parts)


def main(arguments: list[str]) -> None:
    """Write the page to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.tools.query.reference FILE")
    Path(arguments[0]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
