"""Results of reading a verified body: its events, or why it cannot be read exactly."""

from typing import Final, NamedTuple

from reconcile.ledger.events import Event


class Unreadable(ValueError):
    """A body that cannot be read exactly. The message is a sentence that quotes nothing from the
    body."""


class UnclearAmount(Unreadable):
    """An amount that is a number but not exact in its currency."""


TRIAL: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'
"""Start of the body with which `golive` tests the public endpoint."""

TRIED: Final = "it is a trial of `tallyhook golive`, not an event"
"""Reason that the test's body cannot be read. No profile is at fault."""


class Belonging(NamedTuple):
    """Account and environment of an event in a body: see `environment`, `unstated` and `foreign` of
    `Reading`."""

    environment: str | None = None
    unstated: bool = False
    foreign: bool = False


NOBODYS = Belonging()
"""Result for a body that states neither account nor environment, or whose profile does not say
where they are."""


class Reading(NamedTuple):
    """Content of a delivery.

    events       at least one event, in the order of the body
    environment  `sandbox`, `live`, or None if the provider does not say
    unstated     whether an event lacks the environment although the profile names its member
    foreign      whether an event names an account other than the source's, or names none although
                 the profile names its member
    raws         bytes of each event, if the body has several or the event is only a part of it
    unread       bytes of events that could not be read, each with the reason
    customers    keyed digests by which each event's customer is found: phone number, email address,
                 name, card, and further ids; empty if the source has no key
    """

    events: tuple[Event, ...]
    environment: str | None
    unstated: bool = False
    foreign: bool = False
    raws: tuple[bytes, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    customers: tuple[tuple[bytes, ...], ...] = ()

    def customer(self, place: int) -> tuple[bytes, ...]:
        """Return the digests of the event at a position."""
        return self.customers[place] if place < len(self.customers) else ()
