"""The settings of channels, from code or from a file: which channels there are, who may use them, and where
their messages go."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from engine import validate
from engine.errors import Malformed, counted
from engine.http.channels import networks, tokens
from engine.http.channels.tokens import JwtSettings, TokenCheck
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings
from engine.models import Dsps
from engine.models.dsps import EXPIRE_MS_MAX, ChannelRule
from engine.validate import DURATION_MS_MAX, go_duration_ms, settle

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
PROXY_HOPS_MAX = 16
#: `AsyncChannel.fetch` waits for no longer.
LONG_POLL_MS_MAX = 30_000

#: Is told of errors, with what each is about: a request that failed for no reason of its caller's, a webhook
#: that was given up.
Report = Callable[[BaseException, Mapping[str, str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy:
    """Channels whose whole name matches `pattern`: how long their messages are kept, which tokens open them
    (None: none is asked for), and which webhooks get their messages. A channel that several match has all of
    their tokens and webhooks, and the longest of their times. Raises Malformed."""

    pattern: str = ".+"
    expire_ms: int = 1_800_000
    jwt: JwtSettings | None = None
    webhooks: Sequence[WebhookSettings] = ()

    def __post_init__(self) -> None:
        settle(self, expire_ms=(0, EXPIRE_MS_MAX), jwt=JwtSettings, webhooks=WebhookSettings)
        groups = tuple(re.compile(self.rule.pattern).groupindex)
        if self.jwt is not None:
            self.jwt.check_claims(groups)
        for webhook in self.webhooks:
            webhook.check_templates(groups)

    @property
    def rule(self) -> ChannelRule:
        """What the channel itself knows of it."""
        return ChannelRule(self.pattern, self.expire_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """What is served of DSPS's API. `channels`: names that match none of them are refused. `storage`: the
    name of the server in acknowledgement handles; beside a DSPS server, that of its configuration.

    `admin_tokens` and `admin_networks`: callers of the admin API show one of the tokens, and come from one of
    the networks; without tokens nobody is admitted. `real_ip_header`: the header in which `trusted_proxies`
    name who calls. One that is missing or cannot be read is refused. `trusted_proxy_hops`: how many proxies
    stand in front, each of which appends to it; 0: the last address that is no trusted proxy counts.
    `disclose_auth_rejection`: tell callers why a token was refused; not for production. `long_poll_max_ms`
    bounds each fetch. Deliveries of webhooks are jobs of the queue `webhook_queue`, at most
    `webhook_concurrency` at once in this process. `report` is told of errors; None: Sentry's SDK, where it is
    installed and set up. `tracer_provider` and `meter_provider` of OpenTelemetry, where that is installed;
    None: the global ones. Raises Malformed.
    """

    channels: Sequence[ChannelPolicy] = (ChannelPolicy(),)
    storage: str = "redis"
    admin_tokens: Sequence[str] = field(default=(), repr=False)
    admin_networks: Sequence[str] = networks.PRIVATE
    real_ip_header: str | None = None
    trusted_proxies: Sequence[str] = networks.PRIVATE
    trusted_proxy_hops: int = 0
    disclose_auth_rejection: bool = False
    long_poll_max_ms: int = LONG_POLL_MS_MAX
    webhook_queue: str = "webhooks"
    webhook_concurrency: int = 64
    report: Report | None = None
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None

    def __post_init__(self) -> None:
        settle(
            self,
            channels=ChannelPolicy,
            trusted_proxy_hops=(0, PROXY_HOPS_MAX),
            long_poll_max_ms=(1, LONG_POLL_MS_MAX),
            webhook_concurrency=(1, validate.CONCURRENCY_MAX),
            report=callable,
        )
        if not self.channels:
            raise Malformed("channels", self.channels, "at least one ChannelPolicy")
        validate.text("storage", self.storage)
        for token in self.admin_tokens:
            if not _TOKEN.fullmatch(token):
                found = counted(len(token), "character")
                raise Malformed("admin_tokens", found, "16 to 512 visible ASCII characters each")
        networks.networks("admin_networks", self.admin_networks)
        networks.networks("trusted_proxies", self.trusted_proxies)
        if self.trusted_proxy_hops and self.real_ip_header is None:
            raise Malformed(
                "trusted_proxy_hops",
                self.trusted_proxy_hops,
                "0 without real_ip_header, in which they are counted",
            )
        if self.real_ip_header is not None and not _HEADER.fullmatch(self.real_ip_header):
            raise Malformed(
                "real_ip_header", self.real_ip_header, "the name of a header, such as X-Forwarded-For"
            )
        if not validate.QUEUE.fullmatch(self.webhook_queue):
            raise Malformed("webhook_queue", self.webhook_queue, validate.shape(validate.QUEUE))

    @property
    def spec(self) -> Dsps:
        """The data model of the channels."""
        return Dsps(rules=tuple(policy.rule for policy in self.channels), storage=self.storage)

    @property
    def has_webhooks(self) -> bool:
        """Whether any channel has one."""
        return any(policy.webhooks for policy in self.channels)


# -- What the settings say about one channel, by its name: who may use it and where its messages go, all
# matching rules together.


class Target(NamedTuple):
    """A webhook of one channel: url and headers are those of this channel."""

    webhook: WebhookSettings
    url: str
    headers: Mapping[str, str]


class ChannelAccess(NamedTuple):
    """What counts for one channel."""

    name: str
    checks: Sequence[tuple[TokenCheck, Mapping[str, str]]]
    targets: Sequence[Target]

    def claims_of(self, token: str) -> dict[str, Any]:
        """The claims of a token that all matching rules take. Raises TokenRefused."""
        claims: dict[str, Any] = {}
        for check, groups in self.checks:
            claims = check.claims_of(token, groups)
        return claims


class Policies:
    """The rules of all channels."""

    def __init__(self, channels: Sequence[ChannelPolicy]) -> None:
        self._rules = [
            (
                re.compile(policy.pattern),
                None if policy.jwt is None else TokenCheck(policy.jwt),
                policy.webhooks,
            )
            for policy in channels
        ]

    def of(self, channel: str) -> ChannelAccess | None:
        """What counts for the channel; None for one that no rule allows."""
        matches = [(pattern.fullmatch(channel), check, webhooks) for pattern, check, webhooks in self._rules]
        found = [(_groups(match), check, webhooks) for match, check, webhooks in matches if match is not None]
        if not found:
            return None
        checks = [(check, groups) for groups, check, _ in found if check is not None]
        return ChannelAccess(
            channel, checks, [_target(one, groups) for groups, _, webhooks in found for one in webhooks]
        )


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: text or "" for name, text in match.groupdict().items()}


def _target(webhook: WebhookSettings, groups: Mapping[str, str]) -> Target:
    headers = {name: tokens.filled(value, groups) for name, value in webhook.headers.items()}
    return Target(webhook, tokens.filled(webhook.url, groups), headers)


# -- The settings of channels from a file, TOML or JSON, in the names of DSPS's own configuration.
#
#     [[channels]]
#     regex = 'room-(?P<id>\d+)'
#     expire = "15m"
#     jwt = { iss = ["https://issuer.example.com/"], keys = { RS256 = ["issuer.pem"] } }
#     webhooks = [{ url = "https://hooks.example.com/{{.channel.id}}", retry = { count = 5 } }]
#
#     [admin.auth]
#     bearer = ["a-secret-of-sixteen-or-more"]
#
# There are names beside those of DSPS: `secret` and `allowNetworks` of a webhook, `requireExp` and
# `requireJti` of a `jwt`, `trustedProxyHops` of `http`. `storage` names the server in acknowledgement
# handles. Keys are files, found from the folder of this one.

#: What reads a value: its path in the file, and the value.
Reader = Callable[[str, object], Any]


def read_channels(file: Path) -> ChannelSettings:
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


def duration_ms(field: str, text: str) -> int:
    """A length of time as Go spells it, such as `1h30m` or `1.5s`, in whole milliseconds, rounded up. A
    negative one is 0. Raises Malformed."""
    length_ms = go_duration_ms(text)
    if length_ms is None:
        raise Malformed(field, text, "a length of time such as 30s, 1h30m or 250ms")
    return max(0, min(math.ceil(length_ms), DURATION_MS_MAX))


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
