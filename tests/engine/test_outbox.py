"""The outbox: the jobs of committed transactions, each once, whatever becomes of the relay."""

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from engine import AsyncQueue, Job, Queue, Target, Worker, models, outbox
from engine.errors import EngineError, Malformed, PartlyEnqueued, ServerUnavailable, UnsupportedFeature
from engine.options import OPTIONS, Options
from engine.queue.settings import TEST_CLOCK_LEAST_MS
from tests.conformance.test_declared import OPTIONS as EXAMPLES
from tests.engine.helpers.databases import Database
from tests.engine.using import EXPIRE, EnqueueMany, refused, wait_until


class Shop:
    """A queue with a task, and what its runs have been called with."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.ran = queue, list[tuple[str, int]]()

        @queue.job("ship")
        def ship(job: Job, number: int, weight: Decimal = Decimal(1)) -> None:
            self.ran.append((job.id, number))

        self.ship = ship

    def relay(self, database: Database, **options: Any) -> int:
        return outbox.relay(database.connect, self.queue, burst=True, **options)

    def work(self) -> list[int]:
        Worker(self.queue, concurrency=1, lease_ms=60_000, sweep_ms=10, beat_ms=0).run(burst=True, delayed=False)
        return [number for _, number in self.ran]


@pytest.fixture
def shop(queue: Queue) -> Shop:
    return Shop(queue)


def added(database: Database, shop: Shop, *numbers: int) -> list[str]:
    with database.transaction() as connection:
        return [outbox.add(connection, shop.ship, number) for number in numbers]


def test_a_committed_row_becomes_a_job_with_its_id_and_a_rolled_back_one_does_not(shop: Shop, database: Database) -> None:
    connection = database.connect()
    insert = f"INSERT INTO shipped (job, number) VALUES ('-', {database.mark})"
    connection.execute(insert, (1,))
    first = outbox.add(connection, shop.ship, 1, weight=Decimal("2.5"))
    connection.commit()
    connection.execute(insert, (2,))
    outbox.add(connection, shop.ship, 2)
    connection.rollback()
    if database.kind == "sqlite":
        # Nobody else can write there while a transaction has written.
        assert shop.relay(database) == 1
    last = outbox.add(connection, shop.ship, 3)
    if database.kind == "postgresql":
        assert shop.relay(database) == 1, "the third transaction is still open"
    connection.commit()
    assert shop.relay(database) == 1
    connection.close()
    assert shop.work() == [1, 3] and [job for job, _ in shop.ran] == [first, last]
    assert database.states() == {} and database.query("SELECT number FROM shipped") == [(1,)]


def test_rows_are_sent_in_their_order_in_bounded_batches(shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, real = list[int](), shop.queue.model.call

    def call(operation: Any) -> Any:
        if isinstance(operation, EnqueueMany):
            sizes.append(len(operation.jobs))
        return real(operation)

    monkeypatch.setattr(shop.queue.model, "call", call)
    added(database, shop, *range(25))
    assert shop.relay(database, batch=10) == 25 and (sizes, shop.work()) == ([10, 10, 5], [*range(25)])


def test_options_of_a_task_arrive_as_an_enqueue_has_them(shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of JobOptions but callbacks and those that the outbox keeps for itself."""
    got: list[Options] = []
    monkeypatch.setattr(outbox, "_send", lambda queue, drafts, not_after_ms: got.extend(d.options for d in drafts) or [])
    given = {name: options for name, options in EXAMPLES.items() if not name.startswith(("dedup", "on_success", "on_failure"))}
    given |= {"run_at_ms": {"run_at_ms": datetime(2100, 1, 1, tzinfo=UTC)}, "target": {"target": Target(stack=["python"])}}
    assert {*given} == {*OPTIONS} - {"dedup", "dedup_ms", "on_success", "on_failure"}
    with database.transaction() as connection:
        wanted: list[Options] = []
        for name, options in given.items():
            if name == "serializer":
                continue
            task = shop.ship.with_options(**options)  # type: ignore[arg-type]
            outbox.add(connection, task, 1)
            draft, _ = shop.queue._drafted(task, {"number": 1}, None, {})  # pyright: ignore[reportPrivateUsage]
            wanted.append(draft.options)
    refused(ValueError, "zip", shop.relay, database)
    windows = [options.dedup for options in got]
    assert len({*windows}) == len(windows) == len(given) - 1
    assert all(window.startswith("outbox:") for window in windows) and {options.dedup_ms for options in got} == {outbox.WINDOW_MS}
    plain = [{**{name: getattr(o, name) for name in OPTIONS}, "dedup": "", "dedup_ms": 0} for o in got]
    assert plain == [{name: getattr(options, name) for name in OPTIONS} for options in wanted]


