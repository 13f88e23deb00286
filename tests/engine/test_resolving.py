"""Who is written to, decided from the answers of nodes and sentinels: no server, no socket."""

from __future__ import annotations

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
from tests.engine.helpers.producing import refused
from tests.engine.helpers.waiting import soon

ONE, TWO, THREE = (Address("127.0.0.1", port) for port in (7001, 7002, 7003))
A, B = Node(*ONE, "a"), Node(*TWO, "b")


def view(*rows: tuple[int, int, Node], state: bytes = b"ok") -> list[Any]:
    """What a node answers."""
    told = [[first, last, [node.host.encode(), node.port, node.identity.encode()]] for first, last, node in rows]
    return [b"cluster_state:" + state + b"\r\ncluster_size:2", told]


def cluster(ask: Any = None, timeout_s: float = 1.0) -> ClusterNodes:
    return ClusterNodes(ClusterRoute((ONE, TWO)), ask, timeout_s)


WHOLE = view((0, 10, A), (11, 20, B))


def test_the_node_of_a_slot_is_the_one_that_most_name() -> None:
    nodes = cluster()
    assert nodes.takes({ONE: view((0, 20, B)), TWO: WHOLE, THREE: WHOLE}, last=True) is None
    assert [nodes.named(slot) for slot in (0, 10, 11, 20, 21)] == [A, A, B, B, None]
    assert nodes.serves(A) and nodes.serves(B) and not nodes.serves(Node(*ONE, "other")) and not nodes.replaced(Node(*ONE, "x"))
    refused(redis.ConnectionError, "CLUSTERDOWN no node serves slot 21", nodes.found, 21)
    assert nodes.found(20) == B and nodes.at(ONE) == A and nodes.at(THREE) == Node(*THREE, "")
    # A node that does not know its own address leaves it out.
    assert nodes.takes({THREE: [WHOLE[0], [[0, 9, [b"", 7003, b"c"]]]]}, last=True) is None
    assert nodes.named(0) == Node(*THREE, "c") and nodes.named(10) is None
    assert nodes.addresses() == (THREE, ONE, TWO)


def test_nodes_that_answered_before_are_asked_first_and_not_all_of_them() -> None:
    nodes, many = cluster(), [Node("127.0.0.1", 8_000 + at, str(at)) for at in range(6)]
    assert nodes.addresses() == (ONE, TWO)
    nodes.takes({ONE: view(*((at, at, node) for at, node in enumerate(many)))}, last=True)
    assert nodes.addresses() == (*(node.address for node in many[:5]), ONE, TWO)


def test_what_others_say_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(resolver.time, "monotonic", lambda: now_s[0])
    nodes = cluster()
    addresses = [Address("127.0.0.1", port) for port in range(5)]
    assert nodes.takes({ONE: view(state=b"fail")}, last=False) == ()
    assert nodes.takes(dict.fromkeys(addresses[:4], WHOLE), last=False) == () and nodes.named(0) is None
    now_s[0] = 100.19
    assert nodes.takes({ONE: WHOLE}, last=False) == ()
    now_s[0] = 100.21
    assert nodes.takes({ONE: WHOLE}, last=False) is None and nodes.named(0) == A
    nodes.addresses()
    assert nodes.takes({ONE: WHOLE}, last=False) == (), "the wait begins anew with each question"
    assert nodes.takes(dict.fromkeys(addresses, WHOLE), last=False) is None


def test_why_nobody_knows_is_said_of_each_node() -> None:
    answers: dict[Address, Any] = {
        ONE: redis.ConnectionError("refused"),
        TWO: [ResponseError("ERR no"), []],
        THREE: view(state=b"x"),
    }
    refused(
        redis.ConnectionError,
        "^no node of the cluster can say where slots are: 127.0.0.1:7001: ConnectionError: refused; "
        "127.0.0.1:7002: ERR no; 127.0.0.1:7003: CLUSTERDOWN, it does not see a whole cluster$",
        lambda: cluster().takes(answers, last=True),
    )


def known(nodes: Any) -> bool:
    """Whether nothing has cast doubt on the last answer."""
    return not nodes._doubted


