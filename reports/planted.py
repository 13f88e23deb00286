"""`python -m reports mutants`: which check caught which planted defect, as a table and as a matrix.

Everything was decided by `python -m chaos campaign mutants`; this shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.patches import Rectangle

from reports.errors import JudgeError
from reports.page import ink
from reports.page.html import Section, header, marked_up, page, safe
from reports.table import cut, grid
from reports.verdict import content, place

FILE = "mutants.json"
PAGE_FILE = "mutants.html"
PICTURE = "mutants.png"
TEXT = "mutants.txt"

SCHEMA = 1

TITLE = "Planted defects and the checks that caught them"
LEAD = (
    "Each row is a short drill with one planted defect. Its own check must catch it; what it may trip besides is declared, and "
    "anything else counts as not caught. The rows below are drills of the clean engine, in which every check must be valid."
)

#: What a check has to do with a drill -> its sign in the table, and in words.
CAUGHT, ALLOWED, WRONG, MISSED, VALID, ABSENT = "X", "x", "!", "0", ".", " "
SIGNS = {
    CAUGHT: "caught by its check",
    ALLOWED: "tripped as well, as declared",
    WRONG: "tripped, and must not",
    MISSED: "its check did not catch it",
    VALID: "valid",
    ABSENT: "does not apply",
}
COLOURS = {CAUGHT: ink.GREEN, ALLOWED: ink.SKY, WRONG: ink.VERMILLION, MISSED: ink.VERMILLION, VALID: ink.GRID}

#: Inches of a row, of a column, and of the names at the left.
ROW_IN, LEFT_IN, TOP_IN = 0.2, 2.3, 0.75


def caught_by(folder: Path) -> str:
    """Write page, picture and text of the matrix, and return the text. Raises JudgeError when mutants.json cannot be read."""
    found = content(folder, FILE, SCHEMA)
    drills, checks = found["drills"], columns(found["drills"])
    text = "\n".join(["", *table(drills, checks), "", *reasons(drills)]).rstrip()
    with ink.drawing():
        drawn = draw(drills, checks)
        picture, svg = ink.png(drawn), ink.svg(drawn, "matrix", safe(f"{TITLE}: the table below has the same"))
    try:
        (folder / PICTURE).write_bytes(picture)
    except OSError as error:
        raise JudgeError(f"{PICTURE} of {folder.name} cannot be written: {error.strerror or error}") from error
    place(folder / TEXT, text.lstrip("\n") + "\n")
    place(folder / PAGE_FILE, document(found, svg))
    return text


def columns(drills: Sequence[Mapping[str, Any]]) -> list[str]:
    """The checks that judged any drill: H, J and P, by their numbers."""
    known = {check for drill in drills for check in drill["checks"]}
    return sorted(known, key=lambda check: (check[0], int(check[1:])))


def sign(drill: Mapping[str, Any], check: str) -> str:
    """What this check has to do with this drill."""
    verdict = drill["checks"].get(check)
    if check == drill["check"]:
        return CAUGHT if verdict == drill["wanted"] else MISSED
    if verdict is None:
        return ABSENT
    if verdict == "valid":
        return VALID
    return ALLOWED if check in drill["closure"] else WRONG


def table(drills: Sequence[Mapping[str, Any]], checks: Sequence[str]) -> list[str]:
    """The matrix as text, without the checks that are valid in every drill."""
    checks = [check for check in checks if any(sign(drill, check) not in (VALID, ABSENT) for drill in drills)]
    body = [[drill["name"], *(sign(drill, check) for check in checks), "" if not drill["why"] else "NO"] for drill in drills]
    legend = ", ".join(f"{key} {words}" for key, words in SIGNS.items() if key != ABSENT)
    return grid(f"planted defects by check ({legend})", ("drill", *checks, "as it must be"), body)


def reasons(drills: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why drills are not as they must be."""
    found = [f"  {drill['name']}: {cut(drill['why'], 300)}" for drill in drills if drill["why"]]
    return ["not as it must be", *found] if found else []


def draw(drills: Sequence[Mapping[str, Any]], checks: Sequence[str]) -> Any:
    """The matrix as a figure."""
    height_in = TOP_IN + ROW_IN * len(drills) + 0.35
    drawn = ink.figure(height_in)
    axes = drawn.add_subplot()
    ink.margins(drawn, left=LEFT_IN, right=0.1, top=TOP_IN, bottom=0.3)
    for row, drill in enumerate(drills):
        for column, check in enumerate(checks):
            found = sign(drill, check)
            if found == ABSENT:
                continue
            size = 0.2 if found == VALID else 0.8
            corner = (column - size / 2, row - size / 2)
            axes.add_patch(Rectangle(corner, size, size, facecolor=COLOURS[found], edgecolor="none"))
            if found in (WRONG, MISSED):
                axes.text(column, row, found, ha="center", va="center", fontsize=7, fontweight="bold", color=ink.PAPER)
    axes.set_xlim(-0.6, len(checks) - 0.4)
    axes.set_ylim(len(drills) - 0.4, -0.6)
    axes.set_xticks(range(len(checks)), checks)
    axes.set_yticks(range(len(drills)), [ink.plain(drill["name"]) for drill in drills])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, labelsize=7.5)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    shown = [(SIGNS[key], Rectangle((0, 0), 1, 1, facecolor=COLOURS[key])) for key in (CAUGHT, ALLOWED, WRONG, VALID)]
    labels, handles = zip(*shown, strict=True)
    drawn.legend(handles, labels, ncols=len(labels), loc="upper left", bbox_to_anchor=(0.0, 1.0), handlelength=1.2)
    return drawn


def document(found: Mapping[str, Any], svg: str) -> str:
    """The page: the sum, the matrix, and one row for each drill."""
    drills = found["drills"]
    heads = ("drill", "must be", "is", "planted defect", "drilled with", "seed", "why not")
    rows = [
        [
            linked(drill),
            safe(f"{drill['wanted']} by {drill['check']}" if drill["check"] else "valid"),
            f'<span class="badge {safe(drill["verdict"])}">{safe(drill["verdict"])}</span>',
            safe(drill["defect"] or "none: the clean engine"),
            safe(drill["shape"]),
            safe(drill["seed"]),
            safe(drill["why"]),
        ]
        for drill in drills
    ]
    sections = [
        Section("matrix", "Matrix", f"<p>{safe(LEAD)}</p><figure>{svg}</figure>"),
        Section("drills", "Every drill", marked_up("Drills", heads, rows, words=(1, 2, 3, 4, 6))),
    ]
    head = header("plain", found["id"], TITLE, f'<p class="headline">{safe(found["line"])}</p>')
    return page(f"{TITLE}: {found['id']}", head, sections, main="wide")


def linked(drill: Mapping[str, Any]) -> str:
    """The name of a drill, with a link to the report of its run."""
    name = safe(drill["name"])
    return f'<a href="{safe(drill["run"])}/report.html">{name}</a>' if drill["run"] else name
