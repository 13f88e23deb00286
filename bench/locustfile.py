"""Locustfile for one queue: producers as open-loop load, and consumers.

    locust -f bench/locustfile.py --consumers 1            interactive: web page, and an own server without --host
    locust -f bench/locustfile.py --headless -u 4 -t 60s --host redis://127.0.0.1:6379 --queue bench --seed 1 --rate 120
    locust -f bench/locustfile.py --headless -u 2 -t 60s --host redis://127.0.0.1:6379 --queue bench Consumer

Producers: the schedule sets the pace, not Locust. The seeded workload fixes each job and its instant; the users take turns at
sending, so the total rate is --rate whatever the number of users. With --processes or --master/--worker each process sends its
part of the same schedule. Response times count from the intended instant.

Consumers: each user is a worker of the engine on greenlets. --consumers N makes N of the users consumers; naming the class
makes all of them consumers.

Locust's numbers are only a live view; verdicts are decided from --history and --consumer-history.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from locust import User, constant, events, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner

# Import after locust, which makes the sockets cooperative when it is imported.
import engine
from bench.consumption import Consumption, Source
from bench.history_files import history_of
from bench.locust_process import REFUSED_EXIT_CODE, ScheduledLoad, fire, id_prefix, options_of, refuse, share_out
from bench.models import LANES, NAMES, ModelMissing
from bench.production import REQUEST_TYPE, Destination, Production
from bench.workload import CAPABILITY, Workload, WorkloadError
from engine.testing import ServerFailed, ServerMissing

DEFAULT_RATE_PER_S = 120.0


class Load(ScheduledLoad):
    """The load of this Locust process: handles Locust's events, and gives its users their work."""

    def __init__(self) -> None:
        super().__init__()
        self._consumptions: list[Consumption] = []

    def add_options(self, parser: ArgumentParser, **_: Any) -> None:
        """Our own options; those that Locust's page shows can be changed there before each start."""
        add: Any = parser.add_argument  # Locust's parser knows include_in_web_ui, argparse's type does not
        add("--queue", default="bench", help="queue that gets the jobs")
        add("--model", default=LANES, choices=NAMES, include_in_web_ui=False, help="model of the queue (default lanes)")
        add("--seed", type=int, default=1, help="seed of the workload: same seed, same jobs")
        add("--rate", type=float, default=DEFAULT_RATE_PER_S, help="jobs per second, all users together")
        add("--id-prefix", default="", help="job ids are PREFIX-INDEX; default b<seed>, on the page with the start time added")
        add("--history", default="", include_in_web_ui=False, help="write the history of the sends to this new file")
        add("--lua", default="", include_in_web_ui=False, help="folder of scripts to use instead of the engine's own")
        add(
            "--retention-ms",
            type=int,
            default=0,
            include_in_web_ui=False,
            help="keep results and errors this many ms (default: the engine's)",
        )
        consumer: Any = partial(add, include_in_web_ui=False)
        consumer("--consumers", type=int, default=0, help="number of users that consume (default 0)")
        consumer("--consumer-history", default="", help="write the history of the first consumer to this new file")
        consumer("--consumer-concurrency", type=int, default=8, help="handlers at once in each consumer (default 8)")
        consumer("--lease-ms", type=int, default=9_000, help="lease of the consumers' jobs (default 9000)")
        consumer("--sweep-ms", type=int, default=1_000, help="longest time between two sweeps of a consumer (default 1000)")

    def prepare(self, environment: Environment, **_: Any) -> None:
        """Check the options before anything runs, and start a server when none was named."""
        options = options_of(environment)
        share_out(environment, Producer, Consumer, options.consumers)
        if isinstance(environment.runner, WorkerRunner):
            return
        try:
            _workload(options)
            if not environment.host:
                environment.host = self._serve(options.queue)
            _destination(environment).connect().close()
        except (WorkloadError, ModelMissing, ServerMissing, ServerFailed, engine.EngineError) as error:
            self.quit()
            print(f"locustfile: {error}", file=sys.stderr)
            sys.exit(REFUSED_EXIT_CODE)

    def begin(self, environment: Environment, **_: Any) -> None:
        """Locust's start event, from the command line or the button on the page."""
        options = options_of(environment)
        runner: Any = environment.runner
        if not isinstance(runner, WorkerRunner):
            # Set once, by the master, which sends its options to all its processes.
            options.load_parts = runner.worker_count
            options.load_prefix = id_prefix(options, "%Y%m%d-%H%M%S")
        try:
            if not isinstance(runner, WorkerRunner):
                _check_users(environment, options)
            if isinstance(runner, MasterRunner) or Producer not in environment.user_classes:
                return
            self._sending = Production(
                _workload(options, options.load_prefix),
                _destination(environment, part=runner.worker_index),
                part=runner.worker_index,
                parts=options.load_parts,
                report=_producer_report(environment),
            )
            self._sending.warm_up()
        except (WorkloadError, engine.EngineError, OSError) as error:
            refuse(environment, error)

    def consume(self, environment: Environment) -> None:
        """Run a worker until the load ends. Raises StopUser when it cannot start, or when it has ended."""
        try:
            consumption = Consumption(_source(environment, number=len(self._consumptions)), _consumer_report(environment))
        except (engine.EngineError, OSError) as error:
            refuse(environment, error)
            raise StopUser from error
        # Locust kills its users at the end of the load, but a worker must stop gracefully, so it runs outside of the user.
        self._consumptions.append(consumption)
        consumption.start()
        consumption.join()
        raise StopUser

    def end(self, **_: Any) -> None:
        """Locust's stop event, from the command line, the button or a signal. Sending stops before the consumers do."""
        self.stop_sending()
        consumptions, self._consumptions = self._consumptions, []
        gevent.joinall([gevent.spawn(consumption.stop) for consumption in consumptions])

    def _serve(self, queue: str) -> str:
        url = self.serve()
        print("Add --consumers 1 for a consumer among the users, or start a worker:")
        worker = f"python -m engine worker bench.handlers:handlers --capabilities {CAPABILITY}"
        print(f"Start a worker with: {worker} --queue {queue} --url {url}", flush=True)
        return url


