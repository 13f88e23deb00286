"""A hook of mkdocs: each "rule 12" of the pages, also those of docstrings, links to the rule in
docs/protocol.md.

A number that the protocol does not have fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

PROTOCOL = Path(__file__).parents[1] / "docs" / "protocol.md"
#: "rule 12", "rules 5 and 31", "rules 18, 20 and 22", "rules 3 to 6".
CITED = re.compile(r"\b[Rr]ules? \d+(?:(?:, | and | or | to )\d+)*")
#: Inside of these nothing becomes a link.
PLAIN = ("a", "h1", "h2", "h3", "h4", "pre", "nav")
TAG = re.compile(r"(<[^>]*>)")


def names() -> dict[int, str]:
    """The name of each rule by its number."""
    return {
        int(number): name
        for number, name in re.findall(r"^### Rule (\d+): (.+)$", PROTOCOL.read_text(), re.MULTILINE)
    }


def linked(html: str, to_protocol: str) -> str:
    """The page with links; `to_protocol` is the address of the protocol's page from here. Raises
    PluginError."""
    known = names()

    def link(found: re.Match[str]) -> str:
        number = int(found[0])
        if number not in known:
            raise PluginError(f"rule {number} is cited, docs/protocol.md has rules 1 to {max(known)}")
        anchor = f"rule-{number}-{known[number]}".lower().replace(" ", "-")
        return f'<a href="{to_protocol}#{anchor}" title="{known[number]}">{number}</a>'

    parts = TAG.split(html)
    inside = 0
    for at, part in enumerate(parts):
        if part.startswith("<"):
            name = part.strip("</>").split()[0] if part.strip("</>") else ""
            inside += (name in PLAIN) * (-1 if part.startswith("</") else 1)
        elif not inside:
            parts[at] = CITED.sub(lambda cited: re.sub(r"\d+", link, cited[0]), part)
    return "".join(parts)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """What mkdocs calls with each page's content."""
    return linked(html, get_relative_url("protocol.html", page.url))
