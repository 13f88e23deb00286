"""Histories of workers for tests: rows as the engine's recorder writes them."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.faults.base import Wait, carry_out
from chaos.plan import PlannedFault
from chaos.watch import Token
from engine import EngineError
from record.history import HistoryFile, load_file


def token(job: str, fence: int, worker: str = "1") -> Token:
    return Token(job, fence, f"{worker * 16}:1")


def waiting(poll: Callable[[], object]) -> Wait:
    """Waits as a drill does: it looks at the histories before each question."""

    def wait(condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.005) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            poll()
            # Asked once: a condition may use up what it reads.
            if held := condition():
                return held
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(poll_s)

    return wait


def again_and_again(over: threading.Event, act: Callable[[], object], every_s: float = 0.0) -> threading.Thread:
    """A thread that acts until it is over. What the engine refuses or cannot reach is tried again."""

    def run() -> None:
        while not over.wait(every_s):
            try:
                act()
            except EngineError:
                over.wait(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def carried_out(fault: Any, planned: PlannedFault, file: Path) -> tuple[list[dict[str, Any]], list[tuple[str, int]], int]:
    """The rows of a fault that is carried out, the phases that began, each with its instant, and the instant of the heal."""
    phases: list[tuple[str, int]] = []
    harness = HistoryFile(file, proc=file.stem, role="harness")
    healed_ns = carry_out(fault, planned, harness=harness, begin_phase=lambda name, t_ns: phases.append((name, t_ns)))
    harness.close()
    return [row for row in load_file(file).rows if row["kind"] == "fault"], phases, healed_ns


class WorkerHistory:
    """Writes a worker's history file, operation by operation."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = HistoryFile(folder / f"{name}.jsonl", proc=name, role="worker")

    def claim(self, *tokens: Token, result: str = "leased", kind: str = "ok") -> None:
        self._row("claim", kind, tokens, item_result=result)

    def start(self, *tokens: Token) -> None:
        for one in tokens:
            self._row("handle", "invoke", [one], first_send_ns=time.monotonic_ns())

    def stop(self, *tokens: Token) -> None:
        for one in tokens:
            self._row("handle", "ok", [one])

    def send(self, operation: str, *tokens: Token) -> None:
        self._row(operation, "invoke", tokens)

    def answer(self, operation: str, *tokens: Token, result: str, kind: str = "ok") -> None:
        self._row(operation, kind, tokens, item_result=result)

    def _row(self, operation: str, kind: str, tokens: Sequence[Token], *, item_result: str = "", **columns: Any) -> None:
        result = {"result": item_result} if item_result else {}
        items = [{"job": one.job, "fence": one.fence, "nonce": one.nonce, **result} for one in tokens]
        row = {"kind": "operation", "f": operation, "type": kind, **columns, "items": items}
        self.file.append([json.dumps(row)[1:-1]])
