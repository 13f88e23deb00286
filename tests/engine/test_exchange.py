"""What a driver decides and understands without a socket: calls of one piece (rules 5, 27 and 31), confirmations, handshakes and
addresses."""

from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from engine import ConnectOptions, ScriptFault, UnsafeServer
from engine.redis import exchange
from engine.redis.endpoint import DEADLINE_MS, Address, ClusterRoute, Endpoint, Node, SentinelRoute
from engine.redis.exchange import Delivery, GiveUp, InFlightCall, NoReply, SendAgain, Trouble, not_sent
from engine.redis.handshake import Handshake, check_node
from engine.redis.scripts import Script
from tests import golden
from tests.engine.using import Call, Count, ServerClock, raises

WRITES, READS = Script("w", "#!lua\n", (), ()), Script("r", "#!lua flags=no-writes\n", (), ())


def printed(kind: type[Exception]) -> Any:
    """The same kind of error, which every version of redis-py prints so."""
    return type(kind.__name__, (kind,), {"__repr__": lambda self: f"{kind.__name__}({self})"})


AskError, MovedError, ResponseError = map(printed, (exceptions.AskError, exceptions.MovedError, exceptions.ResponseError))
GONE = printed(redis.ConnectionError)("gone")


def call(script: Any = WRITES, parse: Any = lambda raw: raw, **more: Any) -> Call[Any]:
    return Call(script, ("{a}:k",), ("x",), parse, Count(), **more)


def plain(*words: Any) -> Call[Any]:
    return Call(None, (), words, str, Count())


def flight(made: Any = None, *given: Any, clock: Any = None, observer: Any = None, again: bool = False) -> InFlightCall:
    return InFlightCall(made or call(), clock or ServerClock(), observer, 10_000, *given, again=again)


def pieces() -> golden.Told:
    """Replies come to their places, and that of a broken connection to all behind; each node gets what it was to be asked."""
    replies = exchange.Replies(5)
    replies.put([0, 2, 4], [AskError("5 127.0.0.1:7001"), "b", AskError("5 127.0.0.1:7001")])
    replies.put([1, 3], [GONE])
    yield "replies", replies.all
    replies.all[1] = MovedError("5 127.0.0.1:7002")
    yield "asked", replies.asked([0, 1, 2, 3, 4])
    yield "grouped", exchange.grouped(range(5), lambda at: at % 2)
    yield "slots", [exchange.slots_of([flight(made)], 7)(0) for made in (call(), plain())]
    yield "asking", exchange.asking([("GET", "a"), ("GET", "b")])
    for came in ([], ["OK", 1, "OK", 2], ["OK", 1, GONE], ["OK", GONE], [GONE]):
        yield f"of {came}", exchange.without_asking(came)
    yield "pipelines", [golden.outcome(lambda count=count: len(exchange.pipeline([call()] * count))) for count in (100, 101)]


def durability() -> golden.Told:
    """A call that writes counts where a replica has confirmed it."""
    durable, error = exchange.Durability(plain("SET", "w", 1), 50), ResponseError("ERR no")
    writes, reads = flight(), flight(call(READS))
    yield "words", [durable.after(calls) for calls in ([reads], [reads, writes])]
    yield "reads", durable.judge([reads], ["a"])
    yield "cut off", durable.judge([writes, reads], [error])
    for more in (["OK", 1], ["OK", 0], ["OK", error], [error], []):
        yield f"behind it {more}", durable.judge([writes, writes, reads], [error, "a", "b", *more])


def ends() -> golden.Told:
    """How a call ends, with what it cost."""
    for came in (
        *([ResponseError("WRONGTYPE x")], [ResponseError("ERR x")], [ResponseError("NOAUTH x")], [UnsafeServer("lru")]),
        *([not_sent(GONE), ResponseError("OOM x")], [GONE, not_sent(GONE), ResponseError("OOM x")], [GONE, UnsafeServer("lru")]),
        *(["a"], [GONE, ResponseError("ERR y")]),
    ):
        seen = list[Any]()
        observer = SimpleNamespace(invoked=lambda *_: "ticket", completed=lambda *given, seen=seen: seen.extend(given[1:]))
        made = flight(observer=observer)
        pauses = [made.returns(one) for one in came]
        yield f"after {came}", (golden.outcome(lambda made=made: made.sent().reply), [pause > 0 for pause in pauses], made.ended)
        ticket, outcome = seen
        yield "the observer heard", (ticket, outcome.applied, outcome.sends, outcome.errors, outcome.definite)
    torn, impatient = flight(call(parse=raises(ScriptFault("torn")))), flight(call(patient=False))
    yield "torn", (torn.returns("raw"), golden.outcome(torn.sent))
    yield "impatient", (impatient.returns(not_sent(GONE)), golden.outcome(impatient.sent))
    yield "blocks", [golden.outcome(lambda ms=ms: flight(call(block_ms=ms), 4).call.block_ms) for ms in (4, 5)]
    yield "blocks by default", golden.outcome(flight, call(block_ms=1))
    for again in (False, True):
        made = flight(clock=(clock := ServerClock()), again=again)
        made.returns(SimpleNamespace(srv_us=5_000_000, refused=True))
        sent = made.sent()
        yield f"again {again}", (sent.definite, sent.came_late, clock.now_ms(sent.done_ns), sent.first_send_ns <= sent.done_ns)


