"""What the endpoints of channels share: rules, the list of revoked tokens, webhooks, and who watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request

from engine.http.channels import networks
from engine.http.channels.observing import report_of, telemetry_of
from engine.http.channels.settings import ChannelSettings, Policies
from engine.http.channels.webhooks.delivery import Delivery, WebhookQueue
from engine.models.dsps import revocation
from engine.ops.base import Call
from engine.ops.channels import AskRevoked, Revoke
from engine.redis.async_driver import AsyncDriver
from engine.redis.endpoint import ConnectOptions, Endpoint

# -- The list of revoked tokens on the server, in the keys of DSPS, so that both servers heed it.
#
# An entry outlives its token. It is there until no server would take the token any more, however its clock is
# set, and no request that began with it still waits.

#: How much longer an entry lives than anybody could need it, as in DSPS.
_MARGIN_S = 15


class Revocations:
    """Revoked tokens. `settings` say how long a token may be used after its end; `connect`: times and bounds
    of connections; `now_s`: the time since 1970."""

    def __init__(
        self,
        url: str,
        settings: ChannelSettings,
        connect: ConnectOptions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._driver = AsyncDriver(Endpoint(url, options=connect, asynchronous=True), ())
        self._now_s = now_s
        checks = [policy.jwt for policy in settings.channels if policy.jwt is not None]
        skew_ms = max((check.clock_skew_ms for check in checks), default=0)
        self._after_s = -(-(skew_ms + settings.long_poll_max_ms) // 1_000) + _MARGIN_S
        #: Where tokens without an end are taken, the end that a revocation names may be that of none.
        self._for_ever = not all(check.require_exp for check in checks)

    async def revoke(self, jti: str, expires_s: int) -> bool:
        """Refuse the token with this id for as long as a server might take it. Returns whether that was
        noted; a token that nobody takes any more is not. An entry that is there is never shortened. Raises
        ServerUnavailable and OutcomeUnknown; repeat it then."""
        key, value = revocation(jti), str(expires_s)
        if self._for_ever:
            await self._run(Revoke(jti, expires_s), ("SET", key, value))
            return True
        ttl_s = int(expires_s - self._now_s()) + self._after_s
        if ttl_s <= 0:
            return False
        new, longer = ("SET", key, value, "EX", ttl_s, "NX"), ("EXPIRE", key, ttl_s, "GT")
        # The last word is for an entry that ends between the first two.
        for words in (new, longer, new):
            if await self._run(Revoke(jti, expires_s), words):
                break
        return True

    def is_late(self, expires_s: int) -> bool:
        """Whether a token that ends then has ended."""
        return expires_s <= self._now_s()

    async def is_revoked(self, jti: str) -> bool:
        """Whether the token with this id is refused. Raises ServerUnavailable and OutcomeUnknown."""
        operation, key = AskRevoked(jti), revocation(jti)
        async with self._driver.permits:
            return await self._driver.run(
                Call(None, (key,), ("GET", key), lambda raw: operation.parse(raw, None), operation)
            )

    async def close(self) -> None:
        """Close the idle connections."""
        await self._driver.close()

    async def _run(self, operation: Revoke, words: tuple[str | int, ...]) -> bool:
        """Whether the command has changed the entry."""
        key = revocation(operation.jti)
        async with self._driver.permits:
            return await self._driver.run(
                Call(None, (key,), words, lambda raw: operation.parse(raw, None), operation)
            )


_PROBE = ConnectOptions(timeout_ms=1_000, connect_timeout_ms=1_000, deadline_ms=1_000)


class ChannelService:
    """One for each application: `request.app.state.channels`. `url`: where the server is."""

    def __init__(self, settings: ChannelSettings, url: str) -> None:
        self.settings = settings
        self.admin_networks = networks.networks("admin_networks", settings.admin_networks)
        self.trusted_proxies = networks.networks("trusted_proxies", settings.trusted_proxies)
        self.telemetry = telemetry_of(settings)
        self.report = report_of(settings)
        self.policies = Policies(settings.channels)
        self.revocations = Revocations(url, settings)
        #: The same, for probes: they want to know soon.
        self.probed = Revocations(url, settings, _PROBE)
        delivery = Delivery(self.telemetry)
        self.webhooks = WebhookQueue(settings, url, self.policies, delivery, self.telemetry, self.report)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Deliver webhooks meanwhile, where any channel has some; at the end close what is open."""
        if self.settings.has_webhooks:
            self.webhooks.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.webhooks.stop)
            await self.webhooks.close()
            await self.revocations.close()
            await self.probed.close()


def service_of(request: Request) -> ChannelService:
    """The service of the application that answers."""
    return request.app.state.channels
