"""Reads scenario tables: rows of evidence and ticks of the clock, expectations in the last columns.

A line is `TIME WHAT … | outcome ship/hold | reasons | findings | attempts`; the columns after the
first bar are optional, and what is given must match exactly. `== name` begins a scenario, `#` a
comment. Of a paid order that is withheld the codes that withhold it stand among the reasons, each
behind a `!`. TIME is our clock (`0s`, `5m`, `2h`, `1d`, sums of them, or a minus sign before
them), when a row reached us. WHAT is one of

    tick                          the clock only
    policy since=T                the shop's own price is demanded of orders first heard of later
    policy mismatch=SOURCE        what only its number links counts at a price of the order alone
    policy discount=N             discounts at the provider count up to N percent of the price
    CLAIM id [pay=] [ses=] …      an event; `at=` dates it otherwise than its arrival, or `at=none`
    again id [body=]              one more delivery of an event already stated
    record KIND id [due=] …       a record of the merchant's side; `at=` as above; `free=yes`

`states=MEMBER:WORD:AMOUNT[:REF],…` is the position that an answer states, `version=` its time;
with `money=`, `due=`, `sum=` and `tender=` (a gift card) as `1500.00/KES`, and the parts of an
event's amount as `parts=base:90.00/KES,tip:10.00/KES`. Two events of one id
need different `body=`.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconcile.instants import SECOND, Instant
from reconcile.ledger.events import CLAIM_KINDS, Delivery, Event, Part, State
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record, Tender
from reconcile.money import Money, from_major
from tests.reconcile.build import ORDER, POLICY, T

FOLDER = Path(__file__).parent / "scenarios"
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TIME = re.compile(r"-?(?:\d+[smhd])+")


@dataclass
class Expectation:
    """The columns of one row, and its line number."""

    where: str
    as_of: Instant
    outcome: str
    ship: bool
    reasons: list[str] | None
    findings: list[str] | None
    attempts: list[str] | None


@dataclass
class Scenario:
    """One table: all its evidence, and what to expect when."""

    name: str
    file: str = ""
    members: list[Delivery | Record] = field(default_factory=list)
    expected: list[Expectation] = field(default_factory=list)
    policy: Policy = POLICY

    def history(self) -> History:
        return History(
            order=ORDER,
            deliveries=frozenset(m for m in self.members if isinstance(m, Delivery)),
            records=frozenset(m for m in self.members if isinstance(m, Record)),
        )


def all_scenarios() -> list[Scenario]:
    """Return every scenario of every file, in order."""
    return [s for path in sorted(FOLDER.glob("*.txt")) for s in read(path.name, path.read_text())]


def read(name: str, text: str) -> list[Scenario]:
    """Parse scenarios. Raises ValueError that names the line it cannot read."""
    found: list[Scenario] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#")[0].strip()
        if bare.startswith("=="):
            found.append(Scenario(bare[2:].strip(), file=name))
        elif bare:
            try:
                _row(found[-1], bare, where=f"{name}:{number}")
            except (ValueError, LookupError) as error:
                raise ValueError(f"{name}:{number}: {error}: {line}") from error
    return found


def _row(scenario: Scenario, line: str, *, where: str) -> None:
    what, *columns = (part.strip() for part in line.split("|"))
    time, kind, *words = what.split()
    now = moment(time)
    if kind == "policy":
        option, _, value = words[0].partition("=")
        scenario.policy = (
            replace(POLICY, require_order_record_since=moment(value))
            if option == "since"
            else replace(POLICY, mismatch_held=(value,))
            if option == "mismatch"
            else replace(POLICY, provider_discount_percent=int(value))
        )
    elif kind == "record":
        scenario.members.append(_record(words, now))
    elif kind == "again":
        scenario.members.append(_again(scenario, words, now))
    elif kind in CLAIM_KINDS:
        scenario.members.append(_delivery(scenario, _event(kind, words, now), now))
    elif kind != "tick" or words:
        raise ValueError(f"{kind!r} is no claim, record, again or tick")
    if columns:
        scenario.expected.append(_expectation(columns, where=where, as_of=now))


def moment(text: str) -> Instant:
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    total = sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([smhd])", text))
    return T + (-total if text.startswith("-") else total) * SECOND


def _money(text: str) -> Money:
    amount, currency = text.split("/")
    return from_major(amount, currency)


def _state(member: Any, word: Any, money: str, reference: str | None = None) -> State:
    return State(member=member, word=word, money=_money(money), reference=reference)


def _options(words: list[str], names: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        field_name = names[name]
        if name in ("money", "due", "sum"):
            options[field_name] = _money(value)
        elif name == "tender":
            options[field_name] = (Tender(kind="gift_card", money=_money(value)),)
        elif name == "parts":
            named = [each.split(":") for each in value.split(",")]
            options[field_name] = tuple([Part(kind=k, money=_money(m)) for k, m in named])  # type: ignore[arg-type]
        elif name in ("free", "standalone"):
            options[field_name] = value == "yes"
        elif name == "states":
            options[field_name] = tuple(_state(*each.split(":")) for each in value.split(","))
        elif name == "revocable":
            options[field_name] = int(value)
        elif name in ("at", "expires", "expects", "version"):
            options[field_name] = None if value == "none" else moment(value)
        else:
            options[field_name] = None if value == "none" else value
    return options


_EVENT = {
    "pay": "payment", "ses": "session", "ref": "movement", "money": "money", "due": "order_money",
    "why": "reason", "at": "occurred_at", "body": "digest", "source": "source", "order": "order",
    "kind": "kind", "standing": "standing", "cap": "capture", "sum": "refunded_total",
    "unclear": "unclear", "method": "method", "expects": "expected_by",
    "revocable": "revocable_days", "shop": "shop", "suggests": "suggested",
    "agreement": "agreement", "standalone": "standalone", "parts": "parts", "states": "states",
    "version": "stated_at",
}  # fmt: skip
_RECORD = {
    "due": "money", "key": "key", "ses": "session", "expires": "expires_at", "why": "reason",
    "at": "at", "source": "source", "order": "order", "pay": "payment", "by": "author",
    "tender": "tenders", "free": "free",
}  # fmt: skip


def _event(claim: Any, words: list[str], now: Instant) -> Event:
    usual = {"source": "shop", "order": ORDER, "occurred_at": now, "kind": f"payment.{claim}"}
    return Event(
        **{
            "event_id": words[0],
            "digest": f"body of {words[0]}",
            "claim": claim,
            **usual,
            **_options(words[1:], _EVENT),
        }
    )


def _record(words: list[str], now: Instant) -> Record:
    kind, record_id, *rest = words
    usual = {"order": ORDER, "at": now, "recorded_at": now}
    return Record(**{"record_id": record_id, "kind": kind, **usual, **_options(rest, _RECORD)})


def _delivery(scenario: Scenario, event: Event, now: Instant) -> Delivery:
    return Delivery(delivery_id=f"d{len(scenario.members)}", received_at=now, event=event)


def _again(scenario: Scenario, words: list[str], now: Instant) -> Delivery:
    wanted = {"digest": f"body of {words[0]}", **_options(words[1:], _EVENT)}
    events = [m.event for m in scenario.members if isinstance(m, Delivery)]
    (event,) = {e for e in events if (e.event_id, e.digest) == (words[0], wanted["digest"])}
    return _delivery(scenario, event, now)


def _expectation(columns: list[str], *, where: str, as_of: Instant) -> Expectation:
    outcome, ship = columns[0].split()
    if ship not in ("ship", "hold"):
        raise ValueError(f"{ship!r} is neither ship nor hold")
    rest: list[list[str] | None] = [c.split() if c != "-" else [] for c in columns[1:]]
    reasons, findings, attempts = (rest + [None] * 3)[:3]
    return Expectation(where, as_of, outcome, ship == "ship", reasons, findings, attempts)
