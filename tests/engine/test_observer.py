"""The observers that the environment names: who is asked, who wins, and values that name none."""

import asyncio
import itertools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis.asyncio

from engine import AsyncQueue, Malformed, Queue, Worker
from engine.queue.settings import synchronous
from tests.engine.helpers.producing import refused, some_handlers

NAMES = itertools.count()
Module = Callable[..., ModuleType]

WATCHING = """
from engine.observer import Observer
heard, asked = [], []
class Watch(Observer):
    def __init__(self, queue):
        asked.append(queue)
        self.queue = queue
    def invoked(self, call, first_send_ns, intended_ns):
        heard.append((self.queue, type(call.operation).__name__))
    def handler_ended(self, job, ticket, start_ns, end_ns, error):
        heard.append((self.queue, "run"))
def some(queue):
    return Watch(queue) if queue == "some" else None
def wrong(queue):
    return queue
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module that nobody has imported, and names an object of it in the environment."""

    def make(name: str, source: str = WATCHING) -> ModuleType:
        made = f"watching_{next(NAMES)}"
        (tmp_path / f"{made}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("IRONCLAIM_OBSERVER", f"{made}:{name}")
        return import_module(made) if source is WATCHING else ModuleType(made)

    return make


def test_each_queue_without_an_observer_is_asked_for_once(ironclaim_url: str, module: Module) -> None:
    watching = module("Watch")
    with Queue("mails", url=ironclaim_url) as mails, Queue("whole", url=ironclaim_url, shards=2) as whole:
        mails.enqueue("send", {})
        whole.enqueue("send", {})
        other: Any = AsyncQueue("bills", url=ironclaim_url)
        with synchronous(other) as bills:
            bills.enqueue("send", {})
            with Queue("own", url=ironclaim_url, observer=mails.observer) as own:
                own.enqueue("send", {})
        asyncio.run(other.aclose())
    assert watching.asked == ["mails", "whole", "bills"]
    assert [queue for queue, name in watching.heard if name == "Enqueue"] == ["mails", "whole", "bills", "mails"]


def test_a_worker_is_observed_with_its_queue(ironclaim_url: str, module: Module) -> None:
    watching = module("some")
    with Queue("some", url=ironclaim_url) as some, Queue("none", url=ironclaim_url) as none:
        for queue in (some, none):
            queue.enqueue("work", {})
            Worker(queue, some_handlers(lambda job: None), sweep_ms=50).run(burst=True)
    assert {("some", "Claim"), ("some", "run")} <= set(watching.heard)
    assert {queue for queue, _ in watching.heard} == {"some"} and none.observer is None


@pytest.mark.parametrize(("name", "says"), [
    ("number", "(it is a int)"), ("wrong", "(it returned a str)"), ("none", "has no attribute 'none')"),
    ("", "has no attribute '')"), ("Watch.none", "has no attribute 'none')"),
])  # fmt: skip
def test_an_object_that_is_none_is_refused_by_the_variable(module: Module, name: str, says: str) -> None:
    module(name)
    said = r"IRONCLAIM_OBSERVER: 'watching_\d+:.*it must be module:object of a callable"
    assert str(refused(Malformed, said, Queue, "q", url="redis://nowhere:1")).endswith(says)


@pytest.mark.parametrize("value", ["no_such_module:x", "x", ":x", ".x:y"])
def test_a_module_that_is_none_is_refused_by_the_variable(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("IRONCLAIM_OBSERVER", value)
    refused(Malformed, f"^IRONCLAIM_OBSERVER: '{value}' is not allowed", Queue, "q", url="redis://nowhere:1")
    monkeypatch.setenv("IRONCLAIM_OBSERVER", "")
    assert Queue("q", url="redis://nowhere:1").observer is None


def test_a_module_that_makes_a_queue_before_its_observer_is_named(module: Module) -> None:
    made = module("Watch", "from engine import Queue\nqueue = Queue('q', url='redis://nowhere:1')\n" + WATCHING)
    said = f"IRONCLAIM_OBSERVER: '{made.__name__}:Watch' .*partially initialized module"
    refused(Malformed, said, Queue, "q", url="redis://nowhere:1")


def test_a_queue_of_the_callable_itself_has_no_observer(ironclaim_url: str, module: Module) -> None:
    source = f"from engine import Queue\nmade = []\ndef some(name):\n    made.append(Queue('own', url={ironclaim_url!r}))\n"
    made = module("some", source)
    with Queue("q", url=ironclaim_url) as queue:
        assert queue.observer is None
    assert [own.observer for own in import_module(made.__name__).made] == [None]


def test_what_a_module_raises_names_the_variable(module: Module) -> None:
    module("Watch", "raise RuntimeError('no settings')\n")
    refused(Malformed, r"^IRONCLAIM_OBSERVER: .*no settings", Queue, "q", url="redis://nowhere:1")


LEADING = f"""{WATCHING}
import os
class Lead(Watch):
    @property
    def leads_to(self):
        return os.environ["WATCHING_LEADS_TO"]
"""


@pytest.fixture
def lead(module: Module, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Names an observer that leads its queues to this url."""

    def make(url: str, more: str = "") -> None:
        module("Lead", LEADING + more)
        monkeypatch.setenv("WATCHING_LEADS_TO", url)

    return make


@pytest.mark.parametrize("shards", [None, 2])
def test_an_observer_of_the_environment_leads_its_queue_to_another_server(ironclaim_url: str, lead: Any, shards: Any) -> None:
    lead(ironclaim_url)
    nobody: Any = "redis://user:secret@127.0.0.1:1/3"
    with Queue("led", url=nobody, shards=shards) as queue:
        assert queue.url == ironclaim_url
        assert queue.enqueue("send", {}).created and queue.counts().waiting == 1
    other = AsyncQueue("led", client=redis.asyncio.Redis(port=1), shards=shards)
    with synchronous(other) as queue:
        assert (other.url, queue.url) == (ironclaim_url, ironclaim_url) and queue.counts().waiting == 1


@pytest.mark.parametrize("shards", [None, 2])
def test_keys_of_a_led_queue_begin_with_a_prefix_of_the_observers(
    ironclaim_url: str, lead: Any, shards: int | None, client: Any
) -> None:
    lead(ironclaim_url, "    under = 'drill-1:'\n")
    with Queue("led", url="redis://127.0.0.1:1", shards=shards, durability="replica") as queue:
        assert queue.prefix == "drill-1:ic" and queue.durability is not None
    with Queue("led", url="redis://127.0.0.1:1", shards=shards, prefix="own") as queue:
        queue.set_limit(name="work", concurrency=3)
        queue.enqueue("work", {})
        Worker(queue, some_handlers(), sweep_ms=100).run(burst=True)
        assert queue.counts().finished == 1 and AsyncQueue.like(queue).prefix == queue.prefix == "drill-1:own"
    keys = client.keys()
    assert keys and all(key.startswith("drill-1:own:") for key in keys)


def test_an_observer_in_the_code_leads_nowhere_and_a_url_that_is_none_is_refused(ironclaim_url: str, lead: Any) -> None:
    lead("nowhere")
    refused(Malformed, "^url: 'nowhere' is not allowed", Queue, "led", url=ironclaim_url)
    own: Any = import_module("engine.observer").SparedObserver(object())
    with Queue("led", url=ironclaim_url, observer=own) as queue:
        assert queue.url == ironclaim_url
