"""A worker configured by the environment variables of Bananas (BN21-BN26, BN32).

    settings = read(os.environ)
    with Queue("jobs", settings.model, url=settings.url) as queue:
        settings.worker(queue, handlers).run()

`WORKER_MODE` is one of these. `thin`: every priority, 5 handlers at once; `default`: every priority, 10 at
once; `specialized`: the given priorities, else `high`; `job-specialized`: the given job types alone;
`scheduler-only`: no job at all.

| variable | default | |
|---|---|---|
| `WORKER_CONCURRENCY` | by the mode | 1 to 1000 handlers at once |
| `WORKER_PRIORITIES` | all | of `high`, `normal` and `low` those with none between them left out |
| `WORKER_ROUTING_KEYS` | `default` | routes of one priority take turns, in whatever order they stand here |
| `WORKER_JOB_TYPES` | all that have handlers | names of jobs, read in the mode `job-specialized` alone |
| `SCHEDULER_INTERVAL` | `1s` | 100ms to 1m; a worker sweeps after 2 s at the latest, for its leases |
| `REDIS_URL` | `redis://localhost:6379` | |
| `JOB_TIMEOUT` | `5m` | a run that takes longer has failed |
| `RESULT_BACKEND_TTL_SUCCESS`, `RESULT_BACKEND_TTL_FAILURE` | `1h`, `24h` | how long results are kept |

`ENABLE_SCHEDULER` is not asked: every worker brings due jobs to their lists, which is safe with any number of
them. Durations are written as Go has them: `1h30m`, `500ms`. What the originals silently replace by a default
is a Malformed that names the variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import validate
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.models import Bananas, BananasLayout
from engine.queue.synchronous import Queue
from engine.routing import DEFAULT_ROUTE
from engine.worker.worker import SCHEDULER_SWEEP_MS_MAX, Scheduler, Worker

#: Mode -> handlers at once unless the environment says otherwise.
MODES = {"thin": 5, "default": 10, "specialized": 10, "job-specialized": 10, "scheduler-only": 0}
#: From the last one claimed to the first, each with the least and the greatest priority of the engine that it
#: stands for.
_BANDS = {"low": (1, 3), "normal": (4, 6), "high": (7, 10)}


@dataclass(frozen=True, slots=True)
class BananasWorker:
    """The configuration in the environment: the server, the model, and the settings of a Worker."""

    mode: str
    url: str
    model: Bananas
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def worker(self, queue: Queue, handlers: Handlers) -> Worker:
        """A worker of this queue; in the mode scheduler-only one that runs no jobs. Raises Malformed."""
        if self.mode == "scheduler-only":
            return Scheduler(queue, sweep_ms=self.settings["sweep_ms"])
        return Worker(queue, handlers, **self.settings)


def read(environ: Mapping[str, str], *, layout: BananasLayout = "document") -> BananasWorker:
    """Read the settings from the environment. Raises Malformed, naming the variable."""
    mode = _text(environ, "WORKER_MODE", "default")
    if mode not in MODES:
        raise Malformed("WORKER_MODE", mode, ", ".join(MODES))
    interval_ms = _bounded(environ, "SCHEDULER_INTERVAL", "1s", 100, 60_000)
    settings: dict[str, Any] = {"sweep_ms": min(interval_ms, SCHEDULER_SWEEP_MS_MAX)}
    if mode != "scheduler-only":
        settings |= {
            "concurrency": _whole(environ, "WORKER_CONCURRENCY", MODES[mode]),
            "priorities": _priorities(environ, "high" if mode == "specialized" else ""),
            "routes": _words(environ, "WORKER_ROUTING_KEYS") or (DEFAULT_ROUTE,),
            "names": _names(environ) if mode == "job-specialized" else None,
        }
    model = Bananas(
        layout=layout,
        timeout_ms=_bounded(environ, "JOB_TIMEOUT", "5m", 1, validate.BACKOFF_MS_MAX),
        result_ttl_s=_bounded(environ, "RESULT_BACKEND_TTL_SUCCESS", "1h", 1000, validate.DURATION_MS_MAX)
        // 1000,
        error_ttl_s=_bounded(environ, "RESULT_BACKEND_TTL_FAILURE", "24h", 1000, validate.DURATION_MS_MAX)
        // 1000,
    )
    return BananasWorker(mode, _text(environ, "REDIS_URL", "redis://localhost:6379"), model, settings)


def _text(environ: Mapping[str, str], name: str, default: str) -> str:
    return environ.get(name) or default


def _words(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in environ.get(name, "").split(",") if word.strip())


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = _text(environ, name, str(default))
    if not re.fullmatch(r"\d{1,9}", text):
        raise Malformed(name, text, f"a whole number from 1 to {validate.CONCURRENCY_MAX}")
    return validate.integer(name, int(text), 1, validate.CONCURRENCY_MAX)


def _bounded(environ: Mapping[str, str], name: str, default: str, least_ms: int, most_ms: int) -> int:
    text = _text(environ, name, default)
    length_ms = validate.go_duration_ms(text)
    if length_ms is None:
        raise Malformed(name, text, "a duration such as 500ms, 5m or 1h30m")
    return validate.integer(name, round(length_ms), least_ms, most_ms)


def _priorities(environ: Mapping[str, str], default: str) -> tuple[int, int] | None:
    given = tuple(
        word.lower() for word in _words(environ, "WORKER_PRIORITIES") or ((default,) if default else ())
    )
    if not given:
        return None
    bound = "some of high, normal and low, with none between them left out"
    if not set(given) <= set(_BANDS):
        raise Malformed("WORKER_PRIORITIES", ",".join(given), bound)
    places = sorted({list(_BANDS).index(word) for word in given})
    if places != list(range(places[0], places[-1] + 1)):
        raise Malformed("WORKER_PRIORITIES", ",".join(given), bound)
    bands = list(_BANDS.values())
    return bands[places[0]][0], bands[places[-1]][1]


def _names(environ: Mapping[str, str]) -> tuple[str, ...]:
    names = _words(environ, "WORKER_JOB_TYPES")
    if not names:
        raise Malformed(
            "WORKER_JOB_TYPES",
            environ.get("WORKER_JOB_TYPES", ""),
            "the names of some jobs in the mode job-specialized",
        )
    return names
