"""report.html: the dispute letter, two printed pages of what was ordered, paid and known when.

Leaves out whatever would not fit: a letter of thousands of deliveries is as long as any other, and
says which file has the rest. Every bundle of an order and instant has the same letter.

Its moments are in the merchant's zone, and times.json says how far that was from UTC at each. So
rendering the page again gives the same bytes, whatever is known of zones there. A bundle of a
merchant whose zone is UTC has no such file.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from app.core.pages import page
from app.core.zones import local_text, wall_clock
from app.providers.schemes import TOKENS
from reconcile.instants import Instant, format_duration, format_instant, moment_of, parse_instant
from reconcile.ledger.correlate import Heard
from reconcile.ledger.explain import explain, finding_text
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import plain_answer
from reconcile.ledger.records import WITHDRAWN, Record
from reconcile.ledger.unheard import NOTHING, Unheard
from reconcile.money import Money

# --- the merchant's zone --------------------------------------------------------------------------

TIMES: Final = "times.json"

Offset = tuple[timedelta, str]
"""How far a zone's clocks are from UTC, and what it is called then."""


class LetterZone(tzinfo):
    """A zone that notes what it was asked, or knows that from a bundle."""

    def __init__(
        self, name: str, zone: tzinfo | None, known: Mapping[datetime, Offset] | None = None
    ) -> None:
        """Take the real zone, or None: then `known` has each span's offset by its first moment in
        UTC."""
        self._name, self._zone = name, zone
        self._known = dict(sorted((known or {}).items()))
        self._begins = list(self._known)

    def fromutc(self, moment: datetime) -> datetime:
        """Return the moment as the zone's clocks show it, with its offset then."""
        plain = moment.replace(tzinfo=None)
        begins = plain
        if self._zone is None:
            begins = self._begins[max(0, bisect_right(self._begins, plain) - 1)]
        else:
            local = plain.replace(tzinfo=UTC)
            with suppress(OverflowError):  # the ends of the calendar, where it has no such time
                local = local.astimezone(self._zone)
            self._known[plain] = (local.utcoffset() or timedelta(), local.tzname() or self._name)
        offset, called = self._known[begins]
        return (plain + offset).replace(tzinfo=timezone(offset, called))

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return None: a local time alone does not tell."""
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Return None: not known."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """Return the zone's own name."""
        return self._name

    def document(self) -> dict[str, Any]:
        """Return times.json, once the page is made."""
        spans: list[list[Any]] = []
        for moment, (offset, called) in sorted(self._known.items()):
            offset_and_name = [int(offset.total_seconds()), called]
            if not spans or spans[-1][1:] != offset_and_name:
                spans.append([f"{moment.isoformat()}Z", *offset_and_name])
        return {"zone": self._name, "from_utc_s": spans}

    def words(self) -> str:
        """Say which zone it is, and what its names mean, once the page is made."""
        called = dict.fromkeys(
            f"{name} is {timezone(offset)}" for _, (offset, name) in sorted(self._known.items())
        )
        return f"Times are those of {self._name}: {', '.join(called)}."


def letter_zone(zone: tzinfo | None) -> LetterZone | None:
    """Return the zone of a bundle that is built; None where it is UTC."""
    return None if zone in (None, UTC) or str(zone) == "UTC" else LetterZone(str(zone), zone)


def zone_in(document: Mapping[str, Any]) -> LetterZone:
    """Return the zone of a bundle that is verified. Raise ValueError and LookupError for what is
    none."""
    known = {
        moment_of(parse_instant(begins)).replace(tzinfo=None): (timedelta(seconds=seconds), called)
        for begins, seconds, called in document["from_utc_s"]
    }
    if not known:
        raise ValueError("times.json knows no moment")
    return LetterZone(document["zone"], None, known)


class Times:
    """Writes moments of one page: in the zone, each with its name, or in UTC."""

    def __init__(self, zone: LetterZone | None) -> None:
        self._zone = zone

    def at(self, instant: Instant) -> str:
        """Write one moment exactly."""
        if self._zone is None:
            return format_instant(instant)
        called = moment_of(instant).astimezone(self._zone).tzname()
        return f"{self.clock(instant).replace('T', ' ').removesuffix('Z')} {called}"

    def clock(self, instant: Instant) -> str:
        """Write a moment as the zone's clocks show it, in the form of RFC 3339."""
        return format_instant(instant if self._zone is None else wall_clock(instant, self._zone))

    def text(self, sentence: str) -> str:
        """Write the moments of a sentence so."""
        return sentence if self._zone is None else local_text(sentence, self._zone, named=True)

    def words(self) -> str:
        """Say which zone it is; to be asked last."""
        return "Times are UTC." if self._zone is None else self._zone.words()


