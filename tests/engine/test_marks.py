"""No mark of a secret in anything that a failing call writes: every public call of Python, each command and each route over HTTP,
with marked values in every place that takes one."""

import argparse
import inspect
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

import engine
import ironclaim_client
from engine import AsyncChannel, AsyncQueue, Channel, ConnectOptions, Handlers, PriorityQueue, Queue, Worker
from engine.http.channels.settings import ChannelSettings
from engine.http.routes import channel_routes, job_routes, page_routes
from engine.http.settings import HttpSettings
from engine.options import OPTIONS
from tests.engine.command.running import ironclaim, known_parser
from tests.engine.helpers.marks import DSN, MARK, URL, Call, calls, methods, told
from tests.engine.http.serving import asking
from tests.engine.using import DEADLINE_S, some_handlers

#: One of so many calls in the first tier, and all of them in the second.
SHARES = pytest.mark.parametrize("one_of", [17, pytest.param(1, marks=pytest.mark.slow)])

QUICK_MS = {"timeout_ms": 50, "connect_timeout_ms": 50, "deadline_ms": 50}
QUICK = ConnectOptions(**QUICK_MS)
PARTS = ("schedules", "workers", "locks", "results", "jobs", "dead", "events")
#: What ends the object that is walked, runs until it is stopped, or is the engine's own.
LEFT_OUT = {"close", "like", "run", "begin", "take_part", "watch", "on_lead", "beats_rarely", "forget_events", "aio"}


def objects(url: str) -> Iterator[tuple[str, object]]:
    """Everything that has public methods, connected to this server."""
    for queue in (Queue("q", url=url, connect=QUICK), AsyncQueue("q", url=url, connect=QUICK)):
        name = type(queue).__name__
        yield name, queue
        for part in PARTS:
            yield f"{name}.{part}", getattr(queue, part)
    yield "Channel", Channel("c", url=url, connect=QUICK)
    yield "AsyncChannel", AsyncChannel("c", url=url, connect=QUICK)
    yield "PriorityQueue", PriorityQueue("p", url=url, connect=QUICK)
    yield "Handlers", Handlers()
    yield "Worker", Worker(Queue("q", url=url, connect=QUICK), some_handlers(name="n"))


