"""Ask `reports` for the verdict, in a fresh interpreter, and turn it into the exit code of the drill."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.processes import ROOT, child_environment
from engine.testing import start_guarded

#: Verdict -> exit code. `missed`: a valid run that missed a service level objective.
EXIT_CODES = {"valid": 0, "violated": 1, "unknown": 2, "missed": 3}
VALID = EXIT_CODES["valid"]
UNKNOWN = EXIT_CODES["unknown"]
MISSED = EXIT_CODES["missed"]

#: The service level objectives of a run, in its folder.
OBJECTIVES = "slo.toml"

#: Validating a file of objectives takes less than a second.
OBJECTIVES_TIMEOUT_S = 60

#: Spark needs about half a minute; a judge that takes this long is stuck.
JUDGE_TIMEOUT_S = 900

#: A table with its figure is drawn in this.
SHOW_TIMEOUT_S = 60

#: How often the wait for the judge looks whether a signal has come.
LOOK_S = 0.1

#: A judge that is told to stop ends its JVM and removes its scratch files within this, or is killed.
STOP_GRACE_S = 3.0


def judge_command(*runs: Path) -> list[str]:
    return [sys.executable, "-m", "reports", "judge", *map(str, runs)]


def listing(*, every: bool) -> list[str]:
    """The options of a judge that lists every check, or those alone that are not clean."""
    return ["--all"] if every else []


def judge_environment() -> dict[str, str]:
    """Our environment without SPARK_HOME: PySpark would launch the Spark that it names instead of the one it brings."""
    return {name: value for name, value in child_environment({}).items() if name != "SPARK_HOME"}


class EarlyJudge:
    """A judge that starts Spark while a drill still ends, and waits until there is a run to judge."""

    def __init__(self, run: Path, *, every: bool = False) -> None:
        self._run = run
        self._every = every
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EarlyJudge:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process)

    def start(self) -> None:
        """Start it, unless it has been started."""
        if self._process is None:
            command = [*judge_command(self._run), "--begin-on-line", *listing(every=self._every)]
            self._process = start_guarded(command, cwd=ROOT, env=judge_environment(), stdin=subprocess.PIPE)

    def begin(self) -> subprocess.Popen[bytes] | None:
        """Let it judge the run; the caller waits for it. None when it was not started."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            # One that is gone has said why, and its exit code is looked at.
            with suppress(OSError), process.stdin as line:
                line.write(b"\n")
        return process


def judge(
    run: Path, interrupts: Interrupts, command: Sequence[str] | None = None, *, started: subprocess.Popen[bytes] | None = None
) -> tuple[int, str]:
    """Judge a run, its output passed through. Returns the exit code (0 to 3) and a complaint, empty when all went well.

    `started`: a judge that was started before.

    An exit code alone is not believed: an interpreter that crashes exits with 1 too. It must agree with verdict.json.
    Raises Interrupted soon after a signal; the judge is gone then.
    """
    process = started or start_guarded(command or judge_command(run), cwd=ROOT, env=judge_environment())
    try:
        code = exit_code(process, interrupts)
    except subprocess.TimeoutExpired:
        return UNKNOWN, f"the judge did not end within {JUDGE_TIMEOUT_S} s"
    finally:
        stop(process)
    written = written_code(run / "verdict.json")
    if written is None or written != code:
        return UNKNOWN, f"the judge gave no usable verdict (exit code {code}, verdict.json says {written})"
    return code, ""


def judge_all(runs: Sequence[Path], interrupts: Interrupts, log: Path | None = None) -> list[tuple[int, str]]:
    """Judge runs in one Spark session, their output passed through, or added to `log`. Returns for each its exit code and a
    complaint, as `judge`. Raises Interrupted soon after a signal; the judge is gone then."""
    for run in runs:
        # The judge withdraws each verdict when it comes to that run, which one that crashes before never does.
        (run / "verdict.json").unlink(missing_ok=True)
    with log.open("ab") if log else nullcontext() as output:
        process = start_guarded(judge_command(*runs), cwd=ROOT, env=judge_environment(), stdout=output, stderr=output)
        try:
            exit_code(process, interrupts, JUDGE_TIMEOUT_S * len(runs))
            complaint = "the judge gave no usable verdict"
        except subprocess.TimeoutExpired:
            complaint = f"the judge did not end within {JUDGE_TIMEOUT_S * len(runs)} s"
        finally:
            stop(process)
    written = [written_code(run / "verdict.json") for run in runs]
    return [(UNKNOWN, complaint) if code is None else (code, "") for code in written]


