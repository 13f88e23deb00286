"""Who is written to, decided from the answers of nodes and sentinels: no server, no socket."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import MovedError, ResponseError

from engine.redis import resolver
from engine.redis.endpoint import Address, ClusterRoute, Node, SentinelRoute
from engine.redis.resolver import ClusterNodes, Sentinels
from tests import golden
from tests.engine.using import refused, soon

NOW_S = [100.0]
GONE = redis.ConnectionError("refused")
ONE, TWO, THREE = (Address("127.0.0.1", port) for port in (7001, 7002, 7003))
A, B = Node(*ONE, "a"), Node(*TWO, "b")


def view(*rows: tuple[int, int, Node], state: bytes = b"ok") -> list[Any]:
    """What a node answers."""
    told = [[first, last, [node.host.encode(), node.port, node.identity.encode()]] for first, last, node in rows]
    return [b"cluster_state:" + state + b"\r\ncluster_size:2", told]


def cluster(ask: Any = None, timeout_s: float = 1.0) -> ClusterNodes:
    return ClusterNodes(ClusterRoute((ONE, TWO)), ask, timeout_s)


WHOLE = view((0, 10, A), (11, 20, B))


def fields(node: Node, others: int = 2) -> list[bytes]:
    told = {"ip": node.host, "port": str(node.port), "runid": node.identity, "num-other-sentinels": str(others)}
    return [word.encode() for pair in told.items() for word in pair if pair[1]]


def names(node: Node, identity: bytes | None = b"", *others: Address, count: int = 2) -> list[Any]:
    """What a sentinel answers."""
    return [identity, fields(node, count), [[b"ip", host.encode(), b"port", str(port).encode()] for host, port in others]]


Listened = dict[Address, tuple[Callable[[bytes], None], Callable[[], bool]]]


def sentinels(ask: Any = None, *addresses: Address) -> tuple[Sentinels, Listened]:
    listened: Listened = {}

    def listen(address: Address, *how: Any) -> None:
        assert address not in listened
        listened[address] = how  # type: ignore[assignment]

    return Sentinels(SentinelRoute(addresses or (ONE,), "mymaster"), ask, 60.0, listen), listened


def nodes() -> golden.Told:
    """The node of a slot is the one that most name; nodes that answered before are asked first, and not all of them."""
    of = cluster()
    yield "asked first", of.addresses()
    yield "taken", of.takes({ONE: view((0, 20, B)), TWO: WHOLE, THREE: WHOLE}, last=True)
    yield "named", [of.named(slot) for slot in (0, 10, 11, 20, 21)]
    yield "serves", [of.serves(node) for node in (A, B, Node(*ONE, "other"))]
    yield "found", [golden.outcome(of.found, slot) for slot in (20, 21)]
    yield "at", (of.at(ONE), of.at(THREE), bool(of.replaced(Node(*ONE, "x"))))
    # A node that does not know its own address leaves it out.
    yield (
        "itself",
        (of.takes({THREE: [WHOLE[0], [[0, 9, [b"", 7003, b"c"]]]]}, last=True), of.named(0), of.named(10), of.addresses()),
    )
    of.takes({ONE: view(*((at, at, Node("127.0.0.1", 8_000 + at, str(at))) for at in range(6)))}, last=True)
    yield "asked then", of.addresses()
    answers: dict[Address, Any] = {ONE: GONE, TWO: [ResponseError("ERR no"), []], THREE: view(state=b"x")}
    yield "nobody knows", golden.outcome(of.takes, answers, last=True)


def patience() -> golden.Told:
    """What others say is waited for a while, which begins anew with each question."""
    of, many = cluster(), [Address("127.0.0.1", port) for port in range(5)]
    for at_s, answers in (
        *((100.0, {ONE: view(state=b"fail")}), (100.0, dict.fromkeys(many[:4], WHOLE)), (100.19, {ONE: WHOLE})),
        *((100.21, {ONE: WHOLE}), (100.3, {}), (100.3, {ONE: WHOLE}), (100.3, dict.fromkeys(many, WHOLE))),
    ):
        NOW_S[0] = at_s
        yield f"{len(answers)} at {at_s}", of.takes(answers, last=False) if answers else of.addresses()


def doubts() -> golden.Told:
    """What a server says casts doubt on the last answer, or points to another node."""
    of = cluster()
    of.takes({ONE: WHOLE}, last=True)
    words = ("ERR", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED")
    for error in (
        *(GONE, OSError(), redis.TimeoutError(), *(ResponseError(f"{word} no") for word in words)),
        *(MovedError("0 127.0.0.1:7002"), MovedError("1 127.0.0.1:7003")),
    ):
        of._doubted = False
        of.note_error(error)
        yield f"{type(error).__name__} {error}", (of._doubted, of.known(5), of.named(0), of.named(1))


def votes() -> golden.Told:
    """Each sentinel has one, and those that others know are asked, too."""
    of, listened = sentinels()
    one, split = names(A, b"s1", TWO, THREE), {TWO: names(B, b"s2"), THREE: OSError("x")}
    for answers, last in (
        *(({ONE: one}, True), ({ONE: one, TWO: names(A, b"s1")}, False), ({ONE: one, **split}, True)),
        *(({ONE: one, TWO: names(A, None)}, False), ({ONE: [b"s1", ResponseError("ERR no"), []]}, True)),
        ({ONE: names(Node(*ONE, ""), b"s1", count=3)}, True),
    ):
        found = golden.outcome(of.takes, answers, last=last)
        yield f"{len(answers)} answers", (sorted(found) if isinstance(found, set) else found, of.named(0), sorted(of.addresses()))
    yield "listened to", sorted(listened)
    for identities in ("aab", "ab", "a", "-a-", "ax-", "ax", "--", ""):
        each = [Node(*(TWO if one == "b" else ONE), one.strip("-")) for one in identities]
        yield f"of {identities}", [resolver._agreed(each, count) for count in (1, 2, 3)]


def primaries() -> golden.Told:
    """One is known by its address, and by its run id as far as that is known; an answer is good for a second."""
    of, _ = sentinels()
    yield "none", (of.serves(A), of.replaced(A), of.fresh(0))
    of.takes({ONE: names(A, count=0)}, last=True)
    yield "served", [(of.serves(node), of.replaced(node)) for node in (A, Node(*ONE, ""), Node(*ONE, "x"), Node(*TWO, "a"))]
    of._doubted = False
    for later_s in (0.9, 1.0):
        NOW_S[0] += later_s
        yield f"{later_s} s later", (of.fresh(0), of.known(0))
        NOW_S[0] -= later_s


def test_who_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SimpleNamespace(monotonic=lambda: NOW_S[0], monotonic_ns=lambda: round(NOW_S[0] * 1e9))
    monkeypatch.setattr(resolver, "time", time)
    golden.tells("engine/resolving.txt", nodes, patience, doubts, votes, primaries)


class Holder:
    def __init__(self) -> None:
        self.left = 0

    def leave(self) -> None:
        self.left += 1


def test_one_question_is_asked_for_all_and_holders_hear_of_its_answer() -> None:
    goes_on, asked = threading.Event(), list[Address]()

    def ask(address: Address, questions: Sequence[Any]) -> list[Any]:
        asked.append(address)
        assert goes_on.wait(60) and questions == (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
        if address == TWO:
            raise redis.ConnectionError("refused")
        return WHOLE

    nodes, holder, other = cluster(ask, 60.0), Holder(), Holder()
    assert not nodes.wanted and nodes.known(0) is None
    nodes.join(holder)
    nodes.join(other)
    nodes.part(other)
    first = nodes.find()
    assert nodes.find() is first and nodes.wanted and not first.done() and not first.cancel(), "it is not one task's alone"
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("ironclaim-resolver"))
    goes_on.set()
    assert first.result(60) is None and nodes.node(11) == B and sorted(asked) == [ONE, TWO]
    soon(lambda: holder.left == 1, "it hears of the answer")
    assert other.left == 0 and nodes.known(0) == nodes.fresh(0) == A and nodes._pending is None


def test_questions_are_asked_some_time_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = [100.0], list[float]()
    monkeypatch.setattr(resolver, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=slept.append))
    nodes = cluster(lambda *_: WHOLE, 60.0)
    for now_s[0] in (100.0, 100.03, 101.0):
        nodes.find().result(60)
    assert [round(pause_s, 9) for pause_s in slept] == [0.0, 0.02, 0.0]


def test_a_question_that_nobody_can_answer_fails_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any) -> list[Any]:
        raise redis.ConnectionError("refused")

    nodes, holder = cluster(ask, 60.0), Holder()
    nodes.join(holder)
    refused(redis.ConnectionError, "7001: ConnectionError: refused", nodes.node, 0)
    assert nodes._doubted and holder.left == 0
    silent = cluster(lambda *_: threading.Event().wait(60), 0.02)
    refused(redis.ConnectionError, "no node of the cluster can say", silent.node, 0)
    monkeypatch.setattr(silent, "find", Future)
    refused(redis.ConnectionError, "did not answer in time", silent.node, 0)


def test_in_another_process_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for use in (lambda nodes: nodes.join(Holder()), lambda nodes: nodes.find(), lambda nodes: resolver._in_a_forked_child()):
        nodes: Any = cluster(lambda *_: WHOLE, 60.0)
        assert nodes.node(0) == A
        with monkeypatch.context() as child:
            child.setattr(resolver.os, "getpid", lambda: 1)
            assert nodes.known(0) is None and nodes.named(0) == A
            use(nodes)
            assert nodes._pid == 1


def test_a_switch_is_followed_until_a_majority_names_another_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "SWITCH_PAUSE_S", 0.0)
    answers = [names(A, count=0)] * 3 + [redis.ConnectionError("refused"), names(B, count=0)]

    def ask(*_: Any) -> list[Any]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    asked, listened = sentinels(ask)
    holder = Holder()
    asked.join(holder)
    assert asked.node(0) == A
    said, wanted = listened[ONE]
    said(b"other 127.0.0.1 7001 127.0.0.1 7002")
    assert not asked._doubted and not asked._following and wanted()
    said(b"mymaster 127.0.0.1 7001 127.0.0.1 7002")
    soon(lambda: asked.named(0) == B and not asked._following, "the new primary is named")
    assert len(answers) == 1
    asked._following = True
    said(b"mymaster 127.0.0.1 7002 127.0.0.1 7001")
    assert asked._doubted and len(answers) == 1, "one that follows is enough"
    asked.part(holder)
    assert not wanted() and asked.addresses() == {ONE} and asked._listened == set()
