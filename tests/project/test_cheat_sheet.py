"""Every row of docs/cheat-sheet.md is run on a real server, in the module that the page begins with, and its effect is there."""

import re
import shlex
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import Bury, Handlers, Job, Queue, outbox, testing
from engine.command.main import main
from tests.engine.helpers.producing import some_handlers

PAGE = (Path(__file__).resolve().parents[2] / "docs/cheat-sheet.md").read_text()
(MODULE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TABLES = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^\| .* \| `([^|]*?)`[^|`]* \|$", re.MULTILINE)
ROWS = [(section, code) for section, table in TABLES for code in CODE.findall(table) if not code.startswith("---")]
LIBRARIES = ["Celery", "RQ", "BullMQ", "Sidekiq", "Oban"]


@dataclass
class Shop:
    """The module of the page with its queue, and what a row has given."""

    names: dict[str, Any]
    queue: Queue
    got: Any = None

    def jobs(self, state: str = "waiting") -> list[Any]:
        return self.queue.jobs.list(state)

    def only(self, state: str = "waiting") -> Any:
        (job,) = [job for job in self.jobs(state) if job.id != "known"]
        return job

    def run(self, **options: Any) -> Any:
        return testing.run_all(self.queue, **options)

    def later_ms(self) -> int:
        return self.queue.model.now_ms - self.names["began_ms"]


Check = Callable[[Shop], object]


def sent(shop: Shop) -> bool:
    return shop.only().payload == {"to": "ada"} and shop.got.created and shop.run().finished == 2


def sent_twice(shop: Shop) -> bool:
    return [job.payload["to"] for job in shop.jobs() if job.id != "known"] == ["ada", "bob"] and shop.run().finished == 3


def chord(shop: Shop) -> bool:
    return shop.only("blocked").name == "alert" and len(shop.jobs()) == 3 and shop.run().finished == 4


def option(name: str, value: object) -> Check:
    return lambda shop: shop.got.created and getattr(shop.only().options, name) == value


def dies_after(failures: int, later_ms: int) -> Check:
    def check(shop: Shop) -> bool:
        shop.names["made"].enqueue("ada")
        shop.run(raise_failures=False)
        return shop.only("dead").failures == failures and shop.later_ms() == later_ms

    return check


def stored_of_made(name: str, value: object) -> Check:
    def check(shop: Shop) -> bool:
        shop.names["made"].enqueue("ada")
        return getattr(shop.only().options, name) == value

    return check


def worked(counts: str, later_ms: int = 0) -> Check:
    """A job whose first run raises what the row says, and whose second one returns."""

    def check(shop: Shop) -> bool:
        shop.names["work"].with_options(attempts=2).enqueue()
        return getattr(shop.run(), counts) >= 1 and shop.later_ms() == later_ms

    return check


def failing(raised: Exception) -> Handlers:
    """Whose `send` raises, in the place of the one of the page."""

    def send(job: Job) -> None:
        raise raised

    return some_handlers(send, "send")


def alerted(shop: Shop) -> bool:
    shop.run(handlers=failing(OSError("no route")), raise_failures=False)
    (alert,) = shop.jobs()
    return alert.name == "alert" and alert.id.startswith(f"{shop.got.job}>failure:") and shop.run().finished == 1


def fails(shop: Shop) -> bool:
    """After 10 and 30 s."""
    return shop.run(handlers=failing(OSError("no route")), raise_failures=False).dead == 2 and shop.later_ms() == 40_000


def expires(shop: Shop) -> bool:
    shop.queue.use_test_clock(shop.names["began_ms"] + 60_001)
    after = shop.run()
    return (after.expired, after.finished) == (1, 1)


def relayed(shop: Shop) -> bool:
    shop.names["connection"].commit()
    assert outbox.relay(shop.names["connect"], shop.queue, burst=True) == 1
    return shop.only().id == shop.got


def deduplicated(shop: Shop) -> bool:
    again = shop.names["send"].with_options(dedup="ada", dedup_ms=60_000).enqueue("ada")
    return shop.got.created and again.result == "duplicate" and again.job == shop.got.job


def named(shop: Shop) -> bool:
    again = shop.names["send"].with_options(id="m-7").enqueue("ada")
    return shop.only().id == "m-7" and again.result == "duplicate"


def scheduled(shop: Shop) -> bool:
    (nightly,) = shop.queue.schedules.list()
    return (nightly.name, nightly.payload) == ("nightly", {"to": "ada"})


def limited(shop: Shop) -> bool:
    (limit,) = shop.queue.limits()
    return (limit.rate, limit.per_ms) == (10, 1_000) if limit.rate else limit.concurrency == 2


FIRST = [f'send.with_options({option}).enqueue("ada")' for option in ("priority=9", "priority=10", "lifo=True")]
HOOKS = ("@queue.handlers.hooks.on_start", "@queue.handlers.hooks.around")
CHECKS: dict[str, Check] = {
    'send.enqueue("ada")': sent,
    'queue.enqueue("send", {"to": "ada"})': sent,
    'send("ada")': lambda shop: shop.got == "sent to ada",
    'send.call("ada")': lambda shop: shop.got == "sent to ada",
    'send.with_options(delay_ms=60_000).enqueue("ada")': lambda shop: (
        shop.only("delayed").payload == {"to": "ada"} and shop.run().finished == 2 and shop.later_ms() == 60_000
    ),
    'send.with_options(run_at_ms=datetime(2200, 1, 1, tzinfo=UTC)).enqueue("ada")': lambda shop: shop.only("delayed"),
    **dict.fromkeys(FIRST, lambda shop: shop.jobs()[0].payload == {"to": "ada"} and len(shop.jobs()) == 2),
    'send.with_options(expires_ms=60_000).enqueue("ada")': expires,
    **dict.fromkeys(("@queue.job(attempts=5, retry_on=[OSError])", "@queue.job(attempts=5)"), dies_after(5, 4_000)),
    "@queue.job(attempts=1)": dies_after(1, 0),
    '@queue.job(backoff="linear", backoff_ms=10_000)': dies_after(3, 30_000),
    "@queue.job(soft_timeout_ms=5_000)": stored_of_made("soft_timeout_ms", 5_000),
    "@queue.job(timeout_ms=30_000)": stored_of_made("timeout_ms", 30_000),
    "raise RetryLater(10_000)": worked("finished", 10_000),
    "raise RetryLater(60_000, charge=False)": worked("finished", 60_000),
    "raise Discard": worked("finished"),
    'raise Bury("no such user")': worked("dead"),
    'queue.set_limit("send", rate=10, per_ms=1_000)': limited,
    'queue.set_limit(key="acme", concurrency=2)': limited,
    'queue.enqueue_many([first := send.new("ada"), send.with_options(needs=[first]).new("bob")])': lambda shop: (
        shop.only("blocked").payload == {"to": "bob"} and shop.run().finished == 3
    ),
    'queue.enqueue_many([send.new(to) for to in ("ada", "bob")])': sent_twice,
    'queue.enqueue_many([*(both := [send.new("ada"), send.new("bob")]), alert.with_options(needs=both).new()])': chord,
    'send.with_options(on_failure=alert.new()).enqueue("ada")': alerted,
    'queue.schedules.put("nightly", send, send.payload("ada"), cron="0 3 * * *")': scheduled,
    "queue.results.wait(id, send).get()": lambda shop: shop.got == "sent to known",
    "queue.results.get(id)": lambda shop: shop.got.value == "sent to known",
    "queue.jobs.cancel(id)": lambda shop: shop.got.done and shop.queue.jobs.state("known") == "cancelled",
    "queue.jobs.state(id)": lambda shop: shop.got == "waiting",
    "queue.jobs.run_now(id)": lambda shop: shop.got.done and shop.run().finished == 1 and shop.later_ms() == 0,
    "queue.drain()": lambda shop: shop.got == 1 and shop.jobs() == [],
    "queue.obliterate()": lambda shop: shop.got and shop.jobs() == [],
    "queue.pause()": lambda shop: shop.run().waiting == 1 and shop.queue.resume() and shop.run().finished == 1,
    "queue.counts()": lambda shop: shop.got.waiting == 1,
    "queue.set_retention(done_max=500)": lambda shop: shop.run().finished == 1,
    "queue.dead.list()": lambda shop: [dead.id for dead in shop.got] == ["known"],
    "queue.dead.requeue(id)": lambda shop: shop.got.done and shop.run().finished == 1,
    "queue.dead.requeue_all()": lambda shop: shop.got == 1 and shop.run().finished == 1,
    **dict.fromkeys(HOOKS, lambda shop: shop.run().finished == 1 and shop.names["calls"] != []),
    "ironclaim worker shop:queue": lambda shop: shop.got == 0 and shop.queue.counts().finished == 1,
    'send.with_options(id="m-7").enqueue("ada")': named,
    'send.with_options(needs=[id]).enqueue("ada")': lambda shop: shop.only("blocked") and shop.run().finished == 2,
    'send.with_options(attempts=3, backoff="custom", backoff_delays_ms=[10_000, 30_000]).enqueue("ada")': fails,
    'send.with_options(attempts=5, backoff="exponential", backoff_ms=1_000).enqueue("ada")': option("attempts", 5),
    'send.with_options(timeout_ms=30_000).enqueue("ada")': option("timeout_ms", 30_000),
    'send.with_options(result_ttl_ms=600_000).enqueue("ada")': lambda shop: shop.run() and shop.queue.results.get(shop.got.job),
    'send.with_options(dedup="ada", dedup_ms=60_000).enqueue("ada")': deduplicated,
    'outbox.add(connection, send, "ada")': relayed,
}


def prepare(code: str, queue: Queue) -> None:
    """The state that the job `known` is in before a row is run."""
    queue.enqueue("send", {"to": "known"}, id="known", delay_ms=60_000 if "run_now" in code else 0)
    if code.startswith("queue.dead"):
        testing.run_all(queue, failing(Bury("no such user")))
    elif code.startswith("queue.results"):
        testing.run_all(queue)


def perform(code: str, shop: Shop) -> object:
    """Run the code of a row as the page says: a command, a line before a function or inside of one, or an expression."""
    if code.startswith("ironclaim "):
        return main([*shlex.split(code)[1:], "--burst"])
    if code.startswith("@"):
        bodies = {"on_start": "def made():\n calls.append(1)", "around": "def made(job):\n calls.append(job)\n yield"}
        body = bodies.get(code.rpartition(".")[2], "def made(to: str) -> None:\n raise OSError(to)")
        exec(f"{code}\n{body}", shop.names)
        return None
    if code.startswith("raise "):
        work = f"@queue.job('work', backoff_ms=0)\ndef work(job: Job) -> None:\n if job.claims == 1:\n  {code}"
        exec(work, shop.names | {"Job": Job}, shop.names)
        return None
    return eval(code, shop.names)


def waited_for(code: str, shop: Shop) -> object:
    """What a row gives that waits for a worker."""
    given: list[object] = []
    thread = threading.Thread(target=lambda: given.append(perform(code, shop)))
    thread.start()
    while thread.is_alive():
        shop.run()
    return given[0]


@pytest.fixture
def shop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the module of the page, which can be imported in this test alone."""
    (tmp_path / "shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("shop", None)


@pytest.mark.parametrize("code", sorted({code for _, code in ROWS}))
def test_a_row_does_what_the_row_says(code: str, shop_folder: Path, ironclaim_queue: Any) -> None:
    queue = ironclaim_queue.replaces("shop:queue")
    prepare(code, queue)
    connect = partial(sqlite3.connect, shop_folder / "shop.db")
    outbox.create_table(connection := connect())
    names = vars(sys.modules["shop"])
    names.update(id="known", calls=[], connect=connect, connection=connection, outbox=outbox, began_ms=queue.model.now_ms)
    shop = Shop(names, queue)
    shop.got = waited_for(code, shop) if ".call(" in code else perform(code, shop)
    assert CHECKS[code](shop)


def test_each_library_has_rows_and_each_row_is_run() -> None:
    assert list(dict.fromkeys(section for section, _ in ROWS)) == LIBRARIES
    assert len(ROWS) == len(re.findall(r"^\| (?!there|---)", PAGE, re.MULTILINE)) > 80
    assert {code for _, code in ROWS} == CHECKS.keys()
