"""The list of revoked JSON Web Tokens, as the DSPS server keeps it: one key for each token that is revoked."""

from __future__ import annotations

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration


@immutable
class Revoke(Declaration):
    """Refuse a token by its id (`jti`), as long as anybody might take it: `expires_s` since 1970, its `exp`."""

    jti: str
    expires_s: int

    def parse(self, raw: object, decode: object) -> bool:
        """Whether this has put it on the list, or let it stay there for longer."""
        return bool(raw)


@immutable
class AskRevoked(Declaration, label="look up a token"):
    """Whether a token is revoked."""

    jti: str

    def parse(self, raw: object, decode: object) -> bool:
        """Whether it is on the list."""
        return raw is not None


RevocationsOperation = Revoke | AskRevoked
