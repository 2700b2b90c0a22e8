"""Finds the order that a customer speaks of, by anything they know of it.

1 understand   what the text may mean
2 look         each meaning in turn, the surest first, until there are enough
3 explain      each order folded as of now, its customer's phone masked
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any, Final
from unicodedata import category

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import looks_like_a_phone, masked_phone
from app.core.references import fault_of
from app.core.text import counted
from app.database.engine import Connection
from app.orders import search_store
from app.orders.customers import phones_of
from app.orders.delivery_log import refused_that_may_be_of
from app.orders.holds import as_judged
from app.orders.shop_facts_store import facts_of_orders
from app.providers.phones import phone_digits
from app.receiving.due_store import marks_of
from app.receiving.phone_store import deliveries_by_phone, has_other_keys, orders_by_phone
from reconcile.instants import Instant, format_instant
from reconcile.ledger.explain import ledger_summary
from reconcile.ledger.fold import fold
from reconcile.money import EXPONENTS, Money, MoneyError, exponent_of, from_major
from reconcile.periods import Calendar

MAX_TEXT: Final = 256
"""Characters: longer than any reference of a provider's."""

GRAMMAR: Final = (
    "type a reference, a payment, a session, an event id, a phone number (+254 700 000 001), "
    "an amount (KES 1,500.00), a day (2026-11-20 or 20/11/2026), or an amount and a day"
)

_DAY: Final = re.compile(
    r"(?P<y>\d{4})([-/.])(?P<m>\d{1,2})\2(?P<d>\d{1,2})"
    r"|(?P<first>\d{1,2})([-/.])(?P<second>\d{1,2})\6(?P<year>\d{4})",
    re.ASCII,
)
"""A day, the year first, or last behind a day and a month in either order."""

_NUMBER: Final = re.compile(
    r"\d{1,15}(?:\.\d{1,4})?"
    r"|\d{1,3}([,'\u2019 ])\d{3}(?:\1\d{3}){0,3}(?:\.\d{1,4})?"
    r"|\d{1,2}(?:,\d{2}){1,4},\d{3}(?:\.\d{1,4})?",
    re.ASCII,
)
"""An amount: its thousands apart by a comma, a quote or a blank, or as in India: `1,50,000`."""
_COMMA: Final = re.compile(
    r"(?:\d{1,15}|\d{1,3}([.'\u2019 ])\d{3}(?:\1\d{3}){0,3}),\d{1,2}", re.ASCII
)
"""An amount whose decimals follow a comma, as in much of the world: `1.500,00`. Three digits after
a comma are thousands."""
_SIGN: Final = r"[^\d\s.,'\u2019+()#/_=-]{1,5}"
_AMOUNT: Final = re.compile(
    rf"(?:(?P<before>{_SIGN})\.? ?)?(?P<number>\d(?:[\d.,'\u2019 ]*\d)?)"
    rf"(?:/[=-]| ?(?P<after>{_SIGN})\.?)?",
    re.ASCII,
)
"""A number with a currency's code or sign beside it; `/=` and `/-` say that no cents follow."""

