"""Hand-written histories: a base row plus overrides, through the engine's own history writer, in times that a test can read.

Times are seconds since the run began. A `Story` is a run folder in the making; `good_run.healthy` fills it with a run that is
valid, and a test adds the one thing that it is about.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record.history import HistoryFile

BASE_NS, BASE_SRV_MS = 5_000_000_000_000, 1_700_000_000_000
LEASE_MS = 9_000

#: When the last fault of the healthy run was healed, and when it takes its snapshots: the last one as if something were left.
HEALED_S = 36.0
DEADLINE_S, END_S = 51.5, 66.5

PLAN = [
    {"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-2"},
    {"fault": "2-worker-freeze", "name": "worker-freeze", "target": "worker-3"},
]
SPEC: dict[str, Any] = {
    "schema": 1, "id": "20260101-000000-bench-seed1", "scenario": "bench", "seed": 1, "mutant": "",
    "model": "lanes", "lease_ms": LEASE_MS, "sweep_ms": 1_000, "recovery_bound_ms": LEASE_MS + 2_000,
    "liveness_ms": LEASE_MS + 6_000, "workers": 3, "plan": PLAN, "direct": [], "retries_by_policy": True,
    "harness_errors": [], "ended_utc": "2026-01-01T00:01:00Z",
}  # fmt: skip


#: Columns of the job that an enqueue may name beside the usual ones.
ENQUEUE_ITEM = (
    *("class", "unique", "dedup", "holder", "needs", "on_parent_failure", "wants", "run_at_ms", "expires_ms", "priority"),
    *("attempts", "backoff", "backoff_least_ms"),
)
OUTCOMES = {"finish": "finished", "retry": "retried", "bury": "buried", "release": "released", "drop": "discarded"}


def ns(at_s: float) -> int:
    """An instant of the story as monotonic ns."""
    return BASE_NS + round(at_s * 1e9)


def srv_ms(at_s: float) -> int:
    """An instant of the story on the server's clock."""
    return BASE_SRV_MS + round(at_s * 1e3)


@dataclass(frozen=True)
class Token:
    """A lease, and who got it."""

    job: str
    fence: int
    nonce: str
    worker: str

    def item(self, **more: Any) -> dict[str, Any]:
        return {"job": self.job, "fence": self.fence, "nonce": self.nonce, **more}


