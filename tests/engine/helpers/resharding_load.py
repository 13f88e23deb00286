"""A producer for drills of resharding: `python -m tests.engine.helpers.resharding_load URL SHARDS FOLDER SEED`.

It enqueues jobs with and without keys, one by one and many at a time, and again now and then, until the file `stop` is there.
What was acknowledged is a line of the file `acknowledged-SEED`; what came of a repeat that no queue may answer, of `wrong-SEED`.
"""

import random
import sys
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any

from engine import ConnectOptions, EngineError, NewJob, Queue

#: How long after a job was enqueued it may be enqueued again.
REPEATED_S = 8.0


def main(url: str, shards: int, folder: Path, seed: int) -> None:
    """Produce until told to stop."""
    draw, made, made_s = random.Random(seed), list[tuple[str, dict[str, Any]]](), list[float]()
    payload = {"folder": str(folder)}
    with (
        Queue("mails", url=url, shards=shards, connect=ConnectOptions(deadline_ms=10_000)) as queue,
        (folder / f"acknowledged-{seed}").open("a", buffering=1) as acknowledged,
        (folder / f"wrong-{seed}").open("a", buffering=1) as wrong,
    ):
        while not (folder / "stop").exists():
            some: list[tuple[str, dict[str, Any]]] = []
            for _ in range(draw.choice((1, 1, 1, 30))):
                options: dict[str, Any] = {"key": f"k{draw.randrange(20)}"} if draw.random() < 0.5 else {}
                if draw.random() < 0.2:
                    options["delay_ms"] = draw.randrange(1, 2_000)
                some.append((f"j{seed}-{len(made) + len(some)}", options))
            try:
                new, (job, options) = [NewJob("mark", payload, id=job, **options) for job, options in some], some[0]
                came = queue.enqueue_many(new) if len(new) > 1 else [queue.enqueue("mark", payload, id=job, **options)]
            except EngineError as error:
                print(error, file=sys.stderr)
                continue
            made += some
            made_s += [time.monotonic()] * len(some)
            acknowledged.write("".join(f"{item.job}\n" for item in came))
            wrong.write("".join(f"new {item}\n" for item in came if not item.created))
            # The last ones again: whether they wait, are on their way, run, or have just ended. No older ones: the queue knows a
            # job for 20 s after its end.
            recent = len(made) - bisect_left(made_s, time.monotonic() - REPEATED_S)
            job, options = made[-draw.randrange(1, 1 + max(1, min(recent, 200)))]
            again = queue.enqueue("mark", payload, id=job, **options)
            if again.created:
                wrong.write(f"again {again}\n")
            # Some hundred jobs a second, on any machine.
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
