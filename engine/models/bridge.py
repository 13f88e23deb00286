"""BridgeMQ: `Queue("emails", models.Bridge())` puts jobs into a BridgeMQ keyspace and works them off, next to its own clients.

One keyspace (`<prefix>:`) is one queue: the queue's name is a label that is not on the wire. Keys, JSON and units are those of
the original (`BridgeKeys` is the table); what the engine needs beside them lies under `<prefix>:ironclaim:`. Not for Redis
Cluster.

What the wire says, and what is made of it:

- `retry.attempts` are the runs after the first one, so `attempts=4` is written as 3. Jitter is a quarter to both sides and
  knows no share: any `jitter` above 0 is written as true. A foreign job waits between its runs as its `backoff` says, which
  the original never read; without one it runs again at once.
- The value of a lock is the name of the worker, as documented; tokens and fences are ours and not on the wire. A foreign
  client with the name of one of our workers could release its locks: names are the operator's to keep apart.
- A type of jobs is paused by name for everybody; a pause of the whole queue (`*`) holds our workers alone.
- `maxConcurrent` reads the counter that foreign clients keep as well; sweeps set one right that has leaked. `maxPerMinute`
  counts the claims of limited jobs in a window of 60 s that begins with the first one.
- `target`: all categories that ask for something must be met; of the capabilities one with `mode` any, all with any other
  mode, as the claim script of the original has it (its second router differs). null asks for nothing, one text is a list of one.
- A job that depends on others is claimed when all of them are completed; it is dead when one of them is.
- Each tick of a schedule makes a job of its own, `cron:<name>:<tick ms>`; the original enqueues the one entry again and again.
  Entries of foreign clients tick as well; who moves the score in `jobs:cron` has said when the next tick is.
- `result` lives for 24 hours; data and status of a finished job are never deleted, as in the original, and are in no list of the
  format. The engine lists the last 1,000 that its own side has finished, and cleans those when it is told to.
- A job that cannot be read is set aside: `deadletter`, status `dead`, the reason in its result.

`FINDINGS` says what this wire cannot be protected from. The scripts of the original are in `lua/bridge/published`, for foreign
clients.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast
from uuid import uuid4

from engine.call import Call
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.fields import pack, unpack
from engine.models.foreign import Foreign
from engine.models.model import Finding
from engine.operations import Backoff, Beat, Claim, Enqueue, Finish, Lease, LeasedJob, Operation, Options
from engine.validate import ATTEMPTS_MAX, BACKOFF_MS_MAX, DURATION_MS_MAX

_BACKOFFS: tuple[Backoff, ...] = ("fixed", "linear", "exponential")
#: Jitter of the original: a quarter less to a quarter more. Of waits a quarter longer, the last 0.4 are left to chance.
_JITTER, _LONGER = 0.4, 5 / 4
_TARGET = ("stack", "capabilities", "region", "server")
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class BridgeKeys:
    """The foreign keys of one keyspace; all times are ms since 1970 unless said otherwise."""

    root: str

    def data(self, job: str) -> str:
        """String, JSON: the job. Written at once with its status; its `attempts` change with each failed run; never deleted."""
        return f"{self.root}jobs:data:{job}"

    def status(self, job: str) -> str:
        """String: waiting, active, completed, failed, delayed, cron or dead."""
        return f"{self.root}jobs:status:{job}"

    def result(self, job: str) -> str:
        """String, JSON, for 86,400 s: success, data or error, completedAt (ms), processingTime (ms)."""
        return f"{self.root}jobs:result:{job}"

    def lock(self, job: str) -> str:
        """String: the worker that runs the job; for as long as its lease (foreign clients: 30 s)."""
        return f"{self.root}jobs:lock:{job}"

    def progress(self, job: str) -> str:
        """String, JSON: percent, message, updatedAt (ms)."""
        return f"{self.root}jobs:progress:{job}"

    @property
    def waiting(self) -> str:
        """List of ids, claimed from the head; priorities from 7 on enter there, others at the end."""
        return f"{self.root}jobs:waiting"

    @property
    def active(self) -> str:
        """Set of ids."""
        return f"{self.root}jobs:active"

    @property
    def delayed(self) -> str:
        """Zset: id by the time (ms) when it is due."""
        return f"{self.root}jobs:delayed"

    @property
    def cron(self) -> str:
        """Zset: entry by its next tick (ms)."""
        return f"{self.root}jobs:cron"

    @property
    def dead(self) -> str:
        """List of ids, the last one first."""
        return f"{self.root}jobs:deadletter"

    @property
    def paused(self) -> str:
        """Set of types of jobs."""
        return f"{self.root}queues:paused"

    def running(self, kind: str) -> str:
        """String: how many jobs of a type are active."""
        return f"{self.root}ratelimit:concurrent:{kind}"

    def minute(self, kind: str) -> str:
        """String, for 60 s from the first: claims of limited jobs of a type."""
        return f"{self.root}ratelimit:minute:{kind}"

    @property
    def workers(self) -> str:
        """Set of the names of registered workers."""
        return f"{self.root}workers:active"

    def worker(self, name: str) -> str:
        """String, JSON: serverId, stack, region, capabilities, lastSeen (ms), pid, hostname."""
        return f"{self.root}workers:{name}"

    def heartbeat(self, name: str) -> str:
        """String: time (ms) of the last beat, for three times as long as beats are apart (30 s)."""
        return f"{self.root}workers:heartbeat:{name}"

    @property
    def scheduler(self) -> str:
        """String, for as long as a beat counts: incarnation of the worker that leads."""
        return f"{self.root}scheduler:lock"


class BridgeModel(Foreign):
    """The mapping for one BridgeMQ keyspace."""

    name = "bridge"
    OPTIONS = frozenset(
        {
            *("delay_ms", "run_at_ms", "priority", "attempts", "backoff", "backoff_ms", "backoff_max_ms", "jitter"),
            *("headers", "needs", "skip_on", "reroute_on", "target"),
        }
    )
    FINDINGS = (
        Finding(
            "bridge-original-loop",
            ("J4", "J13"),
            "The original's worker takes an id out of the list before it locks it and never enters it among the active ones: "
            "when it dies in between, or in mid-job, the job is in no structure, and nobody can know of it.",
        ),
        Finding(
            "bridge-unfenced-foreign-end",
            ("J1", "J5"),
            "A foreign client completes a job whatever became of its lock: one that outlives its lock writes its result over "
            "that of the worker that has the job by then.",
        ),
        Finding(
            "bridge-foreign-cron",
            ("J6",),
            "A foreign scheduler's pass over jobs:cron leaves the score as it is until its client has moved it: where its "
            "run has ended before our side ticks, the tick runs twice.",
        ),
        Finding(
            "bridge-finished-stay",
            (),
            "Data and status of finished jobs are never deleted, and no structure of the format lists them: memory grows with "
            "every job, and only the last 1,000 that our side has finished can be cleaned.",
        ),
    )

    @property
    def wire(self) -> BridgeKeys:
        """The foreign keys."""
        return BridgeKeys(self.keys.wire)

    def new_id(self) -> str:
        """An id for a job that was given none, as the original makes them."""
        return str(uuid4())

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option that the wire cannot hold."""
        super().check(id, name, payload, options)
        if options.backoff not in _BACKOFFS:
            raise UnsupportedFeature(f"bridge has no option backoff={options.backoff}: its jobs know {', '.join(_BACKOFFS)}")

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks, and Malformed for a
        worker whose name would be another key of the registry."""
        claim = operation.claim if isinstance(operation, Finish) else operation
        if isinstance(claim, Claim):
            _check_worker(claim.owner)
        elif isinstance(claim, Beat) and claim.until_ms:
            _check_worker(json.loads(claim.about).get("name", ""))
        return super().call(operation)

    def encode(self, job: Enqueue) -> bytes:
        """Priority, then the JSON between the id and the time of the enqueue, and what follows that time."""
        head, tail = _shape(job.name, job.options)
        return pack(job.options.priority, head + job.payload + tail, ',"attempts":0}')

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from its JSON with null in place of the payload, and the payload. Raises ScriptFault."""
        try:
            shown, payload = raw
            job = json.loads(shown)
            name = job["type"]
            enqueued_ms = _whole(job.get("createdAt"), 0, 2**53)
            options = _options(job)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ScriptFault(f"data of job {lease.job}: {error}") from error
        return LeasedJob(lease, deadline_ms, name, name, name, payload, options, enqueued_ms, 0, *counters)

    def read_template(self, raw: bytes) -> LeasedJob:
        """As other models; one that a sweep has made of a foreign client's entry is that job's JSON alone. Raises ScriptFault."""
        try:
            sealed, item, *_ = unpack(raw)
            if sealed:
                return super().read_template(raw)
            whole = json.loads(unpack(item)[2])
            payload = _to_json(whole.pop("payload", None)).encode()
        except (ValueError, IndexError, AttributeError, RecursionError) as error:
            raise ScriptFault(f"the template of a schedule: {error}") from error
        return self.decode((_to_json(whole), payload), Lease("", 0, ""), 0, (0, 0, 0))


