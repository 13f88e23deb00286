"""The maintenance that workers do: sweeps, waits for work, and updates for workers, each with its reply."""

from __future__ import annotations

from typing import Any

from engine.ops.base import Operation, immutable, one_of, server_us, text, whole
from engine.ops.jobs import Lease
from engine.ops.schedules import DueSchedule, number
from engine.ops.workers import Connected


@immutable
class Sweep(Operation, script="sweep", slots={"most_ms": "sleep_max_ms"}):
    """Take expired leases away, where jobs that have crashed too often are buried, make due jobs claimable,
    and keep what is kept within its bounds. (incarnation, counter) is the identity. `yields`: if it comes
    from the leader, it does not count as one of the leader's, so that another worker may take the lead.
    `orphans`: take the leases of workers that have stopped beating, and do nothing else. `run_id`: the
    server's, by the caller's own control connection; with it the caller may be asked to look at those of the
    other workers."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int
    done_max: int
    yields: bool = False
    orphans: bool = False
    run_id: str = ""

    def parse(self, raw: Any, decode: object) -> Swept:
        """The raw reply as a value: five words for each lease, six for each schedule that is due."""
        if self.orphans:
            return Swept(server_us(raw), int(raw[1]), *_taken(raw[2]))
        texts = [word.decode(errors="replace") for word in raw[4]]
        due = [
            DueSchedule(name, version, number(expected_ms), number(anchor_ms), timing, policy)
            for name, version, expected_ms, anchor_ms, timing, policy in zip(*[iter(texts)] * 6, strict=True)
        ]
        # Formats of other libraries have no control connections.
        words = [text(word) for word in raw[7]] if len(raw) > 7 else []
        watched = tuple(Connected(*pair) for pair in zip(words[::2], map(whole, words[1::2]), strict=True))
        return Swept(
            server_us(raw),
            int(raw[1]),
            *_taken(raw[3]),
            int(raw[2]),
            tuple(due),
            int(raw[5]),
            raw[6] == 1,
            watched,
        )


@immutable
class ReapLost(Operation, script="reap_lost"):
    """Take away the leases of lost workers, whose control connections are gone and who have named no other
    since. (incarnation, counter) is the identity, void after `not_after_ms`. `start_ms` and `start_id`: where
    the page before has ended; '' for the first one."""

    incarnation: str
    counter: int
    limit: int
    not_after_ms: int
    lost: tuple[Connected, ...]
    run_id: str
    start_ms: str = ""
    start_id: str = ""

    def parse(self, raw: Any, decode: object) -> Swept:
        """The raw reply as a value."""
        start = (text(raw[1]), text(raw[2]))
        return Swept(server_us(raw), 0, *_taken(raw[3]), goes_on=start if start[0] else None)


def _taken(words: Any) -> tuple[tuple[tuple[Lease, int], ...], tuple[str, ...], tuple[str, ...]]:
    """The leases with their crash counters, the jobs that were buried, and those that could not be read."""
    leases: list[tuple[Lease, int]] = []
    jobs: dict[str, list[str]] = {kind: [] for kind in _SWEPT_KINDS}
    for kind, job, fence, nonce, crashes in zip(*[iter(words)] * 5, strict=True):
        jobs[one_of(kind, _SWEPT_KINDS)].append(text(job))
        if nonce != b"-":
            leases.append((Lease(text(job), int(fence), text(nonce)), int(crashes)))
    return tuple(leases), tuple(jobs["buried"]), tuple(jobs["corrupt"])


_SWEPT_KINDS = ("reaped", "buried", "corrupt")


@immutable
class Swept:
    """The leases that were taken away, each with the job's crash counter. `buried`: ids that had crashed too
    often; `corrupt`: ids that the script could not read and buried. Where a sweep was cut off, an id may
    stand there without its lease. `promoted`: how many due jobs became claimable; `due`: the first of the
    schedules that are due; `version` of the updates; `leads`: the caller is the leader; `watched`: the
    control connections that the caller is to look at; `goes_on`: where the next page of a ReapLost starts."""

    srv_us: int
    sleep_ms: int
    leases: tuple[tuple[Lease, int], ...] = ()
    buried: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()
    promoted: int = 0
    due: tuple[DueSchedule, ...] = ()
    version: int = 0
    leads: bool = False
    watched: tuple[Connected, ...] = ()
    goes_on: tuple[str, str] | None = None


@immutable
class Wait(Operation, label="wait for work"):
    """Block until one of the classes, at most 15, may have work, or something is new to workers that know
    this version of the updates (None: they are not waited for); at most `block_ms`."""

    block_ms: int
    classes: tuple[str, ...]
    version: int | None = None


@immutable
class Woken:
    """What ended a wait: `work` of a class, or `updates` for workers; neither when the block ran out."""

    work: bool
    updates: bool = False


@immutable
class ReadWorkerUpdates(Operation, script="read_worker_updates"):
    """Ask what is new to a worker that knows this version: classes with targets, and what is set for the
    worker."""

    version: int
    worker: str

    def parse(self, raw: Any, decode: object) -> WorkerUpdates:
        """The raw reply as a value."""
        flat = [text(word) for word in raw[4]]
        targets = tuple(zip(flat[::2], flat[1::2], strict=True))
        return WorkerUpdates(
            server_us(raw), int(raw[1]), int(raw[2]), None if raw[3] < 0 else int(raw[3]), targets
        )


@immutable
class WorkerUpdates:
    """Classes with their targets (JSON), how many handlers the worker runs at once (0: as it was
    started), and its pause (None: there is none, 0: until it is resumed, else the ms that are left)."""

    srv_us: int
    version: int
    concurrency: int
    pause_ms: int | None
    targets: tuple[tuple[str, str], ...]
