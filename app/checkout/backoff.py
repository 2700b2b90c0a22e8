"""How long to wait before the next request retry, and when to stop. Pure.

Exponential with full jitter of the last step, as stamina does it; stamina itself takes neither a
Retry-After nor a sleep of ours. The jitter comes out of the idempotency key, which is chance
already: two orders wait differently, one order always the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Bounds of one call. A customer waits for it, and the same key may be used again later.

    tries     requests in all: enough for two refusals by trouble and a lost answer
    try_s     seconds for one request and its whole answer; a slow service takes three
    total_s   seconds for everything, pauses included: nobody waits longer for a page
    first_s   pause before the second request; each later one is twice as long
    most_s    longest pause of our own choosing
    jitter_s  up to so much is added to each pause, so that many clients come apart
    """

    tries: int = 5
    try_s: float = 8.0
    total_s: float = 25.0
    first_s: float = 0.2
    most_s: float = 4.0
    jitter_s: float = 0.5


def pause_before(number: int, *, key: str, asked_s: float, settings: RetrySettings) -> float:
    """Seconds before request `number` (2, 3, …); `asked_s` is the least the service asked for."""
    # Beyond 2^30 the power only costs time; `most_s` decides long before.
    grown = settings.first_s * 2.0 ** min(number - 2, 30)
    return max(asked_s, min(grown, settings.most_s)) + settings.jitter_s * _share(key, number)


def _share(key: str, number: int) -> float:
    """From 0 up to 1, evenly over all keys."""
    digest = hashlib.sha256(f"{number}:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
