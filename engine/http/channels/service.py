"""What the endpoints of channels share: rules, the list of revoked tokens, webhooks, and who watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request

from engine.http.channels import networks
from engine.http.channels.observing import report_of, telemetry_of
from engine.http.channels.policies import Policies
from engine.http.channels.revocations import Revocations
from engine.http.channels.settings import ChannelSettings
from engine.http.channels.webhooks.delivery import Delivery
from engine.http.channels.webhooks.queue import WebhookQueue
from engine.redis.endpoint import ConnectOptions

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
