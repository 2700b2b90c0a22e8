"""Read the events in a verified body.

Events contain only keyed digests of the customer's phone number, email address and name.
"""

import hmac
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields as members_of
from dataclasses import replace
from typing import Final

from app.core import reading
from app.core.masking import masked_words
from app.core.phone_key import PhoneKey
from app.core.references import composed, fault_of
from app.core.text import is_human_text
from app.providers import amounts, dates, documents, fields, identifiers, paths, request, sections
from app.providers.identifiers import phone_digits
from app.providers.slow import NOT_SLOW, SlowMethods
from reconcile.instants import Instant
from reconcile.ledger.events import (
    FOLLOWS_SUCCESS,
    PART_KINDS,
    UNCLEAR_AMOUNT,
    ClaimKind,
    Event,
    Part,
    Shop,
    Standing,
)
from reconcile.money import Money


class ClaimWords:
    """Table of a profile's words and their claims."""

    __slots__ = ("_exact", "_otherwise", "_prefixes")

    def __init__(self, claims: sections.Claims, *, otherwise: ClaimKind = "unrecognized") -> None:
        self._otherwise = otherwise
        self._exact = {word: meaning for word, meaning in claims if not word.endswith("*")}
        prefixes = [(word[:-1], meaning) for word, meaning in claims if word.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda each: -len(each[0]))

    def meaning(self, word: str) -> ClaimKind:
        """Return what an event of this kind says of a payment attempt."""
        exact = self._exact.get(word)
        if exact is not None:
            return exact
        for prefix, meaning in self._prefixes:
            if word.startswith(prefix):
                return meaning
        return self._otherwise


class KindWords:
    """Set of kinds of events from a profile's list.

    A final `*` matches every kind with this beginning.
    """

    __slots__ = ("_beginnings", "_exact")

    def __init__(self, words: tuple[str, ...]) -> None:
        self._exact = frozenset(words)
        self._beginnings = tuple(word[:-1] for word in words if word.endswith("*"))

    def __contains__(self, kind: str) -> bool:
        return kind in self._exact or (bool(self._beginnings) and kind.startswith(self._beginnings))


COVERS_ORDER: Final[frozenset[ClaimKind]] = frozenset({"succeeded", "authorized"})
"""Claims that concern the order's whole price if they state no amount."""

UNSTATED: Final = "unstated"
"""Environment of an event that states none."""

NO_MEMBERS: Final[Mapping[str, Collection[str]]] = {}

STATES_NO_SUM: Final[frozenset[ClaimKind]] = frozenset({"pending", "unrecognized", "ignored"})
"""Claims for which no sum of refunds is read."""

MEANT_AS_STATED: Final[frozenset[ClaimKind]] = frozenset({"unrecognized", "ignored"})
"""Claims that the provider need not confirm, because they change no payment."""

NAMES_ITS_OWN: Final[frozenset[ClaimKind]] = FOLLOWS_SUCCESS | MEANT_AS_STATED
"""Claims whose metadata can describe the refund or dispute."""

_AUTHORIZATION: Final = request.header_values("authorization")


MAX_STATED: Final = 500
"""Maximum number of characters of a stated fact. A longer fact is left out."""


class ProfileField:
    """One field of a profile: its locations, and its name in sentences."""

    __slots__ = ("_locations", "find", "name")

    def __init__(self, locations: sections.Locations) -> None:
        self._locations = locations
        self.find: fields.Find = fields.compile_locations(locations)
        self.name = fields.plain_name(locations)

    def name_in(self, data: fields.EventData) -> str:
        """Return the field's name for sentences about this body."""
        return fields.plain_name(fields.holding(self._locations, data))

    def text(self, data: fields.EventData) -> str | None:
        """Return the field's text, if any. Raise Unreadable if the text is invalid."""
        value = self.find(data)
        if value is None:
            return None
        # Nearly every text passes here. Any other gets the full check, which names the location.
        if (
            type(value) is str
            and 0 < len(value) <= fields.MAX_TEXT
            and value.isascii()
            and value.isprintable()
            and value[0] > " "
        ):
            return value
        return fields.required_text(value, self.name_in(data))

    def description(self, data: fields.EventData) -> str | None:
        """Return the field as a description for people, if readable.

        Possible phone numbers are masked.
        """
        try:
            value = self.find(data)
        except reading.Unreadable:
            return None
        if type(value) is not str or not value.strip():
            return None
        return masked_words(fields.escaped(value))


