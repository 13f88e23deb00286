"""The list of revoked tokens on the server, in the keys of DSPS, so that both servers heed it."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.models.dsps_keys import revocation
from engine.wire.call import Call
from engine.wire.drivers.async_driver import AsyncDriver
from engine.wire.drivers.endpoint import ConnectOptions, Endpoint
from engine.wire.operations import AskRevoked, Revoke

#: How much longer than a token its key lives: clocks differ.
_MARGIN_S = 15
#: As long as an id may be.
JTI_CHARS_MAX = 1_024
#: The year 9999: Redis keeps an expiry in ms.
EXPIRES_S_MAX = 253_402_300_799


class Revocations:
    """Revoked tokens. `connect`: times and bounds of connections. `now_s`: the time since 1970."""

    def __init__(self, url: str, connect: ConnectOptions | None = None, now_s: Callable[[], float] = time.time) -> None:
        self._driver = AsyncDriver(Endpoint(url, options=connect, asynchronous=True), ())
        self._now_s = now_s

    async def revoke(self, jti: str, expires_s: int) -> None:
        """Refuse the token with this id until it would expire. One that has expired is not noted. Raises ServerUnavailable and
        OutcomeUnknown; repeat it then."""
        operation, key = Revoke(jti, expires_s), revocation(jti)
        ttl_s = int(expires_s - self._now_s()) + _MARGIN_S
        if ttl_s > 0:
            words = ("SET", key, str(expires_s), "EX", ttl_s)
            async with self._driver.turns:
                await self._driver.run(Call(None, (key,), words, lambda raw: operation.parse(raw, None), operation))

    async def is_revoked(self, jti: str) -> bool:
        """Whether the token with this id is refused. Raises ServerUnavailable and OutcomeUnknown."""
        operation, key = AskRevoked(jti), revocation(jti)
        async with self._driver.turns:
            return await self._driver.run(Call(None, (key,), ("GET", key), lambda raw: operation.parse(raw, None), operation))

    async def close(self) -> None:
        """Close the idle connections."""
        await self._driver.close()
