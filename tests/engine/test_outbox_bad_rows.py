"""Rows of the outbox that other programs have written: a bad one is set aside with the reason, and its neighbours are sent."""

import json
from contextlib import closing
from typing import Any, NamedTuple

import psycopg
import psycopg.conninfo
import pytest

from engine import Queue, ServerUnavailable, WrongKeyType, outbox
from tests.engine.helpers.databases import Database
from tests.engine.helpers.producing import refused

INSERT = "INSERT INTO ironclaim_outbox (job, queue, name, payload, options) VALUES ({})"
DEEP = "[" * 200_000 + "]" * 200_000


class Bad(NamedTuple):
    """What stands in one column of a row, how sqlite is to keep it, and what the error begins with."""

    column: str
    value: Any
    error: str
    stored: str = "?"


#: Columns of short texts, and what an error calls them; how sqlite keeps bytes as a text.
SHORT, TEXT = {"job": "id", "queue": "queue", "name": "name"}, "CAST(? AS TEXT)"
#: Only sqlite keeps them: any kind of value in any column.
ON_SQLITE = [
    *(
        Bad(column, value, error, stored)
        for column, error in {**SHORT, "payload": "payload", "options": "options"}.items()
        for value, stored in ((b'{"n":"\xe9"}', TEXT), (b"\xff\x00\xfe", TEXT), (b"\xff\x00\xfe", "?"), ("q\0", "?"))
    ),
    *(Bad(column, b"q", error) for column, error in SHORT.items()), Bad("options", b"{}", "options"),
    Bad("payload", float("inf"), "payload"), Bad("options", 1.5, "options"), Bad("options", 10**18, "options"),
]  # fmt: skip
#: Bytes of the payload; PostgreSQL keeps valid text in the other columns.
ANYWHERE = [
    *(Bad("queue", text, "queue") for text in ("no queue", "", "x" * 129, "é")),
    *(Bad("job", text, "id") for text in ("cron:x", "", "x" * 122, "é")),
    *(Bad("name", text, "name") for text in ("no name", "", "x" * 129)),
    *(Bad("options", text, "options") for text in ("", "[", "[1]", "null", "7", "NaN", '{"cost": NaN}', DEEP, "9" * 5_000)),
    Bad("options", '{"colour": 1}', "colour"), Bad("options", '{"\\ud800": 1}', "options"),
    Bad("options", '{"\\u0000": 1}', "\\x00"), Bad("options", '{"priority": "high"}', "priority"),
    Bad("options", '{"delay_ms": 1e400}', "options"), Bad("options", json.dumps({"attempts": 10**400}), "attempts"),
    Bad("options", json.dumps({"jitter": 10**400}), "jitter"), Bad("options", '{"target": {"stack": 7}}', "target"),
    Bad("options", '{"needs": ["a b"]}', "needs"), Bad("options", '{"needs": "a"}', "needs"),
    Bad("options", '{"on_success": {"name": "ship"}}', "on_success"),
    Bad("options", '{"backoff_delays_ms": []}', "backoff_delays_ms"),
    *(Bad("payload", data, "payload") for data in (b"", b"[", b"NaN", b'{"n": -Infinity}', b'"\xe9"', b"\xff\xfe1\0", b"1 1")),
    *(Bad("payload", data, "payload") for data in (DEEP.encode(), b'"' + b"x" * 600_000 + b'"')),
]  # fmt: skip


def insert(connection: Any, database: Database, *jobs: str, bad: Bad | None = None) -> None:
    """A row for each job, in all of which the same thing is wrong."""
    for job in jobs:
        row: dict[str, Any] = {"job": job, "queue": "q", "name": "ship", "payload": b'{"number":1}', "options": "{}"}
        marks = dict.fromkeys(row, database.mark)
        if bad is not None:
            row[bad.column] = bad.value
            marks |= {bad.column: bad.stored} if database.kind == "sqlite" else {}
        connection.execute(INSERT.format(", ".join(marks.values())), [*row.values()])


def waiting(queue: Queue) -> list[str]:
    return [job.id for job in queue.jobs.list("waiting", limit=1_000)]


def test_whatever_is_in_a_row_it_is_set_aside_and_its_neighbours_are_sent(queue: Queue, database: Database) -> None:
    rows = ANYWHERE + (ON_SQLITE if database.kind == "sqlite" else [])
    with database.transaction() as connection:
        for at, bad in enumerate(rows):
            insert(connection, database, f"bad-{at}", bad=bad)
            insert(connection, database, f"good-{at}")
    # Also where many bad rows are all that a look finds.
    assert outbox.relay(database.connect, queue, batch=7, burst=True) == len(rows)
    assert waiting(queue) == [f"good-{at}" for at in range(len(rows))]
    found = database.query("SELECT state, error FROM ironclaim_outbox ORDER BY number")
    assert [state for state, _ in found] == ["failed"] * len(rows)
    wrong = [(bad, error) for bad, (_, error) in zip(rows, found, strict=True) if not error.startswith(bad.error) or not error]
    assert wrong == [] and all(error.isascii() and len(error) <= 2_000 for _, error in found)
    # The reason gone, it is a row as any other.
    database.change("UPDATE ironclaim_outbox SET state = 'new', queue = 'q', job = 'mended' WHERE number = 1")
    assert outbox.relay(database.connect, queue, burst=True) == 1 and waiting(queue)[-1] == "mended"


def test_a_sent_row_that_nobody_can_read_keeps_no_other_one_there(queue: Queue, database: Database) -> None:
    with database.transaction() as connection:
        insert(connection, database, "bad", bad=Bad("job", "é", "id"))
        insert(connection, database, "good")
        connection.execute("UPDATE ironclaim_outbox SET state = 'sent'")
    assert outbox.relay(database.connect, queue, burst=True) == 0
    assert [error[:4] for (error,) in database.query("SELECT error FROM ironclaim_outbox")] == ["id: "]


