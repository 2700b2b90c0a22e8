"""What reading a verified body gives: events, or one sentence why it cannot be read exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.ledger.events import Event


class Unreadable(ValueError):
    """A body that cannot be read exactly. The message is one sentence without text of the body."""


TRIAL: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'
"""The body, or its beginning, with which `golive` tries the public endpoint."""

TRIED: Final = "it is the trial of `tallyhook golive`, and no event"
"""Why that body cannot be read: no profile is at fault."""


class Belonging(NamedTuple):
    """Whose event a body is, and of which environment: as in `Reading`."""

    environment: str | None = None
    unstated: bool = False
    foreign: bool = False


NOBODYS = Belonging()
"""Of a body that says neither, or whose profile does not say where it would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one delivery says.

    events       the facts in it, in the order of the body; at least one
    environment  `sandbox`, `live`, or None where the provider does not say
    unstated     whether an event does not say of which environment it is, where the profile names
                 the member that says so
    foreign      whether an event names another account than the source's, or none, where the
                 profile names the member that says whose it is
    raws         the bytes of each event, where the body holds several or the event is a part of it
    unread       others of its events that could not be read: the bytes of each, and why
    customers    for each event the keyed digest of its customer's phone number; None where it names
                 none. Empty where the source has no key for phones
    """

    events: tuple[Event, ...]
    environment: str | None
    unstated: bool = False
    foreign: bool = False
    raws: tuple[bytes, ...] = ()
    unread: tuple[tuple[bytes, str], ...] = ()
    customers: tuple[bytes | None, ...] = ()

    def customer(self, place: int) -> bytes | None:
        """The digest of the event at a place; None too where it could not be read."""
        return self.customers[place] if place < len(self.customers) else None
