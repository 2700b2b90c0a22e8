"""What an operation works with: the open store, the merchant's policy and the one clock.

Command line, API and worker hold a Desk and hand it to operations; they never see the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.clock import Clock
from app.store.store import Store
from reconcile.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One open store, seen through one policy, on one clock."""

    store: Store
    policy: Policy
    clock: Clock
