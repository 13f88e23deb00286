"""Plants one-line defects and looks which tests see them: `python -m tests.mutation`.

With files of tests, all of them that see an edit are found, and whether any other test does: which of them are needed.
Nothing but build/mutation is changed: edits are made in copies of the tree there.
"""

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.testing.server import EmbeddedServer
from tests.mutation import planted
from tests.mutation.drawing import AREAS, draw
from tests.mutation.edits import ROOT, Edit, equivalents, reason_of
from tests.mutation.judging import Judge, Result, Results, failing_anyway, table
from tests.mutation.lua_edits import Loading
from tests.mutation.record import recorded
from tests.mutation.running import HarnessFault, Run
from tests.mutation.tree import Tree

FOLDER = ROOT / "build" / "mutation"
FIRST_TIER = "not (slow or nightly)"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 unless the harness itself failed."""
    options = _parser().parse_args(arguments)
    test_files = [file for file in options.file if file.startswith("tests")]
    sources = [file for file in options.file if not file.startswith("tests")]
    FOLDER.mkdir(parents=True, exist_ok=True)
    edits, known = _edits(options, sources), equivalents()
    if options.list:
        for edit in edits:
            print("\n".join([edit.id, *(f"  - {change.old}\n  + {change.new}" for change in edit.changes)]))
        return 0
    record = recorded(FOLDER, options.tier, options.tests, options.jobs, keep=options.keep_record)
    print(f"{len(record.tests)} tests, {sum(test.seconds for test in record.tests):.0f} s of them")
    asked = sorted({test.file for test in record.tests if test.file.startswith(tuple(test_files))}) if test_files else []
    results = Results(FOLDER / "results.jsonl")
    key = hashlib.sha256(repr((record.fingerprint, options.tier, options.tests, asked)).encode()).hexdigest()[:16]
    equivalent = [edit for edit in edits if reason_of(edit, known) is not None]
    # Without a budget, those that survived for lack of time are judged again.
    done = {id: result for id, result in results.done(key).items() if result.seen or not result.left_out or options.budget}
    wanted = [edit for edit in edits if edit not in equivalent and edit.id not in done]
    judged = [done[edit.id] for edit in edits if edit.id in done]
    by_id = {edit.id: edit for edit in edits}
    trees = [Tree(FOLDER / f"tree-{number}") for number in range(options.workers if wanted else 0)]
    try:
        if trees:
            Run(trees[0], FOLDER / "run-first", {}, stop="first").tests([record.tests[0].id])
        for result in Judge(record, results, key, options.budget, asked).judge(wanted, trees, FOLDER):
            judged.append(result)
            print(_line(len(judged) + len(equivalent), len(edits), result, by_id[result.id]), flush=True)
        for test in sorted(failing_anyway(record, judged, trees[0], FOLDER / "run-clean") if trees else ()):
            print(f"fails without an edit, too: {test}")
    except HarnessFault as fault:
        print(f"mutate: pytest did not run:\n{fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mutate: interrupted; a second start goes on here", file=sys.stderr, flush=True)
        # Without waiting for the tests that run: they end with this process.
        os._exit(130)
    _report(judged, by_id, equivalent, asked)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60, help="edits to draw, half of them in scripts")
    parser.add_argument("--set", choices=("edits", "mutants", "removals", "all"), default="edits")
    what = f"what to edit: of {', '.join(AREAS)} (default: all in turn), folders, files; or tests, to find all that see"
    parser.add_argument("--file", action="append", default=[], help=what)
    parser.add_argument("--tier", default=FIRST_TIER, help="pytest's expression of markers (-m), '' for all tests")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="tests to choose from")
    parser.add_argument("--budget", type=float, default=180.0, help="seconds of recorded time for an edit, 0 for all its tests")
    parser.add_argument("--workers", type=int, default=2, help="edits at a time")
    parser.add_argument("--jobs", type=int, default=3, help="processes of the recorded run")
    parser.add_argument("--keep-record", action="store_true", help="use the last recorded run although the tree has changed")
    parser.add_argument("--list", action="store_true", help="print the edits and run nothing")
    return parser


def _edits(options: argparse.Namespace, sources: Sequence[str]) -> list[Edit]:
    found: list[Edit] = []
    if options.set in ("edits", "all"):
        with EmbeddedServer() as server, tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            found += draw(options.seed, options.count, sources, Loading(server.url, Path(scratch)))
    if options.set in ("mutants", "all"):
        found += planted.shipped()
    if options.set in ("removals", "all"):
        found += planted.removals()
    return found


def _line(number: int, count: int, result: Result, edit: Edit) -> str:
    by = f"{result.test} ({result.why})" if result.test else f"no test of {result.tests}"
    if not result.test and result.left_out:
        by += f", {result.left_out} had no time"
    state = "seen    " if result.seen else "SURVIVED"
    files = f"; {len(result.files)} of the files asked for" if result.files else ""
    return f"[{number}/{count}] {state} {edit.id}  {result.seconds:.1f} s  {by}{files}"


def _report(judged: Sequence[Result], by_id: dict[str, Edit], equivalent: Sequence[Edit], asked: Sequence[str]) -> None:
    survived = [result for result in judged if not result.seen]
    print("\n".join(table(judged, asked)))
    for result in survived:
        print(f"survived: {result.id}" + (f" ({result.left_out} tests had no time)" if result.left_out else ""))
        for change in by_id[result.id].changes:
            print(f"  - {change.old.strip()}\n  + {change.new.strip()}")
    for test in sorted({test for result in judged for test in result.flaky}):
        print(f"failed once and not again: {test}")
    seen = len(judged) - len(survived)
    print(f"mutate: {len(judged) + len(equivalent)} edits, seen {seen}, equivalent {len(equivalent)}, survived {len(survived)}")


if __name__ == "__main__":
    sys.exit(main())
