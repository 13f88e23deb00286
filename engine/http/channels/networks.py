"""Addresses: who calls, which networks may, and which addresses nobody outside can have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from engine.errors import Malformed

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Where DSPS takes admin calls from, and trusts proxies, unless it is configured: RFC 1918, 4193, 1122, 3927 and 4291.
PRIVATE = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16"),
    *("fc00::/7", "::1/128", "fe80::/10"),
)


def networks(field: str, given: Iterable[object]) -> tuple[Network, ...]:
    """Networks as CIDR. Raises Malformed."""
    found: list[Network] = []
    for at, text in enumerate(given):
        try:
            if not isinstance(text, str):
                raise ValueError("no text")
            found.append(ip_network(text, strict=False))
        except ValueError as error:
            raise Malformed(f"{field}[{at}]", text, "a network such as 10.0.0.0/8 or fc00::/7") from error
    return tuple(found)


def address(text: str) -> Address | None:
    """The address; an IPv4 one that is written as IPv6 is what it stands for. None for what is no address."""
    try:
        found = ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def among(found: Address | None, allowed: Iterable[Network]) -> bool:
    """Whether the address is in one of the networks."""
    return found is not None and any(found.version == network.version and found in network for network in allowed)


def is_public(found: Address) -> bool:
    """Whether it is an address of the internet; one that leads to an IPv4 address by 6to4 is what that one is."""
    if isinstance(found, IPv6Address) and found.sixtofour is not None:
        return is_public(found.sixtofour)
    # Teredo is private here, and NAT64 reserved.
    odd = found.is_multicast or found.is_reserved or found.is_unspecified or found.is_loopback or found.is_link_local
    return found.is_global and not odd


def caller(peer: str, forwarded: Sequence[str], proxies: Iterable[Network]) -> Address | None:
    """Who calls: the peer, or where that is a trusted proxy, the last address that it and the proxies before it forward for and
    that is none of them. `forwarded`: values of the header that names them, in order."""
    found = address(peer)
    trusted = tuple(proxies)
    for text in reversed([word for value in forwarded for word in value.split(",")]):
        if not among(found, trusted):
            break
        before = address(text)
        if before is None:
            break
        found = before
    return found
