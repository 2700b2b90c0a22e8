"""Documented example payloads of each provider: their events, and what whole sequences fold to.

tests/app/providers/payloads/<profile>.jsonl, one JSON object a line, each with a `name`:

A payload    `body` (an object or a text), `headers`, `url`, `method` where they matter, `events`,
             `environment` where stated, `unstated` where it should be and is not, `source`: the
             page or test that shows this shape.
             An event has kind and claim, and event_id, standing (`said`), order, session, payment,
             movement, capture, money, order_money and refunded_total (`1500.00/KES`), states
             (`refunded:10.00/EUR`, of lists `refund:10.00/EUR:done:re_1`), parts (`tip:10.00/EUR`),
             occurred_at and reason. What is not written must be absent, but for the event_id, which
             is then not looked at.
             With `example` true the request is that of this name in app/providers/examples.
             `answer`: what the provider says when it is asked back; `answered`: that as an event;
             `question`, where stated: method and address by which it is asked.
A sequence   `fold`: names of payloads as they arrive (`NAME+answer`: it was asked back as well),
             `order`, `outcome`, and `captured`, `refunded`, `reversed`, `lost`, where money moved,
             `withheld` where a paid order must not be fulfilled all the same; `findings`, but
             for those of arrivals. `percent`: discounts accepted. `price`: the shop has placed
             the order; `session`: it has opened that session.

Before it is read a payload is signed with the secret of the profile's known answers, and verified.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.core.reading import Reading
from app.providers import profile as profile_room
from app.providers.fetched import keep_answer
from app.providers.kit import Signed
from app.providers.profile import load_profile, shipped_profiles
from app.providers.questions import Questions, credentials_of
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import HOUR, SECOND, Instant, parse_instant
from reconcile.ledger.events import Delivery, Event, State
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.money import Money, from_major, major_text
from tests.providers.builders import raw
from tests.rows import for_each, row

PAYLOADS = Path(__file__).parent / "payloads"
EXAMPLES = Path(profile_room.__file__).parent / "examples"
VECTORS = Path(__file__).parents[1] / "vectors"
ARRIVAL = parse_instant("2026-11-20T10:00:00Z")
PLACEHOLDER = "evt_example"
REPEATS = ("redelivered", "delivered_late", "out_of_order")
MOVES = ("captured", "refunded", "reversed", "lost")


def _line(profile: str, text: str) -> dict[str, Any]:
    """Parse a line, with the request of the shipped example that it names."""
    line: dict[str, Any] = json.loads(text)
    if not line.pop("example", False):
        return line
    shipped = (EXAMPLES / f"{profile}.jsonl").read_text(encoding="utf-8").splitlines()
    (example,) = [each for each in map(json.loads, shipped) if each["name"] == line["name"]]
    del example["event"]
    return {**example, **line}


LINES: dict[str, list[dict[str, Any]]] = {
    path.stem: [_line(path.stem, text) for text in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted(PAYLOADS.glob("*.jsonl"))
}


def cases(key: str) -> pytest.MarkDecorator:
    """Parametrize a test with the lines of each profile that have this key."""
    having = {name: [each for each in lines if key in each] for name, lines in LINES.items()}
    found = [(name, lines) for name, lines in having.items() if lines]
    return pytest.mark.parametrize(("profile", "lines"), found, ids=[name for name, _ in found])


@cache
def source_of(profile: str) -> Source:
    vectors = (VECTORS / f"{profile}.jsonl").read_text(encoding="utf-8").splitlines()
    valid = next(vector for vector in map(json.loads, vectors) if vector["valid"])
    secret = valid.get("secret", [])  # what is unsigned has none
    listed = [secret] if type(secret) is str else secret
    return Source(name=profile, profile=load_profile(profile), secrets=listed, strict=False)


def sent(source: Source, line: dict[str, Any]) -> Signed:
    """Sign a payload as the provider would, unless only the provider has the private key."""
    body = line["body"] if type(line["body"]) is str else json.dumps(line["body"])
    url, method = line.get("url", ""), line.get("method", "POST")
    event_id = line["events"][0].get("event_id", PLACEHOLDER)
    try:
        request = source.signed(
            body.encode(), event_id=event_id, now=ARRIVAL, method=method, url=url
        )
    except ConfigurationError:
        return Signed(list(line.get("headers", {}).items()), body.encode(), url)
    made = {name for name, _ in request.headers}
    kept = [pair for pair in line.get("headers", {}).items() if pair[0].lower() not in made]
    request = request._replace(headers=[*request.headers, *kept])
    incoming = Incoming(raw(request.headers), request.body, method, request.url)
    refusal = source.verify(incoming, now=ARRIVAL)
    assert refusal is None, refusal
    return request


def read(source: Source, line: dict[str, Any]) -> Reading:
    request = sent(source, line)
    method = line.get("method", "POST")
    incoming = Incoming(raw(request.headers), request.body, method, request.url)
    return source.read(incoming, digest=hashlib.sha256(request.body).hexdigest())


def answer_to(
    source: Source, line: dict[str, Any], asked: Event, *, dated: Instant | None = None
) -> Event:
    answer = line["answer"]
    text = answer if type(answer) is str else json.dumps(answer)
    kept = keep_answer(asked, question="GET", status=200, answer=text.encode(), dated=dated)
    return source.read_answer(kept, digest=hashlib.sha256(kept).hexdigest())


def question_about(profile: str, asked: Event) -> str:
    """Return method and address of the question about this event."""
    rule = load_profile(profile).fetch_back
    assert rule is not None
    credentials = dict.fromkeys(credentials_of(rule), "id:secret")
    questions = Questions(profile, rule, environment="live", credentials=credentials)
    question = questions.about(asked, access_token="token")
    assert question is not None
    return question.shown


def as_written(event: Event, *, with_id: bool) -> dict[str, Any]:
    """Return an event in the form of a line, without absent fields."""
    fields = {
        "kind": event.kind,
        "claim": event.claim,
        "order": event.order,
        "suggested": event.suggested,
        "agreement": event.agreement,
        "session": event.session,
        "payment": event.payment,
        "movement": event.movement,
        "capture": event.capture,
        "money": written(event.money),
        "order_money": written(event.order_money),
        "refunded_total": written(event.refunded_total),
        "states": [stated(each) for each in event.states] or None,
        "parts": [f"{p.kind}:{written(p.money)}" for p in event.parts] or None,
        "occurred_at": event.occurred_at,
        "reason": event.reason,
        "standing": None if event.standing == "said" else event.standing,
        "event_id": event.event_id if with_id else None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def stated(state: State) -> str:
    sum_of = f"{state.member}:{written(state.money)}"
    return sum_of if state.reference is None else f"{sum_of}:{state.word}:{state.reference}"


def expected(line: dict[str, Any]) -> dict[str, Any]:
    at = line.get("occurred_at")
    return line if at is None else {**line, "occurred_at": parse_instant(at)}


def written(amount: Money | None) -> str | None:
    return None if amount is None else f"{major_text(amount)}/{amount.currency}"


def priced(text: str) -> Money:
    amount, _, currency = text.partition("/")
    return from_major(amount, currency)


@cases("events")
def test_each_documented_payload_gives_its_events(
    profile: str, lines: list[dict[str, Any]]
) -> None:
    for line in lines:
        with row(line["name"]):
            reading = read(source_of(profile), line)
            events = line["events"]
            assert [
                as_written(event, with_id="event_id" in wanted)
                for event, wanted in zip(reading.events, events, strict=True)
            ] == [expected(event) for event in events]
            assert reading.environment == line.get("environment")
            assert reading.unstated == line.get("unstated", False), "live would refuse it"
            assert not reading.unread
            assert line["source"]


@cases("answer")
def test_each_documented_answer_gives_its_event(profile: str, lines: list[dict[str, Any]]) -> None:
    source = source_of(profile)
    for line in lines:
        with row(line["name"]):
            (asked,) = read(source, line).events
            question = question_about(profile, asked)
            assert question == line.get("question", question)
            answered = as_written(answer_to(source, line, asked), with_id=False)
            assert answered == {"standing": "fetched", **expected(line["answered"])}


@cases("fold")
def test_each_sequence_folds_to_its_outcome_in_any_order(
    profile: str, lines: list[dict[str, Any]]
) -> None:
    """As it arrives, reversed, and with every delivery twice."""
    for line in lines:
        with row(line["name"]):
            for names in (line["fold"], line["fold"][::-1], line["fold"] * 2):
                ledger = folded(profile, line, names)
                assert ledger.outcome == line["outcome"], ledger.reasons
                assert balances(ledger) == {key: line[key] for key in MOVES if key in line}
                withheld = [each.code for each in ledger.withheld]
                assert withheld == line.get("withheld", withheld)
                found = [each.code for each in ledger.findings if each.code not in REPEATS]
                assert found == line.get("findings", found)


def balances(ledger: Ledger) -> dict[str, str]:
    """Return the amounts that moved, by the way in which they moved."""
    moved = {}
    for each in ledger.balances:
        for way in MOVES:
            if minor := getattr(each, way):
                moved[way] = f"{major_text(Money(minor=minor, currency=each.currency))}"
                moved[way] += f"/{each.currency}"
    return moved


def folded(profile: str, line: dict[str, Any], names: list[str]) -> Ledger:
    dates: dict[str, list[Instant]] = {}
    for number, name in enumerate(line["fold"]):  # an answer's own date does not depend on arrival
        dates.setdefault(name, []).append(ARRIVAL + number * HOUR)
    dated = [(n, dates[n].pop(0) if len(dates[n]) > 1 else dates[n][0]) for n in names]
    events = [event for name, at in dated for event in arriving(profile, name, dated=at)]
    last = max([event.occurred_at for event in events if event.occurred_at] or [ARRIVAL])
    deliveries = frozenset(
        Delivery(delivery_id=f"d{number}", received_at=last + number * SECOND, event=event)
        for number, event in enumerate(events)
    )
    history = History(order=line["order"], deliveries=deliveries, records=records(line, at=last))
    policy = Policy(provider_discount_percent=line.get("percent", 0))
    return fold(history, policy=policy, as_of=last + len(events) * SECOND)


def arriving(profile: str, name: str, *, dated: Instant) -> list[Event]:
    """Return the events of one payload, and of the provider's answer where the name asks for it."""
    name, _, asked = name.partition("+")
    (line,) = (line for line in LINES[profile] if line["name"] == name)
    source = source_of(profile)
    events = list(read(source, line).events)
    return [*events, answer_to(source, line, events[0], dated=dated)] if asked else events


def records(line: dict[str, Any], *, at: int) -> frozenset[Record]:
    common: dict[str, Any] = {"order": line["order"], "at": at, "recorded_at": at}
    found = []
    if "price" in line:
        price = priced(line["price"])
        found.append(Record(record_id="placed", kind="order_placed", money=price, **common))
    if "session" in line:
        found.append(
            Record(
                record_id="opened",
                kind="session_opened",
                session=line["session"],
                key="key",
                **common,
            )
        )
    return frozenset(found)


def test_every_profile_that_moves_money_has_payloads() -> None:
    moving = {name for name in shipped_profiles() if not load_profile(name).verifies_only}
    assert moving - {"checkout"} <= set(LINES) <= set(shipped_profiles())


@for_each("profile", LINES)
def test_names_of_examples_are_unique_in_their_file(profile: str) -> None:
    names = [line["name"] for line in LINES[profile]]
    assert len(set(names)) == len(names)
