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
    """Settings of one sandbox. Wrong settings raise a ConfigurationError with all problems.

    token                   bearer token that opens sessions; must not be a live token
    secrets                 signing secrets, newest first
    webhook_url             absolute http or https address for events
    public_url              address of this sandbox for customers
    seed                    seed of references, ids and bodies; equal seeds give equal results
    unit_s                  seconds of a scenario unit
    session_lifetime_units  units from a session's opening to `expires_at`
    answer_delay_units      units that a session request takes; until then its key gets 409
    retry_schedule_units    units before the 2nd, 3rd, … attempt; the last value repeats
    retry_after_s           seconds in the Retry-After of a 503
    truth_path              file of the true outcomes, if any
    max_sessions            maximum number of sessions in memory; further requests get 503
    max_concurrent          maximum number of deliveries at a time
    delivery_timeout_s      seconds in which a receiver must answer a delivery
    """

    webhook_url: str = DEFAULT_WEBHOOK_URL
    token: str = field(default=SANDBOX_TOKEN, repr=False)
    secrets: tuple[str, ...] = field(default=(SANDBOX_SECRET,), repr=False)
    public_url: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    seed: int = 0
    unit_s: float = 1.0
    session_lifetime_units: float = 20.0
    answer_delay_units: float = 0.02
    retry_schedule_units: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
    retry_after_s: int = 1
    truth_path: Path | None = None
    max_sessions: int = 100_000
    max_concurrent: int = 32
    delivery_timeout_s: float = 10.0

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