def exit_code(process: subprocess.Popen[bytes], interrupts: Interrupts, timeout_s: float = JUDGE_TIMEOUT_S) -> int:
    """Wait for the judge. Raises Interrupted within `LOOK_S` of a signal, and TimeoutExpired for a judge that is stuck."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        interrupts.check()
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline_s:
                raise


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the judge if it still runs, politely first."""
    process.terminate()
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def written_code(path: Path) -> int | None:
    """The exit code that belongs to verdict.json: to its verdict, and of a valid run to its objectives; None without one."""
    try:
        decided = json.loads(path.read_text())
        code = EXIT_CODES.get(decided["verdict"])
        results = {one["result"] for one in decided.get("slo", ())}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if code == VALID:
        return MISSED if "missed" in results else UNKNOWN if "unknown" in results else VALID
    return code


def show(what: Sequence[str], interrupts: Interrupts) -> None:
    """Have `reports` print and draw something that needs no Spark. Raises HarnessError when it fails."""
    if code := shown(what, interrupts):
        raise HarnessError(f"reports {' '.join(what)} failed with exit code {code}")


def shown(what: Sequence[str], interrupts: Interrupts) -> int:
    """The same; the exit code, unknown where it does not end."""
    process = start_guarded([sys.executable, "-m", "reports", *what], cwd=ROOT, env=judge_environment())
    try:
        return exit_code(process, interrupts, SHOW_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return UNKNOWN
    finally:
        stop(process)


def validate_objectives(file: Path, *, channels: bool) -> None:
    """Have `reports` validate a file of service level objectives, before a drill is begun with it. Raises HarnessError."""
    command = [sys.executable, "-m", "reports", "slo", str(file.absolute()), *(["--channels"] if channels else [])]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=judge_environment(), capture_output=True, text=True, timeout=OBJECTIVES_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"{file.name} was not validated within {OBJECTIVES_TIMEOUT_S} s") from error
    if done.returncode:
        raise HarnessError(done.stderr.strip().rpartition("\n")[2].removeprefix("slo: "))


#: Causes as the judge writes them, which imports nothing of the harness nor is imported by it.
SLOW, RECORDER, CRASHED = "slow", "recorder", "crashed"

#: Causes for which a slow machine alone is enough: what came late may be due to it, and so may a recording out of order.
LATE = frozenset((SLOW, RECORDER))

#: The check that is about nothing but the time at which jobs were started.
PUNCTUAL = "J19"

#: The check that says whether the drill was carried out.
CARRIED_OUT = "H1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, that of each check, and the reasons for a reader. `causes`: why it is unknown, each with its checks; none of
    a run that was judged before there were causes. `why`: the reason of each check that is not valid."""

    verdict: str
    checks: Mapping[str, str] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The first reason, empty without any."""
        return next(iter(self.reasons), "")

    @property
    def tripped(self) -> frozenset[str]:
        """The checks that are not valid."""
        return frozenset(check for check, found in self.checks.items() if found != "valid")

    @property
    def late(self) -> frozenset[str]:
        """The checks that complain of late work alone."""
        return frozenset(check for check in self.tripped if check == PUNCTUAL or self._only_late(check))

    @property
    def too_slow(self) -> bool:
        """Whether all that it complains of is late work, or the drill was given up for it."""
        late = bool(self.tripped) and self.tripped == self.late and CRASHED not in self.causes
        return late or (self.verdict != "violated" and CARRIED_OUT in self.causes.get(SLOW, ()))

    def _only_late(self, check: str) -> bool:
        causes = {cause for cause, checks in self.causes.items() if check in checks}
        return bool(causes) and causes <= LATE


def unknown(reason: str) -> Verdict:
    """The verdict of a run that nobody could judge."""
    return Verdict("unknown", reasons=(reason,))


def read_verdict(run: Path) -> Verdict:
    """The verdict of a run; unknown where there is none that can be used."""
    try:
        return parsed(json.loads((run / "verdict.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return unknown(f"the judge left no verdict: {type(error).__name__}: {error}")


def parsed(found: Any) -> Verdict:
    """What the content of a verdict.json says. Raises KeyError and TypeError."""
    checks = {check["id"]: check["verdict"] for check in found["checks"]}
    why = {check["id"]: check["why"] for check in found["checks"] if check["verdict"] != "valid"}
    return Verdict(found["verdict"], checks, tuple(found["reasons"]), found.get("causes", {}), why)


def list_runs(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """List all runs. Returns the exit code of `reports`."""
    return shown(["list", str(arguments.runs.absolute())], interrupts)


def show_run(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Judge a recorded run again. Returns the exit code of its verdict."""
    run = arguments.run.absolute()
    words = ["--slo", str(arguments.slo.absolute())] if arguments.slo else []
    code, complaint = judge(run, interrupts, [*judge_command(run), *words, *listing(every=arguments.all)])
    if complaint:
        print(f"chaos: {complaint}", file=sys.stderr)
    return code
