"""BridgeMQ: `Queue("emails", models.Bridge())` enqueues and processes jobs in a BridgeMQ keyspace, next to
its own clients.

One keyspace (`<prefix>:`) is one queue: the queue's name is a label that is not on the wire. Keys, JSON and
units are those of the original (`chaos/foreign_keys.py` lists them); the engine's own keys are under
`<prefix>:ironclaim:`. Not for Redis Cluster.

How the engine reads and writes the format:

- `retry.attempts` is the number of runs after the first one, so `attempts=4` is written as 3. Jitter is
  always a quarter to both sides: any `jitter` above 0 is written as true. A foreign job waits between its
  runs as its `backoff` says, which the original never reads; without one it runs again at once.
- The value of a lock is the name of the worker, as documented; tokens and fences are only in the engine's own
  keys. A foreign client with the name of one of the engine's workers could release its locks: the operator
  must keep names distinct.
- A pause of a type of jobs holds for all clients; a pause of the whole queue (`*`) holds for the engine's
  workers only.
- `maxConcurrent` uses the counter that foreign clients use as well; sweeps correct a counter that has leaked.
  `maxPerMinute` counts the claims of limited jobs in a window of 60 s that begins with the first one.
- `target`: all categories with values must match; of the capabilities one with `mode` any or none, all with
  any other mode (also null), as in the claim script of the original (its second router differs). A category
  that is null means no requirement, a single text is a list of one.
- A job that depends on others is claimed when all of them are completed; it is dead when one of them is dead.
- Each tick of a schedule makes a job of its own, `cron:<name>:<tick ms>`; the original enqueues the same
  entry each time. Entries of foreign clients tick as well; the score in `jobs:cron`, which any client may
  change, is the time of the next tick.
- `result` is kept for 24 hours. Data and status of a finished job are never deleted, as in the original, and
  are in no list of the format. The engine lists the last 1,000 jobs that its own workers have finished, and
  can clean those.
- A job that cannot be read is set aside: `deadletter`, status `dead`, the reason in its result.

`FINDINGS` lists the defects of the format that the engine cannot prevent. The scripts of the original are in
`lua/foreign/bridge/published`, for foreign clients."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast
from uuid import uuid4

from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.foreign.foreign import Foreign, pack, unpack
from engine.models.model import Finding
from engine.ops.base import Call, Operation
from engine.ops.claims import Claim, Finish, LeasedJob
from engine.ops.jobs import Backoff, Enqueue, Lease, Options
from engine.ops.workers import Beat
from engine.validate import ATTEMPTS_MAX, BACKOFF_MS_MAX, DURATION_MS_MAX

_BACKOFFS: tuple[Backoff, ...] = ("fixed", "linear", "exponential")
#: Jitter of the original: a quarter less to a quarter more. That is a wait longer by a quarter, of which the
#: last 0.4 are random.
_JITTER, _LONGER = 0.4, 5 / 4
_TARGET = ("stack", "capabilities", "region", "server")
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class BridgeModel(Foreign):
    """The mapping for one BridgeMQ keyspace."""

    name = "bridge"
    OPTIONS = frozenset(
        {
            *(
                "delay_ms",
                "run_at_ms",
                "priority",
                "attempts",
                "backoff",
                "backoff_ms",
                "backoff_max_ms",
                "jitter",
            ),
            *("headers", "needs", "skip_on", "reroute_on", "target"),
        }
    )
    FINDINGS = (
        Finding(
            "bridge-original-loop",
            ("J4", "J13"),
            "The original's worker removes an id from the list before it locks it and never adds it "
            "to the active ones: "
            "when it dies in between, or during the job, the job is in no structure and cannot be found.",
        ),
        Finding(
            "bridge-unfenced-foreign-end",
            ("J1", "J2", "J3", "J5", "J6"),
            "A foreign client has no fence, and completes a job without checking its lock: one whose "
            "lock has expired "
            "overwrites the result of the worker that has the job by then.",
        ),
        Finding(
            "bridge-foreign-cron",
            ("J6",),
            "A foreign scheduler's pass over jobs:cron does not change the score until its client "
            "moves it: if its run has "
            "ended before the engine ticks, the tick runs twice.",
        ),
        Finding(
            "bridge-children-wait-in-the-list",
            ("J17",),
            "A job that needs others stands in jobs:waiting from the start, because the format has no "
            "other place for it. "
            "Workers of the engine pass it by until its parents have completed; the original knows no "
            "dependsOn and runs "
            "it at once.",
        ),
        Finding(
            "bridge-finished-stay",
            (),
            "Data and status of finished jobs are never deleted, and no structure of the format lists "
            "them: memory grows with "
            "every job, and only the last 1,000 that the engine has finished can be cleaned.",
        ),
    )

    def new_id(self) -> str:
        """A new id for a job without one, as the original makes them."""
        return str(uuid4())

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option that the wire cannot hold."""
        super().check(id, name, payload, options)
        if options.backoff not in _BACKOFFS:
            raise UnsupportedFeature(
                f"bridge has no option backoff={options.backoff}: its jobs know {', '.join(_BACKOFFS)}"
            )

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks, and
        Malformed for a worker whose name would be another key of the registry."""
        claim = operation.claim if isinstance(operation, Finish) else operation
        if isinstance(claim, Claim):
            _check_worker(claim.owner)
        elif isinstance(claim, Beat) and claim.until_ms:
            _check_worker(json.loads(claim.about).get("name", ""))
        return super().call(operation)

    def encode(self, job: Enqueue) -> bytes:
        """Priority, then the JSON between the id and the time of the enqueue, and the JSON after that
        time."""
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
        """As in other models; a template that a sweep has made of a foreign entry is only that job's JSON.
        Raises ScriptFault."""
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
        bound = (
            "another one than `active` or `heartbeat:...`, which are keys of BridgeMQ's registry themselves"
        )
        raise Malformed("worker name", name, bound)


@lru_cache(maxsize=1000)
def _shape(name: str, options: Options) -> tuple[bytes, bytes]:
    """The JSON before and behind the payload, which all jobs with this name and these options share."""
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
    schedule = (
        {"runAt": options.run_at_ms}
        if options.run_at_ms
        else {"delay": options.delay_ms}
        if options.delay_ms
        else {}
    )
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
    """The options in a job's JSON; a value of another type than the format's counts as absent."""
    retry, target = _object(job.get("retry")), _object(job.get("target"))
    backoff = _object(retry.get("backoff"))
    kind: Any = backoff.get("type") if backoff.get("type") in _BACKOFFS else "fixed"
    longer = _LONGER if backoff.get("jitter") else 1
    reroute = {
        error: name for error, name in _object(retry.get("rerouteOn")).items() if isinstance(name, str)
    }
    metadata = {name: text for name, text in _object(job.get("metadata")).items() if isinstance(text, str)}
    return Options(
        priority=_whole(job.get("priority"), 1, 10, 5),
        attempts=_whole(retry.get("attempts"), 0, ATTEMPTS_MAX - 1) + 1,
        backoff=kind,
        backoff_ms=_whole(_whole(backoff.get("delay"), 0, BACKOFF_MS_MAX) * longer, 0, BACKOFF_MS_MAX),
        backoff_max_ms=_whole(
            _whole(backoff.get("maxDelay"), 0, DURATION_MS_MAX) * longer, 0, DURATION_MS_MAX
        ),
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
    return (
        tuple(text for text in cast("list[Any]", value) if isinstance(text, str))
        if isinstance(value, list)
        else ()
    )


def _whole(value: Any, least: int, most: int, default: int = 0) -> int:
    """A number, or a text with a number, limited to the bounds; `default` for any other value."""
    try:
        return min(most, max(least, int(float(value))))
    except (TypeError, ValueError, OverflowError):
        return default
