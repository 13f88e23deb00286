"""Where no address is fixed: what a url says, and which slot a key has."""

from collections.abc import Callable

import pytest
import redis

from engine import Queue, UnsupportedFeature, models
from engine.models import Spec
from engine.redis.endpoint import Address, ClusterRoute, Endpoint, Node, SentinelRoute, slot_of
from tests.engine.helpers.producing import refused


def test_the_slot_of_a_key_is_that_of_its_hash_tag() -> None:
    assert (slot_of("foo"), slot_of("foo{}{bar}"), slot_of("123456789")) == (12182, 8363, 0x31C3 % 16384)
    assert slot_of("a}b") != slot_of("a") and slot_of("ic:{mails}:job:a") == slot_of("mails") == slot_of("{mails}{other}")


def test_a_url_names_sentinels_with_a_service_and_credentials_of_two_kinds() -> None:
    endpoint = Endpoint("sentinel://ada:p%40w@one:1,[::1]:2,three/mails?db=3&sentinel_username=watch&sentinel_password=s%20w")
    places = (Address("one", 1), Address("::1", 2), Address("three", 26379))
    assert endpoint.route == SentinelRoute(places, "mails", (("password", "s w"), ("username", "watch")))
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


@pytest.mark.parametrize("make", [models.Bridge, models.Bananas, models.Bull, models.Mosquito])
def test_a_format_whose_keys_have_no_hash_tag_does_not_run_in_a_cluster(make: Callable[[], Spec]) -> None:
    refused(UnsupportedFeature, "hash tag", Queue, "q", make(), url="redis+cluster://127.0.0.1:1")