def test_what_a_server_says_casts_doubt_or_points_to_another_node() -> None:
    nodes = cluster()
    nodes.takes({ONE: WHOLE}, last=True)
    for error, doubted in (
        *(
            (redis.ConnectionError("gone"), True),
            (OSError(), True),
            (redis.TimeoutError(), True),
            (ResponseError("ERR no"), False),
        ),
        *((ResponseError(f"{word} no"), True) for word in ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED")),
        *((MovedError("0 127.0.0.1:7002"), False), (MovedError("1 127.0.0.1:7003"), True)),
    ):
        nodes._doubted = False
        nodes.note_error(error)
        assert (not known(nodes), nodes.known(5)) == (doubted, None if doubted else A), error
    assert [nodes.named(slot) for slot in (0, 1)] == [B, A]


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
    assert not known(nodes) and holder.left == 0
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


# -- sentinels


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


def test_each_sentinel_has_one_vote_and_those_that_others_know_are_asked() -> None:
    asked, listened = sentinels()
    assert asked.addresses() == {ONE}
    one = names(A, b"s1", TWO, THREE)
    assert asked.takes({ONE: one}, last=True) == {TWO, THREE} and asked.named(0) is None
    assert asked.takes({ONE: one, TWO: names(A, b"s1")}, last=False) == {TWO, THREE}, "it is the same one by another address"
    refusal = refused(
        redis.ConnectionError, "", lambda: asked.takes({ONE: one, TWO: names(B, b"s2"), THREE: OSError("x")}, last=True)
    )
    told = ["127.0.0.1:7001 (a) by 1", "127.0.0.1:7002 (b) by 1"]
    assert str(refusal) == f"no majority of 3 sentinels names the primary of mymaster: {', '.join(told)} (OSError: x)"
    assert asked.takes({ONE: one, TWO: names(A, None)}, last=False) is None and asked.named(0) == A
    assert asked.addresses() == {ONE, TWO} == set(listened)
    none = refused(redis.ConnectionError, "", lambda: asked.takes({ONE: [b"s1", ResponseError("ERR no"), []]}, last=True))
    assert str(none) == "no majority of 1 sentinels names the primary of mymaster: no server (ERR no)"
    alone = names(Node(*ONE, ""), b"s1", count=3)
    assert "7001 (no run id) by 1" in str(
        refused(redis.ConnectionError, "majority of 4", lambda: asked.takes({ONE: alone}, last=True))
    )


def test_a_primary_is_known_by_its_address_and_by_its_run_id_as_far_as_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [10_000_000_000]
    monkeypatch.setattr(resolver.time, "monotonic_ns", lambda: now_ns[0])
    asked, _ = sentinels()
    assert not asked.serves(A) and asked.replaced(A) and asked.fresh(0) is None
    assert asked.takes({ONE: names(A, count=0)}, last=True) is None
    for node, serves in ((A, True), (Node(*ONE, ""), True), (Node(*ONE, "x"), False), (Node(*TWO, "a"), False)):
        assert asked.serves(node) is serves and asked.replaced(node) is not serves
    asked._doubted = False
    for later_ns, fresh in ((999_999_999, A), (1_000_000_000, None)):
        now_ns[0] = 10_000_000_000 + later_ns
        assert (asked.fresh(0), asked.known(0)) == (fresh, A)


VOTES: list[tuple[list[tuple[int, str]], int, Node | None]] = [
    ([(7001, "a"), (7001, "a"), (7002, "b")], 3, A), ([(7001, "a"), (7002, "b")], 2, None), ([(7001, "a")], 2, None),
    ([(7001, ""), (7001, "a"), (7001, "")], 3, A), ([(7001, "a"), (7001, "x"), (7001, "")], 3, A),
    ([(7001, "a"), (7001, "x")], 3, None), ([(7001, ""), (7001, "")], 3, Node(*ONE, "")), ([], 1, None),
]  # fmt: skip


@pytest.mark.parametrize(("votes", "count", "agreed"), VOTES)
def test_more_than_half_agree_on_an_address_and_one_run_id(votes: list[tuple[int, str]], count: int, agreed: Node | None) -> None:
    assert resolver._agreed([Node("127.0.0.1", port, identity) for port, identity in votes], count) == agreed


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
    assert known(asked) and not asked._following and wanted()
    said(b"mymaster 127.0.0.1 7001 127.0.0.1 7002")
    soon(lambda: asked.named(0) == B and not asked._following, "the new primary is named")
    assert len(answers) == 1
    asked._following = True
    said(b"mymaster 127.0.0.1 7002 127.0.0.1 7001")
    assert not known(asked) and len(answers) == 1, "one that follows is enough"
    asked.part(holder)
    assert not wanted() and asked.addresses() == {ONE} and asked._listened == set()
