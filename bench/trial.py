"""A short load without Locust: a calibration sends it to measure what a machine can do.

    python -m bench.trial --url redis://127.0.0.1:6379 --queue trial --seed 1 --rate 180 --seconds 2 --history trial.jsonl

It uses the same open loop on greenlets, the same driver and the same history as the producer of a drill.
"""

# Patch before all other imports, as Locust does, so that sockets and threads are cooperative.
from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from bench.models import LANES, NAMES  # noqa: E402
from bench.production import Destination, Production  # noqa: E402
from bench.workload import Workload  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Send for the given time and return exit code 0; the outcome of each send is in the history."""
    parser = argparse.ArgumentParser(prog="python -m bench.trial", description="A short load, for a calibration.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--model", default=LANES, choices=NAMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, required=True, help="jobs per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--history", type=Path, required=True, help="new file that gets the history of the sends")
    options = parser.parse_args(arguments)
    # A prefix that no other trial on the same queue has used.
    workload = Workload(seed=options.seed, rate_per_s=options.rate, id_prefix=f"trial-{time.monotonic_ns()}")
    destination = Destination(queue=options.queue, url=options.url, history=options.history, model=options.model)
    production = Production(workload, destination, part=0, parts=1, report=lambda name, response_ms, failure: None)
    production.warm_up()
    production.start()
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        production.pace()
    production.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