class Price:
    """One amount that a profile describes, with the location of its currency."""

    __slots__ = ("_amount", "_currency", "_order_currency", "_read")

    def __init__(
        self,
        rule: sections.AmountsRule,
        *,
        amount: sections.Locations,
        currency: sections.Locations,
    ) -> None:
        self._read = amounts.amount_unit(rule.unit, rule.decimals)
        self._amount = ProfileField(amount)
        self._currency = fields.compile_locations(currency)
        self._order_currency = fields.compile_locations(rule.order_currency)

    def read(self, data: fields.EventData) -> Money | None:
        """Return the exact amount. Raise Unreadable if the field cannot be read.

        For an inexact amount, return None and set `data.unclear`.
        """
        value = self._amount.find(data)
        if value is None:
            return None
        currency = self._currency(data)
        if currency is None:
            currency = self._order_currency(data)
        try:
            return amounts.read_amount(self._read, value, currency, name=self._amount.name)
        except reading.UnclearAmount:
            data.unclear = True
            return None
        except reading.Unreadable:
            name = self._amount.name_in(data)
            return amounts.read_amount(self._read, value, currency, name=name)


class ShopMembers:
    """Fields in which a source's events state their account and their shop.

    accounts  our accounts; if empty, the account is not checked, or with `connected` every named
              account is another shop's
    connected  whether events of the account that owns the key name no account
    only  fields that the shop itself sets, each with our values
    """

    __slots__ = ("_account", "_accounts", "_asks_account", "_connected", "_only")

    def __init__(
        self,
        where: sections.Locations,
        *,
        accounts: frozenset[str],
        connected: bool,
        only: Mapping[str, Collection[str]],
    ) -> None:
        self._account = fields.compile_locations(where)
        self._asks_account = bool(where) and (connected or bool(accounts))
        self._accounts, self._connected = accounts, connected
        self._only = [
            (fields.compile_location(location), frozenset(values))
            for location, values in only.items()
        ]

    def read(self, claim: ClaimKind, data: fields.EventData) -> Shop | None:
        """Return whether an event names our shop, another or none; None if not checked."""
        found: list[Shop] = []
        if self._asks_account:
            named = _text_at(self._account, data)
            if named is not None:
                found.append("ours" if named in self._accounts else "other")
            elif not self._connected:
                found.append("unstated")
        if self._only:
            own = [] if claim in NAMES_ITS_OWN else self._only
            stated = [
                text in ours for find, ours in own if (text := _text_at(find, data)) is not None
            ]
            found.append("unstated" if not stated else "ours" if all(stated) else "other")
        return next((word for word in _STRONGEST if word in found), None)


_STRONGEST: Final[tuple[Shop, ...]] = ("other", "unstated", "ours")


def _text_at(find: fields.Find, data: fields.EventData) -> str | None:
    with suppress(reading.Unreadable):
        return fields.as_text(find(data), "the shop")
    return None


