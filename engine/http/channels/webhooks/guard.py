"""Keeps deliveries away from addresses that are not of the internet (SSRF). A name is resolved once, every address that it has
is checked, and the delivery connects to a checked address: a name that leads elsewhere a moment later (DNS rebinding) gains
nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

import httpx

from engine.http.channels.networks import Address, Network, address, among, is_public

#: Name and port -> its addresses.
Resolve = Callable[[str, int], Awaitable[list[str]]]


class AddressRefused(Exception):
    """A url leads to an address that deliveries must not reach."""


async def by_system(host: str, port: int) -> list[str]:
    """The addresses of a name, by the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def checked_address(url: httpx.URL, allowed: Iterable[Network], resolve: Resolve = by_system) -> Address:
    """An address of the url's host that a delivery may connect to. Raises AddressRefused where one of its addresses is none of
    the internet and in no allowed network, and OSError for a name that has none."""
    port = url.port or (443 if url.scheme == "https" else 80)
    networks = tuple(allowed)
    found: list[Address] = []
    for text in await resolve(url.host, port):
        one = address(text)
        if one is None or not (is_public(one) or among(one, networks)):
            raise AddressRefused(f"{url.host} has the address {text}, which is not of the internet and in no allowed network")
        found.append(one)
    if not found:
        raise OSError(f"{url.host} has no address")
    return found[0]
