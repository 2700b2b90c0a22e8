"""Finds the order that a customer speaks of, by whatever they know of it.

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
"""A number, with a currency's code or sign before or after it; `/=` and `/-` say that no cents
follow."""

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
"""How people write currencies beside their codes, and the currencies of which that may be meant."""

_PHONE: Final = re.compile(r"\+?[\d\s().-]{7,30}", re.ASCII)
_KINDS: Final = frozenset(EXPONENTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What a text may mean; what it cannot mean is empty or None.

    name     a reference or an id, or the beginning of an order's reference
    phones   E.164 digits
    amounts  minor units, by the number of decimals of the currencies in which they are that amount
    currencies  in which the amount is; empty: any
    days     each of the days that may be meant: when it begins, and when the one after it
    zone     whose days
    national whether it may be a phone number without its country, which nothing here states
    """

    name: str | None = None
    phones: tuple[str, ...] = ()
    amounts: dict[int, int] | None = None
    currencies: tuple[str, ...] = ()
    days: Mapping[str, tuple[Instant, Instant]] = field(default_factory=dict)
    zone: str = "UTC"
    national: bool = False

    def sentences(self) -> list[str]:
        """What is looked for, one sentence each; a phone number masked."""
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
    """What a text may mean. Raises UsageError where it can mean nothing.

    countries  calling codes of the sources' customers, for numbers written in the national way
    zone       in which days are counted
    """
    calendar = Calendar(zone)
    text = _seen(text)
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
    phones = _phones(text, countries)
    if " " in text and not currencies and _PHONE.fullmatch(text):
        amounts = None  # groups of digits as a telephone's: no amount is so long without a word
    return Sought(
        name=text,
        phones=phones,
        amounts=amounts,
        currencies=currencies,
        national=not phones and text.startswith(("0", "(0")) and _PHONE.fullmatch(text) is not None,
    )


def _seen(text: str) -> str:
    """Without what nobody sees and copying brings along: the marks of a direction that telephones
    put around a number, and blanks of other kinds."""
    if not text.isprintable():
        kinds = {each: category(each) for each in set(text)}
        seen = [each for each in text if kinds[each] != "Cf"]
        text = "".join(" " if kinds[each] == "Zs" else each for each in seen)
    return text.strip()


def _listed(words: Sequence[str]) -> str:
    """Some words as a sentence has them; of many the first, and that there are more."""
    shown = [*words[:3], *(["another of that sign"] if len(words) > 3 else [])]
    return " or ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _days(word: str, calendar: Calendar) -> dict[str, tuple[Instant, Instant]]:
    """The days that a word may mean: `05/11/2026` is one of November, or of May elsewhere."""
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
    """The currencies in which it may be meant, none for any, and the amount in minor units; no
    amount where it is none."""
    found = _AMOUNT.fullmatch(text)
    number = None if found is None else _number(found["number"])
    if found is None or number is None:
        return (), None
    said = [_written(each) for each in (found["before"], found["after"]) if each is not None]
    currencies = [each for each in (said or [()])[0] if all(each in other for other in said)]
    if said and not currencies:
        return (), None
    wanted = {EXPONENTS[each] for each in currencies} if said else _KINDS
    amounts = {exponent: minor for exponent in wanted if (minor := _minor(number, exponent))}
    return tuple(currencies), amounts or None


def _written(sign: str) -> tuple[str, ...]:
    """The currencies that are written so: by their code, or as people write them."""
    if sign.upper() in EXPONENTS:
        return (sign.upper(),)
    return tuple(_SIGNS.get(sign.lower(), "").split())


def _number(word: str) -> Decimal | None:
    plain = re.sub("['\u2019 ]", "", word)
    if _COMMA.fullmatch(word):
        return Decimal(plain.replace(".", "").replace(",", "."))
    return Decimal(plain.replace(",", "")) if _NUMBER.fullmatch(word) else None


def _minor(amount: Decimal, exponent: int) -> int | None:
    """None where no currency of so many decimals can state it, and for nothing at all."""
    code = next(code for code, decimals in EXPONENTS.items() if decimals == exponent)
    try:
        return from_major(amount, code).minor or None
    except MoneyError:
        return None


def _phones(text: str, countries: Iterable[str]) -> tuple[str, ...]:
    if not _PHONE.fullmatch(text):
        return ()
    found = [phone_digits(text, country) for country in (None, *sorted(set(countries)))]
    return tuple(dict.fromkeys([digits for digits in found if digits is not None]))


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
class Found:
    """What was found.

    looked_for  what the text was taken for, one sentence each
    hits        one document for each order, the surest first
    more        whether there are more than were asked for
    notes       what a person should know beside it, one sentence each
    """

    looked_for: list[str]
    hits: list[dict[str, Any]] = field(default_factory=list)
    more: bool = False
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "looked_for": self.looked_for,
            "hits": self.hits,
            "more": self.more,
            "notes": self.notes,
        }


