"""What every page is made of: its skeleton, its tables, and the escaping of everything that goes into it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from reports.page.colours import style_sheet

#: A cell shows at most this many characters of a text from the run.
TEXT_MAX = 2_000

#: Placeholder for an unknown value.
NO_VALUE = "&ndash;"

#: A text up to this length stays on one line.
SHORT_MAX = 24

#: From this length on a text counts as a sentence.
LONG_MIN = 60

#: The page loads nothing. This policy makes the browser refuse, should content from a run try to.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

SIGNS = {"valid": "✓", "violated": "✗", "unknown": "?"}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


class Section(NamedTuple):
    """A part of the page: its anchor, its title, and its content as HTML."""

    anchor: str
    title: str
    body: str


def page(title: str, head: str, sections: Iterable[Section], *, main: str = "", after: str = "", policy: str = POLICY) -> str:
    """A whole page: its head, links to the sections that have content, and those. `main`: the classes of their column; `after`:
    HTML behind them."""
    shown = [section for section in sections if section.body]
    links = "".join(f'<li><a href="#{one.anchor}">{safe(one.title)}</a></li>' for one in shown)
    body = [
        head,
        f'<nav aria-label="contents"><ul>{links}</ul></nav>',
        f'<main class="{main}">' if main else "<main>",
        *(f'<section id="{one.anchor}"><h2>{safe(one.title)}</h2>\n{one.body}</section>' for one in shown),
        "</main>",
        *([after] if after else []),
    ]
    return PAGE.format(title=safe(title), policy=policy, style=style_sheet(), body="\n".join(body))


def header(tone: str, run: object, title: str, *more: str) -> str:
    """The head of a page that is of no single run: its class, the small line above the title, and HTML below that."""
    return f'<header class="{tone}"><p class="run">{safe(run)}</p><h1>{safe(title)}</h1>{"".join(more)}</header>'


def safe(value: object) -> str:
    """Any value as text of the page: markup and control characters escaped, and cut to `TEXT_MAX`."""
    text = str(value)
    text = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
    return escape("".join(char if unicodedata.category(char)[0] != "C" else ascii(char)[1:-1] for char in text))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: Iterable[int] = ()) -> str:
    """A table whose cells are values, not markup. All columns but the first and those of `words` are right-aligned numbers."""
    return marked_up(caption, heads, ([cell(value) for value in row] for row in rows), words=words)


def marked_up(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Iterable[int] = (),
    below: Mapping[int, str] | None = None,
) -> str:
    """A table whose cells are already HTML; the first of each row is its header cell. `below`: number of a row, from 0 -> what
    stands under it across all columns."""
    left = {0, *words}
    kinds = ["" if column in left else ' class="number"' for column in range(len(heads))]
    head = "".join(f'<th scope="col"{kind}>{safe(title)}</th>' for title, kind in zip(heads, kinds, strict=True))
    under = {number: f'<tr class="below"><td colspan="{len(heads)}">{html}</td></tr>' for number, html in (below or {}).items()}
    body = "\n".join(line(row, kinds) + under.get(number, "") for number, row in enumerate(rows))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(caption)}"><table><caption>{safe(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def line(row: Sequence[str], kinds: Sequence[str]) -> str:
    """One row of a table."""
    first, *others = row
    cells = "".join(f"<td{kind or width(text)}>{text}</td>" for text, kind in zip(others, kinds[1:], strict=True))
    return f'<tr><th scope="row">{first}</th>{cells}</tr>'


def width(text: str) -> str:
    """The class attribute for a text's column width: names must not break at hyphens, and sentences get a wide column."""
    if len(text) <= SHORT_MAX:
        return ' class="short"'
    return ' class="long"' if len(text) >= LONG_MIN else ""


def cell(value: object) -> str:
    """A value as shown in a table; a dash for None."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return safe(value)


def details(summary: str, body: str) -> str:
    """A collapsed section with a summary."""
    return f"<details><summary>{safe(summary)}</summary>{body}</details>"
