"""`python -m bench peers`: measure every library that this machine can run, print the table, and keep it in `runs/peers/`.

    python -m bench.peers [--only NAME ...] [--repeat 3] [--redelivery-s 120] [--docs]
    python -m bench.peers --drills RUN ...

`--docs` writes `docs/peers.md` and its figure, too; `--drills` only its section on these drills, and measures nothing. Exit
codes: 0 measured, 1 some library failed, 2 cannot be measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.micro.place import ROOT, Unpinnable, check_cores, client, pinned_server, servers
from bench.micro.runner import machine_card, one_line
from bench.peers import drilled, table
from bench.peers.environments import NotAvailable, command_of
from bench.peers.libraries import LIBRARIES, Library
from bench.peers.measures import Values, measure
from bench.peers.processes import Bench, PeerFailed
from bench.peers.redelivery import redelivery_s
from engine.command_line import Parser

RUNS = ROOT / "runs" / "peers"
PAGE = ROOT / "docs" / "peers.md"
REPEAT, REDELIVERY_S = 3, 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _options(arguments)
    if options.drills:
        return _write_drills(options.drills)
    chosen = [library for library in LIBRARIES if not options.only or library.name in options.only]
    try:
        check_cores()
    except Unpinnable as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    commands, missing = _install(chosen)
    found: dict[str, dict[str, list[float]]] = {library.name: {} for library in chosen if library.name in commands}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as name, pinned_server() as server:
        bench = Bench(client(server), server.port, Path(name))
        measured = [library for library in chosen if library.name in commands]
        for library in measured:
            bench.install(library, commands[library.name])
        started_s = time.monotonic()
        for turn in range(options.repeat):
            # Each round begins with another library, so that none always runs first.
            at = turn * len(measured) // options.repeat
            for library in measured[at:] + measured[:at]:
                if library.name in failed:
                    continue
                try:
                    _add(found[library.name], measure(bench, library))
                except PeerFailed as error:
                    failed[library.name] = str(error)
                    _keep_log(Path(name), library)
                done = failed.get(library.name) or f"{library.name} measured"
                print(f"{time.monotonic() - started_s:6.0f} s  round {turn + 1} of {options.repeat}: {done}", flush=True)
        again: dict[str, float | None] = {}
        if options.redelivery_s:
            print(f"{time.monotonic() - started_s:6.0f} s  redelivery: up to {options.redelivery_s:.0f} s", flush=True)
            again = redelivery_s(bench, [library for library in measured if library.name not in failed], options.redelivery_s)
    for name in failed:
        del found[name]
    result = {
        "run": {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": one_line(machine_card(servers())),
            "repeat": options.repeat,
            "redelivery_wait_s": options.redelivery_s,
        },
        "found": found,
        "redelivery_s": again,
        "missing": missing | failed,
    }
    _write(result, docs=options.docs)
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m bench peers", description="Measure other job queues beside this one.")
    names = [library.name for library in LIBRARIES]
    parser.add_argument("--only", action="append", choices=names, help="a library, as often as wanted; else all")
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"repetitions, 1 to 20 (default {REPEAT})")
    parser.add_argument(
        "--redelivery-s", type=float, default=REDELIVERY_S, help="wait for redelivery, 0 to 3600; 0 leaves it out"
    )
    parser.add_argument("--docs", action="store_true", help="write docs/peers.md and docs/peers.png")
    parser.add_argument("--drills", type=Path, nargs="+", metavar="RUN", help="only write what a SIGKILL costs, from these runs")
    options = parser.parse_args(arguments)
    if not 1 <= options.repeat <= 20:
        parser.error(f"--repeat is {options.repeat}: it must be a whole number from 1 to 20")
    if not 0 <= options.redelivery_s <= 3600:
        parser.error(f"--redelivery-s is {options.redelivery_s}: it must be a number from 0 to 3600")
    return options


def _install(libraries: Sequence[Library]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The command of each library that this machine can run, and why it cannot run the others."""
    commands: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for library in libraries:
        try:
            commands[library.name] = command_of(library)
        except NotAvailable as error:
            missing[library.name] = str(error)
            print(f"peers: {library.name}: {error}", flush=True)
    return commands, missing


def _write_drills(runs: Sequence[Path]) -> int:
    """Write the section on these runs into docs/peers.md; the exit code."""
    try:
        PAGE.write_text(drilled.with_section(PAGE.read_text("utf-8"), drilled.section(runs)))
    except drilled.NoDrill as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    print(f"peers: {len(runs)} drills in {os.path.relpath(PAGE)}")
    return 0


def _add(columns: dict[str, list[float]], values: Values) -> None:
    for column, value in values.items():
        columns.setdefault(column, []).append(value)


def _keep_log(folder: Path, library: Library) -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / f"{library.name}.log", RUNS / f"{library.name}.log")


def _write(result: dict[str, Any], *, docs: bool) -> None:
    """Keep the result, draw it, and print the tables and the last line."""
    RUNS.mkdir(parents=True, exist_ok=True)
    page = table.markdown(result)
    (RUNS / "result.json").write_text(json.dumps(result, indent=1))
    (RUNS / "peers.md").write_text(page)
    table.draw(result["found"], RUNS / "peers.png")
    if docs:
        PAGE.write_text(drilled.with_section(page, drilled.section_of(PAGE.read_text("utf-8"))))
        shutil.copy(RUNS / "peers.png", PAGE.with_suffix(".png"))
    print(page)
    print(f"peers: {os.path.relpath(RUNS / 'peers.md')}, result.json and peers.png beside it")
    print(table.last_line(result["found"]))


if __name__ == "__main__":
    sys.exit(main())
