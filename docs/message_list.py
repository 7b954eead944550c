"""The directive ``message-list``: the templates of all messages, for the search of the site."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import messages


class MessageList(SphinxDirective):
    """The templates of all messages, one list for each room of the package."""

    def run(self) -> list[nodes.Node]:
        """Return a list of rooms with their lists of templates."""
        return [_listed(_room(*each) for each in groupby(messages.templates(), lambda one: one.room))]


def _room(room: str, templates: Iterable[messages.Template]) -> list[nodes.Node]:
    title = nodes.paragraph("", "", nodes.strong("", room or "msdump"))
    return [title, _listed([nodes.paragraph("", "", nodes.literal("", each.text))] for each in templates)]


def _listed(items: Iterable[list[nodes.Node]]) -> nodes.bullet_list:
    return nodes.bullet_list("", *(nodes.list_item("", *each) for each in items))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("message-list", MessageList)
    return {"parallel_read_safe": True}
