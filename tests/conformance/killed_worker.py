"""A worker process of one model: `python -m tests.conformance.killed_worker MODEL URL FOLDER NAME LEASE_MS`. Its runs hold on."""

import os
import sys
import time
from pathlib import Path

from engine import Handlers, Job, Queue, Worker
from tests.conformance.models import ALL


def main(model: str, url: str, folder: str, name: str, lease_ms: str) -> None:
    """Work until killed."""
    handlers = Handlers()

    @handlers("main")
    def hold(job: Job) -> str:
        note = Path(folder) / f"{name}-{os.getpid()}-{job.fence}"
        # Who sees the note may kill this process at once, so it must be whole by then.
        unseen = note.with_name(f".{note.name}")
        unseen.write_text(job.id)
        unseen.rename(note)
        while not (Path(folder) / "open").exists():
            time.sleep(0.005)
        return name

    with Queue("q", ALL[model], url=url) as queue:
        Worker(queue, handlers, name=name, lease_ms=int(lease_ms), sweep_ms=100, prefetch=0, beat_ms=200).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
