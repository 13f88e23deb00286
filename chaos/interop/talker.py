"""A conversation with the original Bull: one command, one answer. For tests, and for setting things up."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from chaos.errors import HarnessError
from chaos.interop.node import adapter_command, adapter_environment
from chaos.processes import inherited
from engine.testing import start_guarded

ANSWER_TIMEOUT_S = 20.0
POLL_S = 0.02


class TalkFailed(HarnessError):
    """Bull answered with an error, or not at all."""


class Talker:
    """A Bull queue in a Node process of its own, alive inside the `with` block.

    Enter it from a thread that lives as long as the process should (see `start_guarded`). Raises NodeMissing.
    `ahead_ms`: how much the clock of the process is ahead of the machine's.
    """

    def __init__(self, name: str, *, port: int, prefix: str = "bull", ahead_ms: int = 0) -> None:
        self._settings = {"queue": name, "port": port, "prefix": prefix, "ahead_ms": ahead_ms}
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Talker:
        environment = {**inherited(), **adapter_environment()}
        command = adapter_command("talk", self._settings)
        self._process = start_guarded(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    @property
    def pid(self) -> int:
        """For tests that stop or kill it."""
        return self._process.pid

    def ask(self, command: str, *words: Any) -> Any:
        """Carry out a command of adapter.js and return its value. Raises TalkFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, *words]).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def ran(self, event: str) -> list[tuple[str, Any]]:
        """Job id and value or error of each event so far: active, stalled, completed or failed."""
        return [(job, told) for name, job, told in self.ask("ran") if name == event]

    def until(self, condition: Callable[[], Any], *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Wait until the condition is true, and return its value. Raises TalkFailed."""
        deadline_s = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() >= deadline_s:
                raise TalkFailed(f"what was waited for did not come within {timeout_s:g} s")
            time.sleep(POLL_S)
        return value

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.decode())
        self._answers.put("")

    def _answer(self) -> Any:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            raise TalkFailed(f"Bull did not answer within {ANSWER_TIMEOUT_S:g} s") from None
        if not line:
            raise TalkFailed(f"the Node process ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise TalkFailed(answer["error"])
        return answer["value"]
