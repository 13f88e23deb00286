"""What listens to a server in a thread of its own, with a connection that answers as the test says; and on a real server, for
several workers of a process."""

import asyncio
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from engine import ConnectOptions, Malformed, UnsafeServer
from engine.logs import Source
from engine.redis import dialer
from engine.redis.dialer import AsyncNotifier, Notifier, Subscription, identify, own_addresses
from engine.redis.endpoint import Address, Endpoint, Node
from engine.worker.connections import Control, Controls
from engine.worker.machine.events import Subscribed
from tests.engine.using import ClientConnection, refused, wait_until

NODE = Node("h", 1, "a")


class Said:
    """A connection: what it is asked is noted, and what it answers comes from a list."""

    def __init__(self, log: list[Any], *answers: Any) -> None:
        self._log, self._answers = log, [*answers]
        self._sock = SimpleNamespace(shutdown=lambda how: log.append(("shutdown", how)))

    def connect(self) -> None:
        self._log.append("connect")
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers.pop(0)

    def send_command(self, *words: str, check_health: bool) -> None:
        self._log.append((*words, check_health))

    def can_read(self, wait_s: float) -> bool:
        self._log.append(f"look {wait_s:g}")
        return bool(self._answers) and (self._answers[0] is not None or self._answers.pop(0) is not None)

    def read_response(self, *, disconnect_on_error: bool) -> Any:
        assert not disconnect_on_error
        return self._answers.pop(0)

    def disconnect(self) -> None:
        self._log.append("disconnect")
        raise redis.ConnectionError("gone")


def test_a_subscription_begins_anew_as_long_as_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    log = list[Any]()
    begun = [[b"subscribe", b"c", 1], [b"subscribe", b"d", 2]]
    connections = [
        Said(log, *begun, [b"message", b"c", b"m1"], None, b"PONG", [b"other"], None), Said(log, redis.ConnectionError("x")),
        Said(log, UnsafeServer("y")), Said(log, OSError("z")), Said(log, *begun, [b"message", b"d", b"m2"]),
    ]  # fmt: skip
    checks, wanted = iter([True, False, True]), iter([True] * 11 + [False] * 2)
    resolver = SimpleNamespace(join=lambda one: log.append("join"), serves=lambda node: True)
    resolver.note_error = lambda error: log.append(f"noted {error}")
    ways: Any = SimpleNamespace(resolver=resolver, node=lambda slot: NODE, make=lambda node: connections.pop(0))
    ways.endpoint = SimpleNamespace(slot=5, options=ConnectOptions(timeout_ms=700))
    how: dict[str, Any] = {"look_s": 9.0, "pause_most_s": 0.03, "wanted": wanted.__next__, "checked": checks.__next__}
    how |= {"changed": lambda: log.append(f"live {made.live}"), "failed": lambda error: log.append(f"failed {error}")}
    how["on_message"] = lambda message, channel: log.append((message, channel, made.live))
    made = Subscription(ways, ("c", "d"), name="n", identify=lambda connection: ClientConnection(1, "a", "r", True), **how)
    monkeypatch.setattr(made._ended, "wait", lambda pause_s: log.append(f"pause {pause_s:g}"))
    made._run()
    subscribed = ["join", "connect", ("SUBSCRIBE", "c", "d", False), "live True"]
    assert log == [
        *(*subscribed, "look 9", (b"m1", b"c", True), "look 9", ("PING", False), "look 0.7", "look 9", "look 9", "look 9"),
        *(("PING", False), "look 0.7", "disconnect", "live False", "noted no answer to a PING", "failed no answer to a PING"),
        *("pause 0.01", "join", "connect", "disconnect", "noted x", "failed x", "pause 0.02"),
        *("join", "connect", "disconnect", "failed y", "pause 0.03", "join", "connect", "disconnect", "noted z", "failed z"),
        *("pause 0.03", *subscribed, "look 9", (b"m2", b"d", True), "disconnect", "live False"),
    ]
    assert not made.live and made.identity is not None and not made.ended


