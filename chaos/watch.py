"""Live knowledge from the histories: which handlers a worker has running, which jobs it holds, what others claimed since.

Faults use it to choose their instant and as their witness. It reads what the judge will read later, only earlier.
Instants are monotonic nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from chaos.tail import Tail

#: Operations that end a lease.
ENDS = frozenset({"finish", "retry", "bury", "release", "drop"})


class Token(NamedTuple):
    """One lease of one job."""

    job: str
    fence: int
    nonce: str


class Answer(NamedTuple):
    """An operation that the server answered: the last send, which the reply belongs to, and the reply."""

    sent_ns: int
    done_ns: int

    @property
    def took_ms(self) -> float:
        return (self.done_ns - self.sent_ns) / 1e6


NEVER = Answer(0, 0)


@dataclass
class ProcessView:
    """What one process's history says so far."""

    opened: bool = False
    closed: bool = False
    #: Where the process runs, and its process id there.
    host: str = ""
    pid: int = 0
    #: Completed operations per name: {"claim": 17, ...}.
    completed: dict[str, int] = field(default_factory=dict)
    #: Leases that a reply gave to the process, and that no reply has ended yet.
    in_hand: dict[Token, int] = field(default_factory=dict)
    #: Running handlers with their start (monotonic ns).
    running: dict[Token, int] = field(default_factory=dict)
    #: Ends that were sent and not answered: they may have happened.
    ending: dict[Token, str] = field(default_factory=dict)
    #: How the server answered the end of a lease: (operation, item result, completion ns), the newest.
    ended: dict[Token, tuple[str, str, int]] = field(default_factory=dict)
    #: Every lease that the process got: job -> fences.
    claimed: dict[str, list[int]] = field(default_factory=dict)
    #: Every handler that it started: job -> fences.
    started: dict[str, list[int]] = field(default_factory=dict)
    created: int = 0
    finished: int = 0
    #: When the process last connected to the server.
    connected_ns: int = 0
    #: The same, for each server.
    connected_to_ns: dict[str, int] = field(default_factory=dict)
    #: The operation, of those that were answered, that was sent last.
    answered: Answer = NEVER
    #: The same of the renewals that renewed some lease: when its jobs have ended meanwhile, an answer renews nothing.
    renewed: Answer = NEVER
    #: Operations that were sent and not answered yet: operation id -> (name, first send).
    unanswered: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: When the server last answered that it had done this before: {"claim": ..., ...}.
    repeated_ns: dict[str, int] = field(default_factory=dict)
    #: When a call was last completed that had been refused with an error: {"OOM": ..., ...}.
    refused_ns: dict[str, int] = field(default_factory=dict)


class Watch:
    """Views of all followed processes; `poll` brings them up to date."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[str, Tail] = {}
        self.views: dict[str, ProcessView] = {}

    def follow(self, proc: str) -> None:
        """Follow `<proc>.jsonl`, which need not exist yet."""
        self._tails[proc] = Tail(self._folder / f"{proc}.jsonl")
        self.views[proc] = self.new_view()

    def new_view(self) -> ProcessView:
        """The view of a process of which nothing is known yet."""
        return ProcessView()

    def poll(self) -> None:
        """Read what was appended since the last call."""
        for proc, tail in self._tails.items():
            view = self.views[proc]
            for row in tail.read():
                self.apply(view, row)

    def apply(self, view: ProcessView, row: dict[str, Any]) -> None:
        """Fold one row into the view."""
        apply(view, row)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def view(self, proc: str) -> ProcessView:
        """The view of a process; an empty one for a process that was never followed."""
        return self.views.get(proc) or ProcessView()

    def definitely_held(self, proc: str) -> list[Token]:
        """Leases in hand whose end was never sent."""
        view = self.view(proc)
        return [token for token in view.in_hand if token not in view.ending]

    def claimed_elsewhere(self, proc: str, tokens: Iterable[Token]) -> list[Token]:
        """Those of `tokens` whose job another process has since got a lease on."""
        others = [view.claimed for name, view in self.views.items() if name != proc]
        return [token for token in tokens if newer(others, token)]

    def started_elsewhere(self, proc: str, tokens: Iterable[Token]) -> list[Token]:
        """Those of `tokens` whose job another process has since started a handler for."""
        others = [view.started for name, view in self.views.items() if name != proc]
        return [token for token in tokens if newer(others, token)]

    def created(self) -> int:
        """Jobs created so far, over all processes."""
        return sum(view.created for view in self.views.values())

    def finished(self) -> int:
        """Finishes that the server accepted so far, over all processes."""
        return sum(view.finished for view in self.views.values())


def newer(fences_by_job: Iterable[dict[str, list[int]]], token: Token) -> bool:
    """True when some process has the token's job under a later fence."""
    return any(fence > token.fence for fences in fences_by_job for fence in fences.get(token.job, ()))