# --- the page -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterArrival:
    """One delivery: when it came, and how its signature was checked again.

    key     fingerprint of the key that made it; None where none was found
    public  whether that is a public key
    """

    source: str
    received_at: Instant
    key: str | None
    scheme: str | None
    public: bool
    signed_at: Instant | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOutcome:
    """A revision: what was published to the shop's systems, and when."""

    at: Instant
    outcome: str
    fulfillable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """What a letter has beside the ledger. It is made of an order when a bundle is built, and of
    the bundle's own files when one is verified: both must give the same letter.

    history     as the bundle has it
    checkpoint  the signed head that the proofs lead to; empty where nothing was sealed yet
    sealed      entries of the log that are about the order; unsealed: those still to be
    key         the name of the key that signs the bundle
    zone        in which times are written; None: UTC
    unheard     what may be about the order and is not in the history
    """

    history: History
    revisions: tuple[PublishedOutcome, ...]
    arrivals: tuple[LetterArrival, ...]
    checkpoint: str
    sealed: int
    unsealed: int
    key: str
    zone: LetterZone | None = None
    unheard: Unheard = NOTHING


STAMP: Final = "SANDBOX"
"""What stands on everything that was made in a sandbox: no money moved there."""

OF_SANDBOX: Final = "tallyhook.sandbox/"
"""How the name of a sandbox's log begins."""

WIDTH: Final = 680
"""Width of the drawing in CSS pixels: an A4 page between its margins."""

LEFT: Final = 92
"""Left edge of the first column: the lanes' names stand before it."""

HAPPENED, REACHED = 66, 134
"""Heights of the two lanes."""

