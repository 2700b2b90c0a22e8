"""The letter in an evidence bundle, `report.html`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.core.pages import letters
from app.core.text import counted
from app.evidence.letter_times import IN_UTC, LetterZone, Times
from app.providers.schemes import TOKENS
from reconcile.instants import Instant, format_duration
from reconcile.ledger.correlate import Heard
from reconcile.ledger.explain import explain, finding_text
from reconcile.ledger.grouping import grouped
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import plain_answer
from reconcile.ledger.records import WITHDRAWN, Record
from reconcile.ledger.unheard import NOTHING, Unheard
from reconcile.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterArrival:
    """First delivery of an event, with the verifying key's fingerprint."""

    source: str
    received_at: Instant
    key: str | None
    scheme: str | None
    public: bool
    signed_at: Instant | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOutcome:
    """Revision that was published to the shop's systems, as the letter quotes it."""

    at: Instant
    outcome: str
    fulfillable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """Facts for the letter that are not in the ledger."""

    history: History
    revisions: tuple[PublishedOutcome, ...]
    """Revisions that the shop's systems received."""
    arrivals: tuple[LetterArrival, ...]
    checkpoint: str
    """Signed head of the log. Empty if nothing is sealed yet."""
    sealed: int
    unsealed: int
    key: str
    zone: LetterZone | None = None
    unheard: Unheard = NOTHING
    """Unread messages and payments without an order that may concern this order."""


STAMP: Final = "SANDBOX"

OF_SANDBOX: Final = "tallyhook.sandbox/"

WIDTH: Final = 680
"""Width of the letter's drawing in CSS pixels: an A4 page between its margins."""

LEFT: Final = 92

