"""From a verified body to events: a profile's locations, compiled once.

Leaves out: whether the request is genuine. The customer's phone number is no part of an event: only
its keyed digest leaves here, and the number itself when a person looks at one delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.core.masking import masked_words
from app.core.phone_key import PhoneKey
from app.core.reading import NOBODYS, TRIAL, TRIED, Belonging, Reading, Unreadable
from app.providers import amounts, dates, documents, fields, paths, request, sections
from app.providers.phones import phone_digits
from reconcile.instants import Instant
from reconcile.ledger.events import ClaimKind, Event, Standing
from reconcile.money import Money
from reconcile.values import maker

# --- what a provider's words mean -----------------------------------------------------------------


class Words:
    """The claims of a profile. `otherwise`: what words that it does not name mean."""

    __slots__ = ("_exact", "_otherwise", "_prefixes")

    def __init__(self, claims: sections.Claims, *, otherwise: ClaimKind = "unrecognized") -> None:
        self._otherwise = otherwise
        self._exact = {word: meaning for word, meaning in claims if not word.endswith("*")}
        prefixes = [(word[:-1], meaning) for word, meaning in claims if word.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda each: -len(each[0]))

    def meaning(self, word: str) -> ClaimKind:
        """What the word says of an attempt."""
        exact = self._exact.get(word)
        if exact is not None:
            return exact
        for prefix, meaning in self._prefixes:
            if word.startswith(prefix):
                return meaning
        return self._otherwise


# --- from a verified body to events ---------------------------------------------------------------


GIVES_BACK: Final[frozenset[ClaimKind]] = frozenset(
    {
        "refunded",
        "refund_pending",
        "refund_failed",
        "reversed",
        "disputed",
        "dispute_won",
        "dispute_lost",
    }
)
"""Claims about money on its way back: their amount is the refund's, and a movement names them."""

COVERS_ORDER: Final[frozenset[ClaimKind]] = frozenset({"succeeded", "authorized"})
"""Claims that, where they state no amount of their own, speak of the whole order."""

UNSTATED: Final = "unstated"
"""In place of an environment: the profile names the member that says it, and it is not there."""
STATES_NO_SUM: Final[frozenset[ClaimKind]] = frozenset({"pending", "unrecognized", "ignored"})
"""Claims of which no sum of refunds is read: what they say of money is not known, or not final."""

MEANT_AS_STATED: Final[frozenset[ClaimKind]] = frozenset({"unrecognized", "ignored"})
"""Claims that need no confirmation: they make nothing true of any payment."""

_new_event, _new_reading = maker(Event), maker(Reading)


class Field:
    """One field of a profile: where it stands, and what sentences call it."""

    __slots__ = ("_locations", "find", "name")

    def __init__(self, locations: sections.Locations) -> None:
        self._locations = locations
        self.find: fields.Find = fields.compile_locations(locations)
        self.name = fields.plain_name(locations)

    def name_in(self, facts: fields.Facts) -> str:
        """What a sentence calls it in this body, which may have it in the second place or third."""
        return fields.plain_name(fields.holding(self._locations, facts))


class Price:
    """One amount of a profile with its currency."""

    __slots__ = ("_amount", "_currency", "_order_currency", "_read")

    def __init__(
        self,
        rule: sections.AmountsRule,
        *,
        amount: sections.Locations,
        currency: sections.Locations,
    ) -> None:
        self._read = amounts.amount_unit(rule.unit, rule.decimals)
        self._amount = Field(amount)
        self._currency = fields.compile_locations(currency)
        self._order_currency = fields.compile_locations(rule.order_currency)

    def read(self, facts: fields.Facts) -> Money | None:
        """Exact money; None where no amount is stated. Raises Unreadable."""
        value = self._amount.find(facts)
        if value is None:
            return None
        currency = self._currency(facts)
        if currency is None:
            currency = self._order_currency(facts)
        try:
            return amounts.read_amount(self._read, value, currency, name=self._amount.name)
        except Unreadable:
            return amounts.read_amount(
                self._read, value, currency, name=self._amount.name_in(facts)
            )