def _check_worker(name: object) -> None:
    if name == "active" or str(name).startswith("heartbeat:"):
        bound = "another one than `active` or `heartbeat:...`, which are keys of BridgeMQ's registry themselves"
        raise Malformed("worker name", name, bound)


@lru_cache(maxsize=1000)
def _shape(name: str, options: Options) -> tuple[bytes, bytes]:
    """What the JSON of all jobs with this name and these options has before and behind the payload."""
    backoff: dict[str, object] = {"type": options.backoff, "delay": options.backoff_ms}
    if options.backoff_max_ms:
        backoff["maxDelay"] = options.backoff_max_ms
    if options.jitter:
        backoff["jitter"] = True
    retry: dict[str, object] = {"attempts": options.attempts - 1, "backoff": backoff}
    if options.skip_on:
        retry["skipOn"] = options.skip_on
    if options.reroute_on:
        retry["rerouteOn"] = dict(options.reroute_on)
    schedule = {"runAt": options.run_at_ms} if options.run_at_ms else {"delay": options.delay_ms} if options.delay_ms else {}
    wanted: dict[str, Any] = json.loads(options.target or "{}")
    target = {field: wanted[field] for field in _TARGET if field in wanted}
    if "capabilities" in target:
        target["mode"] = wanted.get("mode", "any")
    rest = {
        "schedule": schedule,
        "retry": retry,
        "priority": options.priority,
        "dependsOn": options.needs,
        "target": target,
        "metadata": dict(options.headers),
    }
    return f',"type":{_to_json(name)},"payload":'.encode(), f',{_to_json(rest)[1:-1]},"createdAt":'.encode()