async def orders_beginning(context: AppContext, text: str, *, limit: int) -> list[str]:
    """References that begin with a text, in their order; none for what may be a phone number."""
    if fault_of(text) is not None or looks_like_a_phone(text):
        return []
    async with context.database.reading() as connection:
        return await search_store.orders_named(connection, text, beginning=True, limit=limit)


async def find_orders(
    context: AppContext,
    text: str,
    *,
    limit: int,
    refused: bool = True,
) -> Found:
    """Orders by a text. Raises UsageError where it can mean nothing.

    refused  whether refused deliveries are shown where nothing is found: who asks may see such
    """
    countries = [
        context.settings.phone_country or None,
        *(source.profile.customer.country for source in context.sources.values()),
    ]
    known = [each for each in countries if each is not None]
    sought = understood(text, countries=known, zone=context.calendar_zone)  # 1
    found = Found(looked_for=sought.sentences())
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
        for order, how in hits.items():  # 3
            history = histories[order]
            instant = history.instant_at(context.clock.now())
            ledger = fold(history, policy=context.policy, as_of=instant)
            phones = await phones_of(
                connection, order, sources=context.sources, most=READ_FOR_PHONE
            )
            shown = {"phone": ", ".join(map(masked_phone, phones)) or None, "found": how}
            found.hits.append(ledger_summary(ledger) | shown)
    if refused and not found.hits and sought.name is not None:
        found.notes += await _refused_only(context, sought.name)
    return found


async def _refused_only(context: AppContext, name: str) -> list[str]:
    refused = await refused_that_may_be_of(context, {name})
    if not refused:
        return []
    count = counted(len(refused), "refused delivery", "refused deliveries")
    ids = ", ".join(each.delivery_id for each in refused[:3])
    return [
        f"Nothing was received of it, but {count} may be about it; they count for nothing: "
        f"`tallyhook deliveries show {refused[0].delivery_id}` says why one was refused ({ids})."
    ]


class _Look:
    """One search on one snapshot; `all` gives orders, some more than once, and how each was
    found."""

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
        if not alike:
            async for each in self._in_lines(name):
                yield each

    async def _in_lines(self, name: str) -> AsyncIterator[tuple[str, str]]:
        """What order books and statements name so; a note, where nothing was received of it."""
        lines = await search_store.lines_named(self._connection, name, limit=MAX_LINES)
        orders = {each.order for each in lines if each.order is not None}
        known = {mark.order for mark in await marks_of(self._connection, sorted(orders))}
        for each in lines:
            if each.order in known:
                yield each.order, f"{_whose(each)} names it, written {each.order}"
            else:
                self._notes.append(_nothing_received(each))

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
            if not orders:
                self._notes += _of_no_order(await deliveries_by_phone(self._connection, digest))
            for order in await self._in_books(digits):
                yield order, f"its line in the order book names {masked_phone(digits)}"
        if await has_other_keys(self._connection, key.name):
            self._notes.append(
                "Some phone numbers were noted with another key and are not found: put that key's "
                "file back, or run `tallyhook reindex` while the service is stopped."
            )

    async def _in_books(self, digits: str) -> list[str]:
        named = await search_store.references_in_books(self._connection, digits, limit=self._enough)
        known = {mark.order for mark in await marks_of(self._connection, named)}
        for reference in named:
            if reference not in known:
                self._notes.append(
                    f"The order book's line {reference} names this number; no order of that "
                    "reference is known."
                )
        return [reference for reference in named if reference in known]

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
        """The money, where it is the amount that is sought."""
        if money is None or (
            self._sought.currencies and money.currency not in self._sought.currencies
        ):
            return None
        wanted = (self._sought.amounts or {}).get(exponent_of(money.currency))
        return money if money.minor == wanted else None


def _of_no_order(deliveries: list[str]) -> list[str]:
    """What is to be done with a number's deliveries that no order has."""
    if not deliveries:
        return []
    count = counted(len(deliveries), "delivery", "deliveries")
    return [
        f"Of this number came {count} that no order has: `tallyhook deliveries show "
        f"{max(deliveries)}` shows the newest; the shop can say whose it is, with `references` in "
        "PUT /api/v1/orders/REF."
    ]


def _whose(line: search_store.ImportedLine) -> str:
    return f"a statement of {line.source}" if line.source else "the order book"


def _nothing_received(line: search_store.ImportedLine) -> str:
    """Of a line that no order has: what it says, and what support can do."""
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
