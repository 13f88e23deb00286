"""What a driver decides and understands without a socket: calls of one piece, confirmations, handshakes and addresses."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import AskError, MovedError, ResponseError

from engine import ConnectOptions, Malformed, OutcomeUnknown, ScriptFault, ServerUnavailable, UnsafeServer, WrongKeyType
from engine.errors import AuthenticationFailed
from engine.observer import ServerIdentity
from engine.ops.base import Call, ServerClock
from engine.ops.looks import Count
from engine.redis import exchange
from engine.redis.endpoint import Address, ClusterRoute, Endpoint, Node, SentinelRoute
from engine.redis.exchange import Durability, FirstContact, InFlightCall, NotReplicated, Replies, Trouble
from engine.redis.handshake import Handshake, check_node
from engine.redis.scripts import Script
from tests.engine.helpers.producing import refused

WRITES, READS = Script("w", "#!lua\n", (), ()), Script("r", "#!lua flags=no-writes\n", (), ())


def call(script: Any = WRITES, parse: Any = lambda raw: raw, **more: Any) -> Call[Any]:
    return Call(script, ("{a}:k",), ("x",), parse, Count(), **more)


def flight(of: Call[Any] | None = None, **more: Any) -> InFlightCall:
    return InFlightCall(of or call(), more.pop("clock", ServerClock()), None, more.pop("deadline_ms", 10_000), **more)


def test_replies_come_to_their_places_and_those_of_a_broken_connection_to_all_behind() -> None:
    replies, gone = Replies(5), redis.ConnectionError("gone")
    ask, moved = AskError("5 127.0.0.1:7001"), MovedError("5 127.0.0.1:7002")
    replies.put([0, 2, 4], [ask, "b", AskError("5 127.0.0.1:7001")])
    replies.put([1, 3], [gone])
    assert replies.all == [ask, gone, "b", gone, replies.all[4]]
    replies.all[1] = moved
    assert replies.asked([0, 1, 2, 3, 4]) == {"127.0.0.1:7001": (ask, [0, 4])}
    assert exchange.grouped(range(5), lambda at: at % 2) == {0: [0, 2, 4], 1: [1, 3]}
    assert (
        exchange.slots_of([flight()], 7)(0) == 15_495 and exchange.slots_of([flight(Call(None, (), (), str, Count()))], 7)(0) == 7
    )
    commands = [("GET", "a"), ("GET", "b")]
    assert exchange.asking(commands) == [("ASKING",), commands[0], ("ASKING",), commands[1]]
    for came, kept in (
        ([], []),
        (["OK", 1, "OK", 2], [1, 2]),
        (["OK", 1, gone], [1, gone]),
        (["OK", gone], [gone]),
        ([gone], [gone]),
    ):
        assert exchange.without_asking(came) == kept


def test_a_call_that_writes_counts_where_a_replica_has_confirmed_it() -> None:
    durable = Durability(Call(None, (), ("SET", "w", 1), str, Count()), 50)
    writes, reads = flight(), flight(call(READS))
    assert durable.after([reads]) == () and durable.after([reads, writes]) == (("SET", "w", 1), ("WAIT", 1, 50))
    assert durable.judge([reads], ["a"]) == ["a"] and durable.judge([writes, reads], ["a", "b", "OK", 1]) == ["a", "b"]
    error = ResponseError("ERR no")
    for more, why in (
        (["OK", 0], "no replica within 50 ms"),
        (["OK", error], "ERR no"),
        ([error], "ERR no"),
        ([], "no replica within 50 ms"),
    ):
        own = [error, "a", "b"]
        doubted = durable.judge([writes, writes, reads], [*own, *more])
        assert (doubted[0], str(doubted[1]), doubted[2]) == (error, why, "b") and isinstance(doubted[1], NotReplicated)
    assert durable.judge([writes, reads], [error]) == [error], "the connection ended before"


def test_how_a_call_ends_is_said_with_what_it_cost() -> None:
    gone = redis.ConnectionError("gone")
    unsent = exchange.not_sent(gone)
    ends: list[tuple[list[Exception], Any, str]] = [
        ([ResponseError("WRONGTYPE x")], WrongKeyType, "^counts: the server answered WRONGTYPE x$"),
        ([ResponseError("ERR x")], ScriptFault, "^counts: the server answered ERR x$"),
        ([ResponseError("NOAUTH x")], AuthenticationFailed, "^counts: 1 tries, nothing was applied, last error NOAUTH x$"),
        ([unsent, ResponseError("OOM x")], ServerUnavailable, "2 tries, nothing was applied, last error OOM x$"),
        ([gone, unsent, ResponseError("OOM x")], OutcomeUnknown, "^counts: 1 of 3 sends unanswered, last error OOM x$"),
        ([UnsafeServer("lru")], UnsafeServer, "^lru$"),
        ([gone, UnsafeServer("lru")], OutcomeUnknown, "^counts: lru$"),
    ]
    for came, kind, said in ends:
        made = flight()
        pauses = [made.returns(one) for one in came]
        assert all(pauses[:-1]) and pauses[-1] == 0.0 and made.ended and refused(kind, said, made.sent) is made.outcome()
    late = flight(call(parse=lambda raw: refused_parse()))
    assert late.returns("raw") == 0.0 and isinstance(late.outcome(), ScriptFault)
    impatient = flight(call(patient=False))
    assert impatient.returns(exchange.not_sent(gone)) == 0.0 and isinstance(impatient.outcome(), ServerUnavailable)
    refused(ScriptFault, "^counts: blocks 5 ms, this driver waits 4 ms$", flight, call(block_ms=5), block_ms_max=4)
    assert flight(call(block_ms=5), block_ms_max=5).call.block_ms == 5
    refused(ScriptFault, "101 calls, at most 100", exchange.pipeline, [call()] * 101)
    assert len(exchange.pipeline([call()] * 100)) == 100


def refused_parse() -> Any:
    raise ScriptFault("torn")


def test_an_answered_call_teaches_the_time_and_says_when_it_left() -> None:
    clock, before_ns = ServerClock(), time.monotonic_ns()
    made = flight(clock=clock)
    assert made.returns(SimpleNamespace(srv_us=5_000_000, refused=True)) == 0.0
    sent = made.sent()
    assert before_ns <= sent.first_send_ns <= sent.done_ns and sent.definite and sent.came_late and clock.known
    assert clock.now_ms(sent.done_ns) == 5_000
    again = flight(again=True)
    again.returns(SimpleNamespace(refused=True))
    assert not again.sent().definite and not again.sent().came_late
    told: list[Any] = []
    observer: Any = SimpleNamespace(invoked=lambda *given: "ticket", completed=lambda *given: told.append(given))
    for came in (["a"], [redis.ConnectionError("x"), ResponseError("ERR y")], [ResponseError("OOM z")]):
        seen = InFlightCall(call(), ServerClock(), observer, 10_000)
        for one in came:
            seen.leaves_again()
            seen.returns(one)
    shown = [(ticket, outcome.applied, outcome.sends, outcome.errors, outcome.definite) for _, ticket, outcome in told]
    assert shown == [
        *(("ticket", True, 1, (), True), ("ticket", None, 2, ("ConnectionError: x", "ERR y"), False)),
        ("ticket", False, 1, ("OOM z",), True),
    ]


def test_what_goes_out_together_waits_for_the_longest_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange.random, "random", lambda: 1.0)
    made = [flight(), flight(), flight()]
    gone = redis.ConnectionError("gone")
    assert made[1].returns(exchange.not_sent(gone)) == 0.01
    assert exchange.settle(made, ["a", gone]) == 0.02 and [one.ended for one in made] == [True, False, False]
    contact = FirstContact(10_000)
    assert [contact.failed(redis.ConnectionError("x")) for _ in range(2)] == [0.01, 0.02]
    refused(UnsafeServer, "lru", contact.failed, UnsafeServer("lru"))
    refused(
        ServerUnavailable,
        "^cannot connect, nothing was applied: ConnectionError: x$",
        FirstContact(0).failed,
        redis.ConnectionError("x"),
    )
    refused(AuthenticationFailed, "WRONGPASS", FirstContact(10_000).failed, ResponseError("WRONGPASS x"))
    assert exchange.trouble_of(ResponseError("ERR DB"), sent=False) is Trouble.REFUSED
    assert exchange.trouble_of(ResponseError("ERR DB"), sent=True) is Trouble.FAULT
    assert (
        exchange.trouble_of(gone, sent=False) is Trouble.NOT_SENT and exchange.trouble_of(gone, sent=True) is Trouble.UNANSWERED
    )
    for errors, loads in (
        ([ResponseError("NOSCRIPT x")], True),
        ([ResponseError("OOM x"), "a"], False),
        ([AskError("5 127.0.0.1:7001")], False),
    ):
        assert exchange.loads_again(errors) is loads


INFO: dict[str, list[bytes]] = {
    "server": [b"redis_version:7.2.4\r\nrun_id:r1"], "memory": [b"maxmemory_policy:noeviction"], "replication": [b"role:master"],
}  # fmt: skip


@pytest.mark.parametrize("route", [None, SentinelRoute((Address("s", 1),), "m"), ClusterRoute((Address("s", 1),))])
def test_a_handshake_asks_for_what_it_needs_and_loads_what_is_not_there(route: Any) -> None:
    clock = ServerClock()
    made, other = Handshake([WRITES, READS], clock, None, route=route), Script("o", "#!lua\n-- o\n", (), ())
    digests, cluster = (WRITES.digest, READS.digest), [("CLUSTER", "MYID")] if isinstance(route, ClusterRoute) else []
    sections = [("INFO", name) for name in ("server", "memory", "replication")]
    assert list(made.commands) == [*sections, ("SCRIPT", "EXISTS", *digests), *cluster, ("HELLO",), ("TIME",)]
    assert ("SCRIPT", "EXISTS") not in [words[:2] for words in Handshake((), clock, None).commands]
    replies = [*(text for texts in INFO.values() for text in texts), [1, 0], *([b"n1"] if cluster else []), [], [b"5", b"7"]]
    loads = made.conclude(replies, learns=False)
    assert loads == (("SCRIPT", "LOAD", READS.text),) and not clock.known
    made.conclude(replies)
    assert clock.known and made.finish(loads, [b"digest"]) is None and other.writes
    refused(ResponseError, "no", made.finish, loads, [ResponseError("no")])
    refused(ResponseError, "broken", made.conclude, [*replies[:-1], ResponseError("broken")])
    identity = "n1" if cluster else "r1"
    assert made.conclude(replies, Node("h", 1, identity)) == loads
    refused(
        redis.ConnectionError,
        f"^h:1 is {identity}, not x, which was named the primary$",
        made.conclude,
        replies,
        Node("h", 1, "x"),
    )
    refused(redis.ConnectionError, "^h:1 is no primary: its role is slave$", check_node, Node("h", 1, ""), {"role": "slave"}, "y")


def test_a_handshake_tells_who_was_met_and_what_time_it_is() -> None:
    learned, met = list[int](), list[Any]()
    watch = SimpleNamespace(commands=(("GET", "era"),), greeted=lambda *given: met.append(given) or (("SET", "era"),))
    watch.concluded = met.append
    clock: Any = SimpleNamespace(watch=watch, learn=lambda srv_us, now_ns: learned.append(srv_us))
    observer: Any = SimpleNamespace(connected=met.append)
    made = Handshake([WRITES], clock, observer)
    told = ServerIdentity("r1", "", "master")
    follow = made.conclude(
        [b"era", *(text for texts in INFO.values() for text in texts), [0], ResponseError("HELLO"), [b"5", b"7"]]
    )
    assert (learned, met) == ([5_000_007], [told, (told, [b"era"])]) and made.commands[0] == ("GET", "era")
    assert follow == (("SCRIPT", "LOAD", WRITES.text), ("SET", "era"))
    made.finish(follow, ["digest", "stored"])
    made.finish(follow[:1], ["digest"])
    assert met[2:] == ["stored"] and Handshake((), clock, None).commands[0] == ("INFO", "server")
    # A user who may not ask for INFO.
    no, hello = ResponseError("NOPERM no info"), [b"version", b"7.2.4", b"role", b"master"]
    Handshake((), clock, observer).conclude([no, no, no, hello, [1, 0]])
    assert met[3:] == [ServerIdentity("", "", "master")]
    ways: list[tuple[dict[str, Any], str]] = [
        ({"replicated": True}, "^durability="),
        ({"route": ClusterRoute(())}, "^sentinel:// and"),
    ]
    for way, said in ways:
        refused(UnsafeServer, said, Handshake((), clock, None, **way).conclude, [no, no, no, hello, [1, 0]])
    refused(UnsafeServer, "too old", Handshake((), clock, None).conclude, [no, no, no, [b"version", b"6.2"], [1, 0]])
    refused(ResponseError, "HELLO", Handshake((), clock, None).conclude, [no, no, no, ResponseError("HELLO"), [1, 0]])


def test_endpoints_are_what_their_words_say() -> None:
    fixed, routed = (
        Endpoint("redis://h:1/2", options=ConnectOptions(timeout_ms=700, connect_timeout_ms=300)),
        Endpoint("redis+cluster://h:1"),
    )
    settings = fixed.settings(patience_ms=500)
    assert (settings["socket_timeout"], settings["socket_connect_timeout"], settings["protocol"]) == (1.2, 0.3, 2)
    assert settings["socket_keepalive"] and "socket_keepalive" not in Endpoint("unix:///s").settings()
    assert fixed.for_keys_like("{a}") is fixed and routed.for_keys_like("{a}").slot == 15_495 and routed.slot == 0
    assert fixed.with_options(None) is fixed and fixed.with_options(ConnectOptions(deadline_ms=10)).options.deadline_ms == 10
    assert fixed.of_kind(asynchronous=False) is fixed and fixed.of_kind(asynchronous=True).asynchronous
    assert fixed.led_to("redis://other").options is fixed.options and not fixed.asynchronous
    at = routed.of_address(Address("x", 9))
    assert at.route is None and (at.settings()["host"], at.settings()["port"]) == ("x", 9)
    assert fixed.sharing_key == Endpoint("redis://h:1/2", options=fixed.options).sharing_key != routed.sharing_key
    for url, port in (
        ("redis+cluster://h:65535", 65_535),
        ("redis+cluster://h:1", 1),
        ("redis+cluster://h", 6_379),
        ("sentinel://h/m", 26_379),
    ):
        route: Any = Endpoint(url).route
        assert (route.seeds if hasattr(route, "seeds") else route.sentinels) == (Address("h", port),)
    for url in ("redis+cluster://h:65536", "redis+cluster://h:0", "http://h", "redis://h/x", "redis://u:p@ss:1@h/x"):
        assert "p@ss" not in str(refused(Malformed, "url", Endpoint, url))
    assert Endpoint("sentinel://u:pw@[::1]:5,h/m").url.endswith("h/m") and "pw" not in Endpoint("sentinel://u:pw@h/m").url
    assert SentinelRoute((Address("::1", 5), Address("h", 6)), "m", (("password", "pw"),)).shown() == "sentinel://[::1]:5,h:6/m"
    assert (
        "pw" not in repr(SentinelRoute((), "m", (("password", "pw"),)))
        and ClusterRoute((Address("h", 6),)).shown() == "redis+cluster://h:6"
    )