def pauses() -> golden.Told:
    """What goes out together waits for the longest pause."""
    made = [flight(), flight(), flight()]
    yield "one", made[1].returns(not_sent(GONE))
    yield "all", (exchange.settle(made, ["a", GONE]), [one.ended for one in made])
    contact = exchange.FirstContact(10_000)
    yield "contact", [contact.failed(GONE) for _ in range(2)]
    for error, deadline_ms in ((UnsafeServer("lru"), 10_000), (GONE, 0), (ResponseError("WRONGPASS x"), 10_000)):
        yield f"no contact, {error}", golden.outcome(exchange.FirstContact(deadline_ms).failed, error)
    yield "trouble", [exchange.trouble_of(one, sent=sent) for one in (ResponseError("ERR DB"), GONE) for sent in (False, True)]
    for errors in ([ResponseError("NOSCRIPT x")], [ResponseError("OOM x"), "a"], [AskError("5 127.0.0.1:7001")]):
        yield f"loads again after {errors}", exchange.loads_again(errors)


INFO = [b"redis_version:7.2.4\r\nrun_id:r1", b"maxmemory_policy:noeviction", b"role:master"]


def handshakes() -> golden.Told:
    """What is asked of a server, what is loaded that is not there, and who was met."""
    met = list[Any]()
    watch = SimpleNamespace(commands=(("GET", "era"),), concluded=met.append)
    watch.greeted = lambda *given: met.append(given) or (("SET", "era"),)
    clock: Any = SimpleNamespace(watch=None, learn=lambda srv_us, now_ns: met.append(srv_us))
    observer: Any = SimpleNamespace(connected=met.append)
    for route in (None, SentinelRoute((Address("s", 1),), "m"), ClusterRoute((Address("s", 1),))):
        made, own = Handshake([WRITES, READS], clock, observer, route=route), [b"n1"] if isinstance(route, ClusterRoute) else []
        replies = [*INFO, [1, 0], *own, ResponseError("HELLO"), [b"5", b"7"]]
        yield "asks", made.commands
        yield "loads", (made.conclude(replies), made.conclude(replies, Node("h", 1, "n1" if own else "r1"), learns=False))
        yield "another", golden.outcome(made.conclude, replies, Node("h", 1, "x"))
        yield "broken", golden.outcome(made.conclude, [*replies[:-1], ResponseError("broken")])
        yield "finish", [golden.outcome(made.finish, [("SCRIPT",)], [reply]) for reply in (b"digest", ResponseError("no"))]
    yield "a replica", golden.outcome(check_node, Node("h", 1, ""), {"role": "slave"}, "y")
    clock.watch = watch
    made, made_bare = Handshake([WRITES], clock, observer), Handshake((), clock, observer)
    yield "watched", (made.commands, made_bare.commands, made.conclude([b"era", *INFO, [0], [], [b"5", b"7"]]))
    made.finish([("SCRIPT",), ("SET",)], ["digest", "stored"])
    no, old = ResponseError("NOPERM no info"), [b"version", b"6.2"]
    for hello in ([b"version", b"7.2.4", b"role", b"master"], old, ResponseError("HELLO")):
        yield f"without INFO, {hello}", golden.outcome(made_bare.conclude, [no, no, no, hello, [1, 0]])
    for way in ({"replicated": True}, {"route": ClusterRoute(())}):
        yield f"{way} without INFO", golden.outcome(Handshake((), clock, None, **way).conclude, [no, no, no, old, [1, 0]])  # type: ignore[arg-type]
    yield "met", met


