"""Locustfile of a capacity measurement: steps of arrivals at a constant rate, each at the rate that its shape says.

    locust -f bench/capacity_locustfile.py --host redis://127.0.0.1:6379 --ramp-from 50
    locust -f bench/capacity_locustfile.py --headless --host redis://127.0.0.1:6379 --orders runs/latest/orders

The rate comes from the shape and not from the number of users, who only take turns at sending: arrivals are an open loop, and
response times count from the intended instant. By itself the shape doubles the rate at each step. With --orders it reads
`order.json` in that folder, `{"step": 3, "rate_per_s": 800, "seconds": 15}`, carries each new order out once, and leaves what
came of it in `step-3.json`; so `python -m chaos capacity` searches while Locust's page shows it.
"""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from locust import LoadTestShape, User, constant, events, task
from locust.env import Environment

# Import after locust, which makes the sockets cooperative when it is imported.
import engine
from bench.arrivals import NAME, RATE_MAX_PER_S, Arrival, Arrivals, payload
from bench.capacity_sending import Sending, answer, ordered
from bench.capacity_steps import Order
from bench.locust_process import fire, options_of, refuse
from bench.models import LANES, NAMES, carried, queue
from bench.production import REQUEST_TYPE, Dropped, NotEnqueued

#: Users that take turns at one schedule: while one waits for an instant, another may be starting a send.
PACERS = 4

#: Connections of the load. More sends at once than this wait for each other, and that shows in their latency.
CONNECTIONS = 256

#: How often a user looks whether a step has begun.
LOOK_S = 0.02


class Load:
    """The load of this Locust process: handles Locust's events, and begins the steps that the shape wishes for."""

    queue: engine.Queue
    payload: dict[str, Any]
    report: Any
    seed = 1

    def __init__(self) -> None:
        #: Between start and stop: the shape asks before the first start, too.
        self._ready = False
        self._sending: Sending[Arrival] | None = None
        self._folder: Path | None = None
        self._done = 0
        self._first_per_s, self._seconds = 0.0, 0.0

    def add_options(self, parser: ArgumentParser, **_: Any) -> None:
        """Our own options."""
        add: Any = partial(parser.add_argument, include_in_web_ui=False)  # argparse's type does not know that option
        add("--queue", default="capacity", help="queue that gets the jobs (default capacity)")
        add("--model", default=LANES, choices=NAMES, help="model of the queue (default lanes)")
        add("--seed", type=int, default=1, help="seed of the arrivals (default 1)")
        add("--payload-bytes", type=int, default=2_048, help="size of a payload (default 2048)")
        add("--handler-ms", type=float, default=20, help="how long a handler waits (default 20)")
        add("--orders", default="", help="folder of order.json; without it each step has twice the rate of the one before")
        add("--ramp-from", type=float, default=50, help="rate of the first step without --orders (default 50)")
        add("--step-s", type=float, default=15, help="length of a step without --orders (default 15)")

    def begin(self, environment: Environment, **_: Any) -> None:
        """Locust's start event: connect, and load the scripts, before the first step."""
        options = options_of(environment)
        self.seed, self._folder = options.seed, Path(options.orders) if options.orders else None
        self._first_per_s, self._seconds, self._done = options.ramp_from, options.step_s, 0
        self.report = partial(fire, environment, REQUEST_TYPE)
        self.payload = carried(options.model).payload(payload(options.payload_bytes, options.handler_ms))
        try:
            self.queue = queue(options.model, options.queue, url=environment.host or "", connections_max=CONNECTIONS)
            self.queue.counts()
            self._ready = True
        except (engine.EngineError, OSError) as error:
            refuse(environment, error)

    def tick(self) -> None:
        """Begin the step that is wished for, if none is on."""
        if self._ready and self._sending is None and (order := self._wished()) is not None:
            self._done = order.step
            arrivals = Arrivals(self.seed, order.step, order.rate_per_s, order.seconds)
            self._sending = Sending(
                order,
                iter(arrivals),
                partial(self._enqueue, arrivals),
                partial(self.report, NAME),
                lambda why: self.report(NAME, None, Dropped(f"not sent: {why}")),
            )
            gevent.spawn(self._carry_out, order, self._sending)

    def pace(self) -> None:
        """A turn of a user."""
        if self._sending is None or not self._sending.pace():
            gevent.sleep(LOOK_S)

    def end(self, **_: Any) -> None:
        """Locust's stop event."""
        self._ready, self._sending = False, None

    def _wished(self) -> Order | None:
        """The next order, None while there is none."""
        if self._folder is None:
            rate_per_s = min(self._first_per_s * 2**self._done, RATE_MAX_PER_S)
            return Order(self._done + 1, rate_per_s, self._seconds)
        return ordered(self._folder, self._done)

    def _enqueue(self, arrivals: Arrivals, arrival: Arrival) -> bool:
        reply = self.queue.enqueue(NAME, self.payload, id=arrivals.id_of(arrival.index))
        if not reply.created:
            raise NotEnqueued(f"the server answered {reply.result}")
        return True

    def _carry_out(self, order: Order, sending: Sending[Arrival]) -> None:
        sent = sending.carry_out()
        self._sending = None
        if self._folder is not None:
            answer(self._folder, order, sent)


load = Load()
events.init_command_line_parser.add_listener(load.add_options)
events.test_start.add_listener(load.begin)
events.test_stop.add_listener(load.end)


class Steps(LoadTestShape):
    """Constant users, and a rate that changes from step to step."""

    def tick(self) -> tuple[int, float]:
        load.tick()
        return PACERS, PACERS


class Producer(User):
    """A user that takes the next arrival of the step that is on, waits for its instant, and starts the send."""

    wait_time = constant(0)

    @task
    def send_next(self) -> None:
        load.pace()
