"""The settings of an outgoing webhook; defaults are those of DSPS."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from engine import validate
from engine.errors import Malformed, counted, without_query
from engine.http.channels import networks, tokens
from engine.validate import settle

# -- The signature of a delivery, as the Standard Webhooks specification has it, so that receivers check
# it by any of its libraries: `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,` with the
# HMAC-SHA256 of `id.timestamp.body` in base64.

_PREFIX = "whsec_"
#: What the specification asks for.
SECRET_BYTES_LEAST, SECRET_BYTES_MAX = 24, 64


def secret_of(text: object) -> bytes:
    """The bytes of a secret. Raises Malformed, which does not show it."""
    bound = f"{_PREFIX} and {SECRET_BYTES_LEAST} to {SECRET_BYTES_MAX} random bytes in base64"
    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise Malformed("webhook.secret", "(not shown)", bound)
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise Malformed("webhook.secret", "(not shown)", bound) from error
    if not SECRET_BYTES_LEAST <= len(secret) <= SECRET_BYTES_MAX:
        raise Malformed("webhook.secret", counted(len(secret), "byte"), bound)
    return secret


def signed(secret: bytes, delivery: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery with this id at this time, in seconds since 1970."""
    told = f"{delivery}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(secret, told, hashlib.sha256)).decode()
    return {"webhook-id": delivery, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{signature}"}


METHODS = ("PUT", "POST", "PATCH")
_TIMEOUT_MS_MAX = 300_000
_INTERVAL_MS_MAX = 86_400_000
_REDIRECTS_MAX = 20
_MULTIPLIER_MAX = 100.0
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,4096}")
#: What an attempt sets itself, or what frames it.
_OWN_HEADERS = {
    *("host", "content-length", "transfer-encoding", "connection", "content-type", "traceparent"),
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRetry:
    """When a failed delivery is tried again: `count` times, the first time after `interval_ms`. Each further
    wait is `interval_multiplier` times the one before, give or take up to `interval_jitter_ms`. `force`: also
    after answers that say that trying again is of no use. Raises Malformed."""

    count: int = 3
    interval_ms: int = 3_000
    interval_multiplier: float = 1.5
    interval_jitter_ms: int = 1_500
    force: bool = False

    def __post_init__(self) -> None:
        wait = (0, _INTERVAL_MS_MAX)
        settle(
            self,
            "webhook.retry.",
            count=(0, validate.ATTEMPTS_MAX - 1),
            interval_ms=wait,
            interval_multiplier=(1, _MULTIPLIER_MAX),
            interval_jitter_ms=wait,
        )

    def wait_ms(self, failed: int, random: float) -> int:
        """The wait after so many failed attempts. `random`: from 0 to 1."""
        # A wait of a year is as good as one without end, and keeps the power within a float.
        steps = min(failed - 1, 64)
        wait = min(self.interval_ms * self.interval_multiplier**steps, validate.DURATION_MS_MAX)
        return max(0, round(wait + (2 * random - 1) * self.interval_jitter_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where messages of a channel are sent. `url` and the values of `headers` may hold `{{.channel.NAME}}`.
    `timeout_ms` bounds one attempt with all its redirects, of which `redirects_max` are followed. `secret`
    signs each delivery; `whsec_` and base64.

    `allow_networks`: networks that are not of the internet and may be reached nevertheless, as CIDR. Without
    them an address that is private, of this host or of no host is refused, whatever name leads to it. Raises
    Malformed.
    """

    url: str = field(repr=False)
    method: str = "PUT"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_ms: int = 30_000
    redirects_max: int = 10
    retry: WebhookRetry = field(default_factory=WebhookRetry)
    secret: str | None = field(default=None, repr=False)
    allow_networks: Sequence[str] = ()

    def __post_init__(self) -> None:
        settle(
            self,
            "webhook.",
            timeout_ms=(1, _TIMEOUT_MS_MAX),
            redirects_max=(0, _REDIRECTS_MAX),
            retry=WebhookRetry,
        )
        if self.method not in METHODS:
            raise Malformed("webhook.method", self.method, f"one of {', '.join(METHODS)}")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise Malformed(
                    "webhook.headers", name, "the name of a header that a delivery does not set itself"
                )
            if not _VALUE.fullmatch(value):
                raise Malformed(
                    f"webhook.headers.{name}",
                    "(not shown)",
                    "visible ASCII characters and spaces, at most 4,096",
                )
        networks.networks("webhook.allow_networks", self.allow_networks)
        if self.secret is not None:
            secret_of(self.secret)

    def check_templates(self, groups: Sequence[str]) -> None:
        """Check url and headers against the groups of a channel's pattern. Raises Malformed."""
        for name, value in (
            ("url", self.url),
            *((f"headers.{name}", value) for name, value in self.headers.items()),
        ):
            try:
                tokens.check(f"webhook.{name}", value, groups)
            except Malformed as error:
                # Either may hold a secret.
                raise Malformed(
                    error.field, without_query(value) if name == "url" else "(not shown)", error.bound
                ) from None
        target_of(tokens.filled(self.url, dict.fromkeys(groups, "x")))


def target_of(text: str) -> httpx.URL:
    """A url that can be delivered to. Raises Malformed."""
    bound = "a url with http or https and a host, and without user and password"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        # What it says may name a part of a password.
        raise Malformed("webhook.url", without_query(text), bound) from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise Malformed("webhook.url", without_query(text), bound)
    return url
