"""What each job queue promises when its worker is killed, with its default settings: declared before any run, with its source.

`reports/targets` judges a run by these; what a weaker promise allows to be lost is told as a finding, with numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bench.peers.libraries import LIBRARIES, OURS, Library
from chaos.errors import HarnessError

#: A handler may run never or once. A handler runs once or several times.
AT_MOST_ONCE, AT_LEAST_ONCE = "at most once", "at least once"


@dataclass(frozen=True, slots=True)
class Promise:
    """`recovery_bound_ms`: by when a job runs again whose worker is gone, or has stood still for so long; None = the
    library names no time, or none that it keeps by itself. `defaults`: the settings that this follows from; `source`: where they
    stand."""

    delivery: str
    recovery_bound_ms: int | None
    defaults: str
    source: str

    def for_spec(self) -> dict[str, Any]:
        """As it is written to spec.json."""
        return asdict(self)


#: The lock of a job lives 30 s, and a look for jobs without one comes each 30 s.
_STALLED = 60_000

PROMISES: dict[str, Promise] = {
    OURS: Promise(
        AT_LEAST_ONCE,
        11_000,
        "lease_ms=9000; two more seconds until somebody has swept",
        "README.md of this repository, rule 37 of docs/protocol.md",
    ),
    "rq": Promise(
        AT_MOST_ONCE,
        None,
        "no Retry; a job whose worker died is moved to FailedJobRegistry by maintenance, each 600 s",
        "python-rq.org/docs/exceptions, rq/defaults.py: DEFAULT_MAINTENANCE_TASK_INTERVAL",
    ),
    "celery": Promise(
        AT_MOST_ONCE,
        None,
        "task_acks_late=False: acknowledged before it runs; prefetched tasks come back after visibility_timeout=3600",
        "docs.celeryq.dev/en/stable/userguide/tasks.html, .../getting-started/backends-and-brokers/redis.html",
    ),
    "dramatiq": Promise(
        AT_LEAST_ONCE,
        None,
        "heartbeat_timeout=60000; messages of dead workers come back by maintenance, which one command in 1,000 does",
        "dramatiq.io/guide.html (message acknowledgement), dramatiq/brokers/redis.py: DEFAULT_MAINTENANCE_CHANCE",
    ),
    "huey": Promise(
        AT_MOST_ONCE,
        None,
        "a task leaves Redis by BRPOP before it runs, and is kept nowhere",
        "huey.readthedocs.io/en/latest/consumer.html, huey/storage.py: RedisStorage.dequeue",
    ),
    "arq": Promise(
        AT_LEAST_ONCE,
        310_000,
        "job_timeout=300; the key that says a job is in progress lives 10 s longer",
        "arq-docs.helpmanual.io (retrying jobs and cancellation), arq/worker.py: in_progress_timeout_s",
    ),
    "saq": Promise(
        AT_MOST_ONCE,
        None,
        "retries=1, timeout=10: a job that stands still is aborted by the sweep, each 60 s",
        "saq-py.readthedocs.io, saq/job.py: Job.retries, saq/queue/redis.py: sweep",
    ),
    "taskiq-list": Promise(
        AT_MOST_ONCE,
        None,
        "a task leaves Redis by BRPOP before it runs: this broker has no acknowledgements",
        "the description of the package taskiq-redis (brokers), taskiq_redis/redis_broker.py: ListQueueBroker",
    ),
    "taskiq-stream": Promise(
        AT_LEAST_ONCE,
        600_000,
        "idle_timeout=600000: by then others claim what was not acknowledged, when they get a new message",
        "the description of the package taskiq-redis (brokers), taskiq_redis/redis_broker.py: RedisStreamBroker",
    ),
    "streaq": Promise(
        AT_LEAST_ONCE,
        120_000,
        "idle_timeout=60: by then others may claim what its worker did not renew; a read without jobs blocks as long once more",
        "streaq.readthedocs.io/en/latest/worker.html, streaq/worker.py: Worker.idle_timeout",
    ),
    "bullmq-py": Promise(
        AT_LEAST_ONCE,
        _STALLED,
        "lockDuration=30000, stalledInterval=30000, maxStalledCount=1",
        "docs.bullmq.io/guide/workers/stalled-jobs, bullmq/worker.py",
    ),
    "ardiq": Promise(AT_LEAST_ONCE, 60_000, "idle timeout of 60 s", "the description of the package ardiq"),
    "bullmq": Promise(
        AT_LEAST_ONCE,
        _STALLED,
        "lockDuration=30000, stalledInterval=30000, maxStalledCount=1",
        "docs.bullmq.io/guide/workers/stalled-jobs, docs.bullmq.io/guide/workers/concurrency",
    ),
    "bull": Promise(
        AT_LEAST_ONCE,
        _STALLED,
        "lockDuration=30000, stalledInterval=30000, maxStalledCount=1",
        "github.com/OptimalBits/bull/blob/develop/README.md (important notes), bull/lib/queue.js",
    ),
    "bee-queue": Promise(
        AT_LEAST_ONCE,
        10_000,
        "stallInterval=5000, and checkStalledJobs(5000) by the worker, without which there is no recovery at all",
        "github.com/bee-queue/bee-queue/blob/master/README.md (under the hood), bee-queue/lib/defaults.js",
    ),
    "asynq": Promise(
        AT_LEAST_ONCE,
        120_000,
        "leases of 30 s, 30 s more for clocks that differ, and a recoverer that looks each 60 s",
        "github.com/hibiken/asynq/wiki, internal/rdb/rdb.go: LeaseDuration, recoverer.go",
    ),
}


def find(name: str) -> tuple[Library, Promise]:
    """The library of that name and its promise. Raises HarnessError."""
    found = next((library for library in LIBRARIES if library.name == name), None)
    if found is None:
        raise HarnessError(f"target {name!r} does not exist; choose from {', '.join(library.name for library in LIBRARIES)}, all")
    return found, PROMISES[name]
