"""Effects that happen at most once: the job's id in the transaction of the effect."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from engine import Handlers, Job, Malformed, Queue, Worker, effects
from tests.engine.helpers import worker_handlers
from tests.engine.helpers.databases import Database
from tests.engine.using import Lease, LeasedJob, Options, refused, wait_until

#: Transactions that wait for another one.
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def job_of(queue: str, job: str = "j1") -> Job:
    return Job(LeasedJob(Lease(job, 1, "n"), 0, "main", "main", "main", b"null", Options(), 0, 0, 1, 0, 0), queue=queue)


def test_a_job_takes_effect_once_and_only_with_its_transaction(database: Database) -> None:
    with database.transaction() as connection:
        assert effects.once(connection, job_of("q"))
        connection.rollback()
        assert effects.once(connection, job_of("q")) and not effects.once(connection, job_of("q"))
        connection.commit()
        assert not effects.once(connection, job_of("q")) and effects.once(connection, job_of("q", "j2"))
        assert effects.once(connection, job_of("another")), "ids of two queues may be the same"
    found = database.query("SELECT queue, job FROM ironclaim_effects ORDER BY 1, 2")
    assert found == [("another", "j1"), ("q", "j1"), ("q", "j2")]


def test_a_second_run_at_the_same_time_waits_until_the_first_has_ended(database: Database) -> None:
    for first_commits in (True, False):
        job, told = job_of("q", f"commits-{first_commits}"), list[bool]()

        def run(job: Job = job, told: list[bool] = told) -> None:
            with database.transaction() as second:
                told.append(effects.once(second, job))

        with ThreadPoolExecutor(1) as other, closing(database.connect()) as first:
            assert effects.once(first, job)
            other.submit(run)
            if database.kind == "postgresql":
                wait_until(lambda: database.query(WAITING) != [(0,)], "the second run waits")
            assert told == []
            first.commit() if first_commits else first.rollback()
            other.shutdown()
        assert told == [not first_commits]


def test_what_is_old_is_forgotten(database: Database) -> None:
    with database.transaction() as connection:
        assert [effects.once(connection, job_of("q", job)) for job in ("old", "new")] == [True, True]
    ago = "datetime('now', '-3 days')" if database.kind == "sqlite" else "now() - interval '3 days'"
    database.change(f"UPDATE ironclaim_effects SET done_at = {ago} WHERE job = 'old'")
    with database.transaction() as connection:
        assert [effects.forget(connection, older_than_ms=days * 86_400_000) for days in (4, 2)] == [0, 1]
        connection.commit()
        assert not effects.once(connection, job_of("q", "new")) and effects.once(connection, job_of("q", "old"))


async def test_a_coroutine_uses_a_connection_of_its_own(database: Database) -> None:
    with pytest.raises(Malformed, match="^connection: .*once"):
        await effects.aonce(database.connect(), job_of("q"))
    if database.kind == "sqlite":
        return
    connection = await database.aconnect()
    assert [await effects.aonce(connection, job_of("q")) for _ in range(2)] == [True, False]
    await connection.commit()
    await connection.close()


def test_what_is_no_job_or_no_connection_is_refused(database: Database) -> None:
    with database.transaction() as connection:
        for job in ("j1", None):
            refused(Malformed, "^job: ", effects.once, connection, job)
    assert "PRIMARY KEY (queue, job)" in effects.table("postgresql")


def test_a_task_that_is_called_directly_takes_effect_each_time(queue: Queue, database: Database) -> None:
    told: list[bool] = []
    with database.transaction() as connection:

        @queue.job("charge")
        def charge(job: Job) -> None:
            told.append(effects.once(connection, job))

        charge()
        charge()
    assert told == [True, True] and database.query("SELECT job FROM ironclaim_effects") == []


@pytest.mark.parametrize("kind", ["thread", "inline", "coroutine", "batch"])
def test_a_handler_knows_the_queue_of_its_job(queue: Queue, kind: str) -> None:
    handlers, seen = Handlers(), []

    def note(job: Any) -> None:
        seen.extend(each.queue for each in (job if isinstance(job, list) else [job]))

    async def anote(job: Job) -> None:
        note(job)

    options: dict[str, Any] = {"inline": {"inline": True}, "batch": {"batch": 2}}.get(kind, {})
    handlers("main", **options)(anote if kind == "coroutine" else note)
    queue.enqueue("main", None)
    Worker(queue, handlers).run(burst=True)
    assert seen == ["q"]


@pytest.mark.slow
def test_a_handler_in_a_child_process_knows_it_too(queue: Queue) -> None:
    queue.enqueue("queue", None, id="j")
    Worker(queue, worker_handlers.history, processes=1).run(burst=True)
    result = queue.results.get("j")
    assert result and result.get() == "q"
