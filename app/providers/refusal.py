"""Why a request is not taken for genuine, as a value: the door never raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "signature_missing",
    "signature_mismatch",
    "timestamp_missing",
    "timestamp_too_old",
    "timestamp_too_new",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One failed check.

    reason    the rejection verdict
    sentence  for our own log: names of the profile and our numbers, never text of the request,
              never a secret, never a computed signature
    """

    reason: Reason
    sentence: str
