"""The HTML document: the verdict and its reasons first, then the figures, the checks, and the facts of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import evidence
from reports.facts import of_channels
from reports.page import facts, words
from reports.page.channels import words as channels
from reports.page.html import SIGNS, Section, page, safe

if TYPE_CHECKING:
    from reports.page.chapter import Chapter

#: The class of a valid run in which declared losses were seen: it is not green.
LOSSY = "lossy"


def document(run: Path, decided: Mapping[str, Any], drawn: Sequence[Chapter]) -> str:
    """The whole page. `drawn` is empty for a run that could not be judged."""
    spec = decided["spec"]
    sections = [
        Section("checks", "The checks", facts.checks(decided["checks"], evidence.read(run))),
        Section("findings", "Declared findings", facts.declared(decided["findings"])),
        *(Section(one.name, one.title, one.lead + one.figure + one.table) for one in drawn),
        Section("run", "What the run was", facts.particulars(spec, decided["measures"])),
        Section("again", "How to judge it again", facts.again(run, spec)),
    ]
    name = str(spec.get("id") or run.name)
    foot = f"<footer><p>{channels.FOOTER if of_channels(spec) else FOOTER}</p></footer>"
    title = f"{words.title(decided)}: {name}{in_brackets(spec)}"
    return page(title, head(name + in_brackets(spec), decided), sections, after=foot)


FOOTER = "Ironclaim promises: handlers run at least once, fenced; a job is finished exactly once."


def in_brackets(spec: Mapping[str, Any]) -> str:
    """Topology and durability, as they follow the name of a run."""
    servers = words.servers(spec)
    return f" ({servers})" if servers else ""


def head(name: str, decided: Mapping[str, Any]) -> str:
    """The verdict, its reasons, the run in a few sentences, and the key numbers."""
    verdict = str(decided["verdict"])
    tell, tiles = (channels.story, channels.tiles) if of_channels(decided["spec"]) else (words.story, facts.tiles)
    told = tell(decided) if decided["checks"] else []
    lossy = words.title(decided) != verdict
    parts = [
        f'<header class="{LOSSY if lossy else safe(verdict)}">',
        f'<p class="run">{safe(name)}</p>',
        f'<h1><span class="sign" aria-hidden="true">{"!" if lossy else SIGNS.get(verdict, "?")}</span> '
        f"{safe(words.title(decided).capitalize() if lossy else verdict)}</h1>",
        facts.notice("A planted defect", words.planted(decided)),
        facts.notice("Declared loss", words.losses(decided)),
        f'<p class="headline">{safe(words.headline(decided))}</p>',
        *(f'<p class="headline">{safe(told)}</p>' for told in words.objectives(decided.get("slo", ()))),
        facts.reasons(decided["reasons"]),
        tiles(decided["measures"]) if decided["checks"] else "",
        facts.objectives(decided.get("slo", ())),
        f'<ul class="story">{"".join(f"<li>{safe(sentence)}</li>" for sentence in told)}</ul>' if told else "",
        "</header>",
    ]
    return "\n".join(part for part in parts if part)
