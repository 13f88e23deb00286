"""What every page is made of: its skeleton, its tables, and the escaping of everything that goes into it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import log
from pathlib import Path
from typing import NamedTuple

# The colours of page and figures, light and dark, and the style sheet that defines them.
#
# The hues are those of Okabe and Ito, which are distinguishable with any colour vision; two are darkened so
# that text in them is readable. No information is given by colour alone.


#: Role -> its light and its dark colour. The light ones must all differ, because in an SVG they identify the role.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e6edf3"),
    "soft": ("#57606a", "#9da7b3"),
    "grid": ("#d8dee4", "#30363d"),
    "paper": ("#ffffff", "#151b23"),
    "band": ("#f6e7c8", "#43381f"),
    "edge": ("#b98a2f", "#c79a45"),
    "blue": ("#0072b2", "#5ab4f0"),
    "vermillion": ("#c04e00", "#ff8f4d"),
    "green": ("#00805d", "#3fcf9f"),
    "purple": ("#aa4499", "#e08fd0"),
    "sky": ("#56b4e9", "#8fd0f5"),
    "amber": ("#e69f00", "#f2b84b"),
    "grey": ("#8c959f", "#7d8590"),
    "other": ("#c3cbd3", "#444c56"),
}


def style_sheet() -> str:
    """The style sheet of the page, in which every colour is a variable. Printed pages always use the light colours."""
    light, dark = (" ".join(f"--{role}: {pair[place]};" for role, pair in COLOURS.items()) for place in (0, 1))
    schemes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return schemes + Path(__file__).with_name("page.css").read_text("utf-8")


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
    body = "\n".join(table_row(row, kinds) + under.get(number, "") for number, row in enumerate(rows))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(caption)}"><table><caption>{safe(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def table_row(row: Sequence[str], kinds: Sequence[str]) -> str:
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


# Small drawings in the cells of a table: a line of values, and a ratio with its interval. Plain SVG,
# without matplotlib.


#: Size of a drawing in its own units, which are pixels on the page, and the space around what is drawn.
WIDTH, HEIGHT, PAD = 120, 24, 2

#: A line has at most so many points.
POINTS_MAX = 60


def spark(values: Sequence[float], label: str) -> str:
    """A line over values, from 0 at the bottom to the largest at the top. Empty when there are fewer than two."""
    if len(values) < 2:
        return ""
    most = max(values) or 1.0
    step = (WIDTH - 2 * PAD) / (len(values) - 1)
    points = [(PAD + place * step, HEIGHT - PAD - (HEIGHT - 2 * PAD) * value / most) for place, value in enumerate(values)]
    drawn = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return svg(f'<polyline points="{drawn}"/><circle cx="{x:.0f}" cy="{y:.1f}" r="2"/>', label)


def thinned(values: Sequence[float]) -> list[float]:
    """At most `POINTS_MAX` values: the means of as many stretches of equal length."""
    width = -(-len(values) // POINTS_MAX) or 1
    stretches = [values[start : start + width] for start in range(0, len(values), width)]
    return [sum(stretch) / len(stretch) for stretch in stretches]


def span(ratio: float, low: float, high: float, floor: float, most: float, label: str) -> str:
    """A ratio (dot) in its interval (line), over the noise floor (band), on a logarithmic axis from 1 / most to most, with 1 in
    the middle. What lies beyond is drawn at the edge."""

    def at(value: float) -> float:
        share = max(-1.0, min(1.0, log(value) / log(most)))
        return WIDTH / 2 + (WIDTH / 2 - PAD) * share

    band, middle = (at(1 / floor), at(floor)), HEIGHT / 2
    return svg(
        f'<rect x="{band[0]:.1f}" y="1" width="{band[1] - band[0]:.1f}" height="{HEIGHT - 2}"/>'
        f'<path class="even" d="M{WIDTH / 2:.0f} 0V{HEIGHT}"/>'
        f'<path d="M{at(low):.1f} {middle:.0f}H{at(high):.1f}"/><circle cx="{at(ratio):.1f}" cy="{middle:.0f}" r="3.5"/>',
        label,
    )


def svg(body: str, label: str) -> str:
    """The element, with words for who cannot see it."""
    return f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(label)}">{body}</svg>'
