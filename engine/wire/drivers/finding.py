"""Which resolver belongs to an endpoint, and the dialer of its connections: where sentinels, clusters and connections meet."""

from __future__ import annotations

from collections.abc import Callable

from engine.wire.drivers.cluster import ClusterNodes
from engine.wire.drivers.dialer import Dialer, asker
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.handshake import Handshake
from engine.wire.drivers.resolver import Resolver, shared
from engine.wire.drivers.routes import Address, SentinelRoute
from engine.wire.drivers.sentinels import SWITCHED, Sentinels
from engine.wire.drivers.subscription import Subscription

#: A connection to a sentinel on which nothing came is checked so often.
LOOK_S = 5.0


def resolver_of(endpoint: Endpoint) -> Resolver | None:
    """The resolver that finds the server of this endpoint, which others may have as well; None for a fixed address."""
    route = endpoint.route
    if route is None:
        return None
    # Threads of its own ask, also for asyncio: no event loop has to wait for it, or to be there.
    plain = endpoint.of_kind(asynchronous=False)
    timeout_s = (endpoint.options.connect_timeout_ms + endpoint.options.timeout_ms) / 1000

    def make() -> Resolver:
        if not isinstance(route, SentinelRoute):
            return ClusterNodes(route, asker(plain.of_address), timeout_s)
        credentials = dict(route.credentials)

        def reach(address: Address) -> Endpoint:
            return plain.of_address(address, credentials)

        def listen(address: Address, heard: Callable[[bytes], None], wanted: Callable[[], bool]) -> None:
            Subscription(
                *(Dialer(reach(address), None, None), (SWITCHED,)),
                name=f"ironclaim-sentinel-{address.port}",
                heard=heard,
                changed=lambda: None,
                wanted=wanted,
                checked=lambda: True,
                failed=lambda _: None,
                look_s=LOOK_S,
            ).start()

        return Sentinels(route, asker(reach), timeout_s, listen)

    return shared(route, plain.sharing_key, make)


def dialer_of(endpoint: Endpoint, handshake: Handshake | None = None, patience_ms: int = 0) -> Dialer:
    """The dialer of an endpoint's connections."""
    return Dialer(endpoint, resolver_of(endpoint), handshake, patience_ms)
