"""What a provider answered when it was asked about one of its events, and what that says.

    asked event + question + answer ──keep_answer──▶ bytes, kept as a delivery is
    bytes ──AnswerReader.read──▶ an event whose standing is `fetched` or `answered`

What is kept holds the references of the event that was asked about, since an answer need not
repeat them, so that the bytes alone can be read again at any time.
"""

from __future__ import annotations

from typing import Any, Final

from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers import amounts, dates, fields, reader, schemes, sections
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger.correlate import SAYS_NOTHING_FINAL
from reconcile.ledger.events import ClaimKind, Event
from reconcile.money import Money

NOT_FOUND: Final = frozenset({404, 410})
"""The provider knows nothing of it. That settles what was said, and moves no money."""

NOT_KNOWN: Final = "not_found"
"""Kind of the event that such an answer is."""


def keep_answer(asked: Event, *, question: str, status: int, answer: bytes) -> bytes:
    """The bytes that are kept of one answer; equal answers to one question give equal bytes."""
    about: dict[str, Any] = {
        "event_id": asked.event_id,
        "digest": asked.digest,
        "order": asked.order,
        "session": asked.session,
        "payment": asked.payment,
        "movement": asked.movement,
        "money": _written(asked.money),
        "order_money": _written(asked.order_money),
    }
    # Only where there is one: answers kept before these were known stay what they are.
    later = {"capture": asked.capture, "occurred_at": asked.occurred_at}
    about |= {name: value for name, value in later.items() if value is not None}
    return canonical_json(
        {
            "asked_about": about,
            "question": question,
            "status": status,
            "answer": answer.decode("utf-8", "backslashreplace"),
        }
    )