_SIGNS: Final[dict[str, str]] = {
    "$": "USD CAD AUD NZD SGD HKD TWD MXN CLP COP ARS NAD LRD JMD TTD BBD BSD BZD FJD GYD XCD",
    "us$": "USD", "a$": "AUD", "c$": "CAD", "ca$": "CAD", "nz$": "NZD", "hk$": "HKD", "s$": "SGD",
    "nt$": "TWD", "mx$": "MXN", "r$": "BRL", "n$": "NAD", "€": "EUR", "£": "GBP EGP",
    "¥": "JPY CNY", "ksh": "KES", "kshs": "KES", "tsh": "TZS", "ush": "UGX",
    "sh": "KES TZS UGX SOS", "shs": "KES TZS UGX SOS", "₦": "NGN",
    "₵": "GHS", "gh₵": "GHS", "gh¢": "GHS", "r": "ZAR", "k": "ZMW PGK MMK", "frw": "RWF",
    "rf": "RWF", "fcfa": "XOF XAF", "cfa": "XOF XAF", "birr": "ETB", "br": "ETB BYN",
    "₹": "INR", "rs": "INR PKR LKR NPR MUR SCR", "৳": "BDT", "tk": "BDT", "rp": "IDR",
    "rm": "MYR", "₱": "PHP", "฿": "THB", "₫": "VND", "đ": "VND", "₩": "KRW", "₽": "RUB",
    "₴": "UAH", "₸": "KZT", "₺": "TRY", "tl": "TRY", "₪": "ILS", "zł": "PLN", "kč": "CZK",
    "ft": "HUF", "lei": "RON MDL", "kr": "SEK NOK DKK ISK", "fr": "CHF", "sfr": "CHF",
    "dh": "AED MAD", "dhs": "AED MAD", "₡": "CRC", "₲": "PYG", "le": "SLE",
}  # fmt: skip
"""How people write currencies beside their codes, and the currencies that each may mean."""

