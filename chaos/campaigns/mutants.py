"""`campaign mutants`: each planted defect in a short drill, clean drills of the same shapes, and who was caught by what."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import campaign, machine, runs
from chaos.calibration import Calibration
from chaos.campaigns.short import Planted, Shape, calibration_of, clean_shapes, drawn, every
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, Verdict, show
from chaos.mutants import Mutant
from chaos.processes import ROOT
from chaos.progress import Progress
from chaos.run import measure

SCHEMA = 1
FILE = "mutants.json"

#: The folder of all results beside the runs, and how many results stay.
FOLDER = "mutants"
KEEP = 3

#: How often a drill is made that proves nothing, and how many are judged together.
TRIES = 3
TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """A drill to make: of a mutant, or of the clean engine."""

    name: str
    shape: Shape
    seed: int
    mutant: Mutant | None = None


def catch_mutants(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Drill every mutant, or the one that was named, and the clean engine. Returns 0 only when all were caught without an alarm.

    Raises HarnessError and ServerMissing when it cannot begin, and TooSlow.
    """
    began_s = time.monotonic()
    wanted = drills(chosen(arguments.only), arguments.seed, controls=1 if arguments.only else CONTROLS)
    progress = Progress(sys.stdout)
    measured = measure(progress, arguments, interrupts)
    stamp = time.strftime(f"%Y%m%d-%H%M%S-seed{arguments.seed}", time.gmtime())
    place = campaign.new_place(arguments.runs.absolute() / FOLDER, stamp, KEEP)
    results: dict[str, Result] = {}
    missing = wanted
    for _ in range(TRIES):
        for first in range(0, len(missing), TOGETHER):
            for result in made(missing[first : first + TOGETHER], place, measured, arguments, interrupts):
                results[result.name] = result
                progress.say(f"mutants: {words(result)} ({len(results)} of {len(wanted)}, {time.monotonic() - began_s:.0f} s)")
        missing = [one for one in wanted if results[one.name].again]
    found = [results[one.name] for one in wanted]
    for result in found:
        if not result.why and result.run:
            runs.slim(place / result.run)
    campaign.write(place / FILE, content(found, arguments.seed, place.name))
    show(["mutants", str(place)], interrupts)
    progress.say(f"mutants: {time.monotonic() - began_s:.0f} s, in {place}")
    progress.say(last_line(found))
    return exit_code(found)


def chosen(only: str) -> list[Planted]:
    """The mutants to catch: all, or the one of that name. Raises HarnessError naming all."""
    known = every()
    if only and only not in known:
        raise HarnessError(f"mutant {only!r} does not exist; choose from {', '.join(sorted(known))}")
    return [known[only]] if only else list(known.values())


def drills(planted: Sequence[Planted], seed: int, *, controls: int) -> list[Wanted]:
    """The drills to make: each mutant with the seed, then clean ones of the same shapes in turn, each with a seed of its own."""
    shapes = clean_shapes(planted)
    clean = [(number, shapes[number % len(shapes)], seed + 1 + number) for number in range(controls)]
    return [Wanted(one.name, one.shape, seed, one.mutant) for one in planted] + [
        Wanted(f"clean-{number + 1}", shape, own) for number, shape, own in clean
    ]


def made(
    wanted: Sequence[Wanted], place: Path, measured: Calibration, arguments: argparse.Namespace, interrupts: Interrupts
) -> list[Result]:
    """Carry out these drills, and what follows from their verdicts."""
    scenarios = [(drawn(one.shape, one.seed, one.mutant), calibration_of(one.shape, measured)) for one in wanted]
    judged = campaign.together(scenarios, place, arguments, interrupts)
    return [
        Result(
            one.name,
            one.shape.words,
            one.mutant,
            one.seed,
            each.name,
            each.verdict,
            missed(one.mutant, each.verdict) if one.mutant else alarm(each.verdict),
        )
        for one, each in zip(wanted, judged, strict=True)
    ]


def words(result: Result) -> str:
    """What came of a drill, in one line."""
    if result.unknown:
        return f"{result.name}: UNKNOWN, {result.why}"
    if result.mutant is None:
        return f"{result.name}: FALSE ALARM, {result.why}" if result.why else f"{result.name}: valid"
    return f"{result.name}: NOT CAUGHT, {result.why}" if result.why else f"{result.name}: caught by {result.mutant.check}"


