"""Tensors of a dump as an HTML table, which notebooks show."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from msdump.errors import MsdumpError
from msdump.store.read.records import Record

_TITLES: Final = ("rank", "iteration", "operator", "type", "tensor", "dtype", "shape", "saved statistics")


def table(records: Sequence[Record], *, has_more: bool) -> str:
    """Return a table with a row for each tensor; no elements are read.

    Args:
        records: The tensors.
        has_more: Whether there are more than these.
    """
    head = "".join(f"<th>{title}</th>" for title in _TITLES)
    rows = "".join(map(_row, records))
    more = f"<p>and more; the first {len(records)} are shown</p>" if has_more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _row(record: Record) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(record))}</tr>"


def _cells(record: Record) -> tuple[str, ...]:
    number = f", pass {record.pass_number}" if record.pass_number else ""
    saved = record.stats.saved
    return (
        str(record.rank),
        str(record.iteration),
        f"{record.full_name or record.op_name}{number}",
        record.op_type,
        f"{record.io}:{record.slot}",
        *_form(record),
        ", ".join(f"{name} {cell}" for name, cell in saved.items()),
    )


def _form(record: Record) -> tuple[str, str]:
    try:
        return record.dtype, "x".join(map(str, record.shape)) or "scalar"
    except MsdumpError as error:  # a torn file must not hide the others
        return "", f"unreadable: {error}"