class Reader:
    """Reads the events of one source."""

    def __init__(
        self,
        source: str,
        profile: sections.Profile,
        phone_key: PhoneKey | None = None,
        *,
        own_orders: bool = False,
        accounts: frozenset[str] | None = None,
    ) -> None:
        event, priced = profile.event, profile.amounts
        self._source = source
        self._phone_key = phone_key if profile.customer.phone else None
        self._request = profile.request
        self._document = documents.DOCUMENTS[profile.request.body]
        self._items = paths.compile_path(event.items, each=True) if event.items else None
        # Of a provider that moves no money nothing is left to be explained.
        otherwise: ClaimKind = "ignored" if profile.verifies_only else "unrecognized"
        self._claims = Words(profile.claims, otherwise=otherwise)
        self._standing: Standing = "unconfirmed" if profile.unconfirmed else "said"
        self._account = Field(profile.account.where)
        self._accounts = accounts if profile.account.where else None
        self._own_orders = own_orders
        self._id, self._kind = Field(event.id), Field(event.kind)
        self._occurred_at, self._date = Field(event.occurred_at), dates.DATES[event.dates]
        self._zone = event.zone
        self._order, self._session = Field(event.order), Field(event.session)
        self._payment, self._movement = Field(event.payment), Field(event.movement)
        self._capture, self._reason = Field(event.capture), Field(event.reason)
        self._respond_by = Field(event.respond_by)
        self._phone, self._country = Field(profile.customer.phone), profile.customer.country
        self._environment = Field(profile.environment.where)
        self._names_environments = bool(profile.environment.where)
        self._environments: dict[str, str | None] = {
            profile.environment.sandbox: "sandbox",
            profile.environment.live: "live",
        }
        if profile.environment.either is not None:
            self._environments[profile.environment.either] = None
        self._paid = Price(priced, amount=priced.payment, currency=priced.payment_currency)
        self._given_back = Price(priced, amount=priced.refund, currency=priced.refund_currency)
        self._refunded_total = Price(
            priced,
            amount=priced.refunded_total,
            currency=priced.refund_currency + priced.payment_currency,
        )
        self._won = Price(priced, amount=priced.won, currency=priced.refund_currency)
        self._tells_parts = bool(priced.won)
        self._ordered = Price(priced, amount=priced.order, currency=priced.order_currency)

    def read(self, body: bytes, incoming: request.Incoming, *, digest: str) -> Reading:
        """What the body says. Raises Unreadable with one sentence.

        body  as the provider meant it: decrypted or unwrapped where its scheme does that
        """
        if body.startswith(TRIAL):
            raise Unreadable(TRIED)
        document = self._document(self._request, body)
        facts = fields.Facts(
            document,
            root=document,
            headers=incoming.headers,
            body=body,
            url=incoming.url,
            digest=digest,
        )
        if self._items is not None:
            return self._several(facts, documents.items_of(document, body, self._items))
        if type(document) is not dict:
            raise Unreadable("the body is not a JSON object")
        environment = self._environment_of(facts)
        return _new_reading(
            events=(self._event(facts),),
            environment=_stated(environment),
            unstated=environment == UNSTATED,
            foreign=self._are_foreign([facts]),
            customers=self._customers([facts]),
        )

    def belonging(self, body: bytes, incoming: request.Incoming) -> Belonging:
        """Whose event a body is, and of which environment; nothing else of it is read. Never
        raises: what cannot be read names no account, and its environment is for `read` to judge."""
        if self._accounts is None and not self._names_environments:
            return NOBODYS
        try:
            several = self._each(body, incoming)
            foreign = self._are_foreign(several)
        except Unreadable:
            return NOBODYS if self._accounts is None else Belonging(foreign=True)
        if self._items is None and type(several[0].document) is not dict:
            return Belonging(foreign=foreign)
        environments = set()
        for facts in several:
            try:
                environments.add(self._environment_of(facts))
            except Unreadable:
                continue
        unstated = UNSTATED in environments
        environments -= {None, UNSTATED}
        return Belonging(
            environment=environments.pop() if len(environments) == 1 else None,
            unstated=unstated,
            foreign=foreign,
        )

    def _are_foreign(self, several: list[fields.Facts]) -> bool:
        """Whether one of these events names another account, or none. Raises Unreadable."""
        if self._accounts is None:
            return False
        named = {fields.as_text(self._account.find(each), "account") for each in several}
        return not named or not named <= self._accounts

    def phones(self, body: bytes, incoming: request.Incoming) -> list[str]:
        """The customers' phone numbers in a body, as E.164 digits. Raises Unreadable."""
        found = [self._digits(each) for each in self._each(body, incoming)]
        return list(dict.fromkeys([digits for digits in found if digits is not None]))

    def respond_by(self, body: bytes, incoming: request.Incoming) -> Instant | None:
        """Until when a dispute that a body reports may be answered; None where it does not say, or
        reports several. Raises Unreadable."""
        stated = [self._respond_by.find(each) for each in self._each(body, incoming)]
        found = {
            self._date(each, self._respond_by.name, self._zone)
            for each in stated
            if each is not None
        }
        return found.pop() if len(found) == 1 else None

    def _each(self, body: bytes, incoming: request.Incoming) -> list[fields.Facts]:
        """What the locations of each event in a body look at. Raises Unreadable."""
        document = self._document(self._request, body)
        facts = fields.Facts(
            document,
            root=document,
            headers=incoming.headers,
            body=body,
            url=incoming.url,
            digest="",
        )
        if self._items is None:
            return [facts]
        items = documents.items_of(document, body, self._items)
        return [facts.of(item.document, digest=item.digest) for item in items]

    def _digits(self, facts: fields.Facts) -> str | None:
        return phone_digits(self._phone.find(facts), self._country)

    def _customers(self, several: list[fields.Facts]) -> tuple[bytes | None, ...]:
        if self._phone_key is None:
            return ()
        return tuple([self._customer(self._phone_key, facts) for facts in several])

    def _customer(self, key: PhoneKey, facts: fields.Facts) -> bytes | None:
        try:
            digits = self._digits(facts)
        except Unreadable:  # what only the search is poorer for makes no event unreadable
            return None
        return None if digits is None else key.digest(digits)

    def _several(self, facts: fields.Facts, items: list[documents.BodyItem]) -> Reading:
        """Each event by itself: one that cannot be read takes no other with it."""
        foreign = self._are_foreign([facts.of(i.document, digest=i.digest) for i in items])
        events, raws, read = [], [], []
        unread: list[tuple[bytes, str]] = []
        environments = set()
        for number, item in enumerate(items, 1):
            own = facts.of(item.document, digest=item.digest)
            try:
                environments.add(self._environment_of(own))
                events.append(self._event(own))
                raws.append(item.raw)
                read.append(own)
            except Unreadable as error:
                unread.append((item.raw, f"event {number} of {len(items)}: {error}"))
        if not events:
            raise Unreadable(unread[0][1])
        stated = environments - {None, UNSTATED}
        if len(stated) > 1:
            raise Unreadable("the body has events of both environments")
        return Reading(
            events=tuple(events),
            environment=next(iter(stated), None),
            unstated=UNSTATED in environments,
            foreign=foreign,
            raws=tuple(raws),
            unread=tuple(unread),
            customers=self._customers(read),
        )

    def _event(self, facts: fields.Facts) -> Event:
        identity = fields.event_id(self._id.find(facts), self._id.name)
        kind = fields.required_text(self._kind.find(facts), self._kind.name)
        claim = self._claims.meaning(kind)
        try:
            return self._detailed(identity, kind, claim, facts)
        except Unreadable:
            # A kind we do not know may well have a shape we do not know: keep it all the same, as
            # one that means nothing, whatever its shape.
            if claim not in MEANT_AS_STATED:
                raise
        return _new_event(
            source=self._source,
            event_id=identity,
            digest=facts.digest,
            kind=kind,
            claim=claim,
            standing=self._standing,
        )

    def _detailed(self, identity: str, kind: str, claim: ClaimKind, facts: fields.Facts) -> Event:
        ordered = self._ordered.read(facts)
        unconfirmed = self._standing != "said" and claim not in MEANT_AS_STATED
        unsummed = unconfirmed or claim in STATES_NO_SUM
        total = None if unsummed else self._refunded_total.read(facts)
        money = self._money(claim, ordered, facts, is_sum=total is not None)
        if claim == "dispute_won" and self._tells_parts:
            claim, money = self._won_in_part(money, facts)
        moved = claim in GIVES_BACK and not is_only_a_sum(claim, money, total)
        return _new_event(
            source=self._source,
            event_id=identity,
            digest=facts.digest,
            kind=kind,
            claim="pending" if unconfirmed else claim,
            occurred_at=self._instant(facts),
            order=self._order_of(facts),
            session=_text(self._session, facts),
            payment=_text(self._payment, facts),
            movement=_text(self._movement, facts) if moved else None,
            capture=_text(self._capture, facts) if claim == "succeeded" else None,
            money=money,
            order_money=ordered,
            refunded_total=total,
            reason=self._reason_in(facts),
            standing=self._standing,
        )

    def _reason_in(self, facts: fields.Facts) -> str | None:
        reason = _text(self._reason, facts)
        return None if reason is None else masked_words(reason)

    def _order_of(self, facts: fields.Facts) -> str | None:
        order = _text(self._order, facts)
        return (
            None if order is None else fields.order_named(order, self._source, own=self._own_orders)
        )

    def _money(
        self, claim: ClaimKind, ordered: Money | None, facts: fields.Facts, *, is_sum: bool
    ) -> Money | None:
        if claim in GIVES_BACK:
            given_back = self._given_back.read(facts)
            if given_back is not None or (is_sum and claim == "refunded"):
                return given_back
        paid = self._paid.read(facts)
        return ordered if paid is None and claim in COVERS_ORDER else paid

    def _won_in_part(
        self, disputed: Money | None, facts: fields.Facts
    ) -> tuple[ClaimKind, Money | None]:
        """What a win says: of a part, that the rest of what was disputed was lost."""
        won = self._won.read(facts)
        if won is None or disputed is None or not 0 < won.minor < disputed.minor:
            return "dispute_won", disputed
        lost = Money(minor=disputed.minor - won.minor, currency=disputed.currency)
        return "dispute_lost", lost

    def _instant(self, facts: fields.Facts) -> Instant | None:
        value = self._occurred_at.find(facts)
        if value is None:
            return None
        try:
            return self._date(value, self._occurred_at.name, self._zone)
        except Unreadable:
            return self._date(value, self._occurred_at.name_in(facts), self._zone)

    def _environment_of(self, facts: fields.Facts) -> str | None:
        value = self._environment.find(facts)
        if value is None:
            return UNSTATED if self._names_environments else None
        word = str(value).lower() if type(value) is bool else value
        if type(word) is not str or word not in self._environments:
            words = " nor ".join(self._environments)
            raise Unreadable(f"{self._environment.name} is neither {words}")
        return self._environments[word]


def is_only_a_sum(claim: ClaimKind, money: Money | None, total: Money | None) -> bool:
    """Whether an event states only the sum of refunds, and no single one."""
    return claim == "refunded" and money is None and total is not None


def _text(field: Field, facts: fields.Facts) -> str | None:
    value = field.find(facts)
    if value is None:
        return None
    # Nearly every text passes here; what does not is judged, and named, in full.
    if (
        type(value) is str
        and 0 < len(value) <= fields.MAX_TEXT
        and value.isprintable()
        and value[0] > " "
    ):
        return value
    return fields.required_text(value, field.name_in(facts))


def _stated(environment: str | None) -> str | None:
    return None if environment == UNSTATED else environment