def test_a_payload_of_a_serializer_of_ones_own_arrives(ironclaim_url: str, database: Database) -> None:
    class Backwards:
        name = "backwards"

        def dumps(self, value: Any) -> bytes:
            return repr(value).encode()[::-1]

        def loads(self, data: bytes) -> Any:
            return eval(data[::-1].decode(), {})

    with Queue("q", url=ironclaim_url, serializer=Backwards()) as queue:
        shop = Shop(queue)
        added(database, shop, 7)
        assert shop.relay(database) == 1 and shop.work() == [7]


def test_what_add_refuses_it_refuses_before_it_writes(shop: Shop, database: Database, ironclaim_url: str) -> None:
    ship: Any = shop.ship
    with (
        database.transaction() as connection,
        Queue("q", models.Bull(), url=ironclaim_url) as foreign,
        Queue("many", url=ironclaim_url, shards=2) as shards,
    ):
        for options in ({"dedup": "d", "dedup_ms": 5}, {"on_success": ship.new(2)}, {"on_failure": ship.new(2)}):
            said = f"^{next(iter(options))}: .*left out"
            refused(Malformed, said, outbox.add, connection, ship.with_options(**options), 1)
        refused(Malformed, "^id: .*at most 121 characters", outbox.add, connection, ship.with_options(id="x" * 122), 1)
        refused(Malformed, "^arguments: ", outbox.add, connection, ship, "a", "b", "c")
        refused(Malformed, "^number: ", outbox.add, connection, ship, "many")
        refused(Malformed, "^task: ", outbox.add, connection, "ship", 1)
        for other, said in ((foreign, "bull has no outbox"), (shards, "queue many has shards: only whole queues have an outbox")):
            refused(UnsupportedFeature, said, outbox.add, connection, ship.with_options(queue=other), 1)
        for said, queues in ((": two are the queue q; let one module import that of the other", [shop.queue] * 2), ("", [])):
            refused(Malformed, f"^queues: .*{said}", outbox.relay, database.connect, queues)
    assert database.states() == {}


def test_an_id_of_ones_own_is_in_the_table_and_in_the_queue_once(shop: Shop, database: Database) -> None:
    with database.transaction() as connection:
        for _ in range(2):
            assert outbox.add(connection, shop.ship.with_options(id="order-1"), 1) == "order-1"
        assert outbox.add(connection, shop.ship.with_options(id="x" * 121), 2) == "x" * 121
    assert shop.relay(database) == 2 and shop.work() == [1, 2]


def test_a_driver_of_ones_own_inserts_the_columns_itself(shop: Shop, database: Database) -> None:
    columns = outbox.row(shop.ship.with_options(priority=9), 1, weight=Decimal("0.5"))
    assert (columns["queue"], columns["name"], columns["options"]) == ("q", "ship", '{"priority":9}')
    with database.transaction() as connection:
        names, marks = ", ".join(columns), ", ".join([database.mark] * len(columns))
        connection.execute(f"INSERT INTO ironclaim_outbox ({names}) VALUES ({marks})", (*columns.values(),))
    assert shop.relay(database) == 1 and shop.work() == [1] and shop.ran == [(columns["job"], 1)]


async def test_a_coroutine_adds_through_its_own_connection(shop: Shop, database: Database) -> None:
    if database.kind == "sqlite":
        # The standard library has none.
        with pytest.raises(Malformed, match="^connection: .*given to add and once"):
            await outbox.aadd(database.connect(), shop.ship, 1)
        return
    connection = await database.aconnect()
    await outbox.aadd(connection, shop.ship, 1)
    await connection.commit()
    await outbox.aadd(connection, shop.ship, 2)
    await connection.rollback()
    refused(Malformed, "^connection: .*given to aadd and aonce", outbox.add, connection, shop.ship, 3)
    await connection.close()
    assert shop.relay(database) == 1 and shop.work() == [1]


