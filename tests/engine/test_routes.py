"""Where no address is fixed: what a url says, which slot a key has, and whom the sentinels name, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import redis

from engine import Malformed, Queue, UnsupportedFeature, models
from engine.models import Spec
from engine.redis.endpoint import Address, ClusterRoute, Endpoint, Node, SentinelRoute, slot_of
from engine.redis.resolver import Answer, Sentinels
from tests.engine.helpers.producing import refused

OLD, NEW = Address("10.0.0.1", 6379), Address("10.0.0.2", 6379)


def test_the_slot_of_a_key_is_that_of_its_hash_tag() -> None:
    assert (slot_of("foo"), slot_of("foo{}bar"), slot_of("123456789")) == (12182, slot_of("foo{}bar"), 0x31C3 % 16384)
    assert slot_of("ic:{mails}:job:a") == slot_of("mails") == slot_of("{mails}{other}")


def test_a_url_names_sentinels_with_a_service_and_credentials_of_two_kinds() -> None:
    endpoint = Endpoint("sentinel://ada:p%40w@one:1,[::1]:2,three/mails?db=3&sentinel_username=watch&sentinel_password=s%20w")
    assert endpoint.route == SentinelRoute(
        (Address("one", 1), Address("::1", 2), Address("three", 26379)), "mails", (("password", "s w"), ("username", "watch"))
    )
    settings = endpoint.settings(node=Node("10.0.0.1", 7, "x"))
    names = ("host", "port", "db", "username", "password")
    assert [settings[name] for name in names] == ["10.0.0.1", 7, 3, "ada", "p@w"]
    watch = endpoint.of_address(Address("one", 1), {"password": "s w"}).settings()
    assert "db" not in watch and "username" not in watch and watch["password"] == "s w"


def test_a_url_names_nodes_of_a_cluster_and_tls() -> None:
    endpoint = Endpoint("rediss+cluster://:pw@one:1,two?ssl_cert_reqs=none")
    assert endpoint.route == ClusterRoute((Address("one", 1), Address("two", 6379)))
    assert endpoint.connection_class is redis.SSLConnection and endpoint.settings()["password"] == "pw"
    assert Endpoint("rediss+sentinel://one/mails").connection_class is redis.SSLConnection
    assert endpoint.reaches(Endpoint("rediss+cluster://one:1,two")) and not endpoint.reaches(Endpoint("redis://one:1"))
    assert Endpoint("redis://").reaches(Endpoint("redis://:pw@localhost:6379/0"))
    for other in ("redis://two:1", "redis://one:2", "redis://one:1/1", "rediss://one:1", "unix:///one"):
        assert not Endpoint("redis://one:1").reaches(Endpoint(other))


@pytest.mark.parametrize(("url", "reason"), [
    ("sentinel://one:1", "the name of the service"), ("sentinel://one:1/", "the name of the service"),
    ("sentinel:///mails", "hosts are missing"), ("sentinel://one:70000/mails", "no host:port"),
    ("sentinel://one:1,/mails", "no host:port"),
    ("sentinel://one/mails?sentinel_db=2", "sentinel_db is not known"),
    ("sentinel://one/mails?sentinel_db=", "sentinel_db is not known"),
    ("redis+cluster://one:1/2", "database 0"), ("redis+cluster://one:1?db=2", "database 0"),
    ("redis+cluster://", "hosts are missing"), ("sentinel://one/mails?nonsense=2", "nonsense"),
])  # fmt: skip
def test_a_url_that_cannot_be_read_is_refused_before_anything_is_sent(url: str, reason: str) -> None:
    refused(Malformed, reason, Queue, "q", url=url)


@pytest.mark.parametrize("make", [models.Bridge, models.Bananas, models.Bull, models.Mosquito])
def test_a_format_whose_keys_have_no_hash_tag_does_not_run_in_a_cluster(make: Callable[[], Spec]) -> None:
    refused(UnsupportedFeature, "hash tag", Queue, "q", make(), url="redis+cluster://127.0.0.1:1")


def answer(identity: str, at: Address, run_id: str, others: int = 2) -> list[Any]:
    fields = {"name": "mails", "ip": at.host, "port": str(at.port), "runid": run_id, "num-other-sentinels": str(others)}
    return [identity.encode(), [word.encode() for pair in fields.items() for word in pair], []]


def named(answers: Mapping[str, Answer], *, known: int = 3) -> Node | str | None:
    """Whom these answers name in the end, or why nobody is."""
    route = SentinelRoute(tuple(Address(f"s{number}", 1) for number in range(known)), "mails")
    sentinels = Sentinels(route, lambda address, words: [], 1.0, lambda *listening: None)
    try:
        assert sentinels.takes({Address(host, 1): one for host, one in answers.items()}, last=True) is None
    except redis.ConnectionError as error:
        return str(error)
    return sentinels.named(0)


def test_a_majority_names_the_primary_by_address_and_run_id() -> None:
    assert named({"s0": answer("a", NEW, "n1"), "s1": answer("b", NEW, "n1"), "s2": answer("c", OLD, "o1")}) == Node(*NEW, "n1")
    assert named({"s0": answer("a", NEW, "n1"), "s1": answer("b", NEW, "")}) == Node(*NEW, "n1"), "not known there yet"
    assert named({"s0": answer("a", NEW, ""), "s1": answer("b", NEW, "")}) == Node(*NEW, "")


FIRST = answer("a", NEW, "n1")
NO_MAJORITY: dict[str, Mapping[str, Answer]] = {
    "they differ": {"s0": FIRST, "s1": answer("b", OLD, "o1")}, "two are silent": {"s0": FIRST},
    "one by two names": {"s0": FIRST, "s1": FIRST}, "two run ids": {"s0": FIRST, "s1": answer("b", NEW, "n2")},
    "of five": {f"s{at}": answer(name, NEW, "n1", others=4) for at, name in enumerate("ab")}, "nobody answers": {},
}  # fmt: skip


@pytest.mark.parametrize("why", NO_MAJORITY)
def test_less_than_a_majority_names_nobody(why: str) -> None:
    found = named(NO_MAJORITY[why])
    assert isinstance(found, str) and "no majority of" in found and "sentinels names the primary of mails" in found


def test_why_nobody_is_named_is_told() -> None:
    refusal = [b"a", redis.ResponseError("No such master with that name"), redis.ResponseError("the same")]
    found = named({"s0": refusal, "s1": redis.ConnectionError("refused")})
    assert isinstance(found, str) and "No such master with that name" in found and "refused" in found


def test_sentinels_that_others_know_are_asked_too() -> None:
    sentinels = Sentinels(SentinelRoute((Address("s0", 1),), "mails"), lambda address, words: [], 1.0, lambda *listening: None)
    first = answer("a", NEW, "n1")
    first[2] = [[b"ip", b"s1", b"port", b"1"], [b"ip", b"s2", b"port", b"1"]]
    answers: dict[Address, Answer] = {Address("s0", 1): first}
    assert {*(sentinels.takes(answers, last=True) or ())} == {Address("s1", 1), Address("s2", 1)}
    answers[Address("s2", 1)] = answer("c", NEW, "n1")
    assert sentinels.takes(answers, last=False) is None
