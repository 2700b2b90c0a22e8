"""How old a signed moment may be, in both directions, for schemes that carry it themselves."""

from __future__ import annotations

from dataclasses import dataclass

from app.providers.refusal import Refusal
from reconcile.instants import Duration, Instant, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """A tolerance. `past` and `future` are inclusive; sentences call the moment `what`."""

    what: str
    past: Duration
    future: Duration

    def judge(self, signed_at: Instant, now: Instant) -> Refusal | None:
        """None where `signed_at` is no older or newer than allowed at `now`."""
        age = now - signed_at
        if age > self.past:
            fault = f"is {format_duration(age)} old; at most {format_duration(self.past)}"
            return Refusal("timestamp_too_old", f"{self.what} {fault} is allowed.")
        if age < -self.future:
            lead = f"lies {format_duration(-age)} ahead of our clock"
            allowed = format_duration(self.future)
            return Refusal(
                "timestamp_too_new", f"{self.what} {lead}; at most {allowed} is allowed."
            )
        return None

    def missing(self, fault: str) -> Refusal:
        """The refusal of a moment that is absent or unreadable."""
        return Refusal("timestamp_missing", f"{self.what} {fault}.")
