"""The settings of the channels' part: which channels there are, who may use them, and where their messages
go."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import validate
from engine.errors import Malformed
from engine.http.channels import networks, tokens
from engine.http.channels.tokens import JwtSettings, TokenCheck
from engine.http.channels.webhooks.settings import WebhookSettings
from engine.models import Dsps
from engine.models.dsps import EXPIRE_MS_MAX, ChannelRule
from engine.validate import settle

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
PROXY_HOPS_MAX = 16
#: `AsyncChannel.fetch` waits for no longer.
LONG_POLL_MS_MAX = 30_000

#: Hears of errors: a request that failed for no reason of its caller's, a webhook that was given up. With
#: what it is about.
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
    `webhook_concurrency` at once in this process. `report` hears of errors; None: Sentry's SDK, where it is
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
                raise Malformed(
                    "admin_tokens", f"{len(token)} characters", "16 to 512 visible ASCII characters each"
                )
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
