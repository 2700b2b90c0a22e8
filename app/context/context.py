"""What an operation works with: settings, the open database, the merchant's policy, the one clock.

Command line, API and console hold an AppContext and hand it to operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path

from app.config.settings import Settings
from app.context.signals import Signals
from app.context.unread import UnreadInbox
from app.core.clock import Clock
from app.core.phone_key import PhoneKey
from app.database.database import Database
from reconcile.ledger.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """One open database, seen through one policy, on one clock.

    phone_key        what customers' phone numbers are found by; None: they are neither noted nor
                     found
    erasure_journal  the file that knows who was erased; None: nobody can be
    zone             in which the merchant counts days and months; None: nobody has said
    phone_country    the calling code of phone numbers without one; empty: nobody has said
    merchant         the merchant's name, for the pages of reports; empty: nobody has said
    """

    settings: Settings
    database: Database
    inbox: UnreadInbox
    signals: Signals
    policy: Policy
    clock: Clock
    phone_key: PhoneKey | None = None
    erasure_journal: Path | None = None
    zone: tzinfo | None = None
    phone_country: str = ""
    merchant: str = ""

    @property
    def calendar_zone(self) -> tzinfo:
        """The zone of days, months and pages: UTC where nobody has said another."""
        return self.zone or UTC

    @property
    def notifies_shop(self) -> bool:
        """Whether a shop is notified of every revision that is published."""
        return self.settings.shop.url is not None
