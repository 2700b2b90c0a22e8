"""Results of reading a verified body: its events, or the reason why the body cannot be read
exactly."""

from typing import Final, NamedTuple

from reconcile.ledger.events import Event


class Unreadable(ValueError):
    """Error for a body that cannot be read exactly. The message quotes nothing from the body."""


class UnclearAmount(Unreadable):
    """Error for a number that is no exact amount in its currency."""


TRIAL: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'
"""Beginning of the body that the command `golive` sends to test the public endpoint."""

TRIED: Final = "it is a trial of `tallyhook golive`, not an event"
"""Reason stored for the unreadable test body of the command `golive`."""


class Belonging(NamedTuple):
    """Account and environment to which an event belongs.

    environment  `sandbox`, `live`, or None if unknown
    unstated     whether the event lacks the environment that the profile expects
    foreign      whether the event does not name an account of ours, if the profile expects one
    """

    environment: str | None = None
    unstated: bool = False
    foreign: bool = False


NOBODYS = Belonging()
"""Value for an event whose account and environment are unknown."""


class Reading(NamedTuple):
    """Content of a delivery after its body was read.

    events       at least one event, in the order of the body
    environment  `sandbox`, `live`, or None if the provider does not state it
    unstated     whether an event lacks the environment that the profile expects
    foreign      whether an event does not name an account of ours, if the profile expects one
    raws         bytes of each event; empty if the whole body is one event
    unread       bytes and reason of each event that could not be read
    customers    keyed digests of each event's customer; empty without a key
    """

    events: tuple[Event, ...]
    environment: str | None
    unstated: bool = False
    foreign: bool = False
    raws: tuple[bytes, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    customers: tuple[tuple[bytes, ...], ...] = ()

    def customer(self, place: int) -> tuple[bytes, ...]:
        """Return the digests that identify the customer of one event; may be empty.

        place  position of the event in the delivery, from 0
        """
        return self.customers[place] if place < len(self.customers) else ()