def test_whatever_kind_of_row_a_connection_makes_is_read(shop: Shop, database: Database) -> None:
    def connect() -> Any:
        if database.kind == "postgresql":
            options: Any = {"row_factory": dict_row, "autocommit": True}
            return psycopg.connect(database.address, **options)
        connection = sqlite3.connect(database.address, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    added(database, shop, 1, 2)
    assert outbox.relay(connect, shop.queue, burst=True) == 2
    assert (shop.work(), database.states()) == ([1, 2], {})


def test_each_relay_sends_the_rows_of_its_queues(ironclaim_url: str, database: Database, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(outbox, "_OTHERS_S", 0)
    with Queue("first", url=ironclaim_url) as first, Queue("second", url=ironclaim_url) as second:
        shops = Shop(first), Shop(second)
        added(database, shops[0], 1)
        added(database, shops[1], 2)
        other = AsyncQueue("second", url=ironclaim_url)
        assert outbox.relay(database.connect, other, burst=True) == 1
        assert database.states() == {"new": 1} and shops[1].work() == [2]
        assert "1 row for queue first, which this relay does not send" in caplog.text
        stop, told = threading.Event(), len(caplog.records)
        relay = threading.Thread(target=lambda: outbox.relay(database.connect, second, poll_ms=1, stop=stop), daemon=True)
        relay.start()
        wait_until(lambda: len(caplog.records) >= told + 2, "it is said again")
        stop.set()
        relay.join()
        caplog.clear()
        assert outbox.relay(database.connect, [second, first], burst=True) == 1 and not caplog.records
        assert shops[0].work() == [1]
        asyncio.run(other.aclose())


def test_a_row_that_is_none_is_set_aside_and_holds_up_nobody(shop: Shop, database: Database) -> None:
    for row in ("'bad', 'no name', '{}'", "'worse', 'ship', '{\"colour\": 1}'", "'worst', 'ship', '['"):
        database.change(f"INSERT INTO ironclaim_outbox (queue, payload, job, name, options) VALUES ('q', '1', {row})")
    added(database, shop, 1)
    assert shop.relay(database) == 1 and shop.work() == [1]
    found = dict(database.query("SELECT job, error FROM ironclaim_outbox WHERE state = 'failed'"))
    assert found["bad"].startswith("name: ") and found["worse"].startswith("colour: ") and found["worst"]
    database.change("UPDATE ironclaim_outbox SET state = 'new', name = 'ship', payload = '{\"number\": 2}' WHERE job = 'bad'")
    assert shop.relay(database) == 1 and shop.work() == [1, 2]


def test_a_row_of_unknown_parents_waits_and_is_set_aside(shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.transaction() as connection:
        orphans = [outbox.add(connection, shop.ship.with_options(needs=["nobody"]), number) for number in range(10)]
        outbox.add(connection, shop.ship.with_options(needs=[outbox.add(connection, shop.ship, 20)]), 21)
        late = outbox.add(connection, shop.ship.with_options(needs=["late"]), 22)
    while shop.relay(database):
        pass
    # All that could be sent is sent, also behind more orphans than go out together.
    assert shop.work() == [20, 21] and database.states() == {"new": 11}
    shop.queue.enqueue("ship", {"number": 0}, id="late")
    monkeypatch.setattr(outbox, "ORPHAN_S", 0.0)
    while database.states().get("new"):
        shop.relay(database)
    assert shop.work() == [20, 21, 0, 22] and shop.ran[-1][0] == late
    failed = database.query("SELECT job, error FROM ironclaim_outbox WHERE state = 'failed' ORDER BY number")
    assert [job for job, _ in failed] == orphans and "nobody" in failed[0][1]


def test_a_unique_key_that_another_job_has_keeps_a_row_out_as_it_does_an_enqueue(shop: Shop, database: Database) -> None:
    shop.queue.enqueue("ship", {"number": 1}, unique="u")
    with database.transaction() as connection:
        outbox.add(connection, shop.ship.with_options(unique="u"), 2)
    assert shop.relay(database) == 1 and (shop.work(), database.states()) == ([1], {})


# -- what goes wrong


class Clock:
    """The test clock of a queue: the keys of the server live by it."""

    def __init__(self, queue: Queue, redis: Any) -> None:
        self.queue, self.redis, self.now_ms = queue, redis, TEST_CLOCK_LEAST_MS
        queue.use_test_clock(self.now_ms)

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.use_test_clock(self.now_ms)
        self.redis.eval(EXPIRE, 0, 1, self.now_ms, 0)


@pytest.fixture
def clock(shop: Shop, client: Any) -> Clock:
    return Clock(shop.queue, client)


class Killed(BaseException):
    """The relay is gone."""


def die(*given: Any) -> Any:
    raise Killed


@pytest.mark.parametrize("moment", ["before the mark", "after the mark", "after the release"])
def test_rule_23_a_relay_that_comes_back_long_after_the_job_has_ended_sends_no_second_one(
    shop: Shop, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    jobs, real = added(database, shop, 1, 2), outbox._change  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as patch:
        if moment == "after the release":
            patch.setattr(outbox, "_change", lambda *given: die() if "DELETE" in given[2] else real(*given))
        else:
            patch.setattr(outbox, "_change" if moment == "before the mark" else "CloseWindows", die)
        # What add and relay ask for first, a refusal of foreign formats, makes one as well.
        patch.setattr(outbox, "_refuse_foreign", lambda queue: None)
        refused(Killed, "", shop.relay, database)
    assert shop.work() == [1, 2]
    assert database.states() == {"new" if moment == "before the mark" else "sent": 2}
    clock.tick(60_000)
    keys = shop.queue.model.keys
    assert clock.redis.exists(*map(keys.job, jobs)) == 0, "the ids are known no more"
    windows = [keys.dedup(f"outbox:{job}") for job in jobs]
    assert clock.redis.exists(*windows) == (0 if moment == "after the release" else 2)
    # As late as one likes, and again, and after a second copy of the rows was seen.
    assert shop.relay(database) == (2 if moment == "before the mark" else 0)
    assert (shop.work(), database.states()) == ([1, 2], {})
    clock.tick(20_000)
    assert clock.redis.keys("*dedup*") == [], "nothing of them stays"


def test_rule_23_a_relay_that_was_frozen_between_its_look_and_its_enqueue_sends_nothing(
    shop: Shop, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one does it all meanwhile, the job ends, and its tombstone and its window do, too."""
    added(database, shop, 1)
    real = outbox._send  # pyright: ignore[reportPrivateUsage]
    for thawed_ms in (5_000, 15_000, 60_000):

        def frozen(*given: Any, thawed_ms: int = thawed_ms) -> Any:
            monkeypatch.setattr(outbox, "_send", real)
            # PostgreSQL has ended its idle transaction, or it keeps the row from the other one. The call waits for that end.
            if database.kind == "postgresql":
                database.change(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE state = 'idle in transaction' AND datname = current_database()"
                )
            assert shop.relay(database) == 1
            shop.work()
            clock.tick(thawed_ms)
            return real(*given)

        monkeypatch.setattr(outbox, "_send", frozen)
        if database.kind == "postgresql":
            refused(psycopg.OperationalError, "", shop.relay, database)
        else:
            shop.relay(database)
        assert shop.relay(database) == 0 and shop.queue.counts().waiting == 0, thawed_ms
        assert (len(shop.work()), database.states()) == (len({*shop.ran}), {})
        clock.tick(60_000)
        added(database, shop, thawed_ms)
    assert [number for _, number in shop.ran] == [1, 5_000, 15_000]


def test_two_relays_at_once_make_one_job_of_each_row(shop: Shop, database: Database, ironclaim_url: str) -> None:
    numbers, stop = [*range(300)], threading.Event()

    def work() -> None:
        with Queue("q", url=ironclaim_url) as own:
            outbox.relay(database.connect, own, batch=7, poll_ms=1, stop=stop)

    with ThreadPoolExecutor(3) as pool:
        relays = [pool.submit(work) for _ in range(3)]
        try:
            for at in range(0, 300, 20):
                added(database, shop, *numbers[at : at + 20])
            wait_until(lambda: database.states() == {} or any(relay.done() for relay in relays), "all rows are gone")
        finally:
            stop.set()
    assert [relay.result() for relay in relays] and sorted(shop.work()) == numbers


def test_relays_on_postgresql_divide_the_rows(shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one holds its batch another one gets the next; on sqlite it gets the same one, and nobody waits for a lock."""
    added(database, shop, *range(4))
    real = outbox._send  # pyright: ignore[reportPrivateUsage]
    looked: list[list[str]] = []

    def send(queue: Queue, drafts: Any, not_after_ms: int) -> Any:
        looked.append([draft.payload for draft in drafts])
        if len(looked) == 1:
            added(database, shop, 4)
            shop.relay(database, batch=2)
        return real(queue, drafts, not_after_ms)

    monkeypatch.setattr(outbox, "_send", send)
    shop.relay(database, batch=2)
    assert (looked[0] == looked[1]) == (database.kind == "sqlite") and sorted(shop.work()) == [0, 1, 2, 3, 4]


def test_a_first_failure_ends_a_relay_and_no_later_one(shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PAUSE_FIRST_S", 0.01)
    stop, calls = threading.Event(), 0

    def connect() -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the network is away")
        return database.connect()

    refused(ZeroDivisionError, "", outbox.relay, lambda: 1 / 0, shop.queue)
    real = outbox._send  # pyright: ignore[reportPrivateUsage]
    outcomes: list[EngineError | None] = [ServerUnavailable("away"), None, PartlyEnqueued("half", []), None]

    def send(queue: Queue, drafts: Any, not_after_ms: int) -> Any:
        failure = outcomes.pop(0) if outcomes else None
        return real(queue, drafts, not_after_ms) if failure is None else [failure] * len(drafts)

    monkeypatch.setattr(outbox, "_send", send)
    relay = threading.Thread(target=lambda: outbox.relay(connect, shop.queue, poll_ms=1, stop=stop), daemon=True)
    relay.start()
    wait_until(lambda: calls == 1, "the relay is at it")
    for number in (1, 2):
        added(database, shop, number)
        wait_until(lambda: database.states() == {}, "the row is gone")
    stop.set()
    relay.join()
    assert shop.work() == [1, 2] and calls >= 4


def test_an_enqueue_that_comes_too_late_leaves_its_row_for_the_next_look(shop: Shop, database: Database, clock: Clock) -> None:
    added(database, shop, 1)
    real, deadlines = shop.queue.driver.not_after_ms, [clock.now_ms - 1]
    shop.queue.driver.not_after_ms = lambda: deadlines.pop() if deadlines else real()  # type: ignore[method-assign]
    assert shop.relay(database) == 0 and database.states() == {"new": 1} and shop.relay(database) == 1 and shop.work() == [1]


def test_a_row_that_the_server_has_lost_is_sent_again_as_long_as_it_is_not_marked(
    shop: Shop, database: Database, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server restored to an older state, between enqueue and mark."""
    added(database, shop, 1)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(outbox, "_change", die)
        shop.relay(database)
    client.flushall()
    assert shop.relay(database) == 1 and shop.work() == [1]


def test_a_relay_before_the_migration_says_what_makes_the_table(shop: Shop, database: Database) -> None:
    with database.transaction() as connection:
        connection.cursor().execute("DROP TABLE ironclaim_outbox")
    missing = r"^table: ironclaim_outbox is missing, it must be there: outbox.create_table\(connection\) makes it"
    refused(Malformed, missing, outbox.relay, database.connect, shop.queue)
    with database.transaction() as connection:
        outbox.create_table(connection)
    added(database, shop, 1)
    assert outbox.relay(database.connect, shop.queue, burst=True) == 1


def test_the_tables_can_be_made_by_a_migration(tmp_path: Any) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute(outbox.table("sqlite"))
    outbox.create_table(connection)
    assert "BYTEA" in outbox.table("postgresql")
