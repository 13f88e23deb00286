"""Mutants: engines, or harnesses, with one planted defect. Each must be caught by the check that is named for it.

A mutant of a script is the clean script with a textual patch. The patch must fit exactly once, or the mutant refuses to
start: a defect that was not planted proves nothing about the check.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.errors import HarnessError


@dataclass(frozen=True, slots=True)
class Patch:
    """Replace `old` by `new` in one file of the scripts folder."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect, the check that must catch it, and the verdict that follows."""

    name: str
    defect: str
    check: str
    verdict: str
    patches: tuple[Patch, ...] = ()
    faults_do_nothing: bool = False


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            name="finish-without-token-check",
            defect="a finish is accepted whatever its token, also when another worker has finished the job since",
            check="J3",
            verdict="violated",
            patches=(
                Patch(
                    file="lanes/include/finish_jobs.lua",
                    old="    local state, outcome = run[4] and run[1] == fence and run[2] == nonce and 'held' or nil, ''\n",
                    new="    local state, outcome = run[4] and 'held' or nil, ''\n",
                ),
            ),
        ),
        Mutant(
            name="enqueue-not-idempotent",
            defect="an enqueue that is sent again after its reply was lost creates the job once more",
            check="J6",
            verdict="violated",
            patches=(
                Patch(
                    file="lanes/enqueue.lua",
                    old="if result then\n",
                    new="if result == 'duplicate' then\n",
                ),
            ),
        ),
        Mutant(
            name="no-reap",
            defect="leases that ran out are never taken away",
            check="J13",
            verdict="violated",
            patches=(
                Patch(
                    file="lanes/reap.lua",
                    old="if now_ms < no_reap_before_ms then expired = {} end\n",
                    new="expired = {}\n",
                ),
            ),
        ),
        Mutant(
            name="limit-not-counted",
            defect="leases do not count against the limits of concurrency",
            check="J12",
            verdict="violated",
            patches=(Patch(file="lanes/include/count_leases.lua", old="  if slots ~= '0' then\n", new="  if false then\n"),),
        ),
        Mutant(
            name="unique-not-kept",
            defect="a unique key keeps nobody out while its job has not ended",
            check="J14",
            verdict="violated",
            patches=(
                Patch(
                    file="lanes/include/unique_holder.lua",
                    old="job.unique == unique and state ~= 'dead'",
                    new="job.unique == unique and state == 'dead'",
                ),
            ),
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
    """Copy the scripts of `clean` to `folder` and patch them there; None when the mutant leaves the scripts alone.

    Raises HarnessError when a patch does not fit exactly once.
    """
    if not mutant.patches:
        return None
    try:
        shutil.copytree(clean, folder)
        for patch in mutant.patches:
            apply(mutant.name, patch, folder / patch.file)
    except OSError as error:
        raise HarnessError(f"mutant {mutant.name}: {error.filename}: {error.strerror or error}") from error
    return folder


def apply(name: str, patch: Patch, path: Path) -> None:
    """Patch one file. Raises OSError, and HarnessError when `old` does not occur exactly once."""
    text = path.read_text()
    found = text.count(patch.old)
    if found != 1:
        raise HarnessError(f"mutant {name}: its patch fits {found} times into {patch.file}, it must fit exactly once")
    path.write_text(text.replace(patch.old, patch.new))
