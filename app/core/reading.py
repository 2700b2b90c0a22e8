"""Results of reading a verified body: its events, or why the body cannot be read exactly."""

from typing import Final, NamedTuple

from reconcile.ledger.events import Event


class Unreadable(ValueError):
    """A body that cannot be read exactly. The message quotes nothing from the body."""


class UnclearAmount(Unreadable):
    """An amount that is a number but is not exact in its currency."""


TRIAL: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'
"""Start of the body with which `golive` tests the public endpoint."""

TRIED: Final = "it is a trial of `tallyhook golive`, not an event"
"""Reason stored for the test's body, which cannot be read. The profile is not at fault."""


class Belonging(NamedTuple):
    """Account and environment of an event, as in `Reading`."""

    environment: str | None = None
    unstated: bool = False
    foreign: bool = False


NOBODYS = Belonging()
"""Result without account and environment, or for a profile that knows neither."""


class Reading(NamedTuple):
    """Content of a delivery.

    events       at least one event, in the order of the body
    environment  `sandbox`, `live`, or None if the provider does not state it
    unstated     whether an event lacks the environment where the profile expects it
    foreign      whether an event names another account, or none where the profile expects one
    raws         bytes of each event; empty if the whole body is one event
    unread       bytes and reason of each event that could not be read
    customers    keyed digests of each event's customer: phone number, email address, name, card,
                 and further ids; empty without a key
    """

    events: tuple[Event, ...]
    environment: str | None
    unstated: bool = False
    foreign: bool = False
    raws: tuple[bytes, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    customers: tuple[tuple[bytes, ...], ...] = ()

    def customer(self, place: int) -> tuple[bytes, ...]:
        """Return the digests of the customer in one event; empty if there are none.

        place  position of the event, counted from 0
        """
        return self.customers[place] if place < len(self.customers) else ()
