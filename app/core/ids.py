"""Make ids, tokens and secrets. Except for the seeded sandbox, all randomness comes from here."""

import os
import random
import secrets

from reconcile.instants import MILLISECOND, Instant

_CHANCE_BYTES = 9
_DRAWN_AT_ONCE = 256
_chances: list[str] = []
# A forked process must not reuse ids of its parent.
os.register_at_fork(after_in_child=_chances.clear)


def new_id(prefix: str, now: Instant) -> str:
    """Return a new id: prefix, 12 hexadecimal digits of the time in milliseconds, 18 random ones.

    Ids sort by time.
    """
    try:
        chance = _chances.pop()
    except IndexError:
        # One system call for many ids: each call lets another thread take the interpreter.
        drawn = os.urandom(_CHANCE_BYTES * _DRAWN_AT_ONCE)
        starts = range(0, len(drawn), _CHANCE_BYTES)
        chance, *rest = (drawn[start : start + _CHANCE_BYTES].hex() for start in starts)
        _chances.extend(rest)
    return f"{prefix}{now // MILLISECOND:012x}{chance}"


def first_id(prefix: str, instant: Instant) -> str:
    """Return the smallest id that could be made at this instant or later."""
    return f"{prefix}{max(instant, 0) // MILLISECOND:012x}"


def new_token(prefix: str) -> str:
    """Return a new URL-safe bearer token with 256 random bits after the prefix."""
    return prefix + secrets.token_urlsafe(32)


def new_secret() -> bytes:
    """Return 32 random bytes, for use as a signing secret."""
    return secrets.token_bytes(32)


def new_salts(count: int) -> list[bytes]:
    """Return `count` new salts of 16 random bytes each."""
    chance = os.urandom(16 * count)
    return [chance[start : start + 16] for start in range(0, len(chance), 16)]


def drawn_seed() -> int:
    """Return a random 32-bit seed, which is short enough for a person to retype."""
    return secrets.randbits(32)


Chance = random.Random


def seeded_chance(seed: str) -> Chance:
    """Return a generator of random choices that depend only on the seed. The generator is for tests
    and never for secrets."""
    return Chance(seed)
