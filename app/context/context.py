"""Settings, database, policy and clock of an operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from app.config.settings import Settings
from app.context.unread import UnreadInbox
from app.core.clock import Clock
from app.core.phone_key import PhoneKey, read_phone_key
from app.core.signals import Signals
from app.core.zones import zone_named
from app.database.database import Database
from app.database.postgresql import Purpose
from reconcile.ledger.policy import Policy

if TYPE_CHECKING:
    from app.providers.source import Source


@dataclass(frozen=True, kw_only=True)
class AppContext:
    """Settings, database, policy and clock that operations share."""

    settings: Settings
    database: Database
    inbox: UnreadInbox
    signals: Signals
    policy: Policy
    clock: Clock

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """Return all configured sources by name. Raises ConfigurationError that lists every
        mistake."""
        from app.context.configured import compile_sources  # what few commands need

        return compile_sources(self.settings, phone_key=self.phone_key)

    @cached_property
    def phone_key(self) -> PhoneKey | None:
        """Return the key for digests of phone numbers, if configured. Raises ConfigurationError for
        an unreadable key."""
        return read_phone_key(self.settings.phone_key_path)

    @cached_property
    def countries(self) -> frozenset[str]:
        """Return the calling codes of the customers' countries."""
        named = {each.profile.customer.country or "" for each in self.sources.values()}
        return frozenset(filter(None, {self.settings.phone_country, *named}))

    @cached_property
    def zone(self) -> tzinfo | None:
        """Return the merchant's time zone, if set."""
        return zone_named(self.settings.timezone) if self.settings.timezone else None

    @property
    def calendar_zone(self) -> tzinfo:
        """Return the merchant's time zone, or UTC."""
        return self.zone or UTC

    @property
    def notifies_shop(self) -> bool:
        """Check whether the shop is notified of published revisions."""
        return self.settings.shop.url is not None


Words = ParamSpec("Words")
Result = TypeVar("Result")


class Work(Protocol):
    """Interface for running an operation, perhaps in another process."""

    async def __call__(
        self,
        use: Callable[Concatenate[AppContext, Words], Awaitable[Result]],
        *args: Words.args,
        **words: Words.kwargs,
    ) -> Result:
        """Call a function, perhaps in another process. Arguments and result must be picklable.
        Raises UnreachableError after a crash or timeout."""
        ...


class Elsewhere(Protocol):
    """Interface for objects that run operations in separate processes."""

    def __call__(
        self,
        *,
        purpose: Purpose,
        at_once: int,
        died: str,
        most_s: float | None = None,
        too_long: str = "it took too long",
    ) -> Work:
        """Return an object that runs up to `at_once` operations at a time in other processes.
        `most_s` is the time limit in seconds."""
        ...
