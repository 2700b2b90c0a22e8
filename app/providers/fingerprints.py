"""Find out which key has signed a stored request.

No secret leaves this module.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.errors import ConfigurationError
from app.providers import encodings, keys, kit, schemes, sections
from app.providers.doctor import Account
from app.providers.request import Incoming, Refusal
from app.providers.source import Source
from app.providers.verification import Declared
from reconcile.instants import EARLIEST, MILLISECOND, Instant, parse_instant

_PREFIX: Final = b"tallyhook secret fingerprint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """Key that has signed a request.

    The public key is None for a shared secret.
    """

    fingerprint: str
    public: bytes | None = field(default=None, repr=False)
    """Public key in PEM. None if the key is a shared secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Content that a signature covers."""

    content: bytes | None = field(default=None, repr=False)
    """Signed bytes. None if secret-dependent or not described."""
    signed_at: Instant | None = None
    """Time of signing that the request states."""


def key_fingerprint(secret: bytes) -> str:
    """Return 16 hex digits that identify a secret without revealing the secret."""
    return hashlib.sha256(_PREFIX + secret).hexdigest()[:16]


class AccountKeys:
    """All keys of a source's configuration, each compiled once.

    Secrets are tried alone, then all named ones together.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self._tried: list[tuple[Source, str]] = []
        tried: list[tuple[Sequence[str] | Mapping[str, str], str]]
        if isinstance(account.secrets, Mapping):
            tried = [({name: secret}, secret) for name, secret in account.secrets.items()]
            parts = sorted(account.secrets.items())
            tried.append((account.secrets, "\n".join(f"{name}={secret}" for name, secret in parts)))
        else:
            tried = [([secret], secret) for secret in account.secrets]
        for secrets, shown in tried:
            with suppress(ConfigurationError):
                source = Source(
                    name=account.name,
                    profile=account.profile,
                    secrets=secrets,
                    address=account.address,
                    strict=False,
                )
                self._tried.append((source, shown))

    def signer_of(self, request: Incoming, *, now: Instant) -> SigningKey | None:
        """Return the key that proves the request genuine."""
        ends = self.account.ends
        for source, shown in self._tried:
            if now < ends.get(shown, now + 1) and source.verify(request, now=now) is None:
                public = public_key(self.account.profile, shown)
                named = key_fingerprint(public or shown.encode("utf-8"))
                return SigningKey(fingerprint=named, public=public)
        return None


def public_key(profile: sections.Profile, secret: str) -> bytes | None:
    """Return the public half of an asymmetric key in PEM.

    None means a shared secret.
    """
    mac = profile.signature.mac
    if mac == schemes.UNSIGNED:
        return None
    if kit.named_scheme(mac):
        # A shared secret of 32 bytes could be taken for a key, so only a PEM text counts as one.
        if not secret.strip().startswith("-----BEGIN"):
            return None
        encoding = "public_key"
    else:
        scheme, encoding = keys.scheme_of(profile, secret)
        if not scheme.asymmetric:
            return None
    return public_pem(secret, encoding=encoding)


def public_pem(secret: str, *, encoding: str) -> bytes | None:
    """Return an asymmetric key's public half in PEM, if any."""
    try:
        public = schemes.load_key(encodings.SECRET_ENCODINGS[encoding](secret)).public
    except ValueError:
        return None
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def covered(account: Account, request: Incoming) -> Covered:
    """Return the content that the signature of a request covers."""
    rule = account.profile.signature
    if rule.mac not in schemes.SCHEMES or rule.per_item:
        return Covered()
    verifier = Declared(account.profile, keys.KeyRing())
    seen = verifier.request(request.at(account.address))
    signed_at = None
    if verifier.timestamp is not None:
        stamp = verifier.timestamp.text(seen)
        if isinstance(stamp, bytes):
            seen.timestamp = stamp
            unit = verifier.timestamp.unit
            try:
                if unit.length:
                    fine = len(stamp) >= unit.milliseconds_from
                    signed_at = EARLIEST + int(stamp) * (MILLISECOND if fine else unit.length)
                else:
                    signed_at = parse_instant(stamp.decode("ascii"))
            except ValueError:
                signed_at = None
    if not schemes.SCHEMES[rule.mac].covers or "secret" in verifier.template.names:
        return Covered(signed_at=signed_at)
    content = verifier.template.fill(seen)
    return Covered(content=None if isinstance(content, Refusal) else content, signed_at=signed_at)


def key_identities(
    profile: sections.Profile, secrets: Sequence[str] | Mapping[str, str]
) -> frozenset[bytes]:
    """Return a digest of each key, equal under all profiles."""
    mac = profile.signature.mac
    if mac == schemes.UNSIGNED:
        return frozenset()
    scheme = kit.named_scheme(mac)
    texts = list(secrets.values() if isinstance(secrets, Mapping) else secrets)
    if scheme is not None and scheme.binding is not None:
        named = secrets if isinstance(secrets, Mapping) else {}
        texts = [text for name, text in named.items() if name == scheme.binding]
    found = set()
    for text in texts:
        public = public_key(profile, text)
        if public is None and scheme is not None and text.lstrip().startswith("{"):
            public = public_pem(text, encoding="public_key")  # a JSON Web Key
        if public is not None:
            found.add(_digest(b"public", public))
            continue
        # The text is digested too: two providers may decode one copied secret in different ways.
        bare = text.strip().removeprefix("whsec_").rstrip("=")
        found.add(_digest(b"shared", bare.encode("utf-8", "surrogatepass")))
        if scheme is None:
            mark, encoding = "", keys.scheme_of(profile, text)[1]
        else:
            mark, encoding = scheme.mark, scheme.encoding
        try:
            decoded = encodings.SECRET_ENCODINGS[encoding](text.removeprefix(mark))
        except ValueError:
            continue
        if decoded:
            found.add(_digest(b"shared", decoded))
    return frozenset(found)


def _digest(kind: bytes, key: bytes) -> bytes:
    return hashlib.sha256(kind + b" " + key).digest()
