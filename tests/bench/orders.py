"""Orders with a known end, and the webhooks that lead to it: the bench's ground truth.

(seed, first, count) determine ids and bodies, so that they need not be carried between
processes."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reconcile.instants import MILLISECOND, SECOND, Instant, format_instant

EVENTS_PER_ORDER = 4
SEED = 20_261_120

Step = tuple[str, int, int, int]
"""Event, attempt (0: the first), and hundredths of the price paid and given back."""

RECOVERED: tuple[Step, ...] = (
    ("pending", 0, 100, 0),
    ("declined", 0, 100, 0),
    ("pending", 1, 100, 0),
    ("succeeded", 1, 100, 0),
)

SCRIPTS: tuple[tuple[str, tuple[Step, ...]], ...] = (
    *(("succeeded", RECOVERED),) * 10,
    ("failed", (*RECOVERED[:3], ("declined", 1, 100, 0))),
    ("canceled", (*RECOVERED[:3], ("canceled", 1, 100, 0))),
    ("unresolved", (*RECOVERED[:3], ("succeeded", 1, 90, 0))),
    (
        "refunded",
        (
            ("pending", 0, 100, 0),
            ("succeeded", 0, 100, 0),
            ("refunded", 0, 100, 40),
            ("refunded", 0, 100, 60),
        ),
    ),
    (
        "partially_refunded",
        (
            ("pending", 0, 100, 0),
            ("authorized", 0, 100, 0),
            ("succeeded", 0, 100, 0),
            ("refunded", 0, 100, 30),
        ),
    ),
    (
        "disputed",
        (
            ("pending", 0, 100, 0),
            ("authorized", 0, 100, 0),
            ("succeeded", 0, 100, 0),
            ("disputed", 0, 100, 100),
        ),
    ),
)
"""(the outcome that must come of it, its four events); an order takes the script of its number."""

_BODY = (
    '{{"id": "{event}", "type": "payment.{kind}", "occurred_at": "{at}", "environment": "sandbox", '
    '"data": {{"order": {{"reference": "{order}", "amount": {price}, "currency": "KES"}}, '
    '"session": {{"reference": "{session}"}}, "payment": {{"reference": "{payment}", '
    '"amount": {paid}, "currency": "KES"{reason}}}{refund}, "customer": {{"phone": "{phone}"}}}}}}'
)
_REASON = ', "reason": "insufficient_funds"'
_REFUND = ', "refund": {{"reference": "{}", "amount": {}, "currency": "KES"}}'
_NOTE = '"note": "{}", '


@dataclass(frozen=True, slots=True)
class Message:
    """An event as its provider would send it."""

    event_id: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Orders number `first` to `first + count - 1` of a seed's endless row of orders.

    size  bytes that each body has at least
    """

    seed: int
    first: int
    count: int
    size: int = 0

    @property
    def events(self) -> int:
        """Number of messages."""
        return self.count * EVENTS_PER_ORDER

    def outcomes(self) -> Counter[str]:
        """Return how many orders must end in which outcome."""
        numbers = range(self.first, self.first + self.count)
        return Counter(SCRIPTS[number % len(SCRIPTS)][0] for number in numbers)

    def event_ids(self) -> Iterator[str]:
        """Yield the ids of all messages, without writing the messages."""
        for number in range(self.first, self.first + self.count):
            chance = _chance(self.seed, number)
            for _ in range(EVENTS_PER_ORDER):
                yield _event_id(chance)

    def messages(self, *, ended_at: Instant) -> Iterator[list[Message]]:
        """Yield each order's messages by date, the last one at `ended_at`."""
        for number in range(self.first, self.first + self.count):
            yield _messages(self.seed, number, ended_at, self.size)


def after(sent: Sequence[Stretch], count: int) -> Stretch:
    """Return the stretch of so many orders that follows the last one sent."""
    first = sent[-1].first + sent[-1].count if sent else 0
    return Stretch(seed=SEED, first=first, count=count)


def _chance(seed: int, number: int) -> random.Random:
    return random.Random(seed << 40 | number)


def _event_id(chance: random.Random) -> str:
    return f"evt_{chance.getrandbits(96):024x}"


def _messages(seed: int, number: int, ended_at: Instant, size: int) -> list[Message]:
    chance = _chance(seed, number)
    ids = [_event_id(chance) for _ in range(EVENTS_PER_ORDER)]
    named = {
        "order": order_reference(number),
        "session": f"cs_{chance.getrandbits(128):032x}",
        "phone": f"2547{chance.getrandbits(26):08d}",
    }
    payments = [f"pay_{chance.getrandbits(128):032x}" for _ in range(2)]
    script = SCRIPTS[number % len(SCRIPTS)][1]
    price = 100 * (1_000 + number % 9_000)
    found = []
    for place, (kind, attempt, paid, back) in enumerate(script):
        refund = f"re_{chance.getrandbits(64):016x}" if back else ""
        body = _BODY.format(
            event=ids[place],
            kind=kind,
            at=format_instant(_date(ended_at, place, number)),
            price=_major(price),
            payment=payments[attempt],
            paid=_major(price * paid // 100),
            reason=_REASON if kind == "declined" else "",
            refund=_REFUND.format(refund, _major(price * back // 100)) if back else "",
            **named,
        )
        if short := max(0, size - len(body) - len(_NOTE.format(""))):
            note = f"{chance.getrandbits(4 * short):0{short}x}"
            body = body.replace("{", "{" + _NOTE.format(note), 1)
        found.append(Message(ids[place], body.encode()))
    return found


def order_reference(number: int) -> str:
    return f"ORD-{number:08d}"


def _date(ended_at: Instant, place: int, number: int) -> Instant:
    return ended_at - (EVENTS_PER_ORDER - 1 - place) * 10 * SECOND - number % 1000 * MILLISECOND


def _major(minor: int) -> str:
    return f"{minor // 100}.{minor % 100:02d}"
