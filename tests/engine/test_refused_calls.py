"""What callers cannot mean is refused by name before anything is sent, and the message says what is allowed."""

import asyncio
from datetime import date
from typing import Any

import engine
from engine import Malformed, Queue, effects, models, options, outbox, routing, validate
from engine.queue import history
from tests import golden
from tests.engine.using import hurried, some_handlers


def test_each_call_is_refused_with_the_name_of_a_field_and_its_bound(
    kind: str, runner: asyncio.Runner, nowhere: Queue, closed_port: int
) -> None:
    @nowhere.job("work")
    def work(user: int, at: date | None = None) -> None: ...

    named: dict[str, Any] = {name: getattr(engine, name) for name in engine.__all__}
    modules = (effects, models, options, outbox, routing, validate, history)
    named |= {module.__name__.rpartition(".")[2]: module for module in modules}
    queue = hurried(kind, runner, "q", f"redis://127.0.0.1:{closed_port}/0", deadline_ms=10)
    named |= {"queue": queue, "nowhere": nowhere, "work": work, "some_handlers": some_handlers}
    named["three"] = [Queue(name, url=nowhere.url) for name in "abc"]
    golden.refusals("engine/refused_calls.txt", named, Malformed)