def apply(view: ProcessView, row: dict[str, Any]) -> None:
    """Fold one history row into the view. Rows that carry nothing for us are passed over."""
    kind = row.get("kind")
    if kind == "open":
        view.opened = True
        view.host, view.pid = row.get("host", ""), row.get("pid", 0)
    elif kind == "close":
        view.closed = True
    elif kind == "connection":
        view.connected_ns = view.connected_to_ns[row.get("server_run_id", "")] = row["t_ns"]
    elif kind == "operation":
        operation: str = row.get("f", "")
        if row.get("type") == "invoke":
            apply_invocation(view, operation, row)
        else:
            view.completed[operation] = view.completed.get(operation, 0) + 1
            apply_answer(view, operation, row)
            apply_completion(view, operation, row)


def apply_answer(view: ProcessView, operation: str, row: dict[str, Any]) -> None:
    """What the reply says about the network. Only a row with the server's time has a reply; handlers run without one."""
    view.unanswered.pop(row.get("op", ""), None)
    for error in row.get("errors") or ():
        view.refused_ns[error.partition(" ")[0]] = row["t_ns"]
    if "srv_us" not in row:
        return
    answer = Answer(row["last_send_ns"], row["done_ns"])
    view.answered = max(view.answered, answer)
    results = {row.get("result"), *(item.get("result") for item in row.get("items") or ())}
    if operation == "extend" and "ok" in results:
        view.renewed = max(view.renewed, answer)
    if "repeated" in results:
        view.repeated_ns[operation] = answer.done_ns


def apply_invocation(view: ProcessView, operation: str, row: dict[str, Any]) -> None:
    if operation != "handle":
        view.unanswered[row.get("op", "")] = (operation, row.get("first_send_ns") or row["t_ns"])
    for item in row.get("items") or ():
        if operation in ENDS:
            view.ending[token_of(item)] = operation
        elif operation == "handle":
            token = token_of(item)
            view.running[token] = row.get("first_send_ns") or row["t_ns"]
            view.started.setdefault(token.job, []).append(token.fence)


def apply_completion(view: ProcessView, operation: str, row: dict[str, Any]) -> None:
    known = row.get("type") != "info"
    for item in row.get("items") or ():
        result = item.get("result", "")
        if operation == "enqueue":
            view.created += result == "created"
        elif operation == "claim" and known and "fence" in item:
            token = token_of(item)
            if token not in view.in_hand:
                view.claimed.setdefault(token.job, []).append(token.fence)
            view.in_hand[token] = row["t_ns"]
        elif operation == "handle":
            view.running.pop(token_of(item), None)
        elif operation in ENDS and known:
            token = token_of(item)
            view.ending.pop(token, None)
            view.in_hand.pop(token, None)
            view.ended[token] = (operation, result, row["t_ns"])
            view.finished += operation == "finish" and result == "ok"


def token_of(item: dict[str, Any]) -> Token:
    """The token that an item of a row carries."""
    return Token(str(item.get("job", "")), int(item.get("fence") or 0), str(item.get("nonce", "")))
