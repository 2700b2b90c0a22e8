"""Results of reading a verified body: its events, or the reason why it cannot be read exactly."""

from typing import Final, NamedTuple

from reconcile.ledger.events import Event


class Unreadable(ValueError):
    """A body that cannot be read exactly. The message quotes nothing from the body."""


class UnclearAmount(Unreadable):
    """A number that is not an exact amount in its currency."""


TRIAL: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'
"""Beginning of the body that `golive` sends to test the public endpoint."""

TRIED: Final = "it is a trial of `tallyhook golive`, not an event"
"""Reason that is stored for the unreadable test body of `golive`. It tells people that the source's
profile is not at fault."""


class Belonging(NamedTuple):
    """Account and environment of an event. `Reading` explains the members."""

    environment: str | None = None
    unstated: bool = False
    foreign: bool = False


NOBODYS = Belonging()
"""Value if neither account nor environment is known, because the profile does not say where to find
them, or because the event cannot be read."""


class Reading(NamedTuple):
    """Content of a delivery.

    events       at least one event, in the order of the body
    environment  `sandbox`, `live`, or None if the provider does not state it
    unstated     whether an event has no environment although the profile expects one
    foreign      whether an event names another account, or no account although the profile expects
                 one
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
