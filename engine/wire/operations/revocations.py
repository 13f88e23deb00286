"""The list of revoked JSON Web Tokens, as the DSPS server keeps it: one key for each token that is revoked."""

from __future__ import annotations

from typing import Literal

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration


@immutable
class Revoke(Declaration):
    """Refuse a token by its id (`jti`) until it would have expired by itself: `expires_s` since 1970, its `exp`."""

    jti: str
    expires_s: int

    def parse(self, raw: object, decode: object) -> Literal[True]:
        """It is on the list."""
        return True


@immutable
class AskRevoked(Declaration, label="look up a token"):
    """Whether a token is revoked."""

    jti: str

    def parse(self, raw: object, decode: object) -> bool:
        """Whether it is on the list."""
        return raw is not None


RevocationsOperation = Revoke | AskRevoked
