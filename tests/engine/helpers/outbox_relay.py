"""A relay in a process of its own, which dies by SIGKILL at a given moment: `python -m tests.engine.helpers.outbox_relay`.

A moment is the number or the name of a step. Steps are the statements and the ends of transactions that a relay asks its database
for, and the calls that it asks Redis for, each before it begins and after it has ended. Each is printed on its way, so that the
last line says where it died, and so that another process can kill it there.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from engine import Queue, outbox
from engine.redis.driver import SyncDriver
from tests.engine.helpers.databases import connect


class Steps:
    """Counts, and kills its own process at the given one."""

    def __init__(self, kill_at: str) -> None:
        self.kill_at, self.number = kill_at, 0

    def step(self, what: str) -> None:
        self.number += 1
        os.write(1, f"{self.number} {what}\n".encode())
        if self.kill_at in (str(self.number), what):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {what}")
            found = function(*args, **kwargs)
            self.step(f"after {what}")
            return found

        return run


class Watched:
    """A connection or a cursor whose calls are steps."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "cursor":
            return lambda: Watched(found(), self._steps)
        return self._steps.around(name, found) if name in ("execute", "commit", "rollback") else found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--kind", "--address", "--url"):
        parser.add_argument(name, required=True)
    parser.add_argument("--kill-at", default="")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--clock-ms", type=int, default=0)
    parser.add_argument("--burst", action="store_true")
    options = parser.parse_args()
    steps = Steps(options.kill_at)
    SyncDriver.send_many = steps.around("bulk", SyncDriver.send_many)
    SyncDriver.run = steps.around("call", SyncDriver.run)

    def watched() -> Any:
        connection = connect(options.kind, options.address)
        return type("Connection", (Watched,), {"__module__": type(connection).__module__})(connection, steps)

    with Queue("q", url=options.url) as queue:
        if options.clock_ms:
            # As use_test_clock, of a queue that another process has made for its test. The connection tells the real time.
            queue.driver.server_now_ms()
            queue.model.now_ms = options.clock_ms
            queue.driver.clock.learn(options.clock_ms * 1000, time.monotonic_ns())
        outbox.relay(watched, queue, batch=options.batch, poll_ms=5, burst=options.burst)


if __name__ == "__main__":
    main()
