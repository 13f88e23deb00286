"""The load of a service: jobs that a function of it yields, or the tasks of a Locust user, at a rate.

    python -P -m bench.service_load --folder . --queue shop.jobs:queue --load load:shop --rate 50 --seed 1 --prefix run-7
    python -P -m bench.service_load --folder . --queue shop.jobs:queue --load load:shop --seed 1 --orders runs/latest/orders

A function takes the seed and yields (task, arguments, options) without end; its jobs leave by open-loop Poisson arrivals, each
with an id that begins with the prefix. A Locust user runs with as many others as the rate needs, and is called after `host`.
With --orders a function's jobs leave in steps, at the rates that a measurement of capacity orders (`bench.service_steps`).
The environment records what is sent, and leads it to the servers of the drill (see `record.environment`). SIGTERM ends it.
"""

# Patch before all other imports, as Locust does, so that sockets and threads are cooperative.
from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import itertools  # noqa: E402
import logging  # noqa: E402
import math  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Protocol  # noqa: E402

import gevent  # noqa: E402
from gevent.event import Event  # noqa: E402

import engine  # noqa: E402
from bench.openloop import PACERS, OpenLoop  # noqa: E402
from bench.references import LoadError, found, is_user, parts_of  # noqa: E402
from bench.service_steps import Steps  # noqa: E402
from engine.queue.settings import QueueSettings, synchronous  # noqa: E402
from record import environment  # noqa: E402
from record.history import text  # noqa: E402

#: How long a stop waits: slightly longer than the 10 s for which the driver re-sends before it reports an unknown outcome.
FINISH_TIMEOUT_S = 12.0

#: Tasks a second of one Locust user. A closed loop that is to keep its rate needs a user for each task in flight.
TASKS_OF_A_USER_PER_S = 2.0
USERS_MAX = 500

logger = logging.getLogger(__name__)


class Load(Protocol):
    """What sends."""

    def start(self) -> None:
        """Begin to send."""
        ...

    def stop(self) -> None:
        """End, and wait for the answers."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job to send, `offset_ms` after the start."""

    offset_ms: float
    task: Any
    arguments: Any
    options: dict[str, Any] = field(default_factory=dict)


def jobs(load: Callable[[int], Iterator[Any]], *, seed: int, rate_per_s: float, prefix: str) -> Iterator[PlannedJob]:
    """The jobs of a function, with the instants of a Poisson process. Raises LoadError for what is no job."""
    randomness, offset_ms = random.Random(f"ironclaim arrivals {seed}"), 0.0
    for index, yielded in enumerate(load(seed)):
        task, arguments, options = parts_of(yielded)
        offset_ms -= math.log(1.0 - randomness.random()) * 1_000 / rate_per_s
        yield PlannedJob(offset_ms, task, arguments, {"id": f"{prefix}-{index}", **options})


class Jobs:
    """The load of a function."""

    def __init__(self, queue: Any, planned: Iterator[PlannedJob], failed: Callable[[Any], None]) -> None:
        self._queue = queue
        #: Called when the function has ended, also by an error, and with a job that cannot be sent.
        self._failed = failed
        self._loop = OpenLoop(planned, send=self._send, drop=self._drop)
        self._pacers: list[gevent.Greenlet] = []
        self._failures = itertools.count(1)
        self._over = False

    def start(self) -> None:
        """Begin to send."""
        # Connect and load the scripts before the schedule begins.
        self._queue.counts()
        self._loop.start()
        self._pacers = [gevent.spawn(self._pace) for _ in range(PACERS)]

    def stop(self) -> None:
        """End, and wait for the answers."""
        gevent.killall(self._pacers)
        if given_up := self._loop.finish(FINISH_TIMEOUT_S):
            logger.warning("%d sends had no answer %.0f s after the end", given_up, FINISH_TIMEOUT_S)

    def _pace(self) -> None:
        try:
            while self._loop.pace():
                pass
        except Exception:
            # The last line of the log is what people are shown, and it names the error.
            self._over = True
            logger.exception("the load has failed")
        else:
            # To the other pacers a function that has failed has ended.
            if not self._over:
                self._over = True
                logger.error("the load has ended, it must yield jobs without end")
        self._failed(self)

    def _send(self, job: PlannedJob, intended_ns: int) -> None:
        try:
            self._queue.enqueue(job.task, job.arguments, intended_ns=intended_ns, **job.options)
        except engine.Malformed as error:
            # Nothing that happens to a drill makes a job malformed.
            logger.error("the load yielded a job that cannot be sent: %s", error)
            self._failed(job)
        except engine.EngineError as error:
            # The judge reads what came of each send; people need the reason, not ten thousand of them.
            if next(self._failures) <= 10:
                logger.warning("job %s was not sent: %s", job.options.get("id"), error)

    def _drop(self, job: PlannedJob, intended_ns: int, why: str) -> None:
        recorder = environment.observer(self._queue.name)
        if isinstance(recorder, environment.Recorder):
            reason = text(f"{job.options.get('id')}: {why}")
            recorder.file.append([f'"kind":"drop","intended_ns":{intended_ns},"count":1,"detail":{reason}'])


class Users:
    """The load of a Locust user."""

    def __init__(self, user: Any, *, rate_per_s: float, host: str) -> None:
        from locust import constant_throughput
        from locust.env import Environment

        self._count = min(USERS_MAX, math.ceil(rate_per_s / TASKS_OF_A_USER_PER_S))
        paced = type(user.__name__, (user,), {"wait_time": constant_throughput(rate_per_s / self._count)})
        self._environment = Environment(user_classes=[paced], host=host or None)

    def start(self) -> None:
        """Begin to send."""
        self._environment.create_local_runner().start(self._count, spawn_rate=self._count)

    def stop(self) -> None:
        """End, and wait for the tasks."""
        runner: Any = self._environment.runner
        runner.quit()


def main(arguments: Sequence[str]) -> int:
    """Send until a signal ends it, and return the exit code; what came of each send is in the history."""
    parser = argparse.ArgumentParser(prog="python -m bench.service_load", description="The load of a service.")
    for name in ("--folder", "--queue", "--load"):
        parser.add_argument(name, required=True)
    parser.add_argument("--prefix", default="job", help="what ids of jobs begin with")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--rate", type=float, help="jobs or tasks per second")
    how.add_argument("--orders", type=Path, help="folder of the orders of steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host", default="", help="url of the service's own web app, for a Locust user")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    # Behind all others: a module of the service that is called like one of the harness's does not take its place.
    sys.path.append(options.folder)
    load, queue = found(options.load), found(options.queue)
    if not isinstance(queue, QueueSettings):
        raise LoadError(f"{options.queue} is a {type(queue).__name__}, it must be a Queue or an AsyncQueue")
    ended, failed = Event(), Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, ended.set)

    def stopped_by(pacer: object) -> None:
        failed.set()
        ended.set()

    sending: Load
    if options.orders:
        sending = Steps(synchronous(queue), load(options.seed), options.seed, options.orders, stopped_by)
    elif is_user(load):
        sending = Users(load, rate_per_s=options.rate, host=options.host)
    else:
        planned = jobs(load, seed=options.seed, rate_per_s=options.rate, prefix=options.prefix)
        sending = Jobs(synchronous(queue), planned, stopped_by)
    sending.start()
    ended.wait()
    sending.stop()
    return 1 if failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
