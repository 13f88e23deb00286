"""Workers in threads of this process, whose handlers note what they run."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from engine import Handlers, Job, Queue, Worker
from tests.engine.helpers.waiting import DEADLINE_S


class Book:
    """What ran: (worker, job id) in the order of the starts, and the fence of each job, which tells the ms of its claim. With
    `hold`, handlers wait for `release`."""

    def __init__(self, *, hold: bool = False) -> None:
        self.ran, self.fences = list[tuple[str, str]](), dict[str, int]()
        self.running = self.most = 0
        self._lock, self._open = threading.Lock(), threading.Event()
        if not hold:
            self._open.set()

    def release(self) -> None:
        self._open.set()

    def hold(self) -> None:
        """Handlers that start from now on wait for the next `release`."""
        self._open.clear()

    def handlers(self, worker: str, *names: str) -> Handlers:
        made = Handlers()

        def handle(job: Job) -> None:
            with self._lock:
                self.ran.append((worker, job.id))
                self.fences[job.id] = job.fence
                self.running += 1
                self.most = max(self.most, self.running)
            assert self._open.wait(DEADLINE_S)
            with self._lock:
                self.running -= 1

        for name in names:
            made(name)(handle)
        return made

    def by(self, worker: str) -> list[str]:
        """Ids of the jobs that this worker ran."""
        return [job for who, job in self.ran if who == worker]


@contextmanager
def at_work(*workers: Any, **stop: bool) -> Generator[None]:
    """These run until the block is left."""
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop(**stop)
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def make_worker(queue: Queue, book: Book, name: str, *names: str, **settings: Any) -> Worker:
    """A worker for the jobs of these names (`work`)."""
    settings = {"prefetch": 0, **settings}
    return Worker(queue, book.handlers(name, *(names or ("work",))), name=name, **settings)
