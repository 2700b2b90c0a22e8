"""Compile a source's secrets to keys, or report every problem. No message shows a secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.errors import ConfigurationError
from app.providers.encodings import SECRET_ENCODINGS, WHPK, WHSK
from app.providers.kit import Secrets, named_scheme
from app.providers.schemes import SCHEMES, UNSIGNED, Key, Scheme, load_key
from app.providers.sections import Profile

_PEM: Final = "-----BEGIN"


def takes_keys(mac: str) -> bool:
    """Check whether a scheme's secrets are public keys."""
    named = named_scheme(mac)
    return named.public_keys if named else mac in SCHEMES and SCHEMES[mac].asymmetric


_BARE: Final = frozenset({32, 64})


def refuse_key_pair(secret: str) -> None:
    """Raise ValueError for a public or private key."""
    text = secret.strip()
    is_key = text.startswith((WHPK, WHSK)) or _PEM in text
    if not is_key:
        try:
            material = SECRET_ENCODINGS["public_key"](text)
            if len(material) not in _BARE:
                load_key(material)
                is_key = True
        except ValueError:
            is_key = False
    if is_key:
        raise ValueError(
            "is a public key or its private half, but a secret is needed: anyone who knows the "
            "public key could sign with it; write the secret that only you and the provider have"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The compiled keys of a source, hidden from the repr."""

    main: tuple[Key, ...] = field(default=(), repr=False)
    """Keys of the profile's section [signature], newest first."""
    also: tuple[Key, ...] = field(default=(), repr=False)
    """Keys of the profile's section [signature.also]."""
    named: Mapping[bytes, Key] = field(default_factory=dict, repr=False)
    """Keys in `main` that have an id, by id."""


def compile_keys(source: str, profile: Profile, secrets: Secrets, *, strict: bool) -> KeyRing:
    """Compile a source's secrets to keys, in order.

    Raise one ConfigurationError with all problems. If `strict` is set, short secrets are refused.
    """
    texts = [*secrets.listed, *secrets.named.values()]
    if profile.signature.mac == UNSIGNED:
        return KeyRing()
    if not texts:
        raise ConfigurationError([f"source {source}: has no secret; give at least one"])
    made: list[Key | None] = []
    problems = []
    for number, secret in enumerate(texts, 1):
        made.append(None)
        try:
            made[-1] = _key(secret, profile, strict=strict)
        except ValueError as error:
            problems.append(f"source {source}: secret {number} of {len(texts)} {error}")
    if problems:
        # Raised outside the handler: a chained error could carry the secret into a log.
        raise ConfigurationError(problems)
    keys = [key for key in made if key is not None]
    pairs = list(zip(texts, keys, strict=True))
    named = zip(secrets.named, keys[len(secrets.listed) :], strict=True)
    return KeyRing(
        main=tuple(key for text, key in pairs if not _is_also(profile, text)),
        also=tuple(key for text, key in pairs if _is_also(profile, text)),
        named={name.encode("utf-8"): key for name, key in named},
    )


def _is_also(profile: Profile, secret: str) -> bool:
    also = profile.signature.also
    return also is not None and secret.startswith(also.secret_prefixes)


def _key(secret: object, profile: Profile, *, strict: bool) -> Key:
    if type(secret) is not str:
        raise ValueError("is not a text")
    if not secret.strip():
        raise ValueError("is empty or blank")
    scheme, encoding = scheme_of(profile, secret)
    if not scheme.asymmetric:
        refuse_key_pair(secret)
    if profile.signature.mac == "basic" and ":" not in secret:
        raise ValueError("has no colon; write it as user:password")
    if strict and secret != secret.strip() and not scheme.asymmetric:
        raise ValueError("begins or ends with a blank; remove it")
    for beginning in profile.secret.never_begins:
        if strict and secret.strip().startswith(beginning):
            meant = profile.setup.secret or "the secret that its webhooks are signed with"
            raise ValueError(
                f"begins with {beginning}, so it is another credential and not the signing "
                f"secret: write {meant}"
            )
    try:
        value = SECRET_ENCODINGS[encoding](secret)
    except ValueError:
        value = None
    if value is None:
        raise ValueError(f"is not well-formed {encoding}")
    if scheme.asymmetric:
        return scheme.make(value)
    least = profile.secret.least_bytes if strict else 1
    if len(value) < least:
        raise ValueError(f"is too short: it has {len(value)} of at least {least} bytes")
    return scheme.make(value)


def scheme_of(profile: Profile, secret: str) -> tuple[Scheme, str]:
    """Return the secret's signature scheme and encoding."""
    also = profile.signature.also
    if also is None or not _is_also(profile, secret):
        return SCHEMES[profile.signature.mac], profile.secret.encoding
    scheme = SCHEMES[also.mac]
    return scheme, "public_key" if scheme.asymmetric else profile.secret.encoding