def made_by_name(url: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each public class and function of the package and of its public modules."""
    for name in engine.__all__:
        value = getattr(engine, name)
        if inspect.ismodule(value):
            own = [(f"{name}.{one}", found) for one, found in vars(value).items() if not one.startswith("_")]
            yield from ((one, found) for one, found in own if callable(found) and found.__module__ == value.__name__)
        elif callable(value) and not (isinstance(value, type) and issubclass(value, BaseException | dict)):
            yield name, value


def python_calls(url: str) -> Iterator[Call]:
    for entry, target in objects(url):
        for name, method in methods(entry, target):
            if name.rpartition(".")[2] not in LEFT_OUT:
                yield from calls(name, method)
    queue = Queue("q", url=url, connect=QUICK)
    for name, function in made_by_name(url):
        # `checked` names the fields that its caller has.
        if name not in ("outbox.checked", "queues", "async_queues"):
            yield from calls(name, function, queue=queue, url=url, queues=[queue], handlers=some_handlers(name="n"))


def client_calls(base: str) -> Iterator[Call]:
    """Those of the client over HTTP."""
    client = ironclaim_client.Client(base, token=f"{MARK}-0123456789abcdef", retries=ironclaim_client.Retries(deadline_ms=10))
    for entry, target in (("client.Queue", client.queue("q")), ("client.Channel", client.channel("c"))):
        for name, method in methods(entry, target):
            if name.rpartition(".")[2] not in ("close", "subscription"):
                yield from calls(name, method, timeout_ms=1)
    for kind in (ironclaim_client.Client, ironclaim_client.NewJob, ironclaim_client.Retries):
        yield from calls(f"client.{kind.__name__}", kind, base_url=base)


def failures(*walks: Iterator[Call], one_of: int) -> Counter[str]:
    """How often each entry has failed; the mark must not be seen anywhere."""
    failed, seen = Counter[str](), list[str]()
    for call in (call for walk in walks for call in itertools.islice(walk, 0, None, one_of)):
        try:
            call.make()
        except Exception as error:
            failed[call.entry] += 1
            before, mark, _ = told(error).partition(MARK)
            seen += [f"{call.entry} {call.parameter}: {before[-100:]}{mark}"] * bool(mark)
    assert not seen, "\n".join(seen[:20])
    return failed


@SHARES
def test_no_failing_call_of_python_writes_a_mark(one_of: int, ironclaim_url: str, closed_port: int, caplog: Any) -> None:
    away = f"redis://user:{MARK}@127.0.0.1:{closed_port}"
    with caplog.at_level(logging.DEBUG):
        failed = failures(*map(python_calls, (ironclaim_url, away)), one_of=one_of)
    assert MARK not in caplog.text and sum(failed.values()) > 16_000 // one_of and len(failed) > (120 if one_of == 1 else 80)


@SHARES
def test_no_failing_call_of_the_client_writes_a_mark(one_of: int, ironclaim_url: str, closed_port: int, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, logger="ironclaim"), asking(ironclaim_url, allow_changes=True) as client:
        failed = failures(*map(client_calls, (str(client.base_url), f"http://127.0.0.1:{closed_port}")), one_of=one_of)
    assert not [one for one in caplog.records if one.name.startswith("ironclaim") and MARK in one.getMessage()]
    assert sum(failed.values()) > 500 // one_of


#: What an option or an argument of a command gets.
WORDS = (URL, DSN, f"--token={MARK}", f"{URL} and {DSN}", json.dumps([URL]))
#: And where a payload belongs.
PAYLOAD = json.dumps({"card": MARK})[:-1]

#: What a command gets beside the marked word, so that it ends by itself: it would work until it is stopped.
ENDS = {"serve": ["--port", "no-port"], "top": ["--count", "1", "--every-s", "0.01"], "worker": [], "outbox": []}


def commands(parser: argparse.ArgumentParser, before: tuple[str, ...] = ()) -> Iterator[tuple[Any, argparse.ArgumentParser]]:
    """Each command with its parser."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # pyright: ignore[reportPrivateUsage]
    if not groups:
        yield before, parser
    for group in groups:
        for name, one in group.choices.items():
            yield from commands(one, (*before, name))


def command_lines(url: str) -> Iterator[list[str]]:
    """Each command with each word in each of its places."""
    for words, parser in commands(known_parser()):
        actions = [one for one in parser._actions if one.dest not in ("help", "version")]  # pyright: ignore[reportPrivateUsage]
        places, known = [one for one in actions if not one.option_strings], {one.dest for one in actions}
        base = [*(["--url", url] if "url" in known else []), *(["--queue", "q"] if "queue" in known else [])]
        base += ENDS.get(words[0], [])
        plain = ["nowhere:nothing" if words[0] in ("worker", "outbox") else "x" for one in places if one.nargs not in ("?", "*")]
        for action in actions:
            for word in (*WORDS, *([PAYLOAD] if action.metavar == "JSON" else [])):
                if action.option_strings and action.nargs != 0:
                    yield [*words, *plain, *base, f"{action.option_strings[-1]}={word}"]
                elif not action.option_strings:
                    at = places.index(action)
                    yield [*words, *base, "--", *plain[:at], word, *plain[at + 1 :]]
        yield [*words, *plain, *base, "--no-such-option", URL]


@SHARES
def test_no_failed_command_shows_a_mark(one_of: int, ironclaim_url: str, closed_port: int, caplog: Any, monkeypatch: Any) -> None:
    defaults: Any = ConnectOptions.__init__.__kwdefaults__
    monkeypatch.setattr(ConnectOptions.__init__, "__kwdefaults__", {**(defaults or {}), **QUICK_MS})
    away, failed, seen = f"redis://:{MARK}@127.0.0.1:{closed_port}", Counter[str](), list[str]()
    for url in (ironclaim_url, away):
        for line in itertools.islice(command_lines(url), 0, None, one_of):
            done = ironclaim(*line)
            if done.returncode:
                failed[" ".join(line[:2])] += 1
                if MARK in done.stdout + done.stderr:
                    seen.append(f"{line}: {done.stdout[:200]}{done.stderr[-300:]}")
    assert not seen, "\n".join(seen[:20])
    assert MARK not in caplog.text and sum(failed.values()) > 1_000 // one_of and len(failed) > 10


def requests(base: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each route with marked values in its path, its query, its body and its headers: method, path, and what goes with it."""
    card = {"card": MARK}
    given: list[Any] = [URL, [URL, card], card, {"name": card, "payload": MARK}, {"limit": card, "concurrency": URL}]
    given += [{"name": "n", "payload": 1, option: card} for option in OPTIONS]
    given += [{"name": "n", "payload": card, option: URL} for option in OPTIONS]
    bodies = [*map(json.dumps, given), f'{{"card": "{MARK}"', f"card={MARK}&url={quote(URL)}", MARK]
    for route in [*job_routes(), *channel_routes(), *page_routes(HttpSettings())]:
        path, methods_of = getattr(route, "path", ""), getattr(route, "methods", None) or ["GET"]
        method = next(one for one in sorted(methods_of) if one != "HEAD")
        names = [part[1:-1].partition(":")[0] for part in path.split("/") if part.startswith("{")]

        def filled(marked: str = "", path: str = path, names: list[str] = names) -> str:
            for name in names:
                path = path.replace(f"{{{name}}}", quote(URL, safe="") if name == marked else "x")
            return path

        for name in names:
            yield method, filled(name), {}
        for name in ("limit", "offset", "state", "wait_ms", "after", "card", "next"):
            yield method, filled(), {"params": {name: URL}}
        for header in ("Authorization", "Cookie", "Content-Type", "Last-Event-ID", "X-CSRF-Token", "Origin"):
            secret = f"Bearer {MARK}" if header in ("Authorization", "Cookie", "X-CSRF-Token") else URL
            yield method, filled(), {"headers": {header: secret}}
        if method != "GET":
            for body in bodies:
                yield method, filled(), {"content": body, "headers": {"Content-Type": "application/json"}}


@SHARES
def test_no_answer_that_is_a_failure_has_a_mark(one_of: int, ironclaim_url: str, caplog: pytest.LogCaptureFixture) -> None:
    seen, failed = list[str](), 0
    settings: dict[str, Any] = {"allow_changes": True, "channels": ChannelSettings(admin_tokens=["a" * 32])}
    with caplog.at_level(logging.DEBUG, logger="ironclaim"), asking(ironclaim_url, **settings) as client:
        for method, path, more in itertools.islice(requests(str(client.base_url)), 0, None, one_of):
            with client.stream(method, path, timeout=DEADLINE_S, **more) as answer:
                if answer.status_code < 400:
                    continue
                failed += 1
                said = answer.read().decode() + str(answer.headers)
                if MARK in said:
                    at = said.index(MARK)
                    seen.append(f"{method} {path} {more}: {answer.status_code} {said[max(0, at - 200) : at + 20]}")
    assert not seen, "\n".join(seen[:20])
    assert MARK not in caplog.text and failed > 2_000 // one_of
