"""Effects that happen at most once: the id of the job is written down in the same transaction as its effect.

    @queue.job("charge")
    def charge(job: Job, account: int, amount: Decimal) -> None:
        with database() as connection:  # one transaction
            if effects.once(connection, job):
                connection.execute("UPDATE account SET sum = sum - ? WHERE id = ?", (amount, account))

A handler can run twice (rule 34); the second run finds the row of the first one and leaves the effect out. A
run whose transaction was rolled back has left no row.
"""

from __future__ import annotations

from engine import validate
from engine.errors import Malformed
from engine.job import Job
from engine.sql import AsyncConnection, Connection, Database, Dialect, arun, dialect_of, named, run

_INSERT = "INSERT INTO ironclaim_effects (queue, job) VALUES {marks} ON CONFLICT DO NOTHING"


def table(database: Database) -> str:
    """The statement that makes the table, for a migration of your own. Raises Malformed."""
    return _table(named(database))


def _table(dialect: Dialect) -> str:
    return (
        "CREATE TABLE IF NOT EXISTS ironclaim_effects (queue TEXT NOT NULL, job TEXT NOT NULL, "
        f"done_at {dialect.now}, "
        "PRIMARY KEY (queue, job))"
    )


def create_table(connection: Connection) -> None:
    """Make the table `ironclaim_effects` where it is missing; the caller commits. Raises Malformed, and the
    database's errors."""
    run(connection, _table(dialect_of(connection)))


def once(connection: Connection, job: Job) -> bool:
    """Write down that this job takes effect, in the transaction of the connection, which the caller commits
    together with the effect. False: a run before has done it and has committed, so leave the effect out.

    Where two runs are in it at the same time, the second one waits here until the transaction of the first
    has ended. The Job of a task that is called directly, without a queue, takes effect each time. Raises
    Malformed, and what the database raises.
    """
    dialect, identity = dialect_of(connection), _identity(job)
    # anchor: effect-is-remembered
    return not job.queue or run(connection, _INSERT.format(marks=dialect.marks(2)), identity) == 1


async def aonce(connection: AsyncConnection, job: Job) -> bool:
    """As `once`, through a connection whose calls are awaited."""
    dialect, identity = dialect_of(connection, asynchronous=True), _identity(job)
    return not job.queue or await arun(connection, _INSERT.format(marks=dialect.marks(2)), identity) == 1


def forget(connection: Connection, *, older_than_ms: int) -> int:
    """Delete what was written down so long ago, by the database's clock; how many rows there were. The caller
    commits. A job that can still run again must be remembered: one that waits for its next attempt, and a
    dead one that may be requeued."""
    dialect = dialect_of(connection)
    age_s = validate.integer("older_than_ms", older_than_ms, 0, validate.DURATION_MS_MAX) // 1000
    older = dialect.older.format(column="done_at", mark=dialect.mark)
    return run(connection, f"DELETE FROM ironclaim_effects WHERE {older}", (age_s,))  # noqa: S608  no text of callers


def _identity(job: object) -> tuple[str, str]:
    if not isinstance(job, Job):
        raise Malformed("job", job, "the Job that the handler was given")
    return job.queue, job.id
