"""Functions that are jobs: typed parameters on both ways, the same by decorator and by name, in every kind of worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from pydantic import BaseModel, field_validator

from engine import AsyncQueue, Enqueued, Handlers, Job, Malformed, NewJob, Queue, Worker
from tests.engine.helpers import tasks
from tests.engine.using import Workers, ids_of, refused

ROOT = Path(__file__).resolve().parents[2]
USER = UUID(int=7)
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))


# -- functions


def test_a_function_whose_parameters_cannot_travel_is_refused_when_it_is_registered(nowhere: Queue) -> None:
    def many(*users: int) -> None: ...
    def more(**users: int) -> None: ...
    def odd(where: Queue) -> None: ...
    def later(where: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    for function in (many, more, odd, later):
        refused(Malformed, "^handler: ", nowhere.job("work"), function)
    assert nowhere.handlers.by_name == {}
    refused(Malformed, "^attempts: 0", nowhere.job, "work", attempts=0)
    refused(Malformed, r'^name: .* @queue.job\(\) or @queue.job\("name"\), with the name', nowhere.job, lambda: None)
    refused(Malformed, "^retries: .* perhaps attempts; ", nowhere.job, "work", retries=3)
    refused(Malformed, "^delay_ms: 1.5 .* a timedelta, or whole ms, from 0 to ", nowhere.enqueue, "work", None, delay_ms=1.5)
    refused(Malformed, "^name: .* this function has none of its own", nowhere.job(), lambda: None)


def test_a_job_without_a_name_has_those_of_its_module_and_function(queue: Queue, nowhere: Queue) -> None:
    @queue.job()
    def send(user: int) -> int:
        return user + 1

    @queue.job(batch=2, attempts=2)
    def index(users: list[int]) -> None: ...

    module = "tests.engine.test_tasks"
    assert (send.name, index.name) == (f"{module}.send", f"{module}.index")
    assert nowhere.job()(send).name == send.name, "as a job of another queue as well"
    enqueued = queue.enqueue(f"{module}.send", {"user": 1})
    Worker(queue).run(burst=True)
    assert queue.results.wait(enqueued.job, send).get() == 2


@pytest.mark.parametrize("way", [["shop.py"], ["-m", "shop"]], ids=" ".join)
def test_a_program_names_its_jobs_as_those_that_import_it(ironclaim_url: str, tmp_path: Path, way: list[str]) -> None:
    (tmp_path / "shop.py").write_text(
        "import engine\nqueue = engine.Queue('names')\n@queue.job()\ndef send() -> None: ...\nprint(send.name)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    for program in (way, ["-c", "import shop"]):
        done = subprocess.run([sys.executable, *program], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.stdout == "shop.send\n", done.stderr


@pytest.mark.parametrize("processes", [0, 1])
def test_jobs_that_wait_under_an_earlier_name_run_under_the_new_one(queue: Queue, processes: int) -> None:
    for name in ("tests.engine.helpers.tasks.welcome", "send", "old.send"):
        queue.enqueue(name, {"user": 7}, id=name)
    refused(Malformed, r"^payload\.user: ", tasks.renamed_queue.enqueue, "old.send", {"user": "Ada"})
    Worker(queue, tasks.renamed_queue.handlers, processes=processes).run(burst=True)
    assert {queue.results.wait(name).value for name in ("send", "old.send", "tests.engine.helpers.tasks.welcome")} == {"to 7"}
    for bad in ("old.send", ["a b"], [tasks.welcome.name], 7):
        with pytest.raises(Malformed):
            tasks.renamed_queue.job("new", aliases=bad)(tasks.plain_welcome)  # type: ignore[arg-type]


def test_a_prefix_under_which_nothing_has_been_is_warned_of_once(ironclaim_url: str, caplog: pytest.LogCaptureFixture) -> None:
    for prefix, warned in (("typo-of-tasks", 1), ("typo-of-tasks", 1), (None, 1)):
        with Queue("names", url=ironclaim_url, prefix=prefix) as queue:
            queue.handlers("work")(lambda job: None)
            Worker(queue).run(burst=True)
        assert caplog.text.count("nothing has ever been under the prefix typo-of-tasks") == warned
    with Queue("names", url=ironclaim_url, prefix="known-of-tasks") as queue:
        queue.enqueue("work", None)
        queue.handlers("work")(lambda job: None)
        Worker(queue).run(burst=True)
    assert "known-of-tasks" not in caplog.text


def test_methods_and_parameters_without_a_type_are_refused_when_they_are_registered(nowhere: Queue) -> None:
    class Service:
        def send(self, user: int) -> None: ...
        @classmethod
        def tell(cls, user: int) -> None: ...

    def untyped(user: int, at) -> None: ...  # type: ignore[no-untyped-def]
    def batches(jobs: list[Job], users) -> None: ...  # type: ignore[no-untyped-def]

    for method in (Service.send, Service().send, Service.tell):
        refused(Malformed, "^handler: .* must be a function, not a method", nowhere.job("work"), method)
    refused(Malformed, "whose parameters have types, unlike at ", nowhere.job("work"), untyped)
    refused(Malformed, "whose parameters have types, unlike users ", nowhere.job("work", batch=5), batches)
    assert nowhere.handlers.by_name == {}
    # The context needs none.
    nowhere.job("work")(lambda job: None)
    assert [*nowhere.handlers.by_name] == ["work"]


class Ours(BaseModel):
    """A parameter whose validator asks somebody who is away at first."""

    asked: ClassVar[list[str]] = []
    name: str

    @field_validator("name")
    @classmethod
    def known(cls, name: str) -> str:
        cls.asked.append(name)
        if len(cls.asked) == 1:
            raise ConnectionError("the table of names is away")
        return name


def test_a_payload_that_no_run_can_read_is_dead_at_once(queue: Queue, nowhere: Queue) -> None:
    """A deploy has changed the function since the jobs were enqueued."""
    Ours.asked.clear()

    @nowhere.job("work")
    def work(user: int, day: date | None = None) -> int:
        return user

    @nowhere.job("hopes", retry_on=Malformed)
    def hopes(user: int) -> int:
        return user

    @nowhere.job("asks")
    def asks(who: Ours) -> str:
        return who.name

    @nowhere.job("sends")
    def sends() -> None:
        nowhere.enqueue("work", {"user": "x"})

    for job, payload in {"less": {}, "more": {"user": 3, "when": 1}, "other": {"user": "x"}, "list": [3]}.items():
        queue.enqueue("work", payload, id=job, attempts=5, backoff_ms=0)
    queue.enqueue("hopes", {}, id="hopes", attempts=2, backoff_ms=0)
    queue.enqueue("asks", {"who": {"name": "ada"}}, id="asks", attempts=2, backoff_ms=0)
    queue.enqueue("sends", {}, id="sends", attempts=2, backoff_ms=0)
    Worker(queue, nowhere.handlers, sweep_ms=20).run(burst=True)
    dead = {job.id: (job.failures, job.last_error) for job in queue.dead.list()}
    runs = {"less": 0, "more": 0, "other": 0, "list": 0, "hopes": 2, "sends": 2}
    assert {job: failures for job, (failures, _) in dead.items()} == runs
    assert dead["less"][1] == "Malformed: payload.user: missing, it must be given, a value of type int"
    assert queue.results.get("asks").value == "ada" and Ours.asked == ["ada", "ada"]  # type: ignore[union-attr]


def test_a_function_is_called_as_ever_and_says_its_payload(nowhere: Queue) -> None:
    @nowhere.job("work")
    def work(user: int, at: date | None = None) -> int:
        return user + 1

    assert work(3) == 4 and work.payload(3, date(2026, 2, 3)) == {"user": 3, "at": "2026-02-03"}


@pytest.mark.slow
@pytest.mark.feature("MQ03", "MQ01")
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_calls_it_with_its_types_enqueued_by_decorator_or_by_name(
    queue: Queue, workers: Workers, processes: str, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    folder = str(workers.folder)
    monkeypatch.setattr(tasks.typed, "_queue", queue)
    monkeypatch.setattr(tasks.with_job, "_queue", queue)
    sent = tasks.typed.with_options(id="t", priority=9).enqueue(folder, USER, at=AT, to=[tasks.Address("A", 3)])
    assert sent.created and sent.job == "t"
    assert tasks.with_job.with_options(backoff_ms=0, id="c").enqueue(folder, 5).created
    assert b'{"folder":' in client.get(queue.model.keys.job("t")).encode()  # type: ignore[union-attr]
    options = ("--burst", "--sweep-ms", "50", "--processes", processes)
    worker = workers.start(*options, handlers="tests.engine.helpers.tasks:queue.handlers")
    assert worker.wait(120) == 0, workers.output()
    told = json.loads(Path(folder, "typed").read_text())
    assert told == [*(f"UUID:{USER}", f"datetime:{AT}", "Colour:Colour.RED"), *("Address:Address(street='A', number=3)", "int:3")]
    assert json.loads(Path(folder, "with-job-2").read_text()) == ["str:c", "int:5"]
    by_name = {"folder": folder, "user": str(USER), "at": "2026-01-01", "colour": "blue", "to": [{"street": "B"}]}
    queue.enqueue("typed", by_name, id="named")
    queue.enqueue("typed", {**by_name, "user": "no"}, id="bad", attempts=1)
    queue.enqueue("typed", {**by_name, "more": 1}, id="more", attempts=1)
    assert workers.start(*options, handlers="tests.engine.helpers.tasks:queue.handlers").wait(120) == 0
    rest = ["Colour:Colour.BLUE", "Address:Address(street='B', number=None)", "NoneType:None"]
    assert json.loads(Path(folder, "typed").read_text())[2:] == rest
    assert sorted(ids_of(queue, "done")) == ["c", "named", "t"] and sorted(ids_of(queue, "dead")) == ["bad", "more"]
    assert "user: a str of length 2 is not allowed, it must be a value of type UUID" in workers.output()


async def send_async(task: Any, queue: AsyncQueue, folder: str) -> Enqueued:
    task._queue = queue
    async with queue:
        with pytest.raises(Malformed, match="^data: "):
            await task.aenqueue(folder, "text")
        return await task.with_options(attempts=1).aenqueue(folder, b"\x00")


@pytest.mark.feature("MQ03")
def test_a_coroutine_of_an_async_queue(queue: Queue, workers: Workers) -> None:
    import asyncio

    assert asyncio.run(send_async(tasks.typed_async, AsyncQueue("q", url=workers.url), str(workers.folder))).created
    assert workers.start("--burst", "--sweep-ms", "50", handlers="tests.engine.helpers.tasks:async_queue.handlers").wait(120) == 0
    assert json.loads((workers.folder / "typed-async").read_text()) == ["bytes:b'\\x00'"]


def test_its_options_and_those_of_a_call(queue: Queue) -> None:
    ran: list[Any] = []

    @queue.job("work", priority=9, inline=True, headers={"a": "b"})
    def work(job: Job, count: int = 1) -> None:
        ran.append((job.priority, job.headers, job.attempts, count))

    work.enqueue()
    work.with_options(attempts=7, priority=8).enqueue(2)
    work.with_options(attempts=7).with_options(priority=7).enqueue(3)
    queue.enqueue_many([NewJob(work.name, work.payload(4), priority=1)])
    work(5)
    Worker(queue, sweep_ms=50).run(burst=True)
    own = {"a": "b"}
    assert ran == [(9, own, 3, 5), (9, own, 3, 1), (8, own, 7, 2), (7, own, 7, 3), (1, {}, 3, 4)]
    assert work.__doc__ is None and "work" in repr(work) and queue.handlers.inline == {"work"}


def test_a_worker_without_any_handlers_says_so(queue: Queue) -> None:
    refused(Malformed, "^handlers: 'none'", Worker, queue)
    refused(Malformed, "^handlers: ", Worker, queue, {})
    assert isinstance(queue.handlers, Handlers)
