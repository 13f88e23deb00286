"""Addresses: who calls, which networks may, and which addresses nobody outside can have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from engine.errors import Malformed

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: An address as gateways write it: IPv4, or IPv6 with a zone, with brackets or without; a port behind IPv4 or
#: brackets.
_WRITTEN = re.compile(
    r"""(?P<v4>[0-9.]{7,15})(:(?P<port>[0-9]{1,5}))?
    |\[(?P<bracketed>[0-9A-Fa-f:.]{2,45})(%[0-9A-Za-z._~-]{1,32})?\](:(?P<port6>[0-9]{1,5}))?
    |(?P<v6>[0-9A-Fa-f:.]{2,45})(%[0-9A-Za-z._~-]{1,32})?""",
    re.VERBOSE,
)

#: Where DSPS takes admin calls from, and trusts proxies, unless it is configured: RFC 1918, 4193, 1122, 3927
#: and 4291.
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


_PORT_MAX = 65_535


class Unreadable(Exception):
    """Who calls is not known: a header is missing, or what stands where it names the caller is no address."""


def address(text: str) -> Address | None:
    """The address, without its zone and port; an IPv4 one that is written as IPv6 is what it stands for. None
    for what is no address."""
    written = _WRITTEN.fullmatch(text.strip(" \t"))
    if written is None or int(written["port"] or written["port6"] or 0) > _PORT_MAX:
        return None
    try:
        found = ip_address(written["v4"] or written["bracketed"] or written["v6"])
    except ValueError:
        return None
    if found.version != (4 if written["v4"] else 6):
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def among(found: Address | None, allowed: Iterable[Network]) -> bool:
    """Whether the address is in one of the networks."""
    return found is not None and any(
        found.version == network.version and found in network for network in allowed
    )


def is_public(found: Address) -> bool:
    """Whether it is an address of the internet; one that leads to an IPv4 address by 6to4 is what that one
    is."""
    if isinstance(found, IPv6Address) and found.sixtofour is not None:
        return is_public(found.sixtofour)
    # Teredo is private here, and NAT64 reserved.
    odd = (
        found.is_multicast
        or found.is_reserved
        or found.is_unspecified
        or found.is_loopback
        or found.is_link_local
    )
    return found.is_global and not odd


def caller(peer: str, forwarded: Sequence[str] | None, proxies: Iterable[Network], hops: int) -> Address:
    """Who calls: the peer, or where that is a trusted proxy, the address that it and the proxies before it
    forward for. `forwarded`: the values of the header that names them, in order; None: no header is asked
    for. `hops`: so many proxies stand in front, the peer included, so the caller is the entry of that number
    from the end. 0: the last entry that is none of the proxies, or the first one. Entries before that one are
    not read, for the caller may have made them up. Raises Unreadable."""
    trusted, found = tuple(proxies), _read(peer)
    if forwarded is None or not among(found, trusted):
        return found
    entries = [word for value in forwarded for word in value.split(",")]
    if len(entries) < max(1, hops):
        raise Unreadable(f"{len(entries)} addresses")
    for entry in reversed(entries[-hops:]):
        found = _read(entry)
        if not hops and not among(found, trusted):
            break
    return found


def _read(text: str) -> Address:
    found = address(text)
    if found is None:
        raise Unreadable(repr(text[:80]))
    return found
