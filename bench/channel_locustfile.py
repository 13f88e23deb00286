"""Locustfile for channels: publishers as open-loop load, and subscribers.

    locust -f bench/channel_locustfile.py --subscribers 20 -u 22    interactive: web page, and an own server without --host
    locust -f bench/channel_locustfile.py --headless -u 4 -t 60s --host redis://127.0.0.1:6379 --seed 1 Publisher
    locust -f bench/channel_locustfile.py --headless -u 102 -t 60s --host redis://127.0.0.1:6379 --share consumer-1 Subscriber

Publishers: the schedule sets the pace, not Locust. The seeded plan fixes each publish and its instant; the users take turns at
it, so the total rate is --rate times that of the plan, whatever the number of users. With --processes, or with --part and
--parts, each process sends its part of the same schedule. Response times count from the intended instant.

Subscribers: each user runs the next subscriber of --share. --subscribers N makes N of the users subscribers; naming the class
makes all of them subscribers. The time of a `delivery` is that from the intended publish to the answer of the fetch.

Locust's numbers are only a live view; verdicts are decided from --history and --subscriber-history.
"""

from __future__ import annotations

import signal
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
from bench.channels.opening import Place
from bench.channels.publishing import Publishing
from bench.channels.reading import Readers
from bench.channels.workload import LOCUST_SHARE, SHARES, ChannelWorkload, of_share
from bench.history_files import history_of
from bench.locust_process import REFUSED_EXIT_CODE, ScheduledLoad, fire, id_prefix, options_of, refuse, share_out
from bench.workload import WorkloadError
from engine.testing import ServerFailed, ServerMissing

#: Longer than the 10 s for which the driver re-sends before it gives up.
STOP_TIMEOUT_S = 12.0


class Load(ScheduledLoad):
    """The load of this Locust process: handles Locust's events, and gives its users their work."""

    def __init__(self) -> None:
        super().__init__()
        self._readers: Readers | None = None
        self._numbers = 0

    def add_options(self, parser: ArgumentParser, **_: Any) -> None:
        """Our own options; those that Locust's page shows can be changed there before each start."""
        add: Any = parser.add_argument  # Locust's parser knows include_in_web_ui, argparse's type does not
        add("--seed", type=int, default=1, help="seed of the load: same seed, same messages")
        add("--rate", type=float, default=1.0, help="times the rates of the plan")
        add(
            "--id-prefix",
            default="",
            help="message ids are PREFIX-INDEX-PART; default b<seed>, on the page with the start time added",
        )
        hidden: Any = partial(add, include_in_web_ui=False)
        hidden("--part", type=int, default=0, help="which part of the schedule, from 0 (default 0)")
        hidden("--parts", type=int, default=1, help="number of parts (default 1)")
        hidden("--history", default="", help="write the history of the publishes to this new file")
        hidden("--lua", default="", help="folder of scripts to use instead of the engine's own")
        hidden("--subscribers", type=int, default=0, help="number of users that subscribe (default 0)")
        hidden("--share", default=LOCUST_SHARE, help=f"share of subscribers: {', '.join(SHARES)} (default {LOCUST_SHARE})")
        hidden("--subscriber-history", default="", help="write the history of the subscribers to this new file")

    def prepare(self, environment: Environment, **_: Any) -> None:
        """Check the options before anything runs, and start a server when none was named."""
        options = options_of(environment)
        share_out(environment, Publisher, Subscriber, options.subscribers)
        if isinstance(environment.runner, WorkerRunner):
            return
        try:
            _workload(options, options.id_prefix).publishes(options.part, options.parts)
            of_share(options.share)
            if not environment.host:
                environment.host = self._serve()
            Place(environment.host).check()
        except (WorkloadError, ServerMissing, ServerFailed, engine.EngineError) as error:
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
            options.load_prefix = id_prefix(options, "%m%d%H%M%S")
        if isinstance(runner, MasterRunner):
            return
        report: Any = partial(fire, environment)
        number = runner.worker_index
        try:
            if Subscriber in environment.user_classes:
                self._readers = Readers(_place(environment, options.subscriber_history, number), seed=options.seed, report=report)
                self._numbers = number
                gevent.signal_handler(signal.SIGUSR1, self._readers.catch_up)
            if Publisher in environment.user_classes:
                self._sending = Publishing(
                    _workload(options, options.load_prefix),
                    _place(environment, options.history, number),
                    part=options.part * options.load_parts + number,
                    parts=options.parts * options.load_parts,
                    report=report,
                )
                self._sending.warm_up()
        except (WorkloadError, engine.EngineError, OSError) as error:
            refuse(environment, error)

    def subscribe(self, environment: Environment) -> None:
        """Run the next subscriber of the share until the load ends. Raises StopUser then, or when none is left."""
        options = options_of(environment)
        planned = of_share(options.share)
        if self._readers is None or self._numbers >= len(planned):
            raise StopUser
        reader = self._readers.reader(planned[self._numbers])
        self._numbers += options.load_parts
        # Locust kills its users at the end of the load, but a subscriber must stop gracefully, so it runs in its own greenlet.
        gevent.spawn(reader.run).join()
        raise StopUser

    def end(self, **_: Any) -> None:
        """Locust's stop event, from the command line, the button or a signal. Publishing stops before the readers do."""
        self.stop_sending()
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.stop(STOP_TIMEOUT_S)

    def _serve(self) -> str:
        url = self.serve()
        print(f"Start subscribers with: python -m bench.channels subscribe --host {url}", flush=True)
        return url


def _workload(options: Namespace, id_prefix: str) -> ChannelWorkload:
    return ChannelWorkload(seed=options.seed, rate=options.rate, id_prefix=id_prefix)


def _place(environment: Environment, given: str, number: int) -> Place:
    """Where this process publishes. Each process has its own history: publisher-1.jsonl, publisher-1-2.jsonl and so on."""
    options = options_of(environment)
    return Place(environment.host or "", Path(options.lua) if options.lua else None, history_of(given, number))


load = Load()
events.init_command_line_parser.add_listener(load.add_options)
events.init.add_listener(load.prepare)
events.test_start.add_listener(load.begin)
events.test_stop.add_listener(load.end)
events.quit.add_listener(load.quit)


class Publisher(User):
    """A user that publishes: it takes the next publish of the schedule, waits for its instant, and starts the send."""

    wait_time = constant(0)

    def on_start(self) -> None:
        load.start()

    @task
    def publish_next(self) -> None:
        load.pace()


class Subscriber(User):
    """A user that fetches and acknowledges, as a subscriber in a plain process does."""

    wait_time = constant(0)

    @task
    def read(self) -> None:
        load.subscribe(self.environment)
