"""Subscribers of the load in a plain process, on threads. A drill runs and kills these, beside the subscribers inside Locust.

    python -m bench.channels subscribe --host redis://127.0.0.1:6379 --seed 1 --share subscriber-1 --history subscriber-1.jsonl

Beside the history, what each call of `fetch` handed its caller is written to subscriber-1.sink.jsonl, the second witness.

SIGUSR1: catch up: read all available messages at once, without any pauses. SIGTERM, SIGINT: acknowledge what was fetched, and
end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import engine
from bench.channels.opening import Place
from bench.channels.reading import Reader, Readers
from bench.channels.workload import SHARES, ChannelWorkload, of_share
from bench.workload import WorkloadError

REFUSED_EXIT_CODE = 2
FAILED_EXIT_CODE = 1
#: Longer than the 10 s for which the driver re-sends before it gives up.
STOP_TIMEOUT_S = 12.0
#: A signal that arrives just before the main thread waits is heard after that wait.
SIGNAL_LOOK_S = 0.5


class Tally:
    """Counts the reports of subscribers, for one summary line at the end."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def report(self, kind: str, name: str, response_ms: float | None, failure: Exception | None) -> None:
        """Count one delivery, acknowledgement or failure."""
        del name, response_ms
        with self._lock:
            self._counts[kind if failure is None else f"{kind}: {type(failure).__name__}"] += 1

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self._counts.items())) or "nothing happened"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
    tally = Tally()
    try:
        workload = ChannelWorkload(seed=options.seed)
        planned = of_share(options.share)
        readers = Readers(Place(options.host, options.lua, options.history), seed=workload.seed, report=tally.report)
        made = [readers.reader(one) for one in planned]
    except (WorkloadError, engine.EngineError, OSError) as error:
        print(f"bench.channels: {error}", file=sys.stderr)
        return REFUSED_EXIT_CODE
    return _run(readers, made, tally)


def _run(readers: Readers, made: Sequence[Reader], tally: Tally) -> int:
    """Run until a signal arrives, or until a subscriber raises, which it must not. Return the exit code."""
    over = threading.Event()
    failed = threading.Event()

    def run(reader: Reader) -> None:
        try:
            reader.run()
        except BaseException:
            traceback.print_exc()
            failed.set()
            over.set()

    signal.signal(signal.SIGUSR1, lambda *_: readers.catch_up())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    for reader in made:
        # Daemon threads: at exit, a subscriber that is waiting for messages is not joined.
        threading.Thread(target=run, args=(reader,), daemon=True).start()
    while not over.wait(SIGNAL_LOOK_S):
        pass
    readers.stop(STOP_TIMEOUT_S)
    print(f"{len(made)} subscribers: {tally}")
    return FAILED_EXIT_CODE if failed.is_set() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.channels", description="Subscribers of the load on channels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    subscribe = commands.add_parser("subscribe", help="run the subscribers of a share until SIGTERM")
    subscribe.add_argument("--host", default="redis://127.0.0.1:6379", help="url of the server")
    subscribe.add_argument("--seed", type=int, default=1, help="seed of the subscribers' behaviour")
    subscribe.add_argument("--share", default=SHARES[0], help=f"share of subscribers: {', '.join(SHARES)}")
    subscribe.add_argument("--history", type=Path, help="write the history to this new file")
    subscribe.add_argument("--lua", type=Path, help="folder of scripts to use instead of the engine's own")
    return parser


if __name__ == "__main__":
    sys.exit(main())
