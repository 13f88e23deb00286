"""The settings of channels from a file, TOML or JSON, in the names of DSPS's own configuration.

    [[channels]]
    regex = 'room-(?P<id>\\d+)'
    expire = "15m"
    jwt = { iss = ["https://issuer.example.com/"], keys = { RS256 = ["issuer.pem"] } }
    webhooks = [{ url = "https://hooks.example.com/{{.channel.id}}", retry = { count = 5 } }]

    [admin.auth]
    bearer = ["a-secret-of-sixteen-or-more"]

There are names beside those of DSPS: `secret` and `allowNetworks` of a webhook, `requireExp` and `requireJti`
of a `jwt`, `trustedProxyHops` of `http`. `storage` names the server in acknowledgement handles. Keys are
files, found from the folder of the configuration.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from engine.errors import Malformed
from engine.http.channels.answers import duration_ms
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings

#: What reads a value: its path in the file, and the value.
Reader = Callable[[str, object], Any]


def read(file: Path) -> ChannelSettings:
    """The settings in a file. Raises Malformed, which names the path in it, and OSError."""
    data = file.read_bytes()
    try:
        found: object = json.loads(data) if file.suffix == ".json" else tomllib.loads(data.decode())
    except ValueError as error:
        raise Malformed("channels", str(file), f"a file of TOML, or with .json of JSON ({error})") from None
    return ChannelSettings(**_top(file.parent, found))


def _top(folder: Path, found: object) -> dict[str, Any]:
    fields = _table(
        "",
        found,
        {
            "channels": ("channels", _list(partial(_channel, folder))),
            "storage": ("storage", _text),
            "admin": ("admin", partial(_table, known={"auth": ("auth", partial(_table, known=_ADMIN))})),
            "http": ("http", partial(_table, known=_HTTP)),
        },
    )
    return {**fields.pop("admin", {}).get("auth", {}), **fields.pop("http", {}), **fields}


def _channel(folder: Path, path: str, value: object) -> ChannelPolicy:
    jwt = partial(_made, JwtSettings, {**_JWT, "keys": ("keys", partial(_keys, folder))})
    return _made(ChannelPolicy, {**_CHANNEL, "jwt": ("jwt", jwt)}, path, value)


def _table(path: str, value: object, known: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    """The values of a table by the names that they have here. Raises Malformed for a name that there is
    not."""
    if not isinstance(value, dict):
        raise Malformed(path or "the file", value, "a table")
    found: dict[str, Any] = {}
    for name, given in cast("dict[str, object]", value).items():
        inner = f"{path}.{name}" if path else name
        if name not in known:
            raise Malformed(inner, "", f"one of {', '.join(known)}")
        field, reader = known[name]
        found[field] = reader(inner, given)
    return found


def _made(kind: type[Any], known: Mapping[str, tuple[str, Reader]], path: str, value: object) -> Any:
    fields = _table(path, value, known)
    try:
        return kind(**fields)
    except TypeError as error:
        raise Malformed(path, "", f"complete ({error})") from None


def _list(reader: Reader) -> Reader:
    def listed(path: str, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise Malformed(path, value, "a list")
        return [reader(f"{path}[{at}]", item) for at, item in enumerate(cast("list[object]", value))]

    return listed


def _of(kind: type | tuple[type, ...], bound: str) -> Reader:
    def plain(path: str, value: object) -> Any:
        # A truth value is a number in Python.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Malformed(path, value, bound)
        return value

    return plain


_text, _whole, _number = _of(str, "text"), _of(int, "a whole number"), _of((int, float), "a number")
_truth, _texts = _of(bool, "true or false"), _list(_text)


def _duration(path: str, value: object) -> int:
    return duration_ms(path, _text(path, value))


def _keys(folder: Path, path: str, value: object) -> dict[str, list[Path]]:
    found = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return {
        algorithm: [folder / name for name in _texts(f"{path}.{algorithm}", names)]
        for algorithm, names in found.items()
    }


def _by_name(reader: Reader) -> Reader:
    def named(path: str, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed(path, value, "a table")
        return {
            name: reader(f"{path}.{name}", given) for name, given in cast("dict[str, object]", value).items()
        }

    return named


def _claim(path: str, value: object) -> str | list[str]:
    return _texts(path, cast("object", value)) if isinstance(value, list) else _text(path, value)


_ADMIN: Mapping[str, tuple[str, Reader]] = {
    "bearer": ("admin_tokens", _texts),
    "networks": ("admin_networks", _texts),
}
_HTTP: Mapping[str, tuple[str, Reader]] = {
    "realIpHeader": ("real_ip_header", _text),
    "trustedProxyRanges": ("trusted_proxies", _texts),
    "trustedProxyHops": ("trusted_proxy_hops", _whole),
    "discloseAuthRejectionDetail": ("disclose_auth_rejection", _truth),
    "longPollingMaxTimeout": ("long_poll_max_ms", _duration),
}
_RETRY: Mapping[str, tuple[str, Reader]] = {
    "count": ("count", _whole),
    "interval": ("interval_ms", _duration),
    "intervalMultiplier": ("interval_multiplier", _number),
    "intervalJitter": ("interval_jitter_ms", _duration),
    "force": ("force", _truth),
}
_WEBHOOK: Mapping[str, tuple[str, Reader]] = {
    "method": ("method", _text),
    "url": ("url", _text),
    "timeout": ("timeout_ms", _duration),
    "headers": ("headers", _by_name(_text)),
    "maxRedirects": ("redirects_max", _whole),
    "retry": ("retry", partial(_made, WebhookRetry, _RETRY)),
    "secret": ("secret", _text),
    "allowNetworks": ("allow_networks", _texts),
}
_JWT: Mapping[str, tuple[str, Reader]] = {
    "iss": ("iss", _texts),
    "aud": ("aud", _texts),
    "claims": ("claims", _by_name(_claim)),
    "clockSkewLeeway": ("clock_skew_ms", _duration),
    "requireExp": ("require_exp", _truth),
    "requireJti": ("require_jti", _truth),
}
_CHANNEL: Mapping[str, tuple[str, Reader]] = {
    "regex": ("pattern", _text),
    "expire": ("expire_ms", _duration),
    "webhooks": ("webhooks", _list(partial(_made, WebhookSettings, _WEBHOOK))),
}
