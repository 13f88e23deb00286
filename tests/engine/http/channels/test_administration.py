"""The admin API: who is admitted, and what is refused."""

import logging
from typing import Any

import pytest
import redis

from engine.http.channels import networks
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import Token
from tests.engine.helpers.refusing import malformed
from tests.engine.http.channels.desk import ADMIN, Desk, desk
from tests.engine.http.serving import bearer

pytestmark = pytest.mark.feature("DS29", model="dsps")

REVOKE = "/admin/jwt/revoke?jti=id-1&exp=4070912400"
LOOPBACK = ("127.0.0.0/8",)


def revoked(client: Desk, raw: redis.Redis, authorization: str | None) -> bool:
    """Whether the call did it; one that did not is a 403 without a word."""
    answer = client.put(REVOKE, headers={} if authorization is None else {"Authorization": authorization})
    done = bool(raw.exists("jwt.{id-1}.revoke"))
    assert (answer.status_code, done) in ((200, True), (403, False)), authorization
    assert done or answer.json() == {"error": ""}
    return done


BEARER = bearer(ADMIN)
WRONG = (None, ADMIN, f"Basic {ADMIN}", f"Bearer {ADMIN}x", f"Bearer {ADMIN[:-1]}", "Bearer", f"Bearer x{ADMIN}")


def test_a_bearer_token_is_asked_for(ironclaim_url: str, raw: redis.Redis) -> None:
    with desk(ironclaim_url, ChannelSettings(admin_tokens=("another-token-0123", ADMIN))) as client:
        assert not any(revoked(client, raw, authorization) for authorization in WRONG)
        assert revoked(client, raw, BEARER["Authorization"])


def test_without_tokens_nobody_is_admitted_and_tokens_of_the_server_are_none(ironclaim_url: str, raw: redis.Redis) -> None:
    with desk(ironclaim_url, tokens=(Token(secret=ADMIN, role="admin"),)) as client:
        assert not any(revoked(client, raw, authorization) for authorization in (*WRONG, BEARER["Authorization"]))


NETWORKS: list[tuple[tuple[str, ...], tuple[str, ...] | None, list[str], bool]] = [
    *((("127.0.0.0/8",), None, [], True), (("10.0.0.0/8", "::1/128"), None, [], False)),
    # A header that is not configured says nothing, and of a proxy that is not trusted neither.
    *((("10.0.0.0/8",), proxies, ["10.1.2.3"], False) for proxies in (None, ("192.168.0.0/16",))),
    *((("10.0.0.0/8",), LOOPBACK, ["10.1.2.3"], True), (LOOPBACK, LOOPBACK, ["203.0.113.9"], False)),
    (("10.0.0.0/8",), LOOPBACK, ["nonsense"], False),
    # What stands before the last address that is no proxy, the caller may have made up.
    *((("10.0.0.0/8",), LOOPBACK, given, False) for given in (["10.1.2.3, 203.0.113.9"], ["10.1.2.3", "203.0.113.9"])),
    (("10.0.0.0/8",), (*LOOPBACK, "192.168.0.0/16"), ["10.1.2.3, 192.168.0.9"], True),
]


@pytest.mark.parametrize(("networks", "proxies", "forwarded", "admitted"), NETWORKS)
def test_the_network_counts(ironclaim_url: str, networks: Any, proxies: Any, forwarded: list[str], admitted: bool) -> None:
    header = None if proxies is None else "X-Forwarded-For"
    more: Any = {"admin_networks": networks, "real_ip_header": header, "trusted_proxies": proxies or ()}
    given = [("X-Forwarded-For", value) for value in forwarded]
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,), **more)) as client:
        assert client.put(REVOKE, headers=[*BEARER.items(), *given]).status_code == (200 if admitted else 403)


