"""Secrets that end: whoever changes one gives the older an end, and then it proves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.providers.judging import Judge, compile_judge
from app.providers.named.contract import Secrets
from app.providers.refusal import Refusal
from app.providers.sections import Profile
from reconcile.instants import Instant

ALL_ENDED: Final = Refusal(
    "signature_mismatch", "Every secret of the source has ended; configure the provider's new one."
)


class Ending:
    """The judges of one source over time. Slots, so that nothing prints a secret."""

    __slots__ = ("_ends", "_judges", "_name", "_profile", "_secrets")

    def __init__(
        self, name: str, profile: Profile, *, secrets: Secrets, ends: Mapping[str, Instant]
    ) -> None:
        self._name = name
        self._profile = profile
        self._secrets = tuple(secrets.listed)
        self._ends = dict(ends)
        self._judges: dict[tuple[str, ...], Judge] = {}

    def judge_at(self, now: Instant) -> Judge | None:
        """With the secrets that are valid at `now`, compiled once; None where none is."""
        valid = tuple(s for s in self._secrets if now < self._ends.get(s, now + 1))
        if not valid:
            return None
        if valid not in self._judges:
            self._judges[valid] = compile_judge(
                self._name, self._profile, Secrets(listed=valid), strict=True
            )
        return self._judges[valid]