_PHONE: Final = re.compile(r"\+?[\d\s().-]{7,30}", re.ASCII)
_KINDS: Final = frozenset(EXPONENTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Possible meanings of a text; one that it cannot have is empty or None.

    name        a reference or an id, or the beginning of an order's reference
    phones      E.164 digits
    amounts     the amount in minor units, by the number of decimals of a currency
    currencies  of the amount; empty: any
    days        each day that may be meant: when it begins, and when the next one begins
    zone        time zone of the days
    national    whether it may be a phone number without its country, which no setting states
    """

    name: str | None = None
    phones: tuple[str, ...] = ()
    amounts: dict[int, int] | None = None
    currencies: tuple[str, ...] = ()
    days: Mapping[str, tuple[Instant, Instant]] = field(default_factory=dict)
    zone: str = "UTC"
    national: bool = False

    def sentences(self) -> list[str]:
        """Say what is looked for, one sentence each, with phone numbers masked."""
        sentences = []
        if self.name is not None:
            sentences.append("an order's reference, a payment, a session, an event or a delivery")
        sentences += [f"the phone number {masked_phone(digits)}" for digits in self.phones]
        if self.amounts is not None:
            sentences.append(f"an amount in {_listed(self.currencies) or 'any currency'}")
        if self.days:
            sentences.append(f"what was received on {_listed([*self.days])} ({self.zone})")
        return sentences


def understood(text: str, *, countries: Iterable[str] = (), zone: tzinfo = UTC) -> Sought:
    """Return the possible meanings of a text. Raises UsageError where it has none.

    countries  calling codes of the sources' customers, for numbers written in the national way
    zone       time zone of the days
    """
    calendar = Calendar(zone)
    if not text.isprintable():
        # Copying brings along marks of a direction, which telephones put around a number, and other
        # blanks: nobody sees them.
        kinds = {each: category(each) for each in set(text)}
        seen = [each for each in text if kinds[each] != "Cf"]
        text = "".join(" " if kinds[each] == "Zs" else each for each in seen)
    text = text.strip()
    if not (0 < len(text) <= MAX_TEXT) or not text.isprintable():
        raise UsageError(f"nothing can be looked for by that: {GRAMMAR}")
    words = text.split()
    dated = [word for word in words if _DAY.fullmatch(word.rstrip(","))]
    rest = " ".join(word for word in words if word not in dated)
    days = _days(dated[0].rstrip(","), calendar) if len(dated) == 1 else {}
    currencies, amounts = _amount(rest.rstrip(","))
    if days and (not rest or amounts is not None):
        return Sought(
            days=days,
            zone=calendar.name,
            amounts=amounts,
            currencies=currencies,
            name=text if not rest else None,
        )
    like_a_phone = _PHONE.fullmatch(text) is not None
    read = [phone_digits(text, each) for each in (None, *sorted(set(countries))) if like_a_phone]
    phones = tuple(dict.fromkeys([digits for digits in read if digits is not None]))
    if " " in text and not currencies and like_a_phone:
        amounts = None  # groups of digits as a telephone's: no amount is so long without a word
    return Sought(
        name=text,
        phones=phones,
        amounts=amounts,
        currencies=currencies,
        national=not phones and text.startswith(("0", "(0")) and like_a_phone,
    )


def _listed(words: Sequence[str]) -> str:
    """Join words for a sentence; of more than three name the first, and say that there are more."""
    shown = [*words[:3], *(["another of that sign"] if len(words) > 3 else [])]
    return " or ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _days(word: str, calendar: Calendar) -> dict[str, tuple[Instant, Instant]]:
    """Return the days that a word may mean: `05/11/2026` is in November, or in May elsewhere."""
    found = _DAY.fullmatch(word)
    if found is None:
        return {}
    read = [(found["y"], found["m"], found["d"])]
    if found["year"]:
        first, second = found["first"], found["second"]
        read = [(found["year"], second, first), (found["year"], first, second)]
    days = {}
    for year, month, day in read:
        name = f"{year}-{int(month):02}-{int(day):02}"
        with suppress(ValueError):
            days[name] = calendar.day(name)
    return days


def _amount(text: str) -> tuple[tuple[str, ...], dict[int, int] | None]:
    """Return the currencies that may be meant (none: any), and the amount in minor units.

    The amount is None where the text is none.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return (), None
    plain = re.sub("['\u2019 ]", "", found["number"])
    if _COMMA.fullmatch(found["number"]):
        number = Decimal(plain.replace(".", "").replace(",", "."))
    elif _NUMBER.fullmatch(found["number"]):
        number = Decimal(plain.replace(",", ""))
    else:
        return (), None
    signs = [each for each in (found["before"], found["after"]) if each is not None]
    said = [
        [sign.upper()] if sign.upper() in EXPONENTS else _SIGNS.get(sign.lower(), "").split()
        for sign in signs
    ]
    currencies = [each for each in (said or [[]])[0] if all(each in other for other in said)]
    if said and not currencies:
        return (), None
    amounts = {}
    for exponent in {EXPONENTS[each] for each in currencies} if said else _KINDS:
        code = next(code for code, decimals in EXPONENTS.items() if decimals == exponent)
        with suppress(MoneyError):  # no currency of so many decimals can state it
            if minor := from_major(number, code).minor:
                amounts[exponent] = minor
    return tuple(currencies), amounts or None


MAX_HITS: Final = 1_000
"""Orders found at most; each is folded."""

MAX_LINES: Final = 20
"""Imported lines shown where nothing else is found."""

READ_FOR_PHONE: Final = 5
"""Deliveries read for the masked phone of one hit."""

NATIONAL: Final = (
    "If this is a phone number, write it with its country, such as +254 700 000 001: no source "
    "and no setting says which country a number without one is of."
)


@dataclass(slots=True, kw_only=True)
class FoundOrders:
    """Result of a search.

    looked_for  the meanings that were looked for, one sentence each
    hits        one document for each order, the surest first
    more        whether there are more than were asked for
    notes       further things that a person should know, one sentence each
    """

    looked_for: list[str]
    hits: list[dict[str, Any]] = field(default_factory=list)
    more: bool = False
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "looked_for": self.looked_for,
            "hits": self.hits,
            "more": self.more,
            "notes": self.notes,
        }


async def orders_beginning(context: AppContext, text: str, *, limit: int) -> list[str]:
    """Return references that begin with a text, sorted; none where it may be a phone number."""
    if fault_of(text) is not None or looks_like_a_phone(text):
        return []
    async with context.database.reading() as connection:
        return await search_store.orders_named(connection, text, beginning=True, limit=limit)