def test_a_subscription_ends_when_it_is_told_to_or_its_server_is_named_no_more() -> None:
    log = list[Any]()
    ways: Any = SimpleNamespace(resolver=SimpleNamespace(serves=lambda node: node == NODE), endpoint=Endpoint())
    unused: Any = dict.fromkeys(("on_message", "changed", "wanted", "checked", "failed"))
    made = Subscription(ways, ("c",), name="n", look_s=1, **unused)
    made.stop()
    made.leave()
    assert not log and made._ended.is_set() and not made.ended
    made._connection, made._node, made.live = Said(log), NODE, True
    made.leave()
    assert not log and made.live
    made._node = Node("h", 2, "b")
    made.leave()
    made.stop()
    assert log == [("shutdown", 2)] * 2 and not made.live


def sock(family: Any, name: tuple[Any, ...] = (), log: list[Any] | None = None) -> Any:
    note = [].append if log is None else log.append
    return SimpleNamespace(family=family, getsockname=lambda: name, getpeername=lambda: "/s", setsockopt=lambda *how: note(how))


def test_a_connection_is_known_by_what_the_server_and_its_socket_say(monkeypatch: pytest.MonkeyPatch) -> None:
    told, log = list[str](), list[Any]()
    monkeypatch.setattr(dialer, "_tell_off", told.append)
    connection = SimpleNamespace(_sock=sock(socket.AF_INET, ("10.0.0.1", 5), log))
    for client, found in (
        (b"id=7 addr=10.0.0.1:5 fd=8", ClientConnection(7, "10.0.0.1:5", "r1", True)),
        (b"id=7 addr=10.0.0.9:5 fd=8", ClientConnection(7, "10.0.0.9:5", "r1", False)),
        *((b"nonsense", None), (ResponseError("NOPERM x"), None)),
    ):
        monkeypatch.setattr(dialer, "ask", lambda _, words, client=client: [client, b"# Server\r\nrun_id:r1"])
        assert identify(connection) == found
    assert told[0] == "the server sees 10.0.0.9, not 10.0.0.1: a proxy is in between" and told[2] == "NOPERM x" and len(told) == 3
    named = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2}
    assert log == [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *((socket.IPPROTO_TCP, *one) for one in named.items())] * 2
    assert own_addresses(sock(socket.AF_INET6, ("::1", 5, 0, 0))) == ("[::1]:5",)
    assert own_addresses(sock(socket.AF_UNIX)) == ("/s:0", "[/s:0]:0")