def test_a_key_of_another_program_stops_only_the_row_that_needs_it(queue: Queue, database: Database, client: Any) -> None:
    keys = queue.model.keys
    client.hset(keys.job("bad"), "a", "b")
    client.lpush(keys.dedup("outbox:worse"), "a")
    with database.transaction() as connection:
        insert(connection, database, "first", "bad", "second", "worse", "third")
    assert outbox.relay(database.connect, queue, burst=True) == 3
    assert waiting(queue) == ["first", "second", "third"]
    found = database.query("SELECT job, state, error FROM ironclaim_outbox ORDER BY number")
    assert [(job, state) for job, state, _ in found] == [("bad", "failed"), ("worse", "failed")]
    assert all("WRONGTYPE" in error for _, _, error in found)
    # A fault of all rows says nothing of one: they stay as they are, until the key is gone.
    client.rename(keys.seq, "aside")
    client.hset(keys.seq, "a", "b")
    with database.transaction() as connection:
        insert(connection, database, "fourth", "fifth")
    refused(WrongKeyType, "", outbox.relay, database.connect, queue, burst=True)
    client.rename("aside", keys.seq)
    assert database.states() == {"failed": 2, "new": 2}
    assert outbox.relay(database.connect, queue, burst=True) == 2


def test_a_window_that_cannot_be_closed_keeps_its_own_row_alone(queue: Queue, database: Database, client: Any) -> None:
    with database.transaction() as connection:
        insert(connection, database, "bad", "good")
        connection.execute("UPDATE ironclaim_outbox SET state = 'sent'")
    window = queue.model.keys.dedup("outbox:bad")
    client.lpush(window, "a")
    assert outbox.relay(database.connect, queue, burst=True) == 0
    assert database.query("SELECT job, state FROM ironclaim_outbox") == [("bad", "sent")]
    client.delete(window)
    assert outbox.relay(database.connect, queue, burst=True) == 0 and database.states() == {}


def test_a_row_that_the_database_does_not_let_be_changed_holds_up_nobody(queue: Queue, database: Database) -> None:
    """Also where such rows are all that a look finds."""
    if database.kind == "sqlite":
        database.change(
            "CREATE TRIGGER kept BEFORE UPDATE ON ironclaim_outbox WHEN new.state = 'failed' "
            "BEGIN SELECT RAISE(ABORT, 'not by you'); END"
        )
    else:
        database.change("ALTER TABLE ironclaim_outbox ADD CHECK (state <> 'failed')")
    with database.transaction() as connection:
        insert(connection, database, *(f"bad-{at}" for at in range(9)), bad=Bad("options", "[", "options"))
        insert(connection, database, *(f"good-{at}" for at in range(5)))
    assert outbox.relay(database.connect, queue, batch=3, burst=True) == 5
    assert waiting(queue) == [f"good-{at}" for at in range(5)] and database.states() == {"new": 9}


def test_jobs_whose_parents_are_unknown_hold_up_nobody_behind_them(queue: Queue, database: Database) -> None:
    with database.transaction() as connection:
        orphan = Bad("options", '{"needs": ["nobody"]}', "")
        insert(connection, database, *(f"orphan-{at}" for at in range(9)), bad=orphan)
        insert(connection, database, "good")
    assert outbox.relay(database.connect, queue, batch=3, burst=True) == 1
    assert (waiting(queue), database.states()) == (["good"], {"new": 9})


@pytest.mark.slow
def test_a_server_that_is_away_holds_up_the_rows_of_its_own_queues_alone(queue: Queue, database: Database) -> None:
    with database.transaction() as connection:
        insert(connection, database, "bad", bad=Bad("queue", "away", ""))
        insert(connection, database, "good")
    with Queue("away", url="redis://127.0.0.1:1") as away:
        refused(ServerUnavailable, "", outbox.relay, database.connect, [away, queue], burst=True)
    assert waiting(queue) == ["good"] and database.states() == {"new": 1}


def test_a_connection_that_gives_bytes_for_text_is_read_as_any_other(queue: Queue, database: Database) -> None:
    """What a connection does with text belongs to whoever made it: of sqlite3 its `text_factory`."""

    def connect() -> Any:
        connection = database.connect()
        if database.kind == "sqlite":
            connection.text_factory = bytes
        else:
            connection.execute("SET client_encoding TO 'SQL_ASCII'")
            connection.commit()
        return connection

    with closing(connect()) as connection:
        insert(connection, database, "good")
        connection.commit()
    assert outbox.relay(connect, queue, burst=True) == 1 and waiting(queue) == ["good"]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_database_without_an_encoding_is_read_as_any_other(queue: Queue, database: Database) -> None:
    """PostgreSQL in SQL_ASCII keeps bytes that are no text, and gives them to nobody who wants text."""
    with psycopg.connect(database.address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bytes_only ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    address = psycopg.conninfo.make_conninfo(database.address, dbname="bytes_only", client_encoding="UTF8", options="")
    other = Database("postgresql", address)
    with other.connect() as connection:
        outbox.create_table(connection)
        insert(connection, other, "good", "bad", "better")
    with psycopg.connect(other.address, client_encoding="SQL_ASCII") as connection:
        connection.execute("UPDATE ironclaim_outbox SET name = convert_from('\\xff'::bytea, 'SQL_ASCII') WHERE job = 'bad'")
    assert outbox.relay(other.connect, queue, burst=True) == 2 and waiting(queue) == ["good", "better"]
    assert other.query("SELECT state, left(error, 6) FROM ironclaim_outbox") == [("failed", "name: ")]