async def find_orders(
    context: AppContext, text: str, *, limit: int, refused: bool = True
) -> FoundOrders:
    """Find orders by a text. Raises UsageError where it can mean nothing.

    refused  whether the reader may see refused deliveries, which are named where nothing is found
    """
    countries = [
        context.settings.phone_country or None,
        *(source.profile.customer.country for source in context.sources.values()),
    ]
    known = [each for each in countries if each is not None]
    sought = understood(text, countries=known, zone=context.calendar_zone)  # 1
    found = FoundOrders(looked_for=sought.sentences())
    if sought.national:
        found.notes.append(NATIONAL)
    hits: dict[str, str] = {}
    async with context.database.reading() as connection:
        async for order, how in _Look(context, connection, sought, limit, found.notes).all():  # 2
            if order not in hits and len(hits) == limit:
                found.more = True
                break
            hits.setdefault(order, how)
        histories = await as_judged(connection, hits, policy=context.policy)
        facts = await facts_of_orders(connection, hits)
        for order, how in hits.items():  # 3
            history = histories[order]
            instant = history.instant_at(context.clock.now())
            ledger = fold(history, policy=context.policy, as_of=instant)
            phones = await phones_of(
                connection, order, sources=context.sources, most=READ_FOR_PHONE
            )
            shown = {"phone": ", ".join(map(masked_phone, phones)) or None, "found": how}
            found.hits.append(ledger_summary(ledger) | facts[order].document() | shown)
    if refused and not found.hits and sought.name is not None:
        ids = [each.delivery_id for each in await refused_that_may_be_of(context, {sought.name})]
        if ids:
            count = counted(len(ids), "refused delivery", "refused deliveries")
            found.notes.append(
                f"Nothing was received of it, but {count} may be about it; they count for nothing: "
                f"`tallyhook deliveries show {ids[0]}` says why one was refused "
                f"({', '.join(ids[:3])})."
            )
    return found


