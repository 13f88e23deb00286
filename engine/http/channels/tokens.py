"""JSON Web Tokens that a channel asks for, as DSPS checks them: signature, issuer, audience, times, and
claims of its own."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from engine.errors import Malformed, counted
from engine.validate import settle

# -- Keys that the signatures of JSON Web Tokens are checked with, each for one algorithm alone. A public
# key can never be taken for a shared secret, as a token of another algorithm would want.

#: What a channel may ask for. There is no `none` among them.
ALGORITHMS = tuple(f"{family}{bits}" for family in ("RS", "PS", "ES", "HS") for bits in (256, 384, 512))
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_RSA_BITS_MIN = 2048

#: A key as a service writes it: a file, or its content.
KeySource = Path | str | bytes
VerificationKey = RSAPublicKey | EllipticCurvePublicKey | bytes


def loaded(given: object) -> dict[str, tuple[VerificationKey, ...]]:
    """Algorithm -> its keys: for RS, PS and ES public keys or certificates as PEM, for HS secrets in base64;
    each a file's path or its content. Raises Malformed."""
    if not isinstance(given, Mapping) or not given:
        raise Malformed("jwt.keys", cast("object", given), "a mapping of at least one algorithm to its keys")
    found: dict[str, tuple[VerificationKey, ...]] = {}
    for algorithm, sources in cast("Mapping[object, object]", given).items():
        if algorithm not in ALGORITHMS:
            raise Malformed(
                "jwt.keys", algorithm, f"one of {', '.join(ALGORITHMS)}; unsigned tokens are never taken"
            )
        name = str(algorithm)
        if isinstance(sources, str | bytes) or not isinstance(sources, Sequence) or not sources:
            raise Malformed(f"jwt.keys.{name}", cast("object", sources), "a list of at least one key")
        listed = enumerate(cast("Sequence[object]", sources))
        found[name] = tuple(_key(f"jwt.keys.{name}[{at}]", name, source) for at, source in listed)
    return found


def _key(field: str, algorithm: str, source: object) -> VerificationKey:
    if isinstance(source, Path):
        try:
            data = source.read_bytes()
        except OSError as error:
            raise Malformed(field, str(source), f"a file that can be read ({error})") from error
    elif isinstance(source, str | bytes):
        data = source.encode() if isinstance(source, str) else source
    else:
        raise Malformed(field, source, "the path of a file, or its content")
    return (
        _secret(field, algorithm, data) if algorithm.startswith("HS") else _public_key(field, algorithm, data)
    )


def _secret(field: str, algorithm: str, data: bytes) -> bytes:
    least = int(algorithm[2:]) // 8
    bound = f"base64 of a secret of at least {least} random bytes (RFC 7518, 3.2)"
    try:
        secret = base64.b64decode(data.strip(), validate=True)
    except binascii.Error as error:
        raise Malformed(field, "(not shown)", f"{bound} ({error})") from None
    if len(secret) < least:
        raise Malformed(field, counted(len(secret), "byte"), bound)
    return secret


def _public_key(field: str, algorithm: str, data: bytes) -> RSAPublicKey | EllipticCurvePublicKey:
    bound = f"a public key or certificate as PEM, for {algorithm}"
    try:
        certificate = b"-----BEGIN CERTIFICATE-----" in data
        key = x509.load_pem_x509_certificate(data).public_key() if certificate else load_pem_public_key(data)
    except ValueError as error:
        raise Malformed(field, "(not shown)", f"{bound} ({error})") from None
    curve = _CURVES.get(algorithm)
    if curve is None:
        if not isinstance(key, RSAPublicKey) or key.key_size < _RSA_BITS_MIN:
            raise Malformed(field, "(not shown)", f"{bound}: RSA of at least {_RSA_BITS_MIN} bits")
        return key
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name != curve:
        raise Malformed(field, "(not shown)", f"{bound}: of the curve {curve}")
    return key


# -- Texts with parts of a channel's name in them, as DSPS writes them: `{{.channel.id}}` is what the
# group `id` of the pattern took.

