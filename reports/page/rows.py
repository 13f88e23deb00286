"""Rows of the history as tables of the page: the evidence of the violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.page.tables import details, marked_up, safe

HEADS = ("row", "place", "at s", "answered at s", "process", "what", "answer", "lease or message", "job")


def proof(violations: Sequence[Mapping[str, Any]]) -> str:
    """The rows that prove the violations of a check, to unfold; empty without any."""
    parts = [f"<h3>{safe(one['example'])}</h3>{note(one)}{table(one) if one['rows'] else ''}" for one in violations]
    title = "Evidence: rows of the history" + (f" for {len(parts)} violations" if len(parts) > 1 else "")
    return details(title, "".join(parts)) if parts else ""


def note(one: Mapping[str, Any]) -> str:
    """What is to be said about the rows of a violation, or why there are none."""
    return f"<p>{safe(one['note'])}</p>" if one["note"] else ""


def table(one: Mapping[str, Any]) -> str:
    """The rows of one violation with their places; those that its sentence names are marked."""
    cells = [
        [
            str(number),
            f"<code>{safe(line['file'])}:{line['line']}</code>",
            f"{line['at_s']:,.3f}",
            "" if line["done_s"] is None else f"{line['done_s']:,.3f}",
            safe(line["process"]),
            f"<mark>{safe(line['what'])}</mark>" if line["named"] else safe(line["what"]),
            safe(line["answer"]),
            f"<code>{safe(line['about'])}</code>",
            safe(line["job"]),
        ]
        for number, line in enumerate(one["rows"], 1)
    ]
    more = f"<p>{one['left_out']:,} more rows are about it.</p>" if one["left_out"] else ""
    return marked_up("Rows of the history, in order of time", HEADS, cells, words=(1, 4, 5, 6, 7, 8)) + more
