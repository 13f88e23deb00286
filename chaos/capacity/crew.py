"""The processes of a capacity measurement: workers that note their handlers' times, and one Locust that sends what is ordered."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from bench.capacity_steps import ORDER, TIMED_VARIABLE, Order, Timed
from chaos.capacity.request import Request
from chaos.plan import PRODUCER
from chaos.processes import ROOT, Child, Children

QUEUE = "capacity"

#: Of the workers, as of a drill.
LEASE_MS = 9_000
SWEEP_MS = 1_000


S = TypeVar("S")


@dataclass
class MeasuredCrew(Children[S]):
    """Workers that note the times of handlers, and a producer that takes orders."""

    @property
    def orders(self) -> Path:
        """Where the producer finds its orders, and leaves what came of them."""
        return self.logs.parent / "orders"

    def start_worker(self, name: str) -> Child:
        """Start a worker."""
        raise NotImplementedError

    def start_producer(self, name: str) -> Child:
        """Start the producer, which waits for its first order."""
        raise NotImplementedError

    def order(self, order: Order) -> Path:
        """Order a step; the file that says what came of it, once that is there."""
        fresh = self.orders / "order.tmp"
        fresh.write_text(json.dumps(asdict(order)))
        fresh.replace(self.orders / ORDER)
        return self.orders / order.answer

    def times(self, name: str) -> Path:
        """The file of a worker's handler times."""
        return self.history / f"{name}.times"

    def workers(self) -> list[str]:
        """The workers that live."""
        return [child.name for child in self.children.values() if child.role == "worker" and child.alive()]


@dataclass
class CapacityCrew(MeasuredCrew[Request]):
    """Workers may come and go between steps; the producer stays, so that its connections are warm."""

    #: Port of Locust's web page; 0 = none.
    web_port: int = 0

    SENDERS: ClassVar[tuple[str, ...]] = (PRODUCER,)

    def start_worker(self, name: str) -> Child:
        """Start a worker with as many handlers at once as are asked for."""
        words = [sys.executable, "-m", "engine", "worker", "bench.timed_handlers:queue", "--name", name]
        words += ["--concurrency", str(self.spec.handlers_at_once), "--lease-ms", str(LEASE_MS), "--sweep-ms", str(SWEEP_MS)]
        timed = Timed(self.spec.model, self.connect(name), QUEUE, str(self.times(name)))
        return self._start(name, "worker", words, {TIMED_VARIABLE: timed.written()})

    def start_producer(self, name: str) -> Child:
        """Start Locust, which waits for its first order."""
        self.orders.mkdir(exist_ok=True)
        spec, page = self.spec, ["--web-port", str(self.web_port), "--autostart"] if self.web_port else ["--headless"]
        words = [sys.executable, "-m", "locust", "-f", str(ROOT / "bench" / "capacity_locustfile.py"), *page, "--only-summary"]
        words += ["--exit-code-on-error", "0", "--host", self.connect(name), "--queue", QUEUE, "--seed", str(spec.seed)]
        words += ["--payload-bytes", str(spec.payload_bytes), "--handler-ms", f"{spec.handler_ms:g}", "--model", spec.model]
        return self._start(name, PRODUCER, [*words, "--orders", str(self.orders)], {})
