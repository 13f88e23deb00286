"""The command `capacity`: a plan from an earlier measurement, printed, and written as `plan.json` and as the page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from reports.capacity import measurement, question
from reports.capacity.answer import Answer, answer, as_json, fitted, simulation_words
from reports.capacity.question import Question
from reports.seed import add_seed
from reports.table import grid
from reports.verdict import place

PLAN_FILE = "plan.json"
PAGE_FILE = "capacity.html"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("plan", type=Path, help=f"folder of a measurement, or its {measurement.FILE}")
    command.add_argument("--rate", type=float, help="jobs per second (default: the highest rate that met its target)")
    for name, words in (
        ("p99-ms", "target of the p99, from when a job is due to its end"),
        ("payload-bytes", "bytes of a payload"),
        ("handler-ms", "how long a handler takes"),
    ):
        command.add_argument(f"--{name}", type=float, help=f"{words} (default: as measured)")
    for name, words in (("model", "data model"), ("topology", "topology of servers")):
        command.add_argument(f"--{name}", help=f"{words} (default: the one that was measured)")
    for name, words in (
        ("backlog-s", "seconds for which nothing is finished and jobs go on to come"),
        ("retained-s", "seconds for which finished jobs are kept"),
        ("worker-utilisation", "how busy workers may be, from 0 to 1"),
        ("server-utilisation", "how busy a server may be, from 0 to 1"),
    ):
        default = getattr(Question, name.replace("-", "_"))
        command.add_argument(f"--{name}", type=float, default=default, help=f"{words} (default: %(default)s)")
    command.add_argument("--workers", type=int, help="so many workers are given: what do they do")
    command.add_argument("--prices", type=Path, default=question.FILE, help="TOML file of prices (default: an example)")
    command.add_argument(
        "--simulate", action="store_true", help="simulate the plan, which may then go far beyond the measurement"
    )
    add_seed(command, "of the bootstrap and the simulation")
    command.add_argument("--out", type=Path, help="folder to write to (default: that of the measurement)")


def plan_capacity(options: argparse.Namespace) -> tuple[str, int]:
    """The plan as text, and exit code 0. Raises JudgeError with one line when there is no answer."""
    # What draws takes half a second to load, which other commands need not wait for.
    from reports.capacity.page import document

    made = answer(options)
    source: Path = options.plan
    folder: Path = options.out or (source if source.is_dir() else source.parent)
    place(folder / PLAN_FILE, json.dumps(as_json(made), indent=2) + "\n")
    place(folder / PAGE_FILE, document(made))
    return render(made, folder / PAGE_FILE), 0


def render(made: Answer, page: Path) -> str:
    """The plan as text: a table, where each number comes from, and a last line for scripts."""
    body = [[one.name, one.value] for one in made.figures]
    asked, plan = made.asked, made.plan
    title = (
        f"{asked.rate:,.0f} jobs/s of {asked.payload_bytes:,.0f} bytes, handler {asked.handler_ms:g} ms, p99 {asked.p99_ms:g} ms"
    )
    lines = [*grid(title, ("", "plan"), body), "", "derived from", *(f"  {one.name}: {one.derived}" for one in made.figures), ""]
    lines.append(f"bottleneck: {made.bottleneck.words}")
    lines.append(f"fit: {fitted(made.law)}")
    if made.simulated is not None:
        lines.append(f"simulated: {simulation_words(made)}")
    lines.append(made.confirmed.words)
    lines.append(
        f"plan: rate={asked.rate:.0f} workers={plan.workers} shards={plan.shards} memory_gib={plan.memory_gib:.2f} "
        f"cost_per_million={plan.cost_per_million:.3f} page={page}"
    )
    return "\n".join(lines)