def content(results: Sequence[Result], seed: int, name: str) -> dict[str, Any]:
    """What was found, as it is written for the table."""
    return {
        "schema": SCHEMA,
        "id": name,
        "seed": seed,
        "ended_utc": runs.utc(time.time()),
        "git_commit": machine.git_commit(ROOT),
        "line": last_line(results),
        "drills": [entry(one) for one in results],
    }


def entry(result: Result) -> Mapping[str, Any]:
    """A drill as it is written."""
    planted = result.mutant
    return {
        "name": result.name,
        "clean": planted is None,
        "defect": planted.defect if planted else "",
        "check": planted.check if planted else "",
        "wanted": planted.verdict if planted else "valid",
        "closure": sorted(planted.closure) if planted else [],
        "shape": result.shape,
        "seed": result.seed,
        "run": result.run,
        "verdict": result.verdict.verdict,
        "checks": dict(result.verdict.checks),
        "why": result.why,
    }


#: How many clean drills there are.
CONTROLS = 20


@dataclass(frozen=True, slots=True)
class Result:
    """The drill of a mutant, or of the clean engine (None). `run`: its folder; `why`: why it is not as it must be, empty when it
    is."""

    name: str
    shape: str
    mutant: Mutant | None
    seed: int
    run: str
    verdict: Verdict
    why: str

    @property
    def unknown(self) -> bool:
        """Whether nobody can tell if it is as it must be: the machine was too slow, or what must be decided is not: the verdict,
        or the check that is named for the mutant."""
        wanted = self.mutant.verdict if self.mutant else "valid"
        named = self.verdict.checks.get(self.mutant.check, "") if self.mutant else ""
        open_ = wanted != "unknown" and "unknown" in (self.verdict.verdict, named)
        return bool(self.why) and (self.verdict.too_slow or open_)

    @property
    def again(self) -> bool:
        """Whether it proves nothing: it is unknown, or nobody met the defect."""
        return self.unknown or (bool(self.why) and self.verdict.verdict == "valid")


def missed(mutant: Mutant, verdict: Verdict) -> str:
    """Why the mutant was not caught as it must be: by the check that is named for it, and by none outside of its closure; empty
    when it was. Checks that complain of late work alone say something about the machine."""
    if verdict.verdict != mutant.verdict:
        return f"the verdict is {verdict.verdict}, not {mutant.verdict}: {verdict.reason or 'every check is valid'}"
    found = verdict.checks.get(mutant.check, "not there")
    if found != mutant.verdict:
        return f"{mutant.check} is {found}, not {mutant.verdict}: {verdict.reason}"
    if others := sorted(verdict.tripped - verdict.late - mutant.closure):
        worst = min(others, key=lambda name: verdict.checks[name] != "violated")
        return (
            f"{', '.join(others)} tripped as well: {worst} {verdict.checks[worst]}: {verdict.why.get(worst, 'without a reason')}"
        )
    return ""


def alarm(verdict: Verdict) -> str:
    """Why a clean drill is not what it must be, empty when it is valid."""
    return "" if verdict.verdict == "valid" else f"the verdict is {verdict.verdict}: {verdict.reason}"


def last_line(results: Sequence[Result]) -> str:
    """The line for scripts."""
    planted = [one for one in results if one.mutant is not None]
    clean = [one for one in results if one.mutant is None]
    caught, unknown = sum(not one.why for one in planted), sum(one.unknown for one in results)
    alarms = sum(bool(one.why) and not one.unknown for one in clean)
    told = f"mutants: caught {caught} of {len(planted)}, false alarms {alarms} of {len(clean)}"
    return f"{told}, unknown {unknown}" if unknown else told


def exit_code(results: Sequence[Result]) -> int:
    """0 only when there are drills, each mutant was caught, and each clean drill is valid; that of unknown where nothing but
    unknown drills is in the way."""
    amiss = [one for one in results if one.why]
    if any(not one.unknown for one in amiss):
        return EXIT_CODES["violated"]
    return EXIT_CODES["unknown" if amiss or not results else "valid"]
