"""What the histories of a job queue's processes say so far: what was sent, and which handlers run and have run, where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chaos.watch import Token, Watch, apply


class TargetWatch(Watch):
    """Tokens carry the operation of a handler as their nonce: these queues have no leases that it could tell of."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Jobs whose enqueue was acknowledged, and those that a handler has run to its end.
        self.acknowledged: set[str] = set()
        self.ended: set[str] = set()
        #: Every start of a handler: job -> (instant, process).
        self.starts: dict[str, list[tuple[int, str]]] = {}
        #: The newest acknowledged enqueue of each process: when it was sent.
        self._acknowledged_ns: dict[str, int] = {}

    def follow(self, proc: str) -> None:
        """A process that is started again goes on in its file, and what the one before it ran is cut off."""
        if proc in self.views:
            self.views[proc].running.clear()
        else:
            super().follow(proc)

    def poll(self) -> None:
        for proc, tail in self._tails.items():
            for row in tail.read():
                apply(self.views[proc], row)
                self._note(proc, row)

    def left(self) -> set[str]:
        """Jobs that were acknowledged and have not run to their end."""
        return self.acknowledged - self.ended

    def started_since(self, tokens: Iterable[Token], t_ns: int, but: str = "") -> list[Token]:
        """Those of the jobs that a process other than `but` has started since then."""
        return [token for token in tokens if any(at > t_ns and proc != but for at, proc in self.starts.get(token.job, ()))]

    def last_start_ns(self, proc: str) -> int:
        """When a process started its newest handler; 0 = never."""
        return max((at for starts in self.starts.values() for at, by in starts if by == proc), default=0)

    def enqueued_since(self, proc: str, t_ns: int) -> bool:
        """Whether an enqueue of the process was acknowledged that it sent since then."""
        return self._acknowledged_ns.get(proc, 0) > t_ns

    def _note(self, proc: str, row: dict[str, Any]) -> None:
        if row.get("kind") != "operation":
            return
        jobs = [item["job"] for item in row.get("items") or ()]
        f, kind = row.get("f"), row.get("type")
        if f == "enqueue" and kind == "ok":
            self.acknowledged.update(jobs)
            self._acknowledged_ns[proc] = row["first_send_ns"]
        elif f == "handle" and kind == "ok":
            self.ended.update(jobs)
        elif f == "handle" and kind == "invoke":
            for job in jobs:
                self.starts.setdefault(job, []).append((row["first_send_ns"], proc))