#: Values of the header, each of its lines, from which nobody can tell who calls.
ALONE = (
    *("", "unknown", "203.0.113.5, unknown", "127.0.0.1,", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:65536", "[::1]:65536", "-"),
    *("127.0.0.1 127.0.0.1", "127.0.0.1;127.0.0.1", "[127.0.0.1]", "::1]", "[::1", "[::1]443", "[[::1]]", "::1%", "127.0.0.1%lo"),
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01", "localhost", "for=127.0.0.1", '"127.0.0.1"', "_hidden"),
    *("127.0.0.1/8", "::g", "::1::", "127.0.0.1\t127.0.0.1", "null", "127.0.0.256", "\u0661\u0662\u0667.0.0.1", "1" * 4_000),
)
UNREADABLE = ([], [","], ["unknown", ""], ["10.0.0.1", "", "127.0.0.1,unknown"], *([line] for line in ALONE))


def test_an_unreadable_caller_is_refused_and_audited(ironclaim_url: str, raw: Any, audit: Any) -> None:
    """The peer is a trusted proxy of an allowed network: it must not pass for the caller."""
    settings = ChannelSettings(admin_tokens=(ADMIN,), real_ip_header="X-Forwarded-For")
    with desk(ironclaim_url, settings) as client:
        for lines in (*UNREADABLE, ["203.0.113.5:4711"], ["[2001:db8::1]:443"]):
            headers = [*BEARER.items(), *(("X-Forwarded-For", line.encode()) for line in lines)]
            assert client.put(REVOKE, headers=headers).status_code == 403, lines
            (line,) = audit()
            assert (line["status"], line["path"]) == (403, "/admin/jwt/revoke"), lines
            known = lines[:1] in (["203.0.113.5:4711"], ["[2001:db8::1]:443"])
            assert ("in no admin network" if known else "cannot be read") in line["refused"], lines
            assert lines != ["1" * 4_000] or line["refused"].endswith(f": {'1' * 80!r}")
        assert raw.dbsize() == 0
        assert client.put(REVOKE, headers=[*BEARER.items(), ("X-Forwarded-For", "10.1.2.3:4711")]).status_code == 200
        assert "refused" not in audit()[0]


def test_addresses_are_read_as_gateways_write_them() -> None:
    for text, read in (
        *((text, "10.0.0.1") for text in ("10.0.0.1", " 10.0.0.1\t", "10.0.0.1:0", "10.0.0.1:65535", "::ffff:10.0.0.1")),
        *((text, "10.0.0.1") for text in ("::ffff:a00:1", "[::ffff:10.0.0.1]:443", "::FFFF:10.0.0.1%eth0")),
        *((text, "2001:db8::1") for text in ("2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "2001:DB8:0:0::1")),
        *((text, "fe80::1") for text in ("fe80::1%eth0", "[fe80::1%eth0]:8080", "fe80::1%2")),
        *((line, None) for line in ALONE if "," not in line),
    ):
        found = networks.address(text)
        assert (found and str(found)) == read


PROXIES = networks.networks("", ("192.0.2.0/24",))


def test_which_entry_is_the_caller() -> None:
    one, other = "203.0.113.9", "192.0.2.7"
    for hops, forwarded, caller in (
        *((0, [f"10.0.0.1, {one}"], one), (0, [f"10.0.0.1, {one}, {other}"], one), (0, [f"unknown, {one}"], one)),
        *((0, ["192.0.2.8", "192.0.2.9"], "192.0.2.8"), (0, [f"{one}, unknown, {other}"], None), (1, [], None)),
        *((1, [f"10.0.0.1, {one}"], one), (1, ["10.0.0.1", f" {one}:99 "], one), (1, [f"{one}, {other}"], other)),
        *((2, [f"10.0.0.1, {one}, 198.51.100.1"], one), (2, ["10.0.0.1", one, other], one), (2, [one], None)),
        *((2, [f"unknown, {one}, {other}"], one), (2, [f"{one}, unknown"], None), (3, [f"{one}, {other}"], None)),
    ):
        for peer in ("192.0.2.1", "::ffff:192.0.2.1"):
            try:
                found: str | None = str(networks.caller(peer, forwarded, PROXIES, hops))
            except networks.Unreadable:
                found = None
            assert found == caller
        # Of a peer that is no proxy, the header says nothing.
        assert str(networks.caller("198.51.100.77", forwarded, PROXIES, hops)) == "198.51.100.77"
        with pytest.raises(networks.Unreadable):
            networks.caller("", forwarded, PROXIES, hops)


def test_what_is_wrong_is_said(ironclaim_url: str, raw: redis.Redis) -> None:
    queries = {
        **dict.fromkeys(("exp=4070912400", "jti=&exp=4070912400"), 'Missing "jti" parameter'),
        **dict.fromkeys((f"jti=a{exp}" for exp in ("", "&exp=soon", "&exp=-1", "&exp=999999999999")), 'Invalid "exp" parameter'),
        f"jti={'a' * 1025}&exp=4070912400": 'Invalid "jti" parameter',
    }
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,))) as client:
        for query, error in queries.items():
            answer = client.put(f"/admin/jwt/revoke?{query}", headers=BEARER)
            assert (answer.status_code, answer.json()) == (400, {"error": error}) and raw.dbsize() == 0, query


