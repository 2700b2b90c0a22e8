"""A profile with another tolerance for the age of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.providers.schemes import NAMED
from app.providers.sections import Profile
from reconcile.instants import LATEST, SECOND, Duration

ANY_AGE: Final[Duration] = LATEST
"""As good as no check: no two moments that can be written are farther apart."""

AGED: Final = frozenset({"timestamp_too_old", "timestamp_too_new"})
"""Reasons of a request that is genuine, and of another time."""


def with_tolerance(profile: Profile, tolerance: Duration) -> Profile:
    """The same profile, accepting `tolerance` in both directions, in whole seconds.

    Without effect where the provider signs no time; a named verifier's profile must state its own.
    """
    seconds = tolerance // SECOND
    if profile.timestamp is not None:
        timestamp = replace(profile.timestamp, past_s=seconds, future_s=seconds)
        return replace(profile, timestamp=timestamp)
    options = dict(profile.signature.options)
    if tolerance == ANY_AGE:  # more than a named verifier takes; whoever asks looks at the reason
        return profile
    if not profile.signature.mac.startswith(NAMED) or not options.keys() & {"past_s", "future_s"}:
        return profile
    pairs = tuple({**options, "past_s": seconds, "future_s": seconds}.items())
    return replace(profile, signature=replace(profile.signature, options=pairs))
