"""Descriptions of the parts of session APIs in which payment services differ.

To add a service, add an entry to SESSION_APIS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from app.providers.paths import find_paths

LIVE_TOKENS: Final = ("live_*", "*_live_*")
SANDBOX_TOKENS: Final = ("sandbox_*", "*_sandbox_*", "test_*", "*_test_*")


class SessionAnswer(NamedTuple):
    """Unchecked parts of a service's answer. `expires_at` is an RFC 3339 time; `order` is our
    reference of the order."""

    reference: Any
    checkout_url: Any
    expires_at: Any
    order: Any


def _as_the_sandbox(document: object) -> SessionAnswer:
    return SessionAnswer(
        reference=find_paths(document, ("reference",)),
        checkout_url=find_paths(document, ("checkout_url",)),
        expires_at=find_paths(document, ("expires_at",)),
        order=find_paths(document, ("order", "reference")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionApi:
    """One service's session API. The defaults describe the simulated provider.

    live_tokens, sandbox_tokens  patterns of the environments' tokens
    """

    path: str = "/api/v1/checkout/sessions"
    """Path that opens sessions, below the base URL."""
    read: Callable[[object], SessionAnswer] = _as_the_sandbox
    """Returns the needed parts of a parsed answer."""
    requires: frozenset[str] = frozenset()
    """Fields that only this service requires: `phone`, `success_url` or `cancel_url`."""
    accepted: frozenset[int] = frozenset({200, 201})
    """HTTP statuses that mean that the session is open."""
    key_lifetime_s: int = 24 * 3600
    """Seconds for which the service remembers an idempotency key."""
    live_tokens: tuple[str, ...] = LIVE_TOKENS
    sandbox_tokens: tuple[str, ...] = SANDBOX_TOKENS

    def refuses(self, token: str, *, environment: str) -> bool:
        """Return whether a token looks like a token for an environment other than the given one."""
        foreign = self.sandbox_tokens if environment == "live" else self.live_tokens
        return any(fnmatchcase(token.lower(), pattern.lower()) for pattern in foreign)


SESSION_APIS: Final[Mapping[str, SessionApi]] = {}
"""Descriptions of services that differ from the defaults. The keys are profile names."""