MAX_COLUMNS: Final = 13
"""Maximum number of moments in a drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """Event as the drawing shows it, with the times of its occurrence and of its first delivery."""

    number: int
    at: Instant
    received_at: Instant


def drawing(spoken: Sequence[Spoken], times: Times = IN_UTC) -> letters.Drawing:
    """Draw the last events, numbered, on a time axis with up to MAX_COLUMNS moments."""
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
            letters.LetterColumn(
                x=place[moment],
                time=time.partition(".")[0],
                day="" if same else day,
                gap="" if before is None else format_duration(moment - before),
                gap_x=0 if before is None else (place[before] + place[moment]) // 2,
            )
        )
        before = moment
    marks = []
    seen: dict[Instant, int] = {}  # stack the numbers of events at one moment
    for each in drawn:
        marks.append(
            letters.DrawnEvent(
                number=each.number,
                happened_x=place[each.at],
                reached_x=place[each.received_at],
                set_off=seen.get(each.at, 0) * 13,
            )
        )
        seen[each.at] = seen.get(each.at, 0) + 1
    return letters.Drawing(columns=tuple(columns), marks=tuple(marks), width=WIDTH, left=LEFT)


ROWS: Final[Mapping[str, int]] = {
    "explanation": 10,
    "events": 8,
    "entries": 6,
    "records": 6,
    "revisions": 5,
    "keys": 4,
}
"""Maximum number of rows of each table, so that the letter has two pages."""

WORDS: Final[Mapping[str, str]] = {
    "order_placed": "The order was placed",
    "order_canceled": "The shop canceled the order",
    "order_not_canceled": "The shop stated that the order was not canceled",
    "order_fulfilled": "The shop fulfilled the order",
    "order_not_fulfilled": "The shop stated that the order was not fulfilled",
    "session_requested": "The shop asked the payment service for a session",
    "session_opened": "The payment service opened the session",
    "session_refused": "The payment service refused the session",
    "session_unknown": "The payment service gave no answer",
    "reference_named": "The shop named a payment or session of the order",
    "payment_assigned": "A person assigned a payment to the order",
    "payment_dismissed": "A person stated that a payment belongs to no order",
    "held": "The order was held back",
    "released": "The order was released",
    "finding_accepted": "A person accepted a finding",
    "redated": "The date from a clock that was ahead was corrected",
}

_SENTENCE: Final = 260
"""Maximum length in characters of a sentence in the explanation, including ids."""

_TEXT: Final = 120


def bundle_letter(ledger: Ledger, facts: LetterFacts) -> str:
    """Return the letter of an evidence bundle as an HTML page."""
    times = Times(facts.zone)
    title = f"Evidence of order {_cut(ledger.order)}"
    stamp = STAMP if facts.checkpoint.startswith(OF_SANDBOX) else ""
    said = [*_answered(ledger, facts.unheard, times), *_known(ledger, facts.unheard, times)]
    said += [*_moved(ledger, facts, times), *_chain(facts, times), *_CHECKED]
    about = f"As known at {times.at(ledger.as_of)}. {times.words()} "
    about += "Ids of the evidence are in [brackets]."
    blocks: list[letters.Block] = [
        letters.Heading(title, level=1),
        letters.Paragraph(about, "quiet"),
        *said,
    ]
    return letters.html_of(letters.LetterDocument(title=title, stamp=stamp, blocks=blocks))


def _newest(
    name: str,
    rows: Sequence[Sequence[letters.Phrases]],
    file: str,
    *,
    widths: Sequence[float],
    **more: Any,
) -> list[letters.Block]:
    left = len(rows) - ROWS[name]
    note = [letters.Paragraph(f"{left} more in {file}.", "quiet")] if left > 0 else []
    table = letters.LetterTable(rows=rows[-ROWS[name] :], widths=widths, **more)
    return [table, *note] if rows else []


def _answered(ledger: Ledger, unheard: Unheard, times: Times) -> list[letters.Block]:
    remarks = {finding_text(each) for each in grouped(ledger.findings) if each.severity == "info"}
    explained = sorted(explain(ledger), key=lambda each: each in remarks)  # remarks come last
    shown = [_cut(times.text(each), _SENTENCE) for each in explained]
    left = len(shown) - ROWS["explanation"]
    plain = " ".join(times.text(each) for each in plain_answer(ledger, unheard=unheard))
    outcome = ledger.outcome.replace("_", " ")
    shipped = f"; the order {'may' if ledger.fulfillable else 'may not'} be shipped"
    money: list[tuple[str, letters.Phrases]] = [
        ("Outcome", (letters.Phrase(outcome, "strong"), letters.Phrase(shipped)))
    ]
    return [
        letters.Paragraph(plain, "strong"),
        letters.Heading("What was ordered, and what was paid"),
        letters.LetterTable(rows=[*money, *_money(ledger, unheard)], widths=(0, 1), labels=True),
        letters.Heading("What happened, and the evidence for it"),
        letters.Listing(shown[: ROWS["explanation"]]),
        *([letters.Paragraph(f"{left} more in explanation.txt.", "quiet")] if left > 0 else []),
    ]


def _known(ledger: Ledger, unheard: Unheard, times: Times) -> list[letters.Block]:
    heard, none = (
        ledger.case.heard,
        ("No message of the payment service about this order is known."),
    )
    if unheard.messages:
        none = "No message about this order could be read."
    elif unheard.refusing or unheard.not_kept:
        none = "No message about this order is known, but messages are being refused."
    elif unheard.gaps:
        none = "No message about this order is known, but messages may be lost."
    shown: list[letters.Block] = [letters.Paragraph(none)]
    if heard:
        spoken = [Spoken(number=n, at=e.at, received_at=e.first) for n, e in enumerate(heard, 1)]
        rows = [_event(n, each, times) for n, each in enumerate(heard, 1)]
        head = ("", "Happened, as stated", "Reached us", "Message", "Event")
        widths = (0, 0, 1, 1, 1)
        table = _newest("events", rows, "ledger.json, before these", widths=widths, head=head)
        shown = [drawing(spoken, times), *table]
    quiet = [(letters.Phrase(each, "quiet"),) for each in unheard_sentences(unheard, times)]
    return [letters.Heading("When we knew"), *shown, letters.Listing(quiet)]


def _moved(ledger: Ledger, facts: LetterFacts, times: Times) -> list[letters.Block]:
    entries = [
        (
            times.at(each.at),
            each.kind.replace("_", " "),
            str(each.money),
            _cut(", ".join(each.cites), 80),
        )
        for each in ledger.entries
    ]
    records = sorted(facts.history.records, key=lambda each: (each.recorded_at, each.record_id))
    placed_at = ledger.case.filed.placed_at
    dated = [r for r in records if r.order == ledger.order and r.dated and r.at == placed_at]
    first = next(iter(dated), None)  # the order was placed once, even if the shop repeats it
    done = [_record(each, ledger.order, times, first=each is first) for each in records]
    published = [
        (
            times.at(each.at),
            f"{each.outcome.replace('_', ' ')}, "
            f"{'may be shipped' if each.fulfillable else 'not to be shipped'}",
        )
        for each in facts.revisions
    ]
    head = ("When", "What", "Amount", "Evidence")
    tables = {
        "Money that moved": _newest(
            "entries", entries, "ledger.json, before these", widths=(0, 1, 0, 1.5), head=head,
            numbers=(2,),
        ),
        "What the shop did": _newest(
            "records", done, "history.json, before these", widths=(0, 1.5, 1)
        ),
        "What was published to its systems": _newest(
            "revisions", published, "revisions.json, before these", widths=(0, 1)
        ),
    }  # fmt: skip
    return [
        each for name, table in tables.items() if table for each in (letters.Heading(name), *table)
    ]


def _chain(facts: LetterFacts, times: Times) -> list[letters.Block]:
    unread = len(facts.unheard.messages)
    arrived: list[letters.Phrases] = ["No request of the payment service about this order arrived."]
    if facts.arrivals:
        came = [each.received_at for each in facts.history.as_stored().deliveries]
        arrived = _arrivals(facts.arrivals, came, times)
    elif unread:
        requests = counted(unread, "request")
        arrived = [f"{requests} from the payment service arrived but cannot be read."]
    elif facts.unheard.gaps:
        arrived = ["Requests of the payment service may be lost: see “When we knew”."]
    elif facts.unheard.may_lack:
        arrived = [
            "Requests arrived but were refused: nothing proves that the payment service sent them."
        ]
    sealed: letters.Phrases = "This evidence is not sealed in the shop's log yet."
    if facts.checkpoint:
        origin, size, head = facts.checkpoint.split("\n")[:3]
        late = f" {facts.unsealed} newer parts are not sealed yet." if facts.unsealed else ""
        here = counted(facts.sealed, "entry", "entries")
        led = f"log.json has {here} of the log {origin}; each has a proof that leads to the signed "
        led += f"head of {counted(int(size), 'entry', 'entries')}, "
        sealed = (letters.Phrase(led), letters.Phrase(head, "code"), letters.Phrase(f".{late}"))
    verified = (
        letters.Phrase("The conclusion follows from this bundle alone: "),
        letters.Phrase("tallyhook evidence verify", "code"),
        letters.Phrase(" derives it from history.json again and compares it with ledger.json."),
    )
    signed = (
        "manifest.json states the digest of every file, including this one, and is signed with the "
    )
    listed = [*arrived, sealed, verified, f"{signed}key {facts.key}."]
    return [letters.Heading("The chain of evidence"), letters.Listing(listed, ordered=True)]


_CHECKED: Final[tuple[letters.Block, ...]] = (
    letters.Heading("How to check it"),
    letters.Listing(
        (
            "Ask the shop for its evidence key through another channel, and compare it with "
            "evidence-key.pub.",
            (
                letters.Phrase("The signature: "),
                letters.Phrase("minisign -V -p evidence-key.pub -m manifest.json", "code"),
            ),
            (
                letters.Phrase("The files and the proofs: "),
                letters.Phrase("python3 -I verify.py bundle.zip", "code"),
                letters.Phrase(", or by hand as README.txt shows."),
            ),
            "The payment service can check its own signatures with its secret: delivery-ID.json "
            "states how each was made. This needs a full bundle, because a redacted one has only "
            "digests.",
        ),
        ordered=True,
    ),
    letters.Heading("What it does not prove"),
    letters.Paragraph(
        "Times of arrival come from the shop's clock. The shop and the payment service share a "
        "secret, so a signature with it shows that one of the two wrote a message, but not "
        "which. The first lines of the output of step 3 list everything else for which there is "
        "only the word of the bundle's maker."
    ),
)


def _cut(text: str, limit: int = _TEXT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def unheard_sentences(unheard: Unheard, times: Times) -> list[str]:
    """Return sentences on missing messages and last deliveries."""
    said = []
    for each in unheard.messages:
        about = "it names this order or its payment"
        if not each.names_order:
            about = "no value in it is readable, so it may be about any order"
        said.append(
            f"A message of {each.source}, received at {times.at(each.received_at)}, cannot be read "
            f"({each.problem}): {about}. [{each.delivery}]"
        )
    said += [
        f"A payment of {each.amount}, received at {times.at(each.received_at)}, names no order, "
        f"but its payer has this customer's phone number: it may be for this order. [{each.id}]"
        for each in unheard.payments
    ]
    if unheard.not_kept:
        said.append(
            f"{counted(unheard.not_kept, 'unsigned request was', 'unsigned requests were')} not "
            "stored during this order's time: anyone can send such requests, but genuine ones may "
            "be among them."
        )
    said += [
        f"Messages between {times.at(each.since)} and {times.at(each.until)} may be lost: the "
        f"shop accepted this gap. [{each.gap}]"
        for each in unheard.gaps
    ]
    for source in unheard.sources:
        if source.refusing_since is not None:
            said.append(
                f"Every message to {source.source} has been refused since "
                f"{times.at(source.refusing_since)} ({source.refused}): anyone can send such "
                "messages, but genuine ones may be among them."
            )
        if source.last_read_at is None:
            said.append(f"{source.source} has delivered no readable message yet.")
        else:
            at = times.at(source.last_read_at)
            said.append(f"{source.source} last delivered a readable message at {at}.")
    return said


def price_rows(ledger: Ledger, *, price: str, due: str) -> list[tuple[str, str]]:
    """Return table rows for the order's price, tenders and discount."""
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
    rows += [(f"Of this, paid on top of the price: {p.kind}", str(p.money)) for p in ledger.on_top]
    heard = not (unheard.messages or unheard.may_lack or unheard.payments)
    paid = "nothing" if heard else "not known"
    return rows if ledger.balances else [*rows, ("Paid", paid)]


