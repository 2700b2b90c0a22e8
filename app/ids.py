"""Identifiers that we give, and the only place outside the seeded sandbox where chance comes in."""

from __future__ import annotations

import os
import random
import secrets

from reconcile.instants import MILLISECOND, Instant


def new_id(prefix: str, now: Instant) -> str:
    """`prefix` and 30 hex digits: 12 of milliseconds (ids sort by them), 18 of chance (72 bits)."""
    return f"{prefix}{now // MILLISECOND:012x}{os.urandom(9).hex()}"


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


Chance = random.Random
"""Where a seeded trial takes its choices from."""


def seeded_chance(seed: str) -> Chance:
    """Chance that is the same in every run with the same seed: for proofs, never for secrets."""
    return Chance(seed)
