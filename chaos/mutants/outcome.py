"""Decides which mutants were caught, which clean drills raised a false alarm, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chaos.mutants import Mutant
from chaos.verdicts import Verdict

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
    def again(self) -> bool:
        """Whether it proves nothing: the machine was too slow, or what must be decided is not: the verdict, or the check that is
        named for the mutant."""
        wanted = self.mutant.verdict if self.mutant else "valid"
        named = self.verdict.checks.get(self.mutant.check, "") if self.mutant else ""
        open_ = self.verdict.verdict not in (wanted, "violated") or (named == "unknown" != wanted)
        return bool(self.why) and (self.verdict.too_slow or open_)


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
    """Why a clean drill is a false alarm, empty when it is valid. One that stays unknown is none the less: it is not what it must
    be."""
    return "" if verdict.verdict == "valid" else f"the verdict is {verdict.verdict}: {verdict.reason}"


def last_line(results: Sequence[Result]) -> str:
    """The line for scripts."""
    planted = [one for one in results if one.mutant is not None]
    clean = [one for one in results if one.mutant is None]
    caught = sum(not one.why for one in planted)
    return f"mutants: caught {caught} of {len(planted)}, false alarms {sum(bool(one.why) for one in clean)} of {len(clean)}"


def exit_code(results: Sequence[Result]) -> int:
    """0 only when there are drills, each mutant was caught, and no clean drill raised an alarm."""
    return int(not results or any(one.why for one in results))
