"""Settings from a file, in DSPS's names."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.http.channels.settings import ChannelPolicy, ChannelSettings, duration_ms, read_channels
from engine.http.channels.tokens import JwtSettings
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings
from tests.engine.helpers.refusing import malformed
from tests.engine.http.channels.desk import RSA, desk, pem, token


def test_every_name_of_the_file_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(pem(RSA))
    shutil.copy(Path(__file__).with_name("channels.toml"), tmp_path)
    jwt = JwtSettings(
        iss=["issuer"], aud=["service"], keys={"RS256": [tmp_path / "key.pem"]}, clock_skew_ms=60_000, require_exp=False,
        claims={"room": "{{.channel.id}}", "role": ["admin", "user"]}, require_jti=True,
    )  # fmt: skip
    webhook = WebhookSettings(
        method="POST", url="https://hooks.example.com/{{.channel.id}}", timeout_ms=10_000, redirects_max=3,
        retry=WebhookRetry(count=5, interval_ms=1_500, interval_multiplier=2, interval_jitter_ms=0, force=True),
        headers={"User-Agent": "My server"}, allow_networks=["10.0.0.0/8"],
    )  # fmt: skip
    assert read_channels(tmp_path / "channels.toml") == ChannelSettings(
        channels=[ChannelPolicy(pattern=r"room-(?P<id>\d+)", expire_ms=900_000, jwt=jwt, webhooks=[webhook])], storage="myRedis1",
        admin_tokens=["a-secret-of-sixteen-or-more"], admin_networks=["10.1.0.0/16"], real_ip_header="X-Forwarded-For",
        trusted_proxy_hops=2, trusted_proxies=["192.168.0.0/16"], disclose_auth_rejection=True, long_poll_max_ms=20_000,
    )  # fmt: skip


@pytest.mark.feature("DS27", model="dsps")
def test_a_file_of_json_serves(ironclaim_url: str, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(pem(RSA))
    channels = [{"regex": "room-.*", "jwt": {"iss": ["issuer"], "keys": {"RS256": ["key.pem"]}}}]
    (tmp_path / "channels.json").write_text(json.dumps({"channels": channels}))
    with desk(ironclaim_url, read_channels(tmp_path / "channels.json"), token=token()) as client:
        assert client.publish("room-1", "m1", "1").status_code == 200
        assert client.put("/channel/room-1/message/m2", content="1", headers={"Authorization": ""}).status_code == 403


HOOK = {"url": "https://a.b/"}
#: What stands in the table of one channel.
OF_CHANNEL: list[tuple[dict[str, Any], str]] = [
    ({"regex": 1}, "regex"), ({"expire": "soon"}, "expire"), ({"expire": 5}, "expire"), ({"webhooks": [{}]}, "webhooks[0]"),
    ({"webhooks": [{"connection": {}}]}, "webhooks[0].connection"), ({"jwt": {"iss": ["a"]}}, "jwt"),
    ({"webhooks": [{**HOOK, "maxRedirects": True}]}, "webhooks[0].maxRedirects"),
    ({"webhooks": [{**HOOK, "headers": []}]}, "webhooks[0].headers"),
    ({"jwt": {"iss": ["a"], "keys": {"RS256": "key.pem"}}}, "jwt.keys.RS256"),
]  # fmt: skip
WRONG = [
    *(("[", "channels"), ("[]", "the file"), ({"port": 3000}, "port"), ({"channels": {}}, "channels")),
    *(({"channels": [channel]}, f"channels[0].{place}") for channel, place in OF_CHANNEL),
    *(({"channels": [1]}, "channels[0]"), ({"http": {"discloseAuthRejectionDetail": 1}}, "http.discloseAuthRejectionDetail")),
    ({"channels": [{"jwt": {"iss": ["a"], "keys": {"RS256": ["nothing.pem"]}}}]}, "jwt.keys.RS256[0]"),
    ({"admin": {"auth": {"bearer": "a-secret-of-sixteen-or-more"}}}, "admin.auth.bearer"),
]


@pytest.mark.parametrize(("content", "field"), WRONG)
def test_what_is_wrong_is_named_by_its_place(tmp_path: Path, content: Any, field: str) -> None:
    (tmp_path / "channels.json").write_text(content if isinstance(content, str) else json.dumps(content))
    assert malformed(read_channels, tmp_path / "channels.json").field == field


def test_lengths_of_time_are_those_of_go_and_what_is_none_is_named() -> None:
    for text, ms in (
        *(("0", 0), ("1s", 1_000), ("1h30m", 5_400_000), ("1.5s", 1_500), ("250ms", 250), ("1us", 1), ("1µs", 1), ("1ns", 1)),
        *((".5s", 500), ("1.s", 1_000), ("+2s", 2_000), ("-2s", 0), ("1s500ms", 1_500), ("0s", 0)),
    ):
        assert duration_ms("timeout", text) == ms
    for text in ("", "1", "s", "1d", "1 s", "1s ", "--1s", "1e3s", "\u0661s", "1" * 16 + "s", "1s" * 11):
        assert malformed(duration_ms, "timeout", text).field == "timeout", text
