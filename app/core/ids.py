"""Identifiers that we give, and the only place outside the seeded sandbox where chance comes in."""

from __future__ import annotations

import os
import random
import secrets

from reconcile.instants import MILLISECOND, Instant

_CHANCE_BYTES = 9
_DRAWN_AT_ONCE = 256
_chances: list[str] = []
# A process that is forked off must not give the ids that its parent will give.
os.register_at_fork(after_in_child=_chances.clear)


def new_id(prefix: str, now: Instant) -> str:
    """`prefix` and 30 hex digits: 12 of milliseconds (ids sort by them), 18 of chance (72 bits)."""
    try:
        chance = _chances.pop()
    except IndexError:
        chance, *rest = _draw()
        _chances.extend(rest)
    return f"{prefix}{now // MILLISECOND:012x}{chance}"


def _draw() -> list[str]:
    """One system call for many: each of its own would let another thread take the interpreter."""
    drawn = os.urandom(_CHANCE_BYTES * _DRAWN_AT_ONCE)
    starts = range(0, len(drawn), _CHANCE_BYTES)
    return [drawn[start : start + _CHANCE_BYTES].hex() for start in starts]


def first_id(prefix: str, instant: Instant) -> str:
    """No id that was given at this instant's millisecond, or later, is below it."""
    return f"{prefix}{max(instant, 0) // MILLISECOND:012x}"


def new_token(prefix: str) -> str:
    """A bearer token with 256 bits of chance, URL-safe."""
    return prefix + secrets.token_urlsafe(32)


def new_secret() -> bytes:
    """32 bytes of chance for a signing secret."""
    return secrets.token_bytes(32)


def new_salts(count: int) -> list[bytes]:
    """16 bytes of chance each, so that nobody can test a guess of what was hashed with one."""
    chance = os.urandom(16 * count)
    return [chance[start : start + 16] for start in range(0, len(chance), 16)]


def drawn_seed() -> int:
    """For a seeded run that nobody gave one: 32 bits, so that a person can type it again."""
    return secrets.randbits(32)


Chance = random.Random
"""Where a seeded trial takes its choices from."""


def seeded_chance(seed: str) -> Chance:
    """Chance that is the same in every run with the same seed: for proofs, never for secrets."""
    return Chance(seed)