_GROUP = re.compile(r"\{\{\s*\.channel\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def check(field: str, text: object, groups: Iterable[str]) -> str:
    """A text whose places all name a group of the pattern. Raises Malformed."""
    known = sorted(groups)
    if not isinstance(text, str):
        raise Malformed(field, text, "text, with {{.channel.NAME}} for a named group of the pattern")
    if "{{" in _GROUP.sub("", text) or any(name not in known for name in _GROUP.findall(text)):
        shown = ", ".join(known) if known else "none"
        raise Malformed(
            field, text, f"text in which {{{{.channel.NAME}}}} names a group of the pattern; it has {shown}"
        )
    return text


def filled(text: str, groups: Mapping[str, str]) -> str:
    """The text for one channel."""
    return _GROUP.sub(lambda place: groups[place.group(1)], text)


#: A longer one is no token: headers of requests end near this.
_CHARS_MAX = 16_384
_LEEWAY_MS_MAX = 86_400_000
#: Of an id in UTF-8. So much of any characters fits into the query of the call that revokes it.
JTI_BYTES_MAX = 1_024
#: The end of a token in seconds, until the year 5138; so many digits has the call that revokes it.
EXPIRES_S_MAX = 99_999_999_999


class TokenRefused(Exception):
    """A token that a channel does not take. The text says why, for logs, and for callers only where a service
    discloses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """What a token must be. `iss`: issuers, one of which it names; `aud`: audiences, one of which it names,
    none = any. `keys`: by algorithm (RS, PS, ES and HS with 256, 384 or 512), public keys or certificates as
    PEM, for HS secrets in base64; a `Path` is read. `claims`: what claims of its own must say, a text or one
    of several, in which `{{.channel.NAME}}` is what that group of the channel's pattern took.
    `clock_skew_ms`: how far clocks may differ for `exp`, `nbf` and `iat`. `require_exp`: a token without an
    end is refused; DSPS takes it. `require_jti`: so is one without an id, which nobody can revoke. Raises
    Malformed."""

    iss: Sequence[str]
    keys: Mapping[str, Sequence[KeySource]] = field(repr=False)
    aud: Sequence[str] = ()
    claims: Mapping[str, str | Sequence[str]] = field(default_factory=dict[str, "str | Sequence[str]"])
    clock_skew_ms: int = 300_000
    require_exp: bool = True
    require_jti: bool = False

    def __post_init__(self) -> None:
        settle(self, "jwt.", clock_skew_ms=(0, _LEEWAY_MS_MAX))
        for name, texts, least in (("iss", self.iss, 1), ("aud", self.aud, 0)):
            if len(texts) < least or not all(texts):
                raise Malformed(
                    f"jwt.{name}", texts, f"a list of at least {counted(least, 'text')}, none of them empty"
                )
        loaded(self.keys)

    def check_claims(self, groups: Sequence[str]) -> None:
        """Check the templates of the claims against the groups of a channel's pattern. Raises Malformed."""
        for name, wanted in self.claims.items():
            for text in _alternatives(wanted):
                check(f"jwt.claims.{name}", text, groups)


class TokenCheck:
    """Checks tokens for channels of one configuration."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._keys: Mapping[str, tuple[VerificationKey, ...]] = loaded(settings.keys)

    def claims_of(self, token: str, groups: Mapping[str, str]) -> dict[str, Any]:
        """The claims of a token that is in order for the channel whose pattern took these groups. Raises
        TokenRefused."""
        if not token:
            raise TokenRefused("no JWT presented")
        if len(token) > _CHARS_MAX:
            raise TokenRefused(f"it is longer than {_CHARS_MAX} characters")
        claims = self._verified(token)
        _check_times(claims)
        if not jti_of(claims) and self._settings.require_jti:
            raise TokenRefused("it has no jti, and this channel asks for one")
        for name, wanted in self._settings.claims.items():
            expected = [filled(text, groups) for text in _alternatives(wanted)]
            if _spelled(claims.get(name)) not in expected:
                raise TokenRefused(
                    f"the claim {name} is {claims.get(name)!r:.100}, not {' or '.join(expected)}"
                )
        return claims

    def _verified(self, token: str) -> dict[str, Any]:
        """The claims of a token whose signature, issuer, audience and times are in order."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise TokenRefused(f"it is no JWT: {error}") from error
        algorithm = header.get("alg")
        # What the token says of its own keys (jwk, jku, x5u) is not read.
        keys = self._keys.get(algorithm, ()) if isinstance(algorithm, str) else ()
        if not keys:
            raise TokenRefused(f"its algorithm {algorithm!r:.20} is none of {', '.join(self._keys)}")
        if "crit" in header:
            raise TokenRefused("its crit header names extensions, and none is known here")
        refused: Exception | None = None
        for key in keys:
            try:
                return self._decoded(token, key, cast("str", algorithm))
            except jwt.InvalidSignatureError as error:
                refused = error
            except jwt.PyJWTError as error:
                raise TokenRefused(str(error)) from error
        raise TokenRefused(f"its signature is of no {algorithm} key of this channel") from refused

    def _decoded(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        settings = self._settings
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=list(settings.iss),
            audience=list(settings.aud) or None,
            leeway=settings.clock_skew_ms / 1000,
            options={
                "require": ["iss", "exp"] if settings.require_exp else ["iss"],
                "verify_aud": bool(settings.aud),
                # As in DSPS a subject is of any kind; an id is what `jti_of` takes.
                "verify_sub": False,
                "verify_jti": False,
            },
        )


def jti_of(claims: Mapping[str, Any]) -> str:
    """The id of a token, by which it is revoked: a text, or a number in Go's spelling; '' for a token without
    one. Raises TokenRefused for an id that nobody could revoke."""
    claim: object = claims.get("jti")
    if claim is None:
        return ""
    jti = None if isinstance(claim, bool) else _spelled(claim)
    if jti is None or not is_revocable(jti):
        raise TokenRefused(
            f"its jti is no text or number of at most {JTI_BYTES_MAX} bytes, so nobody could revoke it"
        )
    return jti


def is_revocable(jti: str) -> bool:
    """Whether a token of this id can be revoked."""
    try:
        return len(jti.encode()) <= JTI_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _check_times(claims: Mapping[str, Any]) -> None:
    """Raise TokenRefused for times that are no numbers, because the library reads numbers in a text, too. An
    end in milliseconds is refused, because no revocation could outlast it."""
    for name in ("exp", "nbf", "iat"):
        claim: object = claims.get(name)
        if claim is not None and (isinstance(claim, bool) or not isinstance(claim, int | float)):
            raise TokenRefused(f"its {name} is no number of seconds")
    if claims.get("exp", 0) > EXPIRES_S_MAX:
        raise TokenRefused(f"its exp is beyond {EXPIRES_S_MAX} s, the year 5138")


def _alternatives(wanted: str | Sequence[str]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def _spelled(claim: object) -> str | None:
    """A claim as text, in Go's spelling, as settings are compared with; None for what is no text, number or
    truth value."""
    if isinstance(claim, bool):
        return "true" if claim else "false"
    if isinstance(claim, int | str):
        return str(claim)
    if isinstance(claim, float):
        return str(int(claim)) if claim.is_integer() else format(Decimal(repr(claim)), "f")
    return None