class EventReader:
    """Reader of one source's events.

    captures  payment methods that are captured without a further event
    vouchers  values of the header `authorization` that only the provider sends
    """

    def __init__(
        self,
        source: str,
        profile: sections.Profile,
        phone_key: PhoneKey | None = None,
        *,
        own_orders: bool = False,
        links: bool = True,
        accounts: frozenset[str] = frozenset(),
        only: Mapping[str, Collection[str]] = NO_MEMBERS,
        key_environment: str | None = None,
        captures: Collection[str] = (),
        vouchers: Iterable[bytes] = (),
    ) -> None:
        event, priced = profile.event, profile.amounts
        self._source, self._phone_key, self._profile = source, phone_key, profile
        # Each location is a field of its own, because each further id counts.
        self._identifiers = tuple(
            (identify, ProfileField(locations))
            for identify, locations in (
                (identifiers.email, profile.customer.email),
                (identifiers.name, profile.customer.name),
                (identifiers.card, profile.customer.card),
                *((identifiers.further_id, (each,)) for each in event.further_ids),
            )
            if locations
        )
        self._request = profile.request
        self._document = documents.DOCUMENTS[profile.request.body]
        self._items = paths.compile_path(event.items, each=True) if event.items else None
        # A provider that moves no money leaves nothing to explain.
        otherwise: ClaimKind = "ignored" if profile.verifies_only else "unrecognized"
        self._claims = ClaimWords(profile.claims, otherwise=otherwise)
        self._standing: Standing = "unconfirmed" if profile.unconfirmed else "said"
        self._account = ProfileField(profile.account.where)
        self._own_orders, self._links = own_orders, links
        self._own_references = KindWords(event.own_reference)
        self._suggested = ProfileField(event.suggested)
        self._standalone = KindWords(event.standalone)
        self._particulars = profile.particulars
        self._captures, self._vouchers = frozenset(captures), frozenset(vouchers)
        self._accounts = accounts if profile.shares_key else None
        self._shop = ShopMembers(
            () if profile.shares_key else profile.account.where,
            accounts=accounts,
            connected=profile.account.connected,
            only=only,
        )
        self._id, self._kind = ProfileField(event.id), ProfileField(event.kind)
        self._occurred_at, self._zone = ProfileField(event.occurred_at), event.zone
        self._date, self._agreement = dates.DATES[event.dates], ProfileField(event.agreement)
        self._order, self._session = ProfileField(event.order), ProfileField(event.session)
        self._payment, self._movement = ProfileField(event.payment), ProfileField(event.movement)
        self._capture, self._reason = ProfileField(event.capture), ProfileField(event.reason)
        self._respond_by = ProfileField(event.respond_by)
        self._phone, self._country = ProfileField(profile.customer.phone), profile.customer.country
        self._environment = ProfileField(profile.environment.where)
        self._names_environments = bool(profile.environment.where)
        self._key_environment = key_environment
        words = profile.environment
        self._environments: dict[str, str | None] = {words.sandbox: "sandbox", words.live: "live"}
        if words.either is not None:
            self._environments[words.either] = None
        self._paid = Price(priced, amount=priced.payment, currency=priced.payment_currency)
        self._given_back = Price(priced, amount=priced.refund, currency=priced.refund_currency)
        self._refunded_total = Price(
            priced,
            amount=priced.refunded_total,
            currency=priced.refund_currency + priced.payment_currency,
        )
        self._won = Price(priced, amount=priced.won, currency=priced.refund_currency)
        self._tells_parts = bool(priced.won)
        self._parts = tuple(
            (kind, Price(priced, amount=where, currency=currency))
            for kind in PART_KINDS
            if (where := getattr(priced, kind))
            for currency in (priced.parts_currency or priced.payment_currency,)
        )
        self._slow = SlowMethods(profile.slow, zone=event.zone)
        self._ordered = Price(priced, amount=priced.order, currency=priced.order_currency)

    def read(self, body: bytes, incoming: request.Incoming, *, digest: str) -> reading.Reading:
        """Return the events in a decrypted body. Raise Unreadable for a malformed body."""
        if body.startswith(reading.TRIAL):
            raise reading.Unreadable(reading.TRIED)
        document = self._document(self._request, body)
        data = fields.EventData(document, incoming, root=document, body=body, digest=digest)
        if self._items is not None:
            return self._several(data, documents.items_of(document, body, self._items))
        if type(document) is not dict:
            raise reading.Unreadable("the body is not a JSON object")
        environment = self._environment_of(data)
        return reading.Reading(
            events=(self._event(data),),
            environment=None if environment == UNSTATED else environment,
            unstated=environment == UNSTATED,
            foreign=self._are_foreign([data]),
            customers=self._customers([data]),
        )

    def belonging(self, body: bytes, incoming: request.Incoming) -> reading.Belonging:
        """Return the account, shop and environment in a body, without errors.

        An unreadable body counts as another account's, if accounts are checked.
        """
        if self._accounts is None and not self._names_environments:
            return reading.NOBODYS
        try:
            several = self._each(body, incoming)
            foreign = self._are_foreign(several)
        except reading.Unreadable:
            return reading.NOBODYS if self._accounts is None else reading.Belonging(foreign=True)
        if self._items is None and type(several[0].document) is not dict:
            return reading.Belonging(foreign=foreign)
        environments = set()
        for data in several:
            try:
                environments.add(self._environment_of(data))
            except reading.Unreadable:
                continue
        unstated = UNSTATED in environments
        environments -= {None, UNSTATED}
        return reading.Belonging(
            environment=environments.pop() if len(environments) == 1 else None,
            unstated=unstated,
            foreign=foreign,
        )

    def _are_foreign(self, several: list[fields.EventData]) -> bool:
        if self._accounts is None:
            return False
        named = {fields.as_text(self._account.find(each), "account") for each in several}
        return not named or not named <= self._accounts

    def orders_named(
        self, body: bytes, incoming: request.Incoming, *, digest: str | None
    ) -> set[str]:
        """Return the orders that a body names at the profile's locations.

        digest  digest of the single event to read; None for all
        """
        try:
            several = self._each(body, incoming)
        except reading.Unreadable:
            return set()
        found = set()
        for data in several:
            if digest is not None and not hmac.compare_digest(data.digest, digest):
                continue
            with suppress(reading.Unreadable):
                order = fields.as_text(self._order.find(data), self._order.name)
                if order is not None and fault_of(order := composed(order)) is None:
                    found.add(order)
        return found

    def phones(self, body: bytes, incoming: request.Incoming) -> list[str]:
        """Return the customers' phone numbers in a body, as E.164 digits.

        Raise Unreadable if the body cannot be read.
        """
        found = [
            phone_digits(self._phone.find(each), self._country)
            for each in self._each(body, incoming)
        ]
        return list(dict.fromkeys([digits for digits in found if digits is not None]))

    def respond_by(self, body: bytes, incoming: request.Incoming) -> Instant | None:
        """Return the only deadline for answering the dispute in a body, if any.

        Raise Unreadable if the body cannot be read.
        """
        stated = [self._respond_by.find(each) for each in self._each(body, incoming)]
        found = {
            self._date(each, self._respond_by.name, self._zone)
            for each in stated
            if each is not None
        }
        return found.pop() if len(found) == 1 else None

    def transaction(
        self, body: bytes, incoming: request.Incoming, *, digest: str
    ) -> dict[str, str]:
        """Return the facts that one event of a body states about its payment.

        Raise Unreadable if the body cannot be read. A body with several events needs `digest`.
        """
        customer, stated = self._profile.customer, self._profile.transaction
        locations = {each.name: getattr(stated, each.name) for each in members_of(stated)}
        locations |= {"email": customer.email, "name": customer.name, "card": customer.card}
        found: dict[str, str] = {}
        for data in self._each(body, incoming):
            if data.digest and not hmac.compare_digest(data.digest, digest):
                continue
            for name in filter(locations.get, locations):
                with suppress(reading.Unreadable):
                    value = fields.compile_locations(locations[name])(data)
                    parts = value.values() if type(value) is dict else [value]
                    texts = [fields.as_text(each, name) for each in parts if each is not None]
                    text = ", ".join(each.strip() for each in texts if each)
                    text = text[-4:] if name == "card" else text
                    if text and len(text) <= MAX_STATED and is_human_text(text):
                        found[name] = text
        return found

    def _each(self, body: bytes, incoming: request.Incoming) -> list[fields.EventData]:
        document = self._document(self._request, body)
        data = fields.EventData(document, incoming, root=document, body=body, digest="")
        if self._items is None:
            return [data]
        items = documents.items_of(document, body, self._items)
        return [data.of(item.document, digest=item.digest) for item in items]

    def _customers(self, several: list[fields.EventData]) -> tuple[tuple[bytes, ...], ...]:
        if self._phone_key is None:
            return ()
        found = []
        for data in several:
            names: dict[str, None] = {}
            for identify, field in ((self._as_phone, self._phone), *self._identifiers):
                try:
                    identifier = identify(field.find(data))
                except reading.Unreadable:  # only the search misses it: the event stays readable
                    continue
                if identifier is not None:
                    names[identifier] = None
            found.append(tuple(map(self._phone_key.digest, names)))
        return tuple(found)

    def _as_phone(self, value: object) -> str | None:
        return phone_digits(value, self._country)

    def _several(self, data: fields.EventData, items: list[documents.BodyItem]) -> reading.Reading:
        foreign = self._are_foreign([data.of(i.document, digest=i.digest) for i in items])
        events, raws, read = [], [], []
        unread: list[tuple[bytes, str]] = []
        environments = set()
        for number, item in enumerate(items, 1):
            own = data.of(item.document, digest=item.digest)
            try:
                environments.add(self._environment_of(own))
                event = self._event(own)
                split, parts = self._particulars.split, [(item.raw, event)]
                if split is not None and event.claim != "ignored":
                    parts = split(event, item.raw, own)
                for raw, part in parts:
                    events.append(part)
                    raws.append(raw)
                    read.append(own)
            except reading.Unreadable as error:
                unread.append((item.raw, f"event {number} of {len(items)}: {error}"))
        if not events:
            raise reading.Unreadable(unread[0][1])
        stated = environments - {None, UNSTATED}
        if len(stated) > 1:
            raise reading.Unreadable("the body has events of both environments")
        return reading.Reading(
            events=tuple(events),
            environment=next(iter(stated), None),
            unstated=UNSTATED in environments,
            foreign=foreign,
            raws=tuple(raws),
            unread=tuple(unread),
            customers=self._customers(read),
        )

    def _event(self, data: fields.EventData) -> Event:
        kind = fields.required_text(self._kind.find(data), self._kind.name)
        claim = self._claims.meaning(kind)
        try:
            identity = fields.event_id(self._id.find(data), self._id.name)
        except reading.Unreadable:
            if claim != "ignored":
                raise
            identity = data.digest
        try:
            event = self._detailed(identity, kind, claim, data)
            return replace(event, claim="succeeded") if self._captured(event, data) else event
        except reading.Unreadable:
            # An unknown kind may well have an unknown shape, and is stored all the same. So is an
            # ignored kind, whatever its shape.
            if claim not in MEANT_AS_STATED:
                raise
        return Event(
            source=self._source,
            event_id=identity,
            digest=data.digest,
            kind=kind,
            claim=claim,
            shop=self._shop.read(claim, data),
            standing=self._standing,
        )

    def _captured(self, event: Event, data: fields.EventData) -> bool:
        given = _AUTHORIZATION(data.incoming.headers)
        if len(given) != 1 or not any(hmac.compare_digest(given[0], v) for v in self._vouchers):
            return False
        capturing = self._particulars.capturing
        method = None if capturing is None else capturing(event, data)
        return type(method) is str and method in self._captures  # nothing signs it: it may be any

    def _detailed(
        self, identity: str, kind: str, claim: ClaimKind, data: fields.EventData
    ) -> Event:
        ordered = self._ordered.read(data)
        unconfirmed = self._standing != "said" and claim not in MEANT_AS_STATED
        unsummed = unconfirmed or claim in STATES_NO_SUM
        total = None if unsummed else self._refunded_total.read(data)
        money = self._money(claim, ordered, data, is_sum=total is not None)
        if claim == "dispute_won" and self._tells_parts:
            won = self._won.read(data)
            if won is not None and money is not None and 0 < won.minor < money.minor:
                # A part of the disputed amount was won. The rest was lost.
                claim = "dispute_lost"
                money = Money(minor=money.minor - won.minor, currency=money.currency)
        moved = claim in FOLLOWS_SUCCESS and not is_only_a_sum(claim, money, total)
        occurred_at, order = self._instant(data), self._order.text(data)
        if order is not None:
            order = fields.order_named(order, self._source, own=self._own_orders)
        links = self._links and kind not in self._own_references
        if order is None and (hint := self._suggested.text(data)) is not None:
            links = False
            order = fields.order_named(hint, self._source, own=self._own_orders)
        # With `confirm`, section [slow] describes the provider's answer.
        slow = NOT_SLOW if unconfirmed else self._slow.read(kind, claim, data, occurred_at)
        return Event(
            source=self._source,
            event_id=identity,
            digest=data.digest,
            kind=kind,
            claim="pending" if unconfirmed else claim,
            occurred_at=occurred_at,
            order=order if links else None,
            suggested=None if links else order,
            session=self._session.text(data),
            payment=self._payment.text(data),
            agreement=self._agreement.text(data),
            standalone=moved and kind in self._standalone,
            movement=self._movement.text(data) if moved else None,
            capture=self._capture.text(data) if claim == "succeeded" else None,
            money=money,
            order_money=ordered,
            refunded_total=total,
            reason=self._reason.description(data),
            standing=self._standing,
            unclear=UNCLEAR_AMOUNT if data.unclear else None,
            method=slow.method,
            expected_by=slow.expected_by,
            revocable_days=slow.revocable_days,
            shop=self._shop.read(claim, data),
            parts=self._parts_of(data, money) if claim == "succeeded" and self._parts else (),
        )

    def _parts_of(self, data: fields.EventData, money: Money | None) -> tuple[Part, ...]:
        found = []
        for kind, price in self._parts:
            with suppress(reading.Unreadable):
                part = price.read(data)
                if part is None or (part.minor <= 0 and kind != "base"):
                    continue
                if kind != "presented" or money is None or part.currency != money.currency:
                    found.append(Part(kind=kind, money=part))
        return tuple(found)

    def _money(
        self, claim: ClaimKind, ordered: Money | None, data: fields.EventData, *, is_sum: bool
    ) -> Money | None:
        if claim in FOLLOWS_SUCCESS:
            given_back = self._given_back.read(data)
            if given_back is not None or data.unclear or (is_sum and claim == "refunded"):
                return given_back
        paid = self._paid.read(data)
        return ordered if paid is None and claim in COVERS_ORDER and not data.unclear else paid

    def _instant(self, data: fields.EventData) -> Instant | None:
        value = self._occurred_at.find(data)
        if value is None:
            return None
        try:
            return self._date(value, self._occurred_at.name, self._zone)
        except reading.Unreadable:
            return self._date(value, self._occurred_at.name_in(data), self._zone)

    def _environment_of(self, data: fields.EventData) -> str | None:
        try:
            value = self._environment.find(data)
        except reading.Unreadable:
            if not self._is_ignored(data):
                raise
            value = None
        if value is None and self._names_environments:
            return self._key_environment or (None if self._is_ignored(data) else UNSTATED)
        if value is None:
            return None
        word = str(value).lower() if type(value) is bool else value
        if type(word) is not str or word not in self._environments:
            words = " nor ".join(self._environments)
            raise reading.Unreadable(f"{self._environment.name} is neither {words}")
        return self._environments[word]

    def _is_ignored(self, data: fields.EventData) -> bool:
        kind = self._kind.find(data)
        return type(kind) is str and self._claims.meaning(kind) == "ignored"


def is_only_a_sum(claim: ClaimKind, money: Money | None, total: Money | None) -> bool:
    """Check whether an event states only the refunds' sum."""
    return claim == "refunded" and money is None and total is not None