def _event(number: int, heard: Heard, times: Times) -> tuple[letters.Phrases, ...]:
    event, delay = heard.event, heard.first - heard.at
    received = times.at(heard.first)
    received += "" if delay <= 0 else f", after {format_duration(delay)}"
    received += f"; {heard.count} times" if heard.count > 1 else ""
    return (
        (letters.Phrase(str(number), "strong"),),
        "no date given" if event.occurred_at is None else times.at(heard.at),
        received,
        _cut(event.kind) + ("" if event.money is None else f", {event.money}"),
        _cut(event.event_id, 40),
    )


def _record(record: Record, order: str, times: Times, *, first: bool) -> tuple[str, str, str]:
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
    parts += [f"{each.money} paid by {each.kind.replace('_', ' ')}" for each in record.tenders]
    at = record.recorded_at if price else record.at
    return times.at(at), _cut(", ".join(parts)), record.record_id


def _arrivals(
    arrivals: Sequence[LetterArrival], came: Sequence[Instant], times: Times
) -> list[letters.Phrases]:
    one, first, last = len(came) == 1, times.at(min(came)), times.at(max(came))
    when = f"at {first}" if first == last else f"from {first} to {last}"
    kept = f"{counted(len(came), 'request')} of the payment service arrived, {when}. "
    kept += (
        f"{'It' if one else 'Each'} was verified over its raw bytes, according to its source's "
        "profile, "
    )
    kept += "before it was parsed, and was stored durably before it was acknowledged."
    if repeated := len(came) - len(arrivals):
        kept += f" {repeated:,} of them repeated earlier requests: they count only once, and "
        kept += "only log.json lists them."
    ages = [each.received_at - each.signed_at for each in arrivals if each.signed_at is not None]
    if ages:
        kept += f" The oldest signature was {format_duration(max(ages))} old when it arrived."
    # Requests that carried the secret itself instead of a signature.
    brought = sum(each.key is not None and each.scheme in TOKENS for each in arrivals)
    checked = sum(each.key is not None for each in arrivals) - brought
    again = f"The signatures of {checked} of them were checked again for this letter"
    if brought:
        said = f"{'It' if one else f'{brought} of them'} contained the secret that the payment "
        said += "service shares with the shop: this shows who sent the request, but not that its "
        said += "content was unchanged"
        said += f". {again}" if checked else ""
    elif one:
        said = f"Its signature was {'' if checked else 'not '}checked again for this letter"
    else:
        said = again
    keys = {
        f"{each.source}: {'public key' if each.public else 'shared secret'} {each.key} "
        f"({each.scheme})"
        for each in arrivals
        if each.key is not None
    }
    named = f", by {'; '.join(sorted(keys)[: ROWS['keys']])}" if keys else ""
    return [kept, f"{said}{named}."]
