"""What a SIGKILL costs each library, from judged drills (`python -m chaos run target NAME`): a section of `docs/peers.md`.

The section is made from the `verdict.json` of each run, and replaced as a whole; a new measurement of the other tables keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

TITLE = "## What a SIGKILL costs"

_LEAD = """
Each library with its defaults, drilled by `chaos run target NAME` ([how](commands.md#run-target)): five workers
killed in mid-job and replaced at once, one frozen, the network cut, requests and replies lost. *In hand* are the jobs that the
killed workers were running: they *ran again* and came to their end, are *lost* (in no key of the server) or *stranded* (still
there, and no worker took them while the drill waited). *Doubled* jobs ran to their end twice, by any of the faults; *late* ones
after the bound. The verdict is on the library's own promise, so one that promises less may lose jobs and still be `valid`. One
that promises at most once is `violated` by a job that ran twice because its client sent it again after a lost reply (Celery's).

"""

_HEADS = (
    *("", "it promises", "in hand", "of these: ran again", "lost", "stranded", "again after, median (longest), s"),
    *("all jobs", "of these: lost", "doubled", "late", "stranded", "verdict", "run"),
)


class NoDrill(Exception):
    """A folder holds no judged drill of a library; the message says which, and why."""


def section(runs: Sequence[Path]) -> str:
    """The section on these runs. Raises NoDrill."""
    verdicts = sorted((read(run) for run in runs), key=lambda one: one["spec"]["target"])
    lines = [f"| {' | '.join(_HEADS)} |", "|---" * len(_HEADS) + "|", *map(row, verdicts)]
    return f"{TITLE}\n{_LEAD}" + "\n".join(lines) + "\n"


def read(run: Path) -> dict[str, Any]:
    """The verdict of a run. Raises NoDrill."""
    try:
        decided = json.loads((run / "verdict.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NoDrill(f"{run} holds no judged run: {error}") from error
    if decided.get("spec", {}).get("scenario") != "target" or not decided.get("measures", {}).get("kill"):
        raise NoDrill(f"{run} is no judged run of `python -m chaos run target NAME`")
    return decided


def row(decided: Mapping[str, Any]) -> str:
    """The line of a run."""
    spec, measures, kill = decided["spec"], decided["measures"], decided["measures"]["kill"]
    bound_ms = spec["promise"]["recovery_bound_ms"]
    bound = "no bound" if bound_ms is None else f"within {bound_ms / 1_000:.0f} s"
    took = kill["again_ms"]
    after = f"{median(took) / 1_000:.1f} ({max(took) / 1_000:.1f})" if took else "-"
    cells = [
        *(spec["target"], f"{spec['promise']['delivery']}, {bound}"),
        *(str(kill[name]) for name in ("in_hand", "again", "lost", "stranded")),
        *(after, str(measures["enqueued"])),
        *(str(measures[name]) for name in ("lost", "doubled", "late", "stranded")),
        *(decided["verdict"], f"`{spec['id']}`"),
    ]
    return f"| {' | '.join(cells)} |"


def section_of(page: str) -> str:
    """The section as it stands in a page; empty where there is none."""
    start = page.find(TITLE)
    if start < 0:
        return ""
    end = page.find("\n## ", start + 1)
    return page[start:] if end < 0 else page[start : end + 1]


def with_section(page: str, new: str) -> str:
    """The page with this section instead of the one that it has, else at its end."""
    old = section_of(page)
    if not old:
        return f"{page.rstrip()}\n\n{new}" if new else page
    follows = "\n" if not page.endswith(old) and not new.endswith("\n\n") else ""
    return page.replace(old, new + follows)
