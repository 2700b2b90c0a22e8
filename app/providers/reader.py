"""From a verified body to events: a profile's locations, compiled once.

Leaves out: whether the request is genuine, and the customer's phone number, which is never read.
"""

from __future__ import annotations

from typing import Any, Final

from app.providers.amounts import AMOUNT_UNITS, read_amount
from app.providers.fields import (
    DATES,
    MAX_TEXT,
    Find,
    compile_locations,
    event_id,
    plain_name,
    required_text,
)
from app.providers.places import Headers
from app.providers.profile import AmountsRule, Locations, Profile
from app.providers.reading import Reading, Unreadable
from app.providers.strict_json import parse
from reconcile.events import ClaimKind, Event
from reconcile.instants import Instant
from reconcile.money import Money

GIVES_BACK: Final[frozenset[ClaimKind]] = frozenset(
    {"refunded", "disputed", "dispute_won", "dispute_lost"}
)
"""Claims about money on its way back: their amount is the refund's, and a movement names them."""

COVERS_ORDER: Final[frozenset[ClaimKind]] = frozenset({"succeeded", "authorized"})
"""Claims that, where they state no amount of their own, speak of the whole order."""


class Field:
    """One field of a profile: where it stands, and what sentences call it."""

    __slots__ = ("find", "name")

    def __init__(self, locations: Locations) -> None:
        self.find: Find = compile_locations(locations)
        self.name = plain_name(locations)


class Price:
    """One amount of a profile with its currency."""

    __slots__ = ("_amount", "_currency", "_order_currency", "_read")

    def __init__(self, rule: AmountsRule, *, amount: Locations, currency: Locations) -> None:
        self._read = AMOUNT_UNITS[rule.unit]
        self._amount = Field(amount)
        self._currency = compile_locations(currency)
        self._order_currency = compile_locations(rule.order_currency)

    def read(self, document: Any, headers: Headers) -> Money | None:
        """Exact money; None where no amount is stated. Raises Unreadable."""
        value = self._amount.find(document, headers)
        if value is None:
            return None
        currency = self._currency(document, headers)
        if currency is None:
            currency = self._order_currency(document, headers)
        return read_amount(self._read, value, currency, name=self._amount.name)


class Reader:
    """Reads the events of one source."""

    def __init__(self, source: str, profile: Profile) -> None:
        event, amounts = profile.event, profile.amounts
        self._source = source
        self._claims = dict(profile.claims)
        self._id, self._kind = Field(event.id), Field(event.kind)
        self._occurred_at, self._date = Field(event.occurred_at), DATES[event.dates]
        self._order, self._session = Field(event.order), Field(event.session)
        self._payment, self._movement = Field(event.payment), Field(event.movement)
        self._reason = Field(event.reason)
        self._environment = Field(profile.environment.where)
        self._environments = {
            profile.environment.sandbox: "sandbox",
            profile.environment.live: "live",
        }
        self._paid = Price(amounts, amount=amounts.payment, currency=amounts.payment_currency)
        self._given_back = Price(amounts, amount=amounts.refund, currency=amounts.refund_currency)
        self._ordered = Price(amounts, amount=amounts.order, currency=amounts.order_currency)

    def read(self, body: bytes, *, digest: str, headers: Headers) -> Reading:
        """What the body says. Raises Unreadable with one sentence."""
        document = parse(body)
        if type(document) is not dict:
            raise Unreadable("the body is not a JSON object")
        return Reading(
            events=(self._event(document, headers, digest),),
            environment=self._environment_of(document, headers),
        )

    def _event(self, document: dict[str, Any], headers: Headers, digest: str) -> Event:
        identity = event_id(self._id.find(document, headers), self._id.name)
        kind = required_text(self._kind.find(document, headers), self._kind.name)
        claim = self._claims.get(kind, "unrecognized")
        try:
            details = self._details(claim, document, headers)
        except Unreadable:
            # A kind we do not know may well have a shape we do not know: keep it all the same.
            if claim != "unrecognized":
                raise
            details = {}
        return Event(
            source=self._source,
            event_id=identity,
            digest=digest,
            kind=kind,
            claim=claim,
            **details,
        )

    def _details(self, claim: ClaimKind, document: Any, headers: Headers) -> dict[str, Any]:
        ordered = self._ordered.read(document, headers)
        return {
            "occurred_at": self._instant(document, headers),
            "order": _text(self._order, document, headers),
            "session": _text(self._session, document, headers),
            "payment": _text(self._payment, document, headers),
            "movement": _text(self._movement, document, headers) if claim in GIVES_BACK else None,
            "money": self._money(claim, ordered, document=document, headers=headers),
            "order_money": ordered,
            "reason": _text(self._reason, document, headers),
        }

    def _money(
        self, claim: ClaimKind, ordered: Money | None, *, document: Any, headers: Headers
    ) -> Money | None:
        if claim in GIVES_BACK:
            given_back = self._given_back.read(document, headers)
            if given_back is not None:
                return given_back
        paid = self._paid.read(document, headers)
        return ordered if paid is None and claim in COVERS_ORDER else paid

    def _instant(self, document: Any, headers: Headers) -> Instant | None:
        value = self._occurred_at.find(document, headers)
        return None if value is None else self._date(value, self._occurred_at.name)

    def _environment_of(self, document: Any, headers: Headers) -> str | None:
        value = self._environment.find(document, headers)
        if value is None:
            return None
        known = self._environments.get(value) if type(value) is str else None
        if known is None:
            words = " nor ".join(self._environments)
            raise Unreadable(f"{self._environment.name} is neither {words}")
        return known


def _text(field: Field, document: Any, headers: Headers) -> str | None:
    value = field.find(document, headers)
    if value is None:
        return None
    # Nearly every text passes here; what does not is judged, and named, in full.
    if type(value) is str and 0 < len(value) <= MAX_TEXT and value.isprintable() and value[0] > " ":
        return value
    return required_text(value, field.name)
