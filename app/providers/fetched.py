"""Store and read a provider's answers to our questions about its events.

The stored bytes include the references of the event, because answers often leave them out.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from app.core.reading import UnclearAmount, Unreadable
from app.core.strict_json import parse
from app.providers import amounts, dates, fields, reader, schemes, sections
from app.providers.request import FETCHED, Incoming
from app.providers.slow import SlowMethods
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger import events
from reconcile.ledger.correlate import SAYS_NOTHING_FINAL
from reconcile.money import Money

NOT_FOUND: Final = frozenset({404, 410})
"""HTTP statuses for a payment that does not exist."""

NOT_KNOWN: Final = "not_found"


def keep_answer(
    asked: events.Event, *, question: str, status: int, answer: bytes, dated: Instant | None = None
) -> bytes:
    """Return the bytes in which an answer is stored."""
    about: dict[str, Any] = {
        "event_id": asked.event_id,
        "digest": asked.digest,
        "order": asked.order,
        "session": asked.session,
        "payment": asked.payment,
        "movement": asked.movement,
    }
    for name in ("money", "order_money"):
        stated: Money | None = getattr(asked, name)
        about[name] = None if stated is None else [stated.minor, stated.currency]
    if asked.suggested is not None:
        about |= {"suggested": asked.suggested, "kind": asked.kind}
    for name in ("capture", "occurred_at", "agreement"):
        if getattr(asked, name) is not None:
            about[name] = getattr(asked, name)
    return canonical_json(
        {
            "asked_about": about,
            "question": question,
            "status": status,
            "answer": answer.decode("utf-8", "backslashreplace"),
        }
        | ({} if dated is None else {"dated": dated})
    )


class AnswerReader:
    """Reader of the stored answers from one source's provider."""

    def __init__(
        self,
        source: str,
        profile: sections.Profile,
        *,
        own_orders: bool = False,
        links: bool = True,
        accounts: frozenset[str] = frozenset(),
        only: Mapping[str, Collection[str]] = reader.NO_MEMBERS,
    ) -> None:
        rule = profile.fetch_back
        assert rule is not None
        self._source = source
        self._own_orders, self._links = own_orders, links
        self._moves_by_itself = reader.KindWords(profile.event.own_reference)
        self._standalone = reader.KindWords(profile.event.standalone)
        self._agreement = fields.compile_locations(rule.agreement)
        self._shop = reader.ShopMembers(
            rule.account, accounts=accounts, connected=profile.account.connected, only=only
        )
        self._claims = reader.ClaimWords(rule.claims or profile.claims)
        self._slow = SlowMethods(profile.slow, zone=profile.event.zone)
        self._kind = fields.compile_locations(rule.kind)
        self._payment = fields.compile_locations(rule.payment)
        self._session = fields.compile_locations(rule.session)
        self._order = fields.compile_locations(rule.order)
        self._environment = fields.compile_locations(rule.environment) if rule.environment else None
        self._environments = {
            profile.environment.sandbox: "sandbox",
            profile.environment.live: "live",
        }
        self._either = profile.environment.either
        self._movement = fields.compile_locations(rule.movement)
        self._capture = fields.compile_locations(rule.capture)
        self._dated_as_event = rule.dated_as_event
        self._occurred_at = fields.compile_locations(rule.occurred_at)
        self._date, self._zone = dates.DATES[profile.event.dates], profile.event.zone
        self._amount = fields.compile_locations(rule.amount)
        self._refund = fields.compile_locations(rule.refund)
        self._refunded_total = fields.compile_locations(rule.refunded_total)
        self._currency = fields.compile_locations(rule.currency)
        sums: tuple[tuple[events.StateMember, sections.Locations], ...] = (
            ("captured", rule.states_captured),
            ("refunded", rule.states_refunded),
            ("charged_back", rule.states_charged_back),
        )
        self._stated_sums = [(m, fields.compile_locations(where)) for m, where in sums if where]
        self._zero_if_absent = rule.zero_if_absent
        self._movements = profile.particulars.movements
        asked = "{payment}" in (rule.body or "") or all("{payment}" in each for each in rule.url)
        self._payment_is_proven = (
            profile.signature.mac != schemes.UNSIGNED or bool(rule.payment) or asked
        )
        self._states_order, self._states_session = bool(rule.order), bool(rule.session)
        self._states_amount = bool(rule.amount)
        self._unit = amounts.amount_unit(profile.amounts.unit, profile.amounts.decimals)

    def read(self, kept: bytes, *, digest: str, environment: str | None = None) -> events.Event:
        """Return the event of a stored answer. Raise Unreadable if none can be read.

        digest  SHA-256 of the stored bytes, 64 hex digits
        environment  environment of this instance; None for both
        """
        document = parse(kept)
        about = document["asked_about"]
        references = {name: about[name] for name in ("order", "session", "payment", "movement")}
        event_id = f"fetched_{digest[:32]}"
        if document["status"] in NOT_FOUND:
            return events.Event(
                source=self._source,
                event_id=event_id,
                digest=digest,
                kind=NOT_KNOWN,
                claim="pending",
                standing="fetched",
                suggested=about.get("suggested"),
                **references,
            )
        body = document["answer"].encode()
        answer = parse(body)
        data = fields.EventData(answer, Incoming((), body), root=answer, body=body, digest=digest)
        self._check_environment(data, environment)
        kind = fields.required_text(self._kind(data), "the answer's kind")
        claim: events.ClaimKind = self._claims.meaning(kind)
        references |= self._own_references(claim, data, references)
        suggested = about.get("suggested")
        own_kind = kind in self._moves_by_itself or about.get("kind", "") in self._moves_by_itself
        if own_kind or not self._links:
            suggested, references["order"] = references["order"] or suggested, None
        elif references["order"] is not None:
            suggested = None
        agreement = self._stated(self._agreement, data)
        if claim == "succeeded" and references["order"] is None and suggested is None:
            suggested = agreement  # the shop may know it by that
        total = None if claim in reader.STATES_NO_SUM else self._price(self._refunded_total, data)
        money = self._money(claim, data, about, is_sum=total is not None)
        if claim in events.FOLLOWS_SUCCESS:
            references["movement"] = self._stated(self._movement, data) or references["movement"]
        if reader.is_only_a_sum(claim, money, total):
            references["movement"] = None
        captured = None
        if claim == "succeeded":
            captured = self._stated(self._capture, data) or about.get("capture")
        occurred_at = self._instant(data, about)
        slow = self._slow.read(kind, claim, data, occurred_at)
        states = self._read_states(claim, data)
        own = self._states_amount or (
            claim in events.FOLLOWS_SUCCESS and self._refund(data) is not None
        )
        return events.Event(
            source=self._source,
            event_id=event_id,
            digest=digest,
            kind=kind,
            claim=claim,
            capture=captured,
            money=money,
            order_money=_money_of(about["order_money"]),
            refunded_total=total,
            occurred_at=occurred_at,
            standing="fetched" if money is None or own else "answered",
            unclear=events.UNCLEAR_AMOUNT if data.unclear else None,
            method=slow.method,
            expected_by=slow.expected_by,
            revocable_days=slow.revocable_days,
            suggested=suggested,
            agreement=agreement or about.get("agreement"),
            standalone=claim in events.FOLLOWS_SUCCESS and kind in self._standalone,
            shop=self._shop.read(claim, data),
            states=states,
            stated_at=document.get("dated") if states else None,
            **references,
        )

    def _read_states(
        self, claim: events.ClaimKind, data: fields.EventData
    ) -> tuple[events.State, ...]:
        if claim != "succeeded":
            return ()
        found = []
        for member, where in self._stated_sums:
            money = self._price(where, data)
            currency = self._currency(data)
            if (
                money is None
                and member in self._zero_if_absent
                and where(data) is None
                and currency
            ):
                money = Money(minor=0, currency=str(currency).upper())
            if money is not None:
                found.append(events.State(member=member, money=money))
        for each in self._movements(data.document) if self._movements else ():
            at = each.at
            found.append(
                events.State(
                    member=each.member,
                    word=each.word,
                    money=self._money_in(each.amount, each.currency, data),
                    reference=fields.required_text(
                        each.reference, "a reference in a list of the answer"
                    ),
                    at=None if at is None else self._date(at, "a date of the answer", self._zone),
                )
            )
        return tuple(found)

    def _own_references(
        self, claim: events.ClaimKind, data: fields.EventData, asked: dict[str, str | None]
    ) -> dict[str, str | None]:
        final = claim not in SAYS_NOTHING_FINAL | reader.MEANT_AS_STATED
        # Where the payment is unsigned and neither the question nor the answer names it, the answer
        # proves only the session: anyone could write another's payment beside their own session.
        own = asked["payment"] if self._payment_is_proven or not final else None
        references = {"payment": self._stated(self._payment, data) or own}
        if self._states_session:
            own = None if final else asked["session"]
            references["session"] = self._stated(self._session, data) or own
        order = self._stated(self._order, data)
        # An answer about money going back often names only the payment, and makes no order paid.
        if order is None and self._states_order and final and claim not in events.FOLLOWS_SUCCESS:
            # A renewal often names only its agreement. It then belongs to no order, whatever was
            # asked.
            if self._stated(self._agreement, data) is None:
                raise Unreadable("the answer does not name its order")
            references["order"] = None
        if order is not None:
            references["order"] = fields.order_named(order, self._source, own=self._own_orders)
        return references

    def _check_environment(self, data: fields.EventData, environment: str | None) -> None:
        if self._environment is None or environment is None:
            return
        word = fields.as_text(self._environment(data), "the answer's environment")
        if word is not None and word == self._either:
            return
        if word is None and environment != "live":
            return
        if word is None or self._environments.get(word) != environment:
            raise Unreadable(f"the answer does not state that it belongs to {environment}")

    def _stated(self, find: fields.Find, data: fields.EventData) -> str | None:
        value = find(data)
        return None if value is None else fields.required_text(value, "a reference of the answer")

    def _instant(self, data: fields.EventData, about: dict[str, Any]) -> Instant | None:
        if self._dated_as_event:
            return about.get("occurred_at")
        value = self._occurred_at(data)
        return None if value is None else self._date(value, "the answer's date", self._zone)

    def _money(
        self,
        claim: events.ClaimKind,
        data: fields.EventData,
        about: dict[str, Any],
        *,
        is_sum: bool,
    ) -> Money | None:
        if claim in events.FOLLOWS_SUCCESS:
            given_back = self._price(self._refund, data)
            if given_back is not None or data.unclear or (is_sum and claim == "refunded"):
                return given_back
        if not self._states_amount:
            return _money_of(about["money"])
        return self._price(self._amount, data)

    def _price(self, find: fields.Find, data: fields.EventData) -> Money | None:
        value = find(data)
        return None if value is None else self._money_in(value, self._currency(data), data)

    def _money_in(self, value: object, currency: object, data: fields.EventData) -> Money | None:
        if value is None:
            return None
        try:
            return amounts.read_amount(self._unit, value, currency, name="the answer's amount")
        except UnclearAmount:
            data.unclear = True
            return None


def _money_of(written: list[Any] | None) -> Money | None:
    return None if written is None else Money(minor=written[0], currency=written[1])


def is_answer(headers: str) -> bool:
    """Check whether the stored headers belong to a provider's answer."""
    return headers.startswith(f"{FETCHED}: ")


__all__ = [
    "NOT_FOUND",
    "NOT_KNOWN",
    "AnswerReader",
    "Unreadable",
    "is_answer",
    "keep_answer",
]