def test_a_server_that_changes_nothing_revokes_nothing(ironclaim_url: str) -> None:
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,)), allow_changes=False) as client:
        answer = client.put(REVOKE, headers=BEARER)
        assert answer.status_code == 403 and "--allow-changes" in answer.json()["error"]


@pytest.mark.usefixtures("levels")
def test_the_level_of_the_log_is_set_and_the_audit_goes_on(ironclaim_url: str) -> None:
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,))) as client:
        assert client.put("/admin/log/level?category=auth&level=DEBUG").status_code == 403
        assert client.put("/admin/log/level?category=auth&level=DEBUG", headers=BEARER).status_code == 204
        assert logging.getLogger("ironclaim.http.auth").level == logging.DEBUG
        assert client.put("/admin/log/level?category=*&level=FATAL", headers=BEARER).status_code == 204
        assert logging.getLogger("ironclaim").level == logging.FATAL
        assert logging.getLogger("ironclaim.http.audit").isEnabledFor(logging.INFO)
        for query, error in (
            ("level=INFO", 'Missing "category" parameter'), ("category=root&level=INFO", 'Invalid "category" parameter'),
            *((query, 'Invalid "level" parameter') for query in ("category=auth&level=LOUD", "category=auth")),
        ):  # fmt: skip
            assert client.put(f"/admin/log/level?{query}", headers=BEARER).json()["error"] == error


def test_settings_that_cannot_be_are_named() -> None:
    """Numbers beyond their bounds are among BOUNDS of tests/engine/http/test_bounds.py."""
    wrong: Any = (("admin_tokens", ("short",)), ("real_ip_header", "X Forwarded"), ("trusted_proxy_hops", 1), ("channels", ()))
    for field, value in (*wrong, ("webhook_queue", "no queue")):
        assert malformed(ChannelSettings, **{field: value}).field == field
    assert malformed(ChannelSettings, admin_networks=("10.0.0.0/33",)).field == "admin_networks[0]"
    assert malformed(ChannelSettings, trusted_proxies=("10.0.0.0/8", "proxy")).field == "trusted_proxies[1]"


def test_which_addresses_are_of_the_internet() -> None:
    for text, public in (
        *((address, True) for address in ("8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "2002:808:808::")),
        *((address, False) for address in ("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.31.255.255", "192.168.1.1", "0.0.0.0")),
        *((address, False) for address in ("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1")),
        *((address, False) for address in ("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1")),
        *((address, False) for address in ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::")),
        *((address, False) for address in ("64:ff9b::7f00:1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "::127.0.0.1")),
    ):
        found = networks.address(text)
        assert found is not None and networks.is_public(found) is public
