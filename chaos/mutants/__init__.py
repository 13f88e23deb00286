"""Mutants: engines, or harnesses, with one planted defect. Each must be caught by the check that is named for it.

A mutant of a script, or of a module of the engine, is the clean one with other lines at named anchors. A mutant whose anchor does
not exist refuses to start: a defect that was not planted proves nothing about the check.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import topologies
from chaos.errors import HarnessError
from chaos.planting import ENGINE, Edit, planted

#: Histories of the harness.
KEPT = ("manifest", "harness")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect, the check that must catch it, and the verdict that follows."""

    name: str
    defect: str
    check: str
    verdict: str = "violated"
    edits: tuple[Edit, ...] = ()
    faults_do_nothing: bool = False
    #: What the recorders of the processes wrote is lost before the judge sees it.
    histories_lost: bool = False
    #: The servers that show it.
    topology: str = topologies.EMBEDDED
    #: The kinds of fault that give it something to do wrong, and what its drill has beside a short one, as fields of the spec.
    provoked_by: tuple[str, ...] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)
    #: What it may trip beside the check that is named for it (rule 35), and why.
    also: frozenset[str] = frozenset()

    @property
    def closure(self) -> frozenset[str]:
        """The checks that it may trip."""
        return self.also | {self.check}

    def on(self, *faults: str, topology: str = "", also: str | frozenset[str] = "", **scenario: Any) -> Mutant:
        """The same in a drill with these faults, on these servers; a text of `also` names several checks with commas."""
        checks = frozenset(filter(None, also.split(", "))) if isinstance(also, str) else also
        servers = topology or self.topology
        return replace(self, provoked_by=faults, topology=servers, also=checks, scenario=scenario)

    def by(self, anchor: str, new: str) -> Mutant:
        """The same with these lines in the place of those of an anchor, too."""
        return replace(self, edits=(*self.edits, Edit(anchor, new)))

    def for_spec(self) -> dict[str, str]:
        """As it is written to spec.json: what the defect is, and what the judge must say of it."""
        return {"name": self.name, "defect": self.defect, "check": self.check, "verdict": self.verdict}


def find(name: str, among: Mapping[str, Mutant]) -> Mutant | None:
    """The mutant of that name; None for the empty name, which is the clean engine. Raises HarnessError naming all."""
    if not name:
        return None
    if name not in among:
        raise HarnessError(f"mutant {name!r} does not exist; choose from {', '.join(sorted(among))}")
    return among[name]


def pretend(pid: int, number: int) -> None:
    """Sends no signal: for faults that do nothing."""


def lose_histories(history: Path) -> None:
    """Empty what the processes of a run recorded; the manifest, and what the harness itself saw, stay."""
    for path in history.glob("*.jsonl"):
        if path.stem not in KEPT:
            path.write_bytes(b"")


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