def _options(job: dict[str, Any]) -> Options:
    """What a job's JSON asks for; what is of another type than the format has it counts as absent."""
    retry, target = _object(job.get("retry")), _object(job.get("target"))
    backoff = _object(retry.get("backoff"))
    kind: Any = backoff.get("type") if backoff.get("type") in _BACKOFFS else "fixed"
    longer = _LONGER if backoff.get("jitter") else 1
    reroute = {error: name for error, name in _object(retry.get("rerouteOn")).items() if isinstance(name, str)}
    metadata = {name: text for name, text in _object(job.get("metadata")).items() if isinstance(text, str)}
    return Options(
        priority=_whole(job.get("priority"), 1, 10, 5),
        attempts=_whole(retry.get("attempts"), 0, ATTEMPTS_MAX - 1) + 1,
        backoff=kind,
        backoff_ms=_whole(_whole(backoff.get("delay"), 0, BACKOFF_MS_MAX) * longer, 0, BACKOFF_MS_MAX),
        backoff_max_ms=_whole(_whole(backoff.get("maxDelay"), 0, DURATION_MS_MAX) * longer, 0, DURATION_MS_MAX),
        jitter=_JITTER if backoff.get("jitter") else 0.0,
        headers=tuple(metadata.items()),
        needs=_texts(job.get("dependsOn")),
        skip_on=_texts(retry.get("skipOn")),
        reroute_on=tuple(reroute.items()),
        target=_to_json(target) if target else "",
        result_ttl_ms=86_400_000,
    )


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in cast("list[Any]", value) if isinstance(text, str)) if isinstance(value, list) else ()


def _whole(value: Any, least: int, most: int, default: int = 0) -> int:
    """A number, or a text that is one, within bounds."""
    try:
        return min(most, max(least, int(float(value))))
    except (TypeError, ValueError, OverflowError):
        return default
