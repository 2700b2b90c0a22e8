"""Short-lived challenges for sign-ins, each bound to one browser."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from app.core.ids import new_salts
from reconcile.instants import MINUTE, Duration, Instant

VALID_FOR: Final[Duration] = 10 * MINUTE
"""Time in which a person must finish a sign-in."""

_SALT: Final = slice(8, 24)


def new_challenge(key: str, *, to: str, now: Instant) -> str:
    """Return a new challenge for a browser and purpose."""
    begun = now.to_bytes(8, "big", signed=True) + new_salts(1)[0]
    return _text(begun + _mac(key, begun + to.encode()))


def begun_at(key: str, challenge: str, *, to: str, now: Instant) -> Instant | None:
    """Return a valid challenge's creation time."""
    try:
        made = urlsafe_b64decode(challenge.encode() + b"=" * (-len(challenge) % 4))
    except ValueError:  # also characters that are no ASCII
        return None
    begun, mac = made[: _SALT.stop], made[_SALT.stop :]
    at = Instant(int.from_bytes(begun[: _SALT.start], "big", signed=True))
    # An encoding that differs only in unused bits would let the same challenge be used twice.
    fits = hmac.compare_digest(mac, _mac(key, begun + to.encode())) and _text(made) == challenge
    return at if fits and at <= now < at + VALID_FOR else None


def derived(key: str, challenge: str, purpose: str) -> str:
    """Derive a 256-bit secret from a key and challenge."""
    return _text(_mac(key, f"{purpose} {challenge}".encode()))


def _mac(key: str, content: bytes) -> bytes:
    return hmac.digest(key.encode(), content, "sha256")


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