def endpoints() -> golden.Told:
    """Endpoints are what their words say."""
    fixed = Endpoint("redis://h:1/2", options=ConnectOptions(timeout_ms=700, connect_timeout_ms=300))
    routed = Endpoint("redis+cluster://h:1")
    settings = fixed.settings(patience_ms=500)
    yield "settings", {at: settings[at] for at in ("socket_timeout", "socket_connect_timeout", "protocol", "socket_keepalive")}
    yield "a socket of Unix", "socket_keepalive" in Endpoint("unix:///s").settings()
    yield "slots", (fixed.for_keys_like("{a}") is fixed, routed.for_keys_like("{a}").slot, routed.slot)
    yield "options", (fixed.with_options(None) is fixed, fixed.with_options(ConnectOptions(deadline_ms=10)).options.deadline_ms)
    yield "kinds", [fixed.of_kind(asynchronous=kind).asynchronous for kind in (False, True)]
    yield "led to", (fixed.led_to("redis://other").options is fixed.options, fixed.asynchronous)
    at = routed.of_address(Address("x", 9))
    yield "at", (at.route, at.settings()["host"], at.settings()["port"])
    like = Endpoint("redis://h:1/2", options=fixed.options)
    yield "shared", [fixed.sharing_key == other.sharing_key for other in (like, routed)]
    for url in (
        *("redis+cluster://h:65535", "redis+cluster://h:1", "redis+cluster://h", "sentinel://u:pw@[::1]:5,h/m"),
        *("redis+cluster://h:65536", "redis+cluster://h:0", "http://h", "redis://h/x", "redis://u:p@ss:1@h/x"),
    ):
        yield url.replace("p@ss", "..."), golden.outcome(lambda url=url: (Endpoint(url).route, Endpoint(url).url))
    yield "printed", SentinelRoute((Address("::1", 5), Address("h", 6)), "m", (("password", "pw"),))
    for one, other in (("h", "h:6379/0"), ("/1", "localhost/1"), ("h/1", "h/2"), ("h", "g"), ("h:1", "h")):
        yield f"{one} reaches {other}", Endpoint(f"redis://{one}").reaches(Endpoint(f"redis://{other}"))
    other = Endpoint("redis://u:p@h/3").of_address(Address("x", 9), {"username": "v"}).settings()
    yield "of other credentials", {name: other.get(name) for name in ("db", "username", "password", "host", "port")}
    for more in ({}, {"ssl": True, "password": "pw"}):
        made = Endpoint(client=redis.asyncio.RedisCluster("c", 7_001, **more), asynchronous=True)
        yield f"of a cluster {more}", (made.route, made.connection_class.__name__, made.settings().get("password"))
    for made in (fixed, fixed.of_kind(asynchronous=True)):
        both = (made.connection_class, type(made.settings()["retry"]))
        yield "kinds of redis-py", (["asyncio" in each.__module__ for each in both], made.settings()["health_check_interval"])


#: What a server says: what passes, what it refuses, and faults.
REPLIES = [
    "NOSCRIPT No matching script.", "LOADING server is loading the dataset in memory", "BUSY Redis is busy running a script.",
    "TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN The cluster is down", "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381", "MASTERDOWN Link with MASTER is down", "UNBLOCKED force unblock from blocking operation",
    "READONLY You can't write against a read only replica.", "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.",
    "NOAUTH Authentication required.", "NOPERM this user has no permissions", "WRONGPASS invalid username-password pair",
    "DENIED Redis is running in protected mode", "ERR max number of clients reached",
    "ERR user_script:3: attempt to index a nil value", "WRONGTYPE Operation against a key holding the wrong kind of value",
    "IRONCLAIM sequence exhausted at 2^48", "BUSYGROUP Consumer Group name already exists", "ASKING", "",
]  # fmt: skip


def deliveries() -> golden.Told:
    """What follows a trouble, alone or behind a send without an answer: the deadline counts the pause that would follow."""
    for first in (None, Trouble.UNANSWERED):
        for last in Trouble:
            for at_ms in (0, 9_979, 9_980, 9_989, 9_990):
                sends = delivery(1.0)
                before = first and sends.after(first, "reset", 0)
                found = sends.after(last, "no", at_ms * MS)
                yield f"{last} behind {before} at {at_ms}", (found, sends.definite, sends.errors, sends.unanswered)
    yield "without time", delivery(deadline_ms=0).after(Trouble.NOT_SENT, "", 0)


def replies() -> golden.Told:
    return [(message, exchange.trouble_of_reply(message)) for message in REPLIES]


def test_what_drivers_decide(monkeypatch: Any) -> None:
    monkeypatch.setattr(exchange.random, "random", lambda: 1.0)
    golden.tells("engine/exchange.txt", pieces, durability, ends, pauses, handshakes, endpoints, replies, deliveries)


MS = 1_000_000


def delivery(jitter: float = 0.0, deadline_ms: int = DEADLINE_MS) -> Delivery:
    return Delivery(0, lambda: jitter, deadline_ms)


@pytest.mark.parametrize("message", ["down", "MOVED 1 h:1", "ASK 1 h:1", "TRYAGAIN"])
def test_pauses_double_and_are_bounded(message: str) -> None:
    steps = [10, 20, 40, 80, *([160, 320, *[500] * 2_000] if message == "down" else [100, 100])]
    for jitter, share in ((0.0, 0.5), (1.0, 1.0)):
        sends = delivery(jitter)
        assert [sends.after(Trouble.NOT_SENT, message, 0) for _ in steps] == [SendAgain(int(step * share)) for step in steps]


@given(st.lists(st.tuples(st.sampled_from(list(Trouble)), st.integers(0, 12_000)), max_size=30), st.floats(0, 0.999))
def test_certainty_is_never_claimed_after_an_unanswered_send(events: list[tuple[Trouble, int]], jitter: float) -> None:
    sends, unanswered = delivery(jitter), 0
    for trouble, at_ms in sorted(events, key=lambda event: event[1]):
        step = sends.after(trouble, trouble.value, at_ms * MS)
        unanswered += trouble is Trouble.UNANSWERED
        assert sends.definite == (unanswered == 0)
        if isinstance(step, GiveUp):
            assert (step.outcome is NoReply.UNKNOWN) == (unanswered > 0)
            return
        assert trouble not in (Trouble.REFUSED, Trouble.FAULT)
        assert at_ms + step.after_ms < DEADLINE_MS and 0 < step.after_ms <= 500
