"""Which key a request was signed with, named by a fingerprint, and what the signature covers.

The receiver keeps only that a request was genuine. Both are found again here from what was kept,
with the secrets that are configured now; no secret leaves this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.errors import ConfigurationError
from app.providers import encodings, keys, schemes, sections
from app.providers.doctor import Account, Patient
from app.providers.request import Incoming, Refusal
from app.providers.source import Source
from app.providers.verification import Verifier
from reconcile.instants import EARLIEST, MILLISECOND, Instant, parse_instant

_PREFIX: Final = b"tallyhook secret fingerprint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """Whose key a request was signed with.

    public  the key itself in PEM, where it is a public one; None for a shared secret
    """

    fingerprint: str
    public: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What a signature is over.

    content    the signed bytes; None where the profile cannot say them without the secret, or
               where code says them
    signed_at  when the request says that it was signed
    """

    content: bytes | None = field(default=None, repr=False)
    signed_at: Instant | None = None


def fingerprint(secret: bytes) -> str:
    """16 hex digits that name a secret: enough to distinguish keys, and nothing to sign with."""
    return hashlib.sha256(_PREFIX + secret).hexdigest()[:16]


def signer_of(account: Account, patient: Patient) -> SigningKey | None:
    """The key that makes the request genuine as of its arrival; None where none does now."""
    for secrets, shown in _candidates(account, patient.now):
        if _genuine(account, secrets, patient):
            return _signer(account.profile, shown)
    return None


def _candidates(
    account: Account, now: Instant
) -> Iterator[tuple[Sequence[str] | Mapping[str, str], str]]:
    """Each secret alone, then all named parts together, which some schemes take."""
    if isinstance(account.secrets, Mapping):
        for name, secret in account.secrets.items():
            yield {name: secret}, secret
        parts = account.secrets.items()
        yield account.secrets, "\n".join(f"{name}={secret}" for name, secret in sorted(parts))
        return
    for secret in account.secrets:
        if now < account.ends.get(secret, now + 1):
            yield [secret], secret


def _genuine(
    account: Account, secrets: Sequence[str] | Mapping[str, str], patient: Patient
) -> bool:
    try:
        source = Source(
            name=account.name,
            profile=account.profile,
            secrets=secrets,
            address=account.address,
            strict=False,
        )
    except ConfigurationError:
        return False
    request = Incoming(patient.headers, patient.body, patient.method, patient.url)
    return source.verify(request, now=patient.now) is None


def _signer(profile: sections.Profile, secret: str) -> SigningKey:
    public = public_key(profile, secret)
    return SigningKey(fingerprint=fingerprint(public or secret.encode("utf-8")), public=public)


def public_key(profile: sections.Profile, secret: str) -> bytes | None:
    """The public half in PEM of a secret that is an asymmetric key; None for any other."""
    mac = profile.signature.mac
    if mac == schemes.UNSIGNED:
        return None
    if mac.startswith(schemes.NAMED):
        # 32 bytes of a shared secret could be taken for a key: only what says that it is one.
        if not secret.strip().startswith("-----BEGIN"):
            return None
        encoding = "public_key"
    else:
        scheme, encoding = keys.scheme_of(profile, secret)
        if not scheme.asymmetric:
            return None
    return public_pem(secret, encoding=encoding)


def public_pem(secret: str, *, encoding: str) -> bytes | None:
    """The public half of an asymmetric key in PEM; None where it is none."""
    try:
        public = schemes.load_key(encodings.SECRET_ENCODINGS[encoding](secret)).public
    except ValueError:
        return None
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def covered(account: Account, patient: Patient) -> Covered:
    """What the request's signature is over, as its profile says; nothing where code says it."""
    rule = account.profile.signature
    if rule.mac == schemes.UNSIGNED or rule.mac.startswith(schemes.NAMED) or rule.per_item:
        return Covered()
    verifier = Verifier(account.profile, keys.KeyRing(), address=account.address)
    request = verifier.request(Incoming(patient.headers, patient.body, patient.method, patient.url))
    signed_at = None
    if verifier.timestamp is not None:
        stamp = verifier.timestamp.text(request)
        if isinstance(stamp, bytes):
            request.timestamp = stamp
            signed_at = _moment(stamp, verifier)
    scheme = schemes.SCHEMES[rule.mac]
    if not scheme.covers or "secret" in verifier.template.names:
        return Covered(signed_at=signed_at)
    content = verifier.template.fill(request)
    return Covered(content=None if isinstance(content, Refusal) else content, signed_at=signed_at)


def _moment(stamp: bytes, verifier: Verifier) -> Instant | None:
    assert verifier.timestamp is not None
    unit = verifier.timestamp.unit
    try:
        if not unit.length:
            return parse_instant(stamp.decode("ascii"))
        fine = len(stamp) >= unit.milliseconds_from
        return EARLIEST + int(stamp) * (MILLISECOND if fine else unit.length)
    except ValueError:
        return None


_NAMED_ENCODINGS: Final[Mapping[str, tuple[str, str]]] = {
    "oppwa": ("", "hex"),
    "rfc9421": ("hmac:", "base64"),
}
"""What marks a shared secret of a named scheme, and how it is written; others are texts."""

_BINDING: Final[Mapping[str, str]] = {"paypal": "webhook_id"}
"""The named part that stands for the whole: it is signed with every delivery, and one account's."""


def key_identities(
    profile: sections.Profile, secrets: Sequence[str] | Mapping[str, str]
) -> frozenset[bytes]:
    """A digest for each key; equal ones are the same key, under whatever profile."""
    if profile.signature.mac == schemes.UNSIGNED:
        return frozenset()
    named = secrets if isinstance(secrets, Mapping) else {}
    part = _BINDING.get(profile.signature.mac.removeprefix(schemes.NAMED))
    texts = list(named.values()) if named else list(secrets)
    if part is not None:
        texts = [text for name, text in named.items() if name == part]
    return frozenset(digest for text in texts for digest in _identities(profile, text))


def _identities(profile: sections.Profile, secret: str) -> Iterator[bytes]:
    public = public_key(profile, secret) or _json_web_key(profile, secret)
    if public is not None:
        yield _digest(b"public", public)
        return
    # As the text that it is too: one secret that two providers read in two ways was still copied.
    bare = secret.strip().removeprefix("whsec_").rstrip("=")
    yield _digest(b"shared", bare.encode("utf-8", "surrogatepass"))
    decoded = _decoded(profile, secret)
    if decoded:
        yield _digest(b"shared", decoded)


def _json_web_key(profile: sections.Profile, secret: str) -> bytes | None:
    """Of a named scheme, a key written as JSON."""
    if not (profile.signature.mac.startswith(schemes.NAMED) and secret.lstrip().startswith("{")):
        return None
    return public_pem(secret, encoding="public_key")


def _decoded(profile: sections.Profile, secret: str) -> bytes | None:
    mac = profile.signature.mac
    if mac.startswith(schemes.NAMED):
        mark, encoding = _NAMED_ENCODINGS.get(mac.removeprefix(schemes.NAMED), ("", "text"))
        secret = secret.removeprefix(mark)
    else:
        encoding = keys.scheme_of(profile, secret)[1]
    try:
        return encodings.SECRET_ENCODINGS[encoding](secret)
    except ValueError:
        return None


def _digest(kind: bytes, key: bytes) -> bytes:
    return hashlib.sha256(kind + b" " + key).digest()
