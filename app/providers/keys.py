"""Secrets made ready for use, or every reason why they are not, without ever showing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.errors import ConfigurationError
from app.providers.encodings import SECRET_ENCODINGS
from app.providers.profile import Profile
from app.providers.schemes import SCHEMES, Key

LEAST_BYTES: Final = 24
"""192 bits, the least that Standard Webhooks 1.0 allows a symmetric secret."""


def compile_keys(source: str, profile: Profile, secrets: Sequence[str]) -> tuple[Key, ...]:
    """One key for each secret, in order. Raises ConfigurationError with all problems at once."""
    if not secrets:
        raise ConfigurationError([f"source {source}: has no secret; give at least one"])
    decoded: list[bytes] = []
    problems = []
    for number, secret in enumerate(secrets, 1):
        try:
            decoded.append(_decode(secret, profile.secret.encoding))
        except ValueError as error:
            problems.append(f"source {source}: secret {number} of {len(secrets)} {error}")
    if problems:
        # Outside the handler: a chained error could carry the secret into a log.
        raise ConfigurationError(problems)
    scheme = SCHEMES[profile.signature.mac]
    return tuple(scheme(secret) for secret in decoded)


def _decode(secret: str, encoding: str) -> bytes:
    if type(secret) is not str:
        raise ValueError("is not a text")
    if not secret.strip():
        raise ValueError("is empty or blank")
    if secret != secret.strip():
        raise ValueError("begins or ends with a blank; remove it")
    try:
        value = SECRET_ENCODINGS[encoding](secret)
    except ValueError:
        raise ValueError(f"is not well-formed {encoding}") from None
    if len(value) < LEAST_BYTES:
        raise ValueError(f"is too short: {LEAST_BYTES} bytes at least, it has {len(value)}")
    return value