class Listened:
    """In place of a Subscription: what a notifier has made it of."""

    made: Any = None

    def __init__(self, ways: Any, channels: tuple[str, ...], **how: Any) -> None:
        Listened.made = self
        self.channels, self.how, self.log = channels, how, list[str]()
        self.live = self.ended = False

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time."""
    found = [100.0]
    monkeypatch.setattr(dialer, "Subscription", Listened)
    monkeypatch.setattr(dialer.time, "monotonic", lambda: found[0])
    return found


def test_a_notifier_listens_for_a_while_longer_than_somebody_wants_it(now_s: list[float]) -> None:
    notifier, called = Notifier(Endpoint(), "topic"), list[int]()
    one, other = (lambda: called.append(1)), (lambda: called.append(2))
    assert not notifier.live and notifier.close() is None
    notifier.listen(one)
    notifier.listen(other)
    made = Listened.made
    assert made.channels == ("topic",) and made.log == ["start"] and made.how["checked"]() and made.how["look_s"] == 1.0
    made.live = True
    made.how["changed"]()
    made.how["on_message"](b"m", b"topic")
    assert called == [1, 2, 1, 2] and notifier.live and made.how["wanted"]()
    notifier.unlisten(one)
    notifier.unlisten(one)
    notifier.notify()
    notifier.unlisten(other)
    for now_s[0], wanted in ((105.0, True), (105.1, False)):
        assert made.how["wanted"]() is wanted
    assert called[4:] == [2] and not notifier.live
    notifier.listen(one)
    assert Listened.made is not made and not made.how["wanted"]() and Listened.made.how["wanted"]()
    assert notifier.close() is Listened.made and Listened.made.log == ["start", "stop"] and not notifier.live
    notifier.listen(other)
    before = Listened.made
    dialer._in_a_forked_child()
    assert not before.how["wanted"]() and not notifier._listeners
    notifier.listen(one)
    # As in the child of a fork that Python did not make.
    notifier._pid = 0
    notifier.listen(other)
    assert [*notifier._listeners] == [other] and notifier._pid == os.getpid()


def test_a_sentinel_is_listened_to_and_looked_after(now_s: list[float]) -> None:
    resolver, heard, wanted = dialer.resolver_of(Endpoint("sentinel://h:1/m")), list[bytes](), iter([True, False])
    resolver._listen(Address("h", 2), heard.append, lambda: next(wanted))  # type: ignore[union-attr]
    made = Listened.made
    assert made.channels == ("+switch-master",) and made.log == ["start"] and made.how["checked"]()
    made.how["on_message"](b"m", b"+switch-master")
    assert heard == [b"m"] and [made.how["wanted"]() for _ in range(2)] == [True, False]


async def test_tasks_hear_of_a_topic_in_their_own_loop(now_s: list[float]) -> None:
    notifier, called = AsyncNotifier(Endpoint(asynchronous=True), "topic"), list[bool]()

    def listener() -> None:
        called.append(notifier.live)

    assert not notifier.live
    notifier.listen(listener)
    made = Listened.made
    made.live = True
    made.how["changed"]()
    assert not notifier.live, "the loop has not heard of it"
    await asyncio.sleep(0)
    assert notifier.live and called == [True]

    async def elsewhere() -> None:
        assert "one channel for each event loop" in str(refused(Malformed, "event loop: .*EventLoop", notifier.listen, listener))

    await asyncio.to_thread(asyncio.run, elsewhere())
    ring = notifier._ring
    notifier.unlisten(listener)
    assert notifier._ring is None and made.how["wanted"]() and notifier.live
    notifier._tell(ring, False)  # type: ignore[arg-type]
    for made.live in (False, True):
        notifier.listen(listener)
        assert notifier.live is made.live, "nobody tells it"
        notifier.unlisten(listener)
    notifier.listen(listener)
    assert notifier._live and Listened.made is made and called == [True], "it stayed from before"
    made.ended = True
    await notifier.close()
    assert made.log == ["start", "stop"] and notifier._ring is None


def worker(controls: Controls, name: str) -> tuple[Control, list[Any]]:
    """A worker that keeps what it is told."""
    said: list[Any] = []
    channels = (f"{name}:control", f"{name}:control:worker")
    return Control(controls, channels, said.append, lambda: False, 1.0, Source("worker", name), presence=True), said


def test_a_worker_that_leaves_at_once_does_not_keep_the_others_from_being_told(ironclaim_url: str) -> None:
    controls = Controls(Endpoint(ironclaim_url), gather_s=0.05)
    stays, said = worker(controls, "stays")
    leaves, other = worker(controls, "leaves")
    stays.start()
    leaves.start()
    leaves.close()
    try:
        wait_until(lambda: bool(said), "the one that stays has subscribed")
        assert isinstance(said[0], Subscribed) and other == []
        with redis.Redis.from_url(ironclaim_url) as client:
            assert client.pubsub_numsub("stays:control", "leaves:control") == [(b"stays:control", 1), (b"leaves:control", 0)]
    finally:
        stays.close()


def test_the_last_one_that_leaves_ends_the_gathering(ironclaim_url: str) -> None:
    controls = Controls(Endpoint(ironclaim_url), gather_s=3_600.0)
    first, said = worker(controls, "first")
    first.start()
    timer = controls._timer  # pyright: ignore[reportPrivateUsage]
    first.close()
    assert timer is not None and controls._timer is None and said == []  # pyright: ignore[reportPrivateUsage]
    timer.join(120)
    assert not timer.is_alive()