MAX_COLUMNS: Final = 13
"""Moments that are drawn: with more, their times would run into each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One event: when it is said to have happened, and when it first reached us."""

    number: int
    at: Instant
    received_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterColumn:
    """One moment. `gap` says how long it is since the one before; `day` where a new one begins."""

    x: int
    time: str
    day: str
    gap: str
    gap_x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEvent:
    """One event: where it happened, where it reached us, and how far its number is set off."""

    number: int
    happened_x: int
    reached_x: int
    set_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The whole timeline."""

    columns: tuple[LetterColumn, ...]
    marks: tuple[DrawnEvent, ...]
    width: int = WIDTH
    left: int = LEFT
    happened: int = HAPPENED
    reached: int = REACHED


IN_UTC: Final = Times(None)


def drawing(spoken: Sequence[Spoken], times: Times = IN_UTC) -> Drawing:
    """Draw the last events, as many as MAX_COLUMNS lets stand beside each other."""
    drawn = list(spoken[-MAX_COLUMNS:])
    while len(moments := sorted({at for e in drawn for at in (e.at, e.received_at)})) > MAX_COLUMNS:
        del drawn[0]
    step = (WIDTH - LEFT - 44) // max(len(moments) - 1, 1)
    place = {moment: LEFT + 14 + min(step, 160) * n for n, moment in enumerate(moments)}
    columns = []
    before: Instant | None = None
    for moment in moments:
        day, _, time = times.clock(moment).rstrip("Z").partition("T")
        same = before is not None and times.clock(before).startswith(day)
        columns.append(
            LetterColumn(
                x=place[moment],
                time=time.partition(".")[0],
                day="" if same else day,
                gap="" if before is None else format_duration(moment - before),
                gap_x=0 if before is None else (place[before] + place[moment]) // 2,
            )
        )
        before = moment
    marks = []
    seen: dict[Instant, int] = {}  # numbers of events that share a moment stand above each other
    for each in drawn:
        marks.append(
            DrawnEvent(
                number=each.number,
                happened_x=place[each.at],
                reached_x=place[each.received_at],
                set_off=seen.get(each.at, 0) * 13,
            )
        )
        seen[each.at] = seen.get(each.at, 0) + 1
    return Drawing(columns=tuple(columns), marks=tuple(marks))


ROWS: Final[Mapping[str, int]] = {
    "explanation": 10,
    "events": 8,
    "entries": 6,
    "records": 6,
    "revisions": 5,
    "keys": 4,
}
"""How many of each the letter has room for on two pages."""

WORDS: Final[Mapping[str, str]] = {
    "order_placed": "The order was placed",
    "order_canceled": "The shop canceled the order",
    "order_not_canceled": "The shop said that the order was not canceled",
    "order_fulfilled": "The shop fulfilled the order",
    "order_not_fulfilled": "The shop said that the order was not fulfilled",
    "session_requested": "The shop asked the payment service for a session",
    "session_opened": "The payment service opened the session",
    "session_refused": "The payment service refused the session",
    "session_unknown": "The payment service gave no answer",
    "reference_named": "The shop named what it was paid by",
    "payment_assigned": "A person assigned a payment to the order",
    "payment_dismissed": "A person said that a payment is of no order",
    "held": "The order was held back",
    "released": "The order was released",
    "finding_accepted": "A person accepted what was found",
}

_SENTENCE: Final = 260
"""Characters of one sentence of the explanation, with its ids."""

_TEXT: Final = 120
"""Characters of one cell: references and reasons may be longer, and are whole in the data."""


def letter(ledger: Ledger, facts: LetterFacts) -> str:
    """Return the page."""
    heard, times, arrivals = ledger.case.heard, Times(facts.zone), facts.arrivals
    unheard = facts.unheard
    remarks = {finding_text(each) for each in ledger.findings if each.severity == "info"}
    explained = sorted(explain(ledger), key=lambda each: each in remarks)  # remarks come last
    records = sorted(facts.history.records, key=lambda each: (each.recorded_at, each.record_id))
    placed_at = ledger.case.filed.placed_at
    dated = [r for r in records if r.order == ledger.order and r.dated and r.at == placed_at]
    first = next(iter(dated), None)  # the order was placed once, however often the shop said so
    keys = {
        f"{each.source}: {'public key' if each.public else 'shared secret'} {each.key} "
        f"({each.scheme})"
        for each in arrivals
        if each.key is not None
    }
    log = None  # nothing was sealed yet
    if facts.checkpoint:
        origin, size, head = facts.checkpoint.split("\n")[:3]
        log = {
            "origin": origin,
            "size": size,
            "head": head,
            "count": facts.sealed,
            "unsealed": facts.unsealed,
        }
    rows: dict[str, Sequence[Any]] = {
        "explanation": [_cut(times.text(each), _SENTENCE) for each in explained],
        "events": [_event(n, each, times) for n, each in enumerate(heard, 1)],
        "entries": [
            {
                "at": times.at(each.at),
                "kind": each.kind.replace("_", " "),
                "money": str(each.money),
                "cites": _cut(", ".join(each.cites), 80),
            }
            for each in ledger.entries
        ],
        "records": [_record(each, ledger.order, times, first=each is first) for each in records],
        "revisions": [
            {
                "at": times.at(each.at),
                "outcome": each.outcome.replace("_", " "),
                "ship": "may be shipped" if each.fulfillable else "not to be shipped",
            }
            for each in facts.revisions
        ],
    }
    values = {
        "order": _cut(ledger.order),
        "as_of": times.at(ledger.as_of),
        "outcome": ledger.outcome.replace("_", " "),
        "fulfillable": ledger.fulfillable,
        "plain": [times.text(each) for each in plain_answer(ledger, unheard=unheard)],
        "money": _money(ledger, unheard),
        "unheard": unheard_sentences(unheard, times),
        "unread": len(unheard.messages),
        "refusing": unheard.may_lack,
        **{name: list(each[-ROWS[name] :]) for name, each in rows.items()},
        "explanation": rows["explanation"][: ROWS["explanation"]],
        "timeline": drawing(
            [Spoken(number=n, at=e.at, received_at=e.first) for n, e in enumerate(heard, 1)], times
        ),
        "arrivals": _arrivals(arrivals, times),
        "keys": sorted(keys)[: ROWS["keys"]],
        "log": log,
        "stamp": STAMP if facts.checkpoint.startswith(OF_SANDBOX) else "",
        "key": facts.key,
        "more_of": {name: max(0, len(each) - ROWS[name]) for name, each in rows.items()},
    }
    return page("evidence.html", {**values, "zone": times.words()})


def _cut(text: str, limit: int = _TEXT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def unheard_sentences(unheard: Unheard, times: Times) -> list[str]:
    """Return what may be about the order and is in no event, and when its sources were heard."""
    said = []
    for each in unheard.messages:
        about = "it names this order or its payment"
        if not each.names_order:
            about = "no value in it can be read, so it may be about any order"
        said.append(
            f"A message of {each.source}, received at {times.at(each.received_at)}, cannot be read "
            f"({each.problem}): {about}. [{each.delivery}]"
        )
    said += [
        f"A payment of {each.amount}, received at {times.at(each.received_at)}, names no order, "
        f"and its payer has this customer's number: it may be for this order. [{each.id}]"
        for each in unheard.payments
    ]
    if unheard.not_kept:
        said.append(
            f"{unheard.not_kept:,} requests that nobody signs were not kept in this order's time: "
            "genuine ones may be among them, and anyone can send these."
        )
    for source in unheard.sources:
        if source.refusing_since is not None:
            said.append(
                f"Every message to {source.source} has been refused since "
                f"{times.at(source.refusing_since)} ({source.refused}): genuine ones may be among "
                "them, and anyone can send these."
            )
        if source.last_read_at is None:
            said.append(f"{source.source} has delivered nothing yet that was read.")
        else:
            at = times.at(source.last_read_at)
            said.append(f"{source.source} last delivered a message that was read at {at}.")
    return said


def price_rows(ledger: Ledger, *, price: str, due: str) -> list[tuple[str, str]]:
    """Return the price, and what of it payment services were not due.

    price, due  words for the whole price, and for what is due of it
    """
    placed, expected = ledger.case.filed.placed, ledger.expected
    tenders = () if placed is None else placed.tenders
    less = [(f"Paid by {each.kind.replace('_', ' ')}", str(each.money)) for each in tenders]
    if ledger.discount is not None:
        less.append(("Discount at the payment service", str(ledger.discount)))
    if expected is None or not less:
        return [(price, "not known" if expected is None else str(expected))]
    off = [] if ledger.discount is None else [ledger.discount.minor]
    minor = sum([expected.minor, *off, *[each.money.minor for each in tenders]])
    whole = Money(minor=minor, currency=expected.currency)
    return [(price, str(whole)), *less, (due, str(expected))]


def _money(ledger: Ledger, unheard: Unheard = NOTHING) -> list[tuple[str, str]]:
    """Return what was ordered and paid, in words and amounts."""
    rows = price_rows(ledger, price="Ordered", due="Due at payment services")
    for balance in ledger.balances:
        currency, left = balance.currency, balance.captured - balance.returned
        rows += [
            ("Paid", str(Money(minor=balance.captured, currency=currency))),
            ("Given back", str(Money(minor=balance.refunded, currency=currency))),
        ]
        others = (("Reversed", balance.reversed), ("Lost in disputes", balance.lost))
        rows += [(w, str(Money(minor=minor, currency=currency))) for w, minor in others if minor]
        rows.append(("Left with the shop", str(Money(minor=left, currency=currency))))
    rows += [(f"Of it on top of the price, {p.kind}", str(p.money)) for p in ledger.on_top]
    heard = not (unheard.messages or unheard.may_lack or unheard.payments)
    paid = "nothing" if heard else "not known"
    return rows if ledger.balances else [*rows, ("Paid", paid)]


def _event(number: int, heard: Heard, times: Times) -> dict[str, Any]:
    event, delay = heard.event, heard.first - heard.at
    return {
        "number": number,
        "said": "no date given" if event.occurred_at is None else times.at(heard.at),
        "received": times.at(heard.first),
        "delay": "" if delay <= 0 else f"after {format_duration(delay)}",
        "kind": _cut(event.kind),
        "money": "" if event.money is None else str(event.money),
        "id": _cut(event.event_id, 40),
        "count": heard.count,
    }


def _record(record: Record, order: str, times: Times, *, first: bool) -> dict[str, str]:
    """Return a row. `first`: it says when the order was placed; other prices are the shop's word,
    of the day on which it told us."""
    price = record.kind == "order_placed" and not first
    parts = ["The shop stated the price" if price else WORDS[record.kind]]
    if record.kind == "payment_assigned" and record.reason == WITHDRAWN:
        parts = ["A person withdrew the assignment of a payment"]
    parts += [f"of another order, {record.order}"] if record.order != order else []
    parts += [str(record.money)] if record.money is not None else []
    parts += [f"session {record.session}"] if record.session is not None else []
    parts += [f"payment {record.payment}"] if record.payment is not None else []
    parts += [f"idempotency key {record.key}"] if record.key is not None else []
    parts += [f"until {times.at(record.expires_at)}"] if record.expires_at is not None else []
    parts += [f"stated by {record.author}"] if record.author is not None else []
    parts += [f"{each.money} of it by {each.kind.replace('_', ' ')}" for each in record.tenders]
    at = record.recorded_at if price else record.at
    return {"at": times.at(at), "what": _cut(", ".join(parts)), "id": record.record_id}


def _arrivals(arrivals: Sequence[LetterArrival], times: Times) -> dict[str, Any]:
    came = [each.received_at for each in arrivals]
    # Requests that brought the secret itself, and no signature.
    brought = sum(each.key is not None and each.scheme in TOKENS for each in arrivals)
    ages = [each.received_at - each.signed_at for each in arrivals if each.signed_at is not None]
    return {
        "count": len(came),
        "first": times.at(min(came)) if came else "",
        "last": times.at(max(came)) if came else "",
        "checked": sum(each.key is not None for each in arrivals) - brought,
        "brought": brought,
        "ages": format_duration(max(ages)) if ages else "",
    }
