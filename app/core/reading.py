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
    """Account and environment to which an event belongs."""

    environment: str | None = None
    """`sandbox`, `live`, or None if unknown."""
    unstated: bool = False
    """True if the event lacks the environment that the profile expects."""
    foreign: bool = False
    """True if the event does not name an account of ours, if the profile expects one."""


NOBODYS = Belonging()
"""Value for an event whose account and environment are unknown."""


class Reading(NamedTuple):
    """Content of a delivery after its body was read."""

    events: tuple[Event, ...]
    """Events of the body in their order, at least one."""
    environment: str | None
    """`sandbox`, `live`, or None if the provider does not state it."""
    unstated: bool = False
    """True if an event lacks the environment that the profile expects."""
    foreign: bool = False
    """True if an event does not name an account of ours, if the profile expects one."""
    raws: tuple[bytes, ...] = ()
    """Bytes of each event. Empty if the whole body is one event."""
    unread: tuple[tuple[bytes, str], ...] = ()
    """Bytes and reason of each event that could not be read."""
    customers: tuple[tuple[bytes, ...], ...] = ()
    """Keyed digests of each event's customer. Empty without a key."""

    def customer(self, place: int) -> tuple[bytes, ...]:
        """Return the digests that identify the customer of one event; may be empty.

        place  position of the event in the delivery, from 0
        """
        return self.customers[place] if place < len(self.customers) else ()
