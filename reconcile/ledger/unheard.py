"""Types for evidence that can be about an order but is in no ledger.

With such evidence, no sentence may say that nothing came.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from reconcile.documents import Count, InstantText, MoneyDocument
from reconcile.instants import Instant, format_instant, format_known, parse_instant
from reconcile.money import Money, from_major, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageNotRead:
    """Message from a provider that could not be read."""

    delivery: str
    source: str
    received_at: Instant
    problem: str
    """Reason why the message could not be read, without text of the message."""
    names_order: bool
    """False if the message can be about any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHeard:
    """Latest arrivals and refusals of one source of an order."""

    source: str
    last_read_at: Instant | None = None
    """Arrival of the last delivery that was read."""
    refusing_since: Instant | None = None
    """First refusal since the last accepted delivery, if any."""
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentOfNoOrder:
    """Unallocated payment that may be for this order."""

    id: str
    received_at: Instant
    money: Money | None

    @property
    def amount(self) -> str:
        """Return the amount as text, or words that say that the amount is unclear."""
        return "an unclear amount" if self.money is None else str(self.money)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """Time span in which messages may be lost, both ends included."""

    gap: str
    since: Instant
    until: Instant
    looked_at: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """Everything unread that can be about an order."""

    sources: tuple[SourceHeard, ...] = ()
    """The sources of the order. All sources if unknown."""
    messages: tuple[MessageNotRead, ...] = ()
    payments: tuple[PaymentOfNoOrder, ...] = ()
    """Unallocated payments that can be for this order."""
    refused: int = 0
    """Deliveries refused since the order became known. Anyone can send these."""
    not_kept: int = 0
    """Unsigned requests above a limit. Some can be genuine."""
    gaps: tuple[LostSpan, ...] = ()
    """Accepted gaps that overlap the order's time, in order of acceptance."""

    @property
    def may_lack(self) -> bool:
        """Check whether messages may be missing."""
        return bool(self.refusing or self.not_kept or self.gaps)

    @property
    def refusing(self) -> tuple[SourceHeard, ...]:
        """Return the sources that have refused deliveries and have accepted none since."""
        return tuple(each for each in self.sources if each.refusing_since is not None)


NOTHING: Final = Unheard()


class SourceHeardDocument(TypedDict):
    source: str
    last_read_at: InstantText | None
    refusing_since: InstantText | None
    refused: Count


class UnreadMessageDocument(TypedDict):
    delivery: str
    source: str
    received_at: InstantText
    problem: str
    names_order: bool


class PaymentOfNoOrderDocument(TypedDict):
    payment: str
    received_at: InstantText
    money: MoneyDocument | None


class LostSpanDocument(TypedDict):
    gap: str
    since: InstantText
    until: InstantText
    looked_at: bool


class UnheardDocument(TypedDict):
    sources: list[SourceHeardDocument]
    unread: list[UnreadMessageDocument]
    unallocated: list[PaymentOfNoOrderDocument]
    refused: Count
    not_kept: Count
    gaps: list[LostSpanDocument]


def unheard_document(unheard: Unheard) -> UnheardDocument:
    """Convert the unread evidence to JSON values."""
    return {
        "sources": [
            {
                "source": each.source,
                "last_read_at": format_known(each.last_read_at),
                "refusing_since": format_known(each.refusing_since),
                "refused": each.refused,
            }
            for each in unheard.sources
        ],
        "unread": [
            {
                "delivery": each.delivery,
                "source": each.source,
                "received_at": format_instant(each.received_at),
                "problem": each.problem,
                "names_order": each.names_order,
            }
            for each in unheard.messages
        ],
        "unallocated": [
            {
                "payment": each.id,
                "received_at": format_instant(each.received_at),
                "money": None if each.money is None else to_json(each.money),
            }
            for each in unheard.payments
        ],
        "refused": unheard.refused,
        "not_kept": unheard.not_kept,
        "gaps": [
            {
                "gap": each.gap,
                "since": format_instant(each.since),
                "until": format_instant(each.until),
                "looked_at": each.looked_at,
            }
            for each in unheard.gaps
        ],
    }


def unheard_of_document(document: Mapping[str, Any]) -> Unheard:
    """Parse the result of `unheard_document`. Raises ValueError or LookupError for other input."""
    return Unheard(
        sources=tuple(
            SourceHeard(
                source=each["source"],
                last_read_at=_known(each["last_read_at"]),
                refusing_since=_known(each["refusing_since"]),
                refused=each["refused"],
            )
            for each in document["sources"]
        ),
        messages=tuple(
            MessageNotRead(**{**each, "received_at": parse_instant(each["received_at"])})
            for each in document["unread"]
        ),
        payments=tuple(
            PaymentOfNoOrder(
                id=each["payment"],
                received_at=parse_instant(each["received_at"]),
                money=each["money"]
                and from_major(each["money"]["amount"], each["money"]["currency"]),
            )
            for each in document["unallocated"]
        ),
        refused=document["refused"],
        not_kept=document["not_kept"],
        gaps=tuple(
            LostSpan(
                gap=each["gap"],
                since=parse_instant(each["since"]),
                until=parse_instant(each["until"]),
                looked_at=each["looked_at"],
            )
            for each in document["gaps"]
        ),
    )


def _known(text: str | None) -> Instant | None:
    return None if text is None else parse_instant(text)
