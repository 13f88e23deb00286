"""Running chosen tests in a copy of the tree: one process, ended with its owner or when a test takes far too long."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.testing.server import start_guarded
from tests.mutation.tree import Tree

#: Starting pytest, its imports and the collection.
_START_S = 120.0
#: A test may take this long, and this many times what it took when it was recorded.
_LIMIT_S, _LIMIT_TIMES = 20.0, 8.0
_POLL_S = 0.05


#: How far a run goes: see `chosen`.
Stop = Literal["first", "file", "never"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The tests that failed, each with the last words of its failure, and how long all took."""

    failed: tuple[tuple[str, str], ...]
    seconds: float


class HarnessFault(Exception):
    """pytest itself did not run; the message has its last lines."""


class Run:
    """Runs tests of one copy. `seconds`: what each test took when it was recorded."""

    def __init__(self, tree: Tree, scratch: Path, seconds: Mapping[str, float], *, stop: Stop) -> None:
        self._tree, self._scratch, self._seconds, self._stop = tree, scratch, seconds, stop

    def tests(self, tests: Sequence[str], *, patience: float = 1.0) -> Outcome:
        """Run these in this order. Raises HarnessFault."""
        if not tests:
            return Outcome((), 0.0)
        started_s = time.monotonic()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        events, choice = self._scratch / "events.jsonl", self._scratch / "chosen.json"
        events.touch()
        choice.write_text(json.dumps({"tests": list(tests), "stop": self._stop, "events": str(events)}))
        with (self._scratch / "pytest.log").open("wb") as output:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.chosen"]
            command += ["--numprocesses", "0", "--basetemp", str(self._scratch / "tmp")]
            command += ["-x" if self._stop == "first" else "--continue-on-collection-errors"]
            command += dict.fromkeys(test.partition("::")[0] for test in tests)
            env = {**self._tree.environment(), "IRONCLAIM_MUTATION_CHOSEN": str(choice)}
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            process = start_guarded(command, cwd=self._tree.path, env=env, **streams)
            try:
                hung = self._watch(process, events, patience)
            finally:
                _end(process)
        seen = [json.loads(line) for line in events.read_text().splitlines()]
        failed = tuple({event["failed"]: event["why"] for event in seen if "failed" in event}.items())
        if hung is not None:
            failed = (*failed, (hung, "took too long"))
        elif not failed and process.returncode != 0:
            failed = self._without_a_test(seen, process.returncode)
        return Outcome(failed, time.monotonic() - started_s)

    def _watch(self, process: subprocess.Popen[bytes], events: Path, patience: float) -> str | None:
        """Wait for the end. The test that took too long; None when none did."""
        size, since_s, test = 0, time.monotonic(), ""
        while process.poll() is None:
            if (now := events.stat().st_size) != size:
                size, since_s = now, time.monotonic()
                test = _last(events, "started") or test
            limit_s = _LIMIT_S + _LIMIT_TIMES * self._seconds.get(test, 5.0) if test else _START_S
            if time.monotonic() - since_s > limit_s * patience:
                return test or "the start of pytest"
            time.sleep(_POLL_S)
        return None

    def _without_a_test(self, seen: list[dict[str, Any]], code: int) -> tuple[tuple[str, str], ...]:
        """pytest ended with an error that no test has: a process that died in a test, or modules that cannot be imported."""
        started = [event["started"] for event in seen if "started" in event]
        text = (self._scratch / "pytest.log").read_text(errors="replace")
        if started and "ended" not in seen[-1]:
            return ((started[-1], f"the process ended with {code}"),)
        # 5: the tests are not there any more; their names come from what was edited.
        if code == 5 or (not started and ("Traceback" in text or "ImportError while" in text)):
            return (("the start of pytest", (text.strip().splitlines() or [""])[-1][:200]),)
        raise HarnessFault("\n".join(text.splitlines()[-12:]))


def _last(events: Path, name: str) -> str | None:
    for line in reversed(events.read_text().splitlines()):
        with contextlib.suppress(ValueError):
            if name in (event := json.loads(line)):
                return event[name]
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a run: its process group. Servers have sessions of their own and end with who started them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
