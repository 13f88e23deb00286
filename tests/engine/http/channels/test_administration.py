"""The admin API: who is admitted, and what is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from engine import Malformed
from engine.http.channels import networks
from engine.http.channels.settings import ChannelSettings
from engine.http.security.roles import Token
from tests.engine.http.channels.desk import ADMIN, desk

pytestmark = pytest.mark.feature("DS29", model="dsps")

REVOKE = "/admin/jwt/revoke?jti=id-1&exp=4070912400"


def revoked(ironclaim_url: str, settings: ChannelSettings, headers: dict[str, str], **more: Any) -> bool:
    """Whether the call did it; one that did not is a 403 without a word."""
    with desk(ironclaim_url, settings, **more) as client, redis.Redis.from_url(ironclaim_url) as raw:
        answer = client.put(REVOKE, headers=headers)
        done = bool(raw.exists("jwt.{id-1}.revoke"))
        assert (answer.status_code, done) in ((200, True), (403, False))
        assert done or answer.json() == {"error": ""}
        return done


BEARER = {"Authorization": f"Bearer {ADMIN}"}


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        (BEARER, True),
        ({}, False),
        ({"Authorization": ADMIN}, False),
        ({"Authorization": f"Basic {ADMIN}"}, False),
        ({"Authorization": f"Bearer {ADMIN}x"}, False),
        ({"Authorization": f"Bearer {ADMIN[:-1]}"}, False),
        ({"Authorization": "Bearer"}, False),
        ({"Authorization": f"Bearer x{ADMIN}"}, False),
    ],
)
def test_a_bearer_token_is_asked_for(ironclaim_url: str, headers: dict[str, str], admitted: bool) -> None:
    assert revoked(ironclaim_url, ChannelSettings(admin_tokens=("another-token-0123", ADMIN)), headers) is admitted


def test_without_tokens_nobody_is_admitted_and_tokens_of_the_server_are_none(ironclaim_url: str) -> None:
    assert not revoked(ironclaim_url, ChannelSettings(), {"Authorization": "Bearer"})
    tokens = (Token(secret=ADMIN, role="admin"),)
    assert not revoked(ironclaim_url, ChannelSettings(), BEARER, tokens=tokens)


@pytest.mark.parametrize(
    ("networks", "header", "proxies", "forwarded", "admitted"),
    [
        (("127.0.0.0/8",), None, (), [], True),
        (("10.0.0.0/8", "::1/128"), None, (), [], False),
        # A header that is not configured says nothing.
        (("10.0.0.0/8",), None, (), ["10.1.2.3"], False),
        # Of a proxy that is not trusted neither.
        (("10.0.0.0/8",), "X-Forwarded-For", ("192.168.0.0/16",), ["10.1.2.3"], False),
        (("10.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8",), ["10.1.2.3"], True),
        (("127.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8",), ["203.0.113.9"], False),
        # What stands before the last address that is no proxy, the caller may have made up.
        (("10.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8",), ["10.1.2.3, 203.0.113.9"], False),
        (("10.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8", "192.168.0.0/16"), ["10.1.2.3, 192.168.0.9"], True),
        (("10.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8",), ["10.1.2.3", "203.0.113.9"], False),
        (("10.0.0.0/8",), "X-Forwarded-For", ("127.0.0.0/8",), ["nonsense"], False),
    ],
)
def test_the_network_counts(
    ironclaim_url: str,
    networks: tuple[str, ...],
    header: str | None,
    proxies: tuple[str, ...],
    forwarded: list[str],
    admitted: bool,
) -> None:
    settings = ChannelSettings(admin_tokens=(ADMIN,), admin_networks=networks, real_ip_header=header, trusted_proxies=proxies)
    given = [("X-Forwarded-For", value) for value in forwarded]
    with desk(ironclaim_url, settings) as client:
        assert client.put(REVOKE, headers=[*BEARER.items(), *given]).status_code == (200 if admitted else 403)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("exp=4070912400", 'Missing "jti" parameter'),
        ("jti=&exp=4070912400", 'Missing "jti" parameter'),
        ("jti=a&exp=soon", 'Invalid "exp" parameter'),
        ("jti=a", 'Invalid "exp" parameter'),
        ("jti=a&exp=-1", 'Invalid "exp" parameter'),
        ("jti=a&exp=999999999999", 'Invalid "exp" parameter'),
        (f"jti={'a' * 1025}&exp=4070912400", 'Invalid "jti" parameter'),
    ],
)
def test_what_is_wrong_is_said(ironclaim_url: str, query: str, error: str) -> None:
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,))) as client, redis.Redis.from_url(ironclaim_url) as raw:
        answer = client.put(f"/admin/jwt/revoke?{query}", headers=BEARER)
        assert (answer.status_code, answer.json()) == (400, {"error": error}) and raw.dbsize() == 0


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
        errors = [
            client.put(f"/admin/log/level?{query}", headers=BEARER).json()["error"]
            for query in ("level=INFO", "category=root&level=INFO", "category=auth&level=LOUD", "category=auth")
        ]
        assert errors == [
            'Missing "category" parameter',
            'Invalid "category" parameter',
            'Invalid "level" parameter',
            'Invalid "level" parameter',
        ]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"admin_tokens": ("short",)}, "admin_tokens"),
        ({"admin_networks": ("10.0.0.0/33",)}, "admin_networks[0]"),
        ({"trusted_proxies": ("10.0.0.0/8", "proxy")}, "trusted_proxies[1]"),
        ({"real_ip_header": "X Forwarded"}, "real_ip_header"),
        ({"channels": ()}, "channels"),
        ({"long_poll_max_ms": 30_001}, "long_poll_max_ms"),
        ({"webhook_queue": "no queue"}, "queue"),
        ({"webhook_concurrency": 0}, "webhook_concurrency"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(Malformed) as caught:
        ChannelSettings(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "public"),
    [
        *((address, True) for address in ("8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "2002:808:808::")),
        *((address, False) for address in ("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.31.255.255", "192.168.1.1", "0.0.0.0")),
        *((address, False) for address in ("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1")),
        *((address, False) for address in ("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1")),
        *(
            (address, False)
            for address in ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1")
        ),
        *((address, False) for address in ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "::127.0.0.1")),
    ],
)
def test_which_addresses_are_of_the_internet(text: str, public: bool) -> None:
    found = networks.address(text)
    assert found is not None and networks.is_public(found) is public
