"""Mutants: engines, or harnesses, with one planted defect. Each must be caught by the check that is named for it.

A mutant of a script, or of a module of the engine, is the clean one with other lines at named anchors. A mutant whose anchor does
not exist refuses to start: a defect that was not planted proves nothing about the check.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos import topologies
from chaos.errors import HarnessError
from chaos.planting import ENGINE, Edit, planted


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect, the check that must catch it, and the verdict that follows. `topology`: the servers that show it."""

    name: str
    defect: str
    check: str
    verdict: str
    edits: tuple[Edit, ...] = ()
    faults_do_nothing: bool = False
    topology: str = topologies.EMBEDDED


#: A reply of one job, or a letter for each of several: what the script answers when it has made them.
_CREATED = """import time
us = time.time_ns() // 1000
jobs = getattr(self.call.operation, "jobs", ())
made = {"Enqueue": [us, b"created", b"", b"0", b""], "EnqueueMany": [us, b"c" * len(jobs), []]}
if str(getattr(reply, "status_code", "")) == "MOVED":
    reply = made.get(type(self.call.operation).__name__, reply)
if not isinstance(reply, NotSent):"""

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            name="finish-without-token-check",
            defect="a finish is accepted whatever its token, also when another worker has finished the job since",
            check="J3",
            verdict="violated",
            edits=(
                Edit(
                    "fence-checked",
                    "local fields = run and run_open(run_key)\n"
                    "if fields and fields.seal then\n"
                    "state, seals[at], limits[at] = 'held', fields.seal, fields.limits\n"
                    "elseif run and string.sub(run, 1, #token) == token then",
                ),
            ),
        ),
        Mutant(
            name="enqueue-not-idempotent",
            defect="an enqueue that is sent again after its reply was lost creates the job once more",
            check="J6",
            verdict="violated",
            edits=(Edit("enqueue-is-recognized-when-repeated", "if result == 'duplicate' then"),),
        ),
        Mutant(
            name="no-reap",
            defect="leases that ran out are never taken away",
            check="J13",
            verdict="violated",
            edits=(Edit("no-reap-after-a-stall", "expired = {}"),),
        ),
        Mutant(
            name="limit-not-counted",
            defect="leases do not count against the limits of concurrency",
            check="J12",
            verdict="violated",
            edits=(Edit("lease-holds-a-slot", "if false then"),),
        ),
        Mutant(
            name="rate-not-counted",
            defect="claims do not count against the limits of rates",
            check="J11",
            verdict="violated",
            edits=(Edit("claims-count-in-the-rate", "if false then"),),
        ),
        Mutant(
            name="unique-not-kept",
            defect="a unique key keeps nobody out while its job has not ended",
            check="J14",
            verdict="violated",
            edits=(
                Edit(
                    "unique-key-is-held",
                    "if job and job.unique == unique and state == 'dead' then return holder, state, fence end",
                ),
            ),
        ),
        Mutant(
            name="writes-to-a-replaced-primary",
            defect="a server at the address of the primary is written to, whatever the sentinels have decided since",
            check="J24",
            verdict="violated",
            edits=(
                Edit("majority-is-followed", "self._primary, self._answered_ns = self._primary or agreed, time.monotonic_ns()"),
                Edit("server-is-the-named-one", "if False:"),
            ),
            topology=topologies.SENTINEL,
        ),
        Mutant(
            name="era-ignored",
            defect="a process that meets another server does not ask what is missing there",
            check="J24",
            verdict="violated",
            edits=(Edit("another-server-is-asked", "return ()"),),
            topology=topologies.SENTINEL,
        ),
        Mutant(
            name="moved-taken-as-success",
            defect="an enqueue that a node answers with MOVED is taken for done",
            check="J4",
            verdict="violated",
            edits=(Edit("redirection-is-no-answer", _CREATED),),
            topology=topologies.CLUSTER,
        ),
        Mutant(
            name="inject-nothing",
            defect="faults are announced and not injected",
            check="H1",
            verdict="unknown",
            faults_do_nothing=True,
        ),
    )
}


def find(name: str, among: Mapping[str, Mutant] = MUTANTS) -> Mutant | None:
    """The mutant of that name; None for the empty name, which is the clean engine. Raises HarnessError naming all."""
    if not name:
        return None
    if name not in among:
        raise HarnessError(f"mutant {name!r} does not exist; choose from {', '.join(sorted(among))}")
    return among[name]


def pretend(pid: int, number: int) -> None:
    """Sends no signal: for faults that do nothing."""


def plant(mutant: Mutant, clean: Path, folder: Path) -> Path | None:
    """Copy the scripts of `clean` to `folder` and change them there; None when the mutant leaves the scripts alone. Where it
    changes modules of the engine, the whole package is copied beside the scripts, for processes to import it (`engine_beside`).

    Raises HarnessError when an anchor does not exist exactly once.
    """
    if not mutant.edits:
        return None
    try:
        shutil.copytree(clean, folder)
        texts = planted(mutant.edits, clean)
        if any(path.is_relative_to(ENGINE) for path in texts):
            shutil.copytree(ENGINE, folder.parent / ENGINE.name, ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in texts.items():
            in_engine = path.is_relative_to(ENGINE)
            (folder.parent / path.relative_to(ENGINE.parent) if in_engine else folder / path.relative_to(clean)).write_text(text)
    except OSError as error:
        raise HarnessError(f"mutant {mutant.name}: {error.filename}: {error.strerror or error}") from error
    except HarnessError as error:
        raise HarnessError(f"mutant {mutant.name}: {error}") from error
    return folder


def engine_beside(lua: Path | None) -> Path | None:
    """The folder that holds the changed package of the engine, when `plant` has made one beside these scripts."""
    beside = lua.parent / ENGINE.name if lua is not None else ENGINE
    return beside.parent if beside != ENGINE and (beside / "__init__.py").is_file() else None