class _Look:
    """One search on one snapshot. `all` gives orders, some repeatedly, and how each was found."""

    def __init__(
        self,
        context: AppContext,
        connection: Connection,
        sought: Sought,
        limit: int,
        notes: list[str],
    ) -> None:
        self._context = context
        self._connection = connection
        self._sought = sought
        self._enough = limit + 1
        self._notes = notes

    async def all(self) -> AsyncIterator[tuple[str, str]]:
        for look in (self._by_name, self._by_phone, self._by_day, self._by_amount):
            async for each in look():
                yield each

    async def _by_name(self) -> AsyncIterator[tuple[str, str]]:
        name, found = self._sought.name, False
        if name is None:
            return
        async for each in self._named(name):
            found = True
            yield each
        # References keep their case, and people do not; Shopify's begin with a sign, #1042, that
        # nobody says.
        signed = name[1:] if name.startswith("#") else f"#{name}"
        others = [] if found else sorted({name.upper(), name.lower(), signed} - {name, ""})
        for other in others:
            async for order, how in self._named(other):
                found = True
                yield order, f"{how}, written {other}"
        if found:
            return
        alike = await search_store.orders_alike(self._connection, name, limit=self._enough)
        for order in alike:
            yield order, f"this is its reference, written {order}"
        if alike:
            return
        lines = await search_store.lines_named(self._connection, name, limit=MAX_LINES)
        orders = {each.order for each in lines if each.order is not None}
        known = {mark.order for mark in await marks_of(self._connection, sorted(orders))}
        for line in lines:
            if line.order in known:
                whose = f"a statement of {line.source}" if line.source else "the order book"
                yield line.order, f"{whose} names it, written {line.order}"
            else:
                self._notes.append(_nothing_received(line))

    async def _named(self, name: str) -> AsyncIterator[tuple[str, str]]:
        connection = self._connection
        for order in await search_store.orders_named(connection, name, beginning=False, limit=1):
            yield order, "this is its reference"
        for order, kind, source in await search_store.orders_linked(connection, name):
            yield order, f"this is a {kind} of it, at {source}"
        for owner, kind in await search_store.orders_of_event(connection, name, limit=self._enough):
            if owner is None:
                self._notes.append(f"The {kind} {name} is stored, and belongs to no order yet.")
            else:
                yield owner, f"this is the id of one {kind} of it"
        limit = self._enough
        for order in await search_store.orders_named(connection, name, beginning=True, limit=limit):
            yield order, "its reference begins with this"

    async def _by_phone(self) -> AsyncIterator[tuple[str, str]]:
        key = self._context.phone_key
        if not self._sought.phones or key is None:
            return
        for digits in self._sought.phones:
            digest = key.digest(digits)
            orders = await orders_by_phone(self._connection, digest, limit=self._enough)
            for order in orders:
                yield order, f"its customer's phone is {masked_phone(digits)}"
            deliveries = [] if orders else await deliveries_by_phone(self._connection, digest)
            if deliveries:
                count = counted(len(deliveries), "delivery", "deliveries")
                self._notes.append(
                    f"Of this number came {count} that no order has: `tallyhook deliveries show "
                    f"{max(deliveries)}` shows the newest; the shop can say whose it is, with "
                    "`references` in PUT /api/v1/orders/REF."
                )
            named = await search_store.references_in_books(
                self._connection, digits, limit=self._enough
            )
            known = {mark.order for mark in await marks_of(self._connection, named)}
            self._notes += [
                f"The order book's line {each} names this number; no order of that reference is "
                "known."
                for each in named
                if each not in known
            ]
            for reference in filter(known.__contains__, named):
                yield reference, f"its line in the order book names {masked_phone(digits)}"
        if await has_other_keys(self._connection, key.name):
            self._notes.append(
                "Some phone numbers were noted with another key and are not found: put that key's "
                "file back, or run `tallyhook reindex` while the service is stopped."
            )

    async def _by_day(self) -> AsyncIterator[tuple[str, str]]:
        minors = set((self._sought.amounts or {}).values())
        for day in self._sought.days.values():
            async for part in search_store.events_of_day(self._connection, *day, minors=minors):
                for event in part:
                    money = self._stated(event.money) or self._stated(event.order_money)
                    if event.order is not None and (money is not None or not minors):
                        yield event.order, _event_sentence(event, money)

    async def _by_amount(self) -> AsyncIterator[tuple[str, str]]:
        sought = self._sought
        if sought.amounts is None or sought.days:
            return
        minors = set(sought.amounts.values())
        async for part, left in search_store.events_of_amount(self._connection, minors):
            for event in part:
                money = self._stated(event.money) or self._stated(event.order_money)
                if event.order is not None and money is not None:
                    yield event.order, _event_sentence(event, money)
            if left:
                self._notes.append(
                    f"Only the newest {search_store.MOST:,} events were looked through for the "
                    "amount: add the day, such as 1500.00 2026-11-20."
                )
        for order, money in await search_store.records_of_amount(
            self._connection, minors, limit=MAX_HITS
        ):
            if self._stated(money):
                yield order, f"the shop asked {money} for it"

    def _stated(self, money: Money | None) -> Money | None:
        """Return the money where it is the amount that is sought."""
        if money is None or (
            self._sought.currencies and money.currency not in self._sought.currencies
        ):
            return None
        wanted = (self._sought.amounts or {}).get(exponent_of(money.currency))
        return money if money.minor == wanted else None


def _nothing_received(line: search_store.ImportedLine) -> str:
    """Say what a line that no order has says, and what support can do."""
    if not line.source:
        status = f", {line.what}" if line.what else ""
        return f"The order book has {line.order}, {line.money}{status}; no event names it so."
    order = f" of {line.order}" if line.order else ""
    payment = f" {line.payment}" if line.payment else ""
    return (
        f"A statement of {line.source} has the {line.what}{payment}{order}, {line.money}, and no "
        "order here has it: ask the provider to send its event again. `tallyhook breaks list` has "
        "the difference after a run."
    )


def _event_sentence(event: search_store.FoundEvent, money: Money | None) -> str:
    at = format_instant(event.received_at)
    what = "" if money is None else f" states {money}, and"
    return f"its event {event.event_id}{what} was received at {at}"
