"""One attempt to deliver a message to a webhook: the request, its redirects, and what its answer means."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from functools import cache

import httpx

from engine.errors import Malformed, redacted, without_query
from engine.http.channels import networks
from engine.http.channels.observing import Telemetry
from engine.http.channels.policies import Target
from engine.http.channels.webhooks.guard import AddressRefused, Resolve, by_system, checked_address
from engine.http.channels.webhooks.settings import target_of
from engine.http.channels.webhooks.signature import secret_of, signed
from engine.version import __version__

#: Answers after which DSPS gives up at once: 400 to 418 but for 400, 404, 408 and 409, and these.
_GIVE_UP = {*range(400, 419), 426, 431, 451, 501} - {400, 404, 408, 409}
#: Redirects that keep method and body. Behind any other one the message would not arrive.
_KEEPING = {307, 308}


class DeliveryFailed(Exception):
    """An attempt failed. `final`: trying again is of no use."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Delivery:
    """Makes attempts. Each has a connection of its own: one that is shared by address could be one whose certificate was checked
    for another name. `resolve`: name and port -> addresses; `now_s`: the time since 1970."""

    def __init__(self, telemetry: Telemetry, resolve: Resolve = by_system, now_s: Callable[[], float] = time.time) -> None:
        self._telemetry = telemetry
        self._resolve = resolve
        self._now_s = now_s

    async def attempt(self, target: Target, delivery: str, body: bytes) -> None:
        """Deliver a body. `delivery`: its id, the same for each attempt. Raises DeliveryFailed."""
        webhook = target.webhook
        headers = {"User-Agent": f"ironclaim/{__version__}", **target.headers, "Content-Type": "application/json"}
        if webhook.secret is not None:
            headers |= signed(secret_of(webhook.secret), delivery, int(self._now_s()), body)
        try:
            async with asyncio.timeout(webhook.timeout_ms / 1000):
                await self._follow(target, headers, body)
        except TimeoutError as error:
            raise DeliveryFailed(f"{without_query(target.url)} has not answered within {webhook.timeout_ms} ms") from error
        except (AddressRefused, Malformed) as error:
            raise DeliveryFailed(redacted(str(error)), final=True) from error
        except (httpx.HTTPError, OSError) as error:
            raise DeliveryFailed(f"{without_query(target.url)}: {redacted(str(error)) or type(error).__name__}") from error

    async def _follow(self, target: Target, headers: dict[str, str], body: bytes) -> None:
        """Send, and follow redirects; each one is guarded as the first url is."""
        url = target_of(target.url)
        for _ in range(target.webhook.redirects_max + 1):
            answer = await self._send(target, url, headers, body)
            if answer.is_success:
                return
            if answer.status_code not in _KEEPING:
                final = answer.status_code in _GIVE_UP
                raise DeliveryFailed(
                    f"{without_query(str(url))} answered {answer.status_code} {answer.reason_phrase}".rstrip(), final=final
                )
            there = target_of(str(url.join(answer.headers.get("location", ""))))
            if url.scheme == "https" != there.scheme:
                raise DeliveryFailed(f"{without_query(str(url))} leads from https to {there.scheme}", final=True)
            if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
                # What a service configured for one host is not for another one: a secret of its own, for instance.
                headers = {name: value for name, value in headers.items() if name not in target.headers}
            url = there
        raise DeliveryFailed(f"{without_query(target.url)} leads through more than {target.webhook.redirects_max} redirects")

    async def _send(self, target: Target, url: httpx.URL, headers: dict[str, str], body: bytes) -> httpx.Response:
        """One request to a checked address; of the answer the status and the headers alone are read."""
        allowed = networks.networks("webhook.allow_networks", target.webhook.allow_networks)
        host = url.raw_host.decode("ascii")
        found = await checked_address(url, allowed, self._resolve)
        sent = {**headers, "Host": url.netloc.decode("ascii")}
        timeout = httpx.Timeout(target.webhook.timeout_ms / 1000).as_dict()
        with self._telemetry.delivery(target.webhook.method, without_query(str(url)), sent) as exchange:
            # No proxy of the environment, which would resolve the name again; and no client, which logs each url as it is.
            async with httpx.AsyncHTTPTransport(verify=_tls(), trust_env=False) as transport:
                request = httpx.Request(
                    target.webhook.method,
                    url.copy_with(host=str(found)),
                    headers={"Accept": "*/*", **sent},
                    content=body,
                    extensions={"sni_hostname": host, "timeout": timeout},
                )
                answer = await transport.handle_async_request(request)
                await answer.aclose()
            exchange.answered(answer.status_code)
        return answer


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates of the system takes as long as some deliveries."""
    return httpx.create_ssl_context()