class AnswerReader:
    """Reads the answers that one source's provider gave."""

    def __init__(self, source: str, profile: sections.Profile, *, own_orders: bool = False) -> None:
        rule = profile.fetch_back
        assert rule is not None
        self._source = source
        self._own_orders = own_orders
        self._claims = reader.Words(rule.claims or profile.claims)
        self._kind = fields.compile_locations(rule.kind)
        self._payment = fields.compile_locations(rule.payment)
        self._session = fields.compile_locations(rule.session)
        self._order = fields.compile_locations(rule.order)
        self._environment = fields.compile_locations(rule.environment) if rule.environment else None
        self._environments = {
            profile.environment.sandbox: "sandbox",
            profile.environment.live: "live",
        }
        self._movement = fields.compile_locations(rule.movement)
        self._capture = fields.compile_locations(rule.capture)
        self._dated_as_event = rule.dated_as_event
        self._occurred_at = fields.compile_locations(rule.occurred_at)
        self._date, self._zone = dates.DATES[profile.event.dates], profile.event.zone
        self._amount = fields.compile_locations(rule.amount)
        self._refund = fields.compile_locations(rule.refund)
        self._refunded_total = fields.compile_locations(rule.refunded_total)
        self._currency = fields.compile_locations(rule.currency)
        asked = "{payment}" in (rule.body or "") or all("{payment}" in each for each in rule.url)
        self._payment_is_proven = (
            profile.signature.mac != schemes.UNSIGNED or bool(rule.payment) or asked
        )
        self._states_order, self._states_session = bool(rule.order), bool(rule.session)
        self._states_amount = bool(rule.amount)
        self._unit = amounts.amount_unit(profile.amounts.unit, profile.amounts.decimals)

    def read(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """The event of one kept answer. Raises Unreadable.

        digest       SHA-256 of the kept bytes, 64 hex digits
        environment  which this instance serves; None: answers of either are read
        """
        document = parse(kept)
        about = document["asked_about"]
        references = {name: about[name] for name in ("order", "session", "payment", "movement")}
        event_id = f"fetched_{digest[:32]}"
        if document["status"] in NOT_FOUND:
            return Event(
                source=self._source,
                event_id=event_id,
                digest=digest,
                kind=NOT_KNOWN,
                claim="pending",
                standing="fetched",
                **references,
            )
        facts = self._facts(document["answer"], digest)
        self._check_environment(facts, environment)
        kind = fields.required_text(self._kind(facts), "the answer's kind")
        claim: ClaimKind = self._claims.meaning(kind)
        references |= self._own_references(claim, facts, references)
        total = None if claim in reader.STATES_NO_SUM else self._price(self._refunded_total, facts)
        money = self._money(claim, facts, about, is_sum=total is not None)
        if claim in reader.GIVES_BACK:
            references["movement"] = self._stated(self._movement, facts) or references["movement"]
        if reader.is_only_a_sum(claim, money, total):
            references["movement"] = None
        return Event(
            source=self._source,
            event_id=event_id,
            digest=digest,
            kind=kind,
            claim=claim,
            capture=self._captured(facts, about) if claim == "succeeded" else None,
            money=money,
            order_money=_money_of(about["order_money"]),
            refunded_total=total,
            occurred_at=self._instant(facts, about),
            standing="fetched" if money is None or self._states(claim, facts) else "answered",
            **references,
        )

    def _own_references(
        self, claim: ClaimKind, facts: fields.Facts, asked: dict[str, str | None]
    ) -> dict[str, str | None]:
        """Payment, session and order that the answer is about. Raises Unreadable.

        asked  those of the event that was asked about, which anyone may have written
        """
        final = claim not in SAYS_NOTHING_FINAL | reader.MEANT_AS_STATED
        # Of a payment that nobody signed, and neither question nor answer names, the session is all
        # that the answer is about: anyone can have written another's payment beside their own.
        own = asked["payment"] if self._payment_is_proven or not final else None
        references = {"payment": self._stated(self._payment, facts) or own}
        if self._states_session:
            own = None if final else asked["session"]
            references["session"] = self._stated(self._session, facts) or own
        order = self._stated(self._order, facts)
        # Of money that goes back an answer often names the payment only: it cannot make paid what
        # is not.
        if order is None and self._states_order and final and claim not in reader.GIVES_BACK:
            raise Unreadable("the answer does not say which order it is about")
        if order is not None:
            references["order"] = fields.order_named(order, self._source, own=self._own_orders)
        return references

    def _check_environment(self, facts: fields.Facts, environment: str | None) -> None:
        """Raises Unreadable where the answer is of the other environment, in live also where it
        does not say: what a key of the sandbox is answered is no real money."""
        if self._environment is None or environment is None:
            return
        word = fields.as_text(self._environment(facts), "the answer's environment")
        if word is None and environment != "live":
            return
        if word is None or self._environments.get(word) != environment:
            raise Unreadable(f"the answer does not say that it is of {environment}")

    def _facts(self, answer: str, digest: str) -> fields.Facts:
        body = answer.encode()
        document = parse(body)
        return fields.Facts(document, root=document, headers=(), body=body, url="", digest=digest)

    def _stated(self, find: fields.Find, facts: fields.Facts) -> str | None:
        value = find(facts)
        return None if value is None else fields.required_text(value, "a reference of the answer")

    def _captured(self, facts: fields.Facts, about: dict[str, Any]) -> str | None:
        return self._stated(self._capture, facts) or about.get("capture")

    def _instant(self, facts: fields.Facts, about: dict[str, Any]) -> Instant | None:
        if self._dated_as_event:
            return about.get("occurred_at")
        value = self._occurred_at(facts)
        return None if value is None else self._date(value, "the answer's date", self._zone)

    def _money(
        self, claim: ClaimKind, facts: fields.Facts, about: dict[str, Any], *, is_sum: bool
    ) -> Money | None:
        """The answer's own amount. A profile without one says that the request fixed it: then it is
        the asked event's word, and where the shop named the amount of the session, that."""
        if claim in reader.GIVES_BACK:
            given_back = self._price(self._refund, facts)
            if given_back is not None or (is_sum and claim == "refunded"):
                return given_back
        if not self._states_amount:
            return _money_of(about["money"])
        return self._price(self._amount, facts)

    def _states(self, claim: ClaimKind, facts: fields.Facts) -> bool:
        """Whether the answer's money is its own."""
        return self._states_amount or (
            claim in reader.GIVES_BACK and self._refund(facts) is not None
        )

    def _price(self, find: fields.Find, facts: fields.Facts) -> Money | None:
        value = find(facts)
        if value is None:
            return None
        return amounts.read_amount(
            self._unit, value, self._currency(facts), name="the answer's amount"
        )


def _written(money: Money | None) -> list[Any] | None:
    return None if money is None else [money.minor, money.currency]


def _money_of(written: list[Any] | None) -> Money | None:
    return None if written is None else Money(minor=written[0], currency=written[1])


def is_answer(headers: str) -> bool:
    """Whether a kept head is that of an answer, not of a request that came."""
    return headers.startswith(f"{FETCHED}: ")


FETCHED: Final = ":fetched"
"""First line of a kept answer's head: method and address of the question."""

__all__ = [
    "FETCHED",
    "NOT_FOUND",
    "NOT_KNOWN",
    "AnswerReader",
    "Unreadable",
    "is_answer",
    "keep_answer",
]
