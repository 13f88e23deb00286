"""Keys that the signatures of JSON Web Tokens are checked with, each for one algorithm alone: a public key can never be taken for
a shared secret, as a token of another algorithm would want."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from engine.errors import Malformed

#: What a channel may ask for. There is no `none` among them.
ALGORITHMS = tuple(f"{family}{bits}" for family in ("RS", "PS", "ES", "HS") for bits in (256, 384, 512))
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_RSA_BITS_MIN = 2048

#: A key as a service writes it: a file, or its content.
KeySource = Path | str | bytes
VerificationKey = RSAPublicKey | EllipticCurvePublicKey | bytes


def loaded(given: object) -> dict[str, tuple[VerificationKey, ...]]:
    """Algorithm -> its keys: for RS, PS and ES public keys or certificates as PEM, for HS secrets in base64; each a file's path
    or its content. Raises Malformed."""
    if not isinstance(given, Mapping) or not given:
        raise Malformed("jwt.keys", cast("object", given), "a mapping of at least one algorithm to its keys")
    found: dict[str, tuple[VerificationKey, ...]] = {}
    for algorithm, sources in cast("Mapping[object, object]", given).items():
        if algorithm not in ALGORITHMS:
            raise Malformed("jwt.keys", algorithm, f"one of {', '.join(ALGORITHMS)}; unsigned tokens are never taken")
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
    return _secret(field, algorithm, data) if algorithm.startswith("HS") else _public_key(field, algorithm, data)


def _secret(field: str, algorithm: str, data: bytes) -> bytes:
    least = int(algorithm[2:]) // 8
    bound = f"base64 of a secret of at least {least} random bytes (RFC 7518, 3.2)"
    try:
        secret = base64.b64decode(data.strip(), validate=True)
    except binascii.Error as error:
        raise Malformed(field, "(not shown)", f"{bound} ({error})") from None
    if len(secret) < least:
        raise Malformed(field, f"{len(secret)} bytes", bound)
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