class Story:
    """A run folder that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = folder / "history"
        self.history.mkdir(parents=True)
        self.files: dict[str, HistoryFile] = {}
        self.left_open: set[str] = set()
        self.spec = dict(SPEC)
        self.at_end: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.at_deadline: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.cpu = {"producer-1": 0.07}
        self.cpu_wait: dict[str, float] = {}
        self._due: dict[str, tuple[int, int]] = {}
        self._now_s = 0.0
        self._numbers = 0
        self._open("manifest", "harness")

    def _open(self, stem: str, role: str, proc: str = "") -> None:
        path = self.history / f"{stem}.jsonl"
        self.files[stem] = HistoryFile(path, proc=proc or stem, role=role, version="0", clock_ns=lambda: ns(self._now_s))

    def process(self, name: str, role: str, *, at: float = 0.0, sink: bool = True) -> None:
        """Announce a process in the manifest and open its files."""
        self._now_s = at
        self.row("manifest", "process", at, role=role, name=name, file=f"{name}.jsonl")
        self._open(name, role)
        self.row(name, "connection", at, server_run_id="r", replid="era-1", server_role="master")
        if role == "worker" and sink:
            self.row("manifest", "process", at, role="sink", name=name, file=f"{name}.sink.jsonl")
            self._open(f"{name}.sink", "sink", name)

    def row(self, stem: str, kind: str, at: float, **columns: Any) -> None:
        """Any row; its t_ns is the instant."""
        body = json.dumps({"kind": kind, **{name: value for name, value in columns.items() if value is not None}})
        self.files[stem].append([body[1:-1]], t_ns=ns(at))

    def operation(self, proc: str, f: str, at: float, items: list[Any], *, reply: str | None = "ok", **more: Any) -> None:
        """Invoke row and completion row; `reply=None` leaves it unanswered. Results are left out of the invocation.

        The server answers at the instant of the first send.
        """
        self._numbers += 1
        done_s = at + more.pop("took", 0.001)
        srv_us = more.pop("srv_us", srv_ms(at) * 1_000) if f != "handle" else None
        base = {"f": f, "op": f"{proc}-{self._numbers}", "queue": "q", "first_send_ns": ns(at), **more}
        told = [{name: value for name, value in item.items() if name not in ("result", "outcome")} for item in items]
        self.row(proc, "operation", at, type="invoke", **base, items=[] if f in ("claim", "reap") else told)
        if reply is not None:
            answer = items if reply == "ok" else told
            answered = {"srv_us": srv_us if reply == "ok" else None, "done_ns": ns(done_s)}
            self.row(proc, "operation", done_s, type=reply, **base, **answered, sends=1, items=answer)

    def enqueue(self, job: str, at: float, *, result: str = "created", delay_ms: int = 0, **more: Any) -> None:
        crc = more.pop("crc", crc_of(job))
        item = {"job": job, "name": "email", "class": "email", "delay_ms": delay_ms, "result": result, "crc": crc}
        item |= {field: more.pop(field) for field in ENQUEUE_ITEM if field in more}
        if "own_intended_ns" in more:
            # It shares its call with jobs of other callers, of which one was to be sent earlier.
            item["intended_ns"] = more.pop("own_intended_ns")
        self._due[job] = (srv_ms(at) + delay_ms if delay_ms else 0, srv_ms(at))
        self.operation("producer-1", "enqueue", at, [item], **{"intended_ns": ns(at), **more})

    def claim(self, worker: str, job: str, at: float, *, fence: int = 0, nonce: str = "", **more: Any) -> Token:
        """A claim of one job. Without a fence it is the server's time, as in rule 6. `told`: what the reply says instead."""
        self._numbers += 1
        counter, inc = self._numbers, incarnation(worker)
        token = Token(job, fence or srv_ms(at), nonce or f"{inc}:{counter}", worker)
        due_ms, enqueued_ms = self._due.get(job, (0, srv_ms(at)))
        told = {"due_ms": due_ms, "enqueued_ms": enqueued_ms, "crc": crc_of(job), **more.pop("told", {})}
        lease_ms = more.pop("lease_ms", LEASE_MS)
        items = [token.item(result="leased", deadline_ms=more.pop("deadline_ms", srv_ms(at) + lease_ms), **told)]
        self.operation(worker, "claim", at, items, incarnation=inc, counter=counter, lease_ms=lease_ms, **more)
        return token

    def leased(self, worker: str, job: str, at: float, *, enqueued: float | None = None, **more: Any) -> Token:
        """Enqueue a job, a second before where nothing else is said, and claim it; `more` is what the claim says."""
        self.enqueue(job, at - 1 if enqueued is None else enqueued)
        return self.claim(worker, job, at, **more)

    def handled(
        self, worker: str, job: str, at: float, *, end: str = "ok", took: float | None = 0.05, timeout_ms: int = 0, **more: Any
    ) -> Token:
        """A leased job whose handler starts at once, and returns or raises (fail) after `took`, None = never."""
        token = self.leased(worker, job, at, **more)
        self.start(token, at + 0.01, took=took, end=end, timeout_ms=timeout_ms)
        return token

    def start(self, token: Token, at: float, *, took: float | None = None, end: str = "ok", timeout_ms: int = 0) -> None:
        """A handler's start, and its end after `took`: it returns, or raises (fail)."""
        item = token.item(**({"timeout_ms": timeout_ms} if timeout_ms else {}))
        self.operation(token.worker, "handle", at, [item], took=took or 0.0, reply=None if took is None else end)

    def mark(self, token: Token, at: float, *, result: str = "ok") -> None:
        self.operation(token.worker, "mark", at, [token.item(result=result)])

    def effect(self, token: Token, at: float, *, crc: int | None = None, **more: Any) -> None:
        self.row(f"{token.worker}.sink", "effect", at, items=[token.item(crc=crc_of(token.job) if crc is None else crc, **more)])

    def read(self, job: str, at: float, *, result: str | None = "finished", **more: Any) -> None:
        """A caller asks for the result of a job. `result`: how it has ended, None = it has not."""
        item = {"job": job, **({"result": result} if result else {}), **more}
        self._numbers += 1
        times = {"first_send_ns": ns(at), "done_ns": ns(at + 0.001)}
        self.row("harness", "operation", at + 0.001, f="result", type="ok", op=f"read-{self._numbers}", **times, items=[item])

    def end(
        self, f: str, *tokens: Token, at: float, result: str = "ok", reply: str | None = "ok", left: str = "", **more: Any
    ) -> None:
        """One call that ends leases. `outcome`: another one than it usually has; `left`: the state of its jobs at the end."""
        outcome = more.pop("outcome", "") or OUTCOMES[f]
        items = [token.item(result=result, outcome=outcome, **more) for token in tokens]
        self.operation(tokens[0].worker, f, at, items, reply=reply)
        self.at_end[left] += [(token.job, srv_ms(at)) for token in tokens]

    def finish(self, token: Token, at: float, *, effect: float, start: float = 0.0, took: float = 0.0, **more: Any) -> None:
        """A handler that has its effect and returns, and its finish; `more` is what that says."""
        if start:
            self.start(token, start, took=took)
        self.effect(token, effect)
        self.end("finish", token, at=at, **more)

    def extend(self, token: Token, at: float, *, result: str = "ok", reply: str | None = "ok") -> None:
        self.operation(token.worker, "extend", at, [token.item(result=result)], reply=reply, lease_ms=LEASE_MS)

    def reap(self, worker: str, token: Token, at: float, *, lost: bool = False, left: str = "", **more: Any) -> None:
        """A sweep has taken the lease; `lost`: as the connection of its worker was gone, `left`: the job's state at the end."""
        item = token.item(**{"result": "reaped", "crashes": 1, **more})
        self.operation(worker, "reap", at, [item], **({"incarnation": incarnation(token.worker)} if lost else {}))
        self.at_end[left].append((token.job, srv_ms(at)))

    def run(self, worker: str, job: str, at: float, *, enqueued: float | None = None, **more: Any) -> Token:
        """Claim, handle and finish a job, all well; `enqueued`: where it comes in before."""
        if enqueued is not None:
            self.enqueue(job, enqueued)
        token = self.claim(worker, job, at, **more)
        self.finish(token, at + 0.06, start=at + 0.002, took=0.05, effect=at + 0.051)
        return token

    def life(self, worker: str, job: str, at: float) -> Token:
        """Enqueue a job and run it, all well."""
        self.enqueue(job, at)
        return self.run(worker, job, at + 0.01)

    def fault(self, fault: str, target: str, stage: str, at: float, *, held: Iterable[Token] = (), **more: str) -> None:
        """A stage of a fault; `held`: leases that it names, `more`: its result, when it is not ok, and its detail."""
        name, items = fault.split("-", 1)[1], [token.item() for token in held]
        told = {"fault": fault, "name": name, "stage": stage, "target": target, "result": "ok", "detail": "", **more}
        self.row("harness", "fault", at, **told, items=items or None)

    def stages(self, fault: str, target: str, *at: float, detail: str = "", held: Iterable[Token] = ()) -> None:
        """The four stages of a fault, each with this detail and its name in it; `held`: leases that the witness names."""
        for stage, at_s in zip(("inject", "witness", "heal", "healed"), at, strict=True):
            self.fault(fault, target, stage, at_s, detail=detail.format(stage), held=held if stage == "witness" else ())

    def phases(self, **starts: float) -> None:
        for name, at in starts.items():
            self.row("harness", "phase", at, name=name.replace("_", "-"))

    def snapshot(self, name: str, at: float, states: Mapping[str, Iterable[tuple[str, int]]]) -> None:
        """Rows of a final snapshot, one per state, also for empty ones."""
        for state in ("waiting", "delayed", "active", "dead", "done"):
            items = [{"job": job, "due_ms": due_ms} for job, due_ms in states.get(state, ())]
            self.row("harness", "final", at, name=name, state=state, count=len(items), srv_us=srv_ms(at) * 1_000, items=items)

    def left(self, state: str, job: str, due_ms: int) -> None:
        """Both snapshots list a job in this state."""
        self.at_deadline[state].append((job, due_ms))
        self.at_end[state].append((job, due_ms))

    def samples(self) -> None:
        """The CPU time of processes, and what they waited for a core where that is given, once a second."""
        folder = self.folder / "samples"
        folder.mkdir()
        rows = [
            {"t_ns": ns(at), "proc": proc, "pid": 7, "cpu_user_s": at * share, "cpu_system_s": 0.0}
            | ({"cpu_wait_s": at * self.cpu_wait[proc]} if proc in self.cpu_wait else {})
            for proc, share in self.cpu.items()
            for at in range(int(END_S))
        ]
        (folder / "processes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(self, *, snapshots: Iterable[str] = ("deadline", "end"), closed: float = END_S) -> Path:
        """Take the snapshots, close the files at that time, write the spec; returns the run's folder."""
        self._now_s = closed
        if "deadline" in snapshots:
            self.snapshot("deadline", DEADLINE_S, self.at_deadline)
        if "end" in snapshots:
            self.snapshot("end", END_S, self.at_end)
        for stem, file in self.files.items():
            if stem.split(".")[0] not in self.left_open:
                file.close()
        self.samples()
        (self.folder / "spec.json").write_text(json.dumps(self.spec))
        return self.folder


def crc_of(job: str) -> int:
    """The crc32 of the payload of a job."""
    return zlib.crc32(job.encode())


def incarnation(worker: str) -> str:
    """The incarnation that a worker claims under."""
    return worker.encode().hex().rjust(16, "0")[-16:]
