"""Settings of a sandbox, which simulates a provider. Nothing in this module reads the
environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.checkout.session_api import SessionApi
from app.core.errors import ConfigurationError

DEFAULT_PORT: Final = 8090

DEFAULT_WEBHOOK_URL: Final = "http://127.0.0.1:8080/webhooks/checkout"

SANDBOX_TOKEN: Final = "sandbox_token_0001"  # noqa: S105  # no secret: it opens a simulator only
"""Default bearer token of a sandbox, which is public."""

SANDBOX_SECRET: Final = "whsec_dGFsbHlob29rLXNhbmRib3gtbm90LWEtc2VjcmV0IQ=="  # noqa: S105
"""Default signing secret of a sandbox, which is public."""

SHORTEST_LIFETIME_UNITS: Final = 10.0
"""Number of time units within which every scenario ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of one sandbox. Wrong settings raise a ConfigurationError with all problems."""

    webhook_url: str = DEFAULT_WEBHOOK_URL
    """Absolute http or https address for events."""
    token: str = field(default=SANDBOX_TOKEN, repr=False)
    """Bearer token that opens sessions. Must not be a live token."""
    secrets: tuple[str, ...] = field(default=(SANDBOX_SECRET,), repr=False)
    """Signing secrets, newest first."""
    public_url: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    """Address of this sandbox for customers."""
    seed: int = 0
    """Seed of references, ids and bodies. Equal seeds give equal results."""
    unit_s: float = 1.0
    """Seconds of a scenario unit."""
    session_lifetime_units: float = 20.0
    """Units from a session's opening to `expires_at`."""
    answer_delay_units: float = 0.02
    """Units that a session request takes. Until then its key gets 409."""
    retry_schedule_units: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
    """Units before the 2nd, 3rd, … attempt. The last value repeats."""
    retry_after_s: int = 1
    """Seconds in the Retry-After of a 503."""
    truth_path: Path | None = None
    """File of the true outcomes, if any."""
    max_sessions: int = 100_000
    """Maximum number of sessions in memory. Further requests get 503."""
    max_concurrent: int = 32
    """Maximum number of deliveries at a time."""
    delivery_timeout_s: float = 10.0
    """Seconds in which a receiver must answer a delivery."""

    def __post_init__(self) -> None:
        schedule = self.retry_schedule_units
        rules = (
            (bool(self.token), "Give the sandbox a bearer token."),
            (
                not is_live_token(self.token),
                "The token is a live token. Give the sandbox a sandbox token.",
            ),
            (is_absolute_http(self.webhook_url), "Give webhook_url as an http or https URL."),
            (is_absolute_http(self.public_url), "Give public_url as an http or https URL."),
            (self.unit_s > 0, "unit_s must be more than 0 seconds."),
            (
                self.session_lifetime_units >= SHORTEST_LIFETIME_UNITS,
                f"session_lifetime_units must be {SHORTEST_LIFETIME_UNITS:g} or more.",
            ),
            (self.answer_delay_units >= 0, "answer_delay_units must be 0 or more."),
            (bool(schedule) and min(schedule) > 0, "Every retry delay must be more than 0 units."),
            (self.retry_after_s >= 0, "retry_after_s must be 0 or more seconds."),
            (self.max_sessions > 0, "max_sessions must be 1 or more."),
            (self.max_concurrent > 0, "max_concurrent must be 1 or more."),
            (self.delivery_timeout_s > 0, "delivery_timeout_s must be more than 0 seconds."),
        )
        problems = [sentence for right, sentence in rules if not right]
        if problems:
            raise ConfigurationError(problems)


def is_live_token(token: str) -> bool:
    """Return whether a token resembles a live token."""
    return SessionApi().refuses(token, environment="sandbox")


def is_absolute_http(url: str) -> bool:
    """Return whether a text is an absolute HTTP URL."""
    # urlsplit drops tabs and line ends, so they are refused first.
    if not (len(url) <= 2048 and url.isascii() and url.isprintable() and " " not in url):
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