def _workload(options: Namespace, id_prefix: str = "") -> Workload:
    return Workload(seed=options.seed, rate_per_s=options.rate, id_prefix=id_prefix or options.id_prefix)


def _destination(environment: Environment, *, part: int = 0) -> Destination:
    """Where this process sends. Each process has its own history: producer-1.jsonl, producer-1-2.jsonl and so on."""
    options = options_of(environment)
    return Destination(
        queue=options.queue,
        url=environment.host or "",
        lua=Path(options.lua) if options.lua else None,
        model=options.model,
        history=history_of(options.history, part),
        retention_ms=options.retention_ms,
    )


def _source(environment: Environment, *, number: int) -> Source:
    """The source of one consumer. Each has its own history: consumer-1.jsonl, consumer-1-2.jsonl; in a second process
    consumer-1-p2.jsonl."""
    options = options_of(environment)
    runner: Any = environment.runner
    given = Path(options.consumer_history) if options.consumer_history else None
    name = given.name.removesuffix(".jsonl") if given else "consumer-1"
    name += f"-p{runner.worker_index + 1}" if runner.worker_index > 0 else ""
    name += f"-{number + 1}" if number else ""
    return Source(
        queue=options.queue,
        url=environment.host or "",
        name=name,
        lua=Path(options.lua) if options.lua else None,
        model=options.model,
        history=given.with_name(f"{name}.jsonl") if given else None,
        concurrency=options.consumer_concurrency,
        lease_ms=options.lease_ms,
        sweep_ms=options.sweep_ms,
    )


def _check_users(environment: Environment, options: Namespace) -> None:
    """Raise WorkloadError unless each process has a producer: each must send its part of the schedule."""
    if Producer not in environment.user_classes:
        return
    users = options.num_users or 1
    if users - options.consumers < options.load_parts:
        consumers = f"{options.consumers} consumers and " if options.consumers else ""
        raise WorkloadError(f"users: {users} is fewer than {consumers}the {options.load_parts} Locust processes, each needs one")


def _producer_report(environment: Environment) -> Any:
    return partial(fire, environment, REQUEST_TYPE)


def _consumer_report(environment: Environment) -> Any:
    return partial(fire, environment)


load = Load()
events.init_command_line_parser.add_listener(load.add_options)
events.init.add_listener(load.prepare)
events.test_start.add_listener(load.begin)
events.test_stop.add_listener(load.end)
events.quit.add_listener(load.quit)


class Producer(User):
    """A user that produces: it takes the next job of the schedule, waits for its instant, and starts the send."""

    wait_time = constant(0)

    def on_start(self) -> None:
        load.start()

    @task
    def send_next(self) -> None:
        load.pace()


class Consumer(User):
    """A user that claims jobs, runs their handlers and finishes them, as a worker process does."""

    wait_time = constant(0)

    @task
    def work(self) -> None:
        load.consume(self.environment)
