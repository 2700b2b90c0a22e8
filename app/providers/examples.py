"""Load providers' example events, and build similar signed events."""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from app.core.errors import NotFoundError, UsageError
from app.core.reading import Reading, Unreadable
from app.providers.kit import Signed
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import Instant, format_instant
from reconcile.money import Money, exponent_of, major_text

FOLDER: Final = Path(__file__).parent / "examples"
MOST_LEAVES: Final = 400
"""Maximum number of values in one body. The largest example has about a hundred."""

LeafPath = tuple[str | int, ...]
"""Path of a value in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One documented event of a provider."""

    name: str
    event: str
    """Kind of the event, as the profile reads it."""
    source: str
    body: Any = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "POST"
    url: str = ""
    named: str = ""
    """The provider's own name of the event. Empty if not in the example."""

    @property
    def word(self) -> str:
        """Return the event's name for people, such as `charge.dispute.closed:won`."""
        if not self.named or self.event.startswith(self.named):
            return self.event
        return ":".join(filter(None, (self.named, self.event.partition(":")[2])))


def examples_of(profile: str) -> list[Example]:
    """Load the documented events of a shipped profile."""
    path = FOLDER / f"{profile}.jsonl"
    if profile not in shipped_profiles() or not path.exists():
        return []
    names = frozenset(load_profile(profile).setup.events)
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        example = Example(**json.loads(line))
        # The body or a header contains the provider's own name of the event.
        values = (value for _, value in _leaves({"body": example.body, "header": example.headers}))
        named = (each for each in values if isinstance(each, str) and each in names)
        found.append(replace(example, named=next(named, "")))
    return found


def find_example(profile: str, event: str) -> Example:
    """Return the only example that a text identifies.

    Raise NotFoundError or UsageError with a list if none or several fit.
    """
    known = examples_of(profile)
    for found in (
        [each for each in known if each.name == event],
        [each for each in known if event in (each.word, each.event)],
        [
            each
            for each in known
            if each.named == event
            or any(word.startswith(f"{event}:") for word in (each.word, each.event))
        ],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            words = ", ".join(each.word for each in found)
            raise UsageError(f"{profile} has several examples of {event}: give one of {words}")
    there = ", ".join(each.word for each in known)
    raise NotFoundError(
        f"there is no example of {event!r} for {profile}: "
        + (
            f"there are {there}"
            if known
            else "no example was found in its provider's documentation"
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEvent:
    """Values for an invented event; None keeps the example's.

    order, session  references, from which the ids are computed
    """

    order: str | None = None
    session: str | None = None
    amount: Money | None = None
    """Money of the event."""
    at: Instant | None = None
    """Time of the event. None for now."""


def shape_event(
    source: Source, example: Example, wanted: WantedEvent, *, now: Instant, url: str
) -> Signed:
    """Build a signed request from the example and the wanted values.

    Raise UsageError if a value does not fit, and ConfigurationError if only the provider can sign.
    """
    shape = _Shape(source, example, now=now, url=url)
    if wanted.order is not None:
        shape.put_reference("order", wanted.order)
    if wanted.session is not None:
        shape.put_reference("session", wanted.session)
    if wanted.amount is not None:
        shape.put_amount(wanted.amount)
    shape.put_date(now if wanted.at is None else wanted.at)
    shape.put_sandbox()
    shape.put_ids(f"{wanted.order}\n{wanted.session}")
    return shape.request(shape.changes)


# --- the fields that each value of an example carries ---------------------------------------------


_JSON: Final = "application/json"
_MEDIA: Final = {"form": "application/x-www-form-urlencoded"}
_REFERENCES: Final = ("order", "session", "payment", "movement", "capture")
_AMOUNTS: Final = ("money", "order_money", "refunded_total")


class _Shape:
    def __init__(self, source: Source, example: Example, *, now: Instant, url: str) -> None:
        self._source = source
        self._profile: Profile = source.profile
        self._example = example
        self._now = now
        self._url = url
        self._document = _document(self._profile, example)
        self._event_id = _made("evt_example", example.name)
        self.changes: dict[LeafPath, Any] = {}
        self._leaves = dict(_leaves(self._document))
        if len(self._leaves) > MOST_LEAVES:
            raise UsageError(f"the example {example.name} has more than {MOST_LEAVES} values")
        self._base = self._read({})

    def request(self, changes: Mapping[LeafPath, Any]) -> Signed:
        document = copy.deepcopy(self._document)
        for place, value in changes.items():
            holder: Any = document
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = value
        content = document["body"]
        if self._profile.request.body == "form":
            body = _encoded(content).encode()
        elif type(content) is _Texts:
            body = "".join(content).encode()
        else:
            body = b"" if content == "" else json.dumps(content).encode()
        query = _encoded(document["query"])
        url = f"{self._url}?{query}" if query else self._url
        signed = self._source.signed(
            body, event_id=self._event_id, now=self._now, method=self._example.method, url=url
        )
        made = {name.lower() for name, _ in signed.headers}
        kept = [pair for pair in document["header"] if pair[0].lower() not in made]
        if not any(name == "content-type" for name in (*made, *(n.lower() for n, _ in kept))):
            kept.insert(0, ["content-type", _MEDIA.get(self._profile.request.body, _JSON)])
        return signed._replace(headers=[*signed.headers, *((name, value) for name, value in kept)])

    def put_reference(self, name: str, reference: str) -> None:
        for place in self._carriers[name]:
            if place in self.changes:
                continue
            number = type(self._leaves[place]) is int
            if number and not reference.isdigit():
                raise UsageError(
                    f"the {name} of {self._profile.name} is a number, not {reference!r}"
                )
            self.changes[place] = int(reference) if number else reference
        by_payment = name == "order" and self._base.events[0].order is None
        if by_payment and self._profile.event.order and self._base.events[0].payment:
            return
        with_it = self._tried(self.changes)
        if with_it is None or getattr(with_it.events[0], name) != reference:
            raise UsageError(
                f"the example {self._example.event} of {self._profile.name} cannot have the "
                f"{name} {reference!r}: leave --{name} out"
            )

    def put_amount(self, amount: Money) -> None:
        base = self._base.events[0].money
        stated = [p for p in self._carriers["money"] if _is_amount(self._leaves[p])]
        carried = [self._leaves[place] for place in stated]
        for place, value in self._leaves.items():
            beside = _is_amount(value) and value in carried and "amount" in str(place[-1]).lower()
            if place in stated or beside:  # such as the received amount beside the requested one
                self.changes[place] = _amount(amount, value, self._profile)
        for place, value in self._leaves.items():
            if base is not None and _is_currency(value) and value.upper() == base.currency:
                self.changes[place] = _in_case(amount.currency, value)
        with_it = self._tried(self.changes)
        if with_it is None or with_it.events[0].money != amount:
            raise UsageError(
                f"the example {self._example.event} of {self._profile.name} cannot have the "
                f"amount {amount.currency} {major_text(amount)}: leave --amount out"
            )

    def put_date(self, at: Instant) -> None:
        for place in self._carriers["occurred_at"]:
            written = _date(at, self._leaves[place], self._profile.event.zone)
            if written is not None:
                self.changes.setdefault(place, written)

    def put_sandbox(self) -> None:
        word = self._profile.environment.sandbox
        for place in self._carriers["environment"]:
            old = self._leaves[place]
            self.changes[place] = word == "true" if type(old) is bool else word

    def put_ids(self, key: str) -> None:
        own = f"{key}\n{self._example.name}"
        for name in ("session", "payment", "movement", "capture"):
            for place in self._carriers[name]:
                self.changes.setdefault(place, _made(self._leaves[place], key))
        for place in self._carriers["event_id"]:
            self.changes.setdefault(place, _made(self._leaves[place], own))
        self._event_id = _made("evt_example", own)

    @cached_property
    def _carriers(self) -> Mapping[str, list[LeafPath]]:
        found: dict[str, list[LeafPath]] = {name: [] for name in (*_FIELDS, "environment")}
        for place, old in self._leaves.items():
            for changed in _others(old, self._profile):
                with_it = self._tried({place: changed})
                if with_it is None:
                    continue
                if self._base.environment != with_it.environment:
                    found["environment"].append(place)
                if len(self._base.events) == len(with_it.events):
                    first, second = self._base.events[0], with_it.events[0]
                    for name in _FIELDS:
                        if getattr(first, name) != getattr(second, name):
                            found[name].append(place)
                break
        if len(found["event_id"]) * 2 > len(self._leaves) > 2:
            found["event_id"] = []  # the id is the digest of the bytes, which no value holds
        words = set(found.pop("kind"))  # another word makes another event, and shows nothing else
        carriers = {
            name: [place for place in places if place not in words]
            for name, places in found.items()
        }
        for name in (*_REFERENCES, "event_id"):
            reference = str(getattr(self._base.events[0], name))
            # A value that is neither part of the reference nor contains it only selects it.
            carriers[name] = [
                place
                for place in carriers[name]
                if (leaf := str(self._leaves[place])) in reference or reference in leaf
            ]
        return carriers

    def _tried(self, changes: Mapping[LeafPath, Any]) -> Reading | None:
        try:
            return self._read(changes)
        except Unreadable:
            return None

    def _read(self, changes: Mapping[LeafPath, Any]) -> Reading:
        request = self.request(changes)
        headers = [(name.lower().encode(), value.encode()) for name, value in request.headers]
        incoming = Incoming(headers, request.body, self._example.method, request.url or self._url)
        return self._source.read(incoming, digest=hashlib.sha256(request.body).hexdigest())


_FIELDS: Final = (*_REFERENCES, *_AMOUNTS, "event_id", "kind", "occurred_at")


# --- bodies as trees of values --------------------------------------------------------------------


_BETWEEN_TAGS: Final = re.compile(r"(?<=>)([^<>]+)(?=<)")


class _Pairs(list[list[str]]):
    """Replaceable names with their values, as in a form."""


class _Texts(list[str]):
    """XML document as a list in which markup and texts alternate.

    The texts have odd indices.
    """


def _encoded(pairs: Sequence[Sequence[str]]) -> str:
    return urlencode([(name, value) for name, value in pairs])


def _document(profile: Profile, example: Example) -> dict[str, Any]:
    body = example.body
    if type(body) is str and profile.request.body == "form":
        body = _Pairs(list(pair) for pair in parse_qsl(body, keep_blank_values=True))
    elif type(body) is str and body.lstrip().startswith("<"):
        body = _Texts(_BETWEEN_TAGS.split(body))
    elif type(body) is str and body:
        body = json.loads(body)
    query = parse_qsl(example.url.partition("?")[2], keep_blank_values=True)
    return {
        "body": body,
        "query": _Pairs(list(pair) for pair in query),
        "header": _Pairs(list(pair) for pair in example.headers.items()),
    }


def _leaves(value: Any, place: LeafPath = ()) -> Iterator[tuple[LeafPath, Any]]:
    if type(value) is dict:
        for key, inner in value.items():
            yield from _leaves(inner, (*place, key))
    elif type(value) is _Texts:
        yield from (((*place, number), value[number]) for number in range(1, len(value), 2))
    elif type(value) is _Pairs:
        yield from (((*place, number, 1), pair[1]) for number, pair in enumerate(value))
    elif type(value) is list:
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*place, number))
    elif type(value) in (str, int, float, bool):
        yield place, value


# --- values as providers write them ---------------------------------------------------------------


_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)([T ])(\d\d:\d\d:\d\d)(\.\d+)?( ?)(Z|[+-]\d\d:?\d\d)?"
)
_DAY_FIRST: Final = re.compile(r"\d\d?/\d\d?/\d{4} \d\d?:\d\d:\d\d [AP]M")
_DECIMAL: Final = re.compile(r"\d{1,15}\.\d+")
_SECONDS: Final = 1_000_000_000


def _others(value: Any, profile: Profile) -> Iterator[Any]:
    words = (profile.environment.sandbox, profile.environment.live)
    if type(value) is bool:
        yield not value
    elif type(value) in (int, float):
        yield value + 1
    elif value in words:
        yield from (word for word in words if word != value)
    elif _is_currency(value):
        yield from (_in_case(code, value) for code in ("KES", "USD") if code != value.upper())
    elif value.isdigit() or _DECIMAL.fullmatch(value):
        yield value[:-1] + ("1" if value[-1] != "1" else "2")
    elif (year := re.search(r"(?:19|20)\d\d", value)) is not None:
        yield value[: year.start()] + "2001" + value[year.end() :]
    if type(value) is str and value:
        yield value + "0"
        yield value[:-1] + ("0" if value[-1] != "0" else "1")


def _is_amount(value: Any) -> bool:
    if type(value) is str:
        return value.isdigit() or bool(_DECIMAL.fullmatch(value))
    return type(value) in (int, float)


def _is_currency(value: Any) -> bool:
    return type(value) is str and bool(re.fullmatch(r"[A-Za-z]{3}", value))


def _in_case(code: str, like: str) -> str:
    return code.lower() if like.islower() else code


def _amount(amount: Money, like: Any, profile: Profile) -> Any:
    major = Decimal(amount.minor).scaleb(-exponent_of(amount.currency))
    if profile.amounts.unit == "minor":
        digits = dict(profile.amounts.decimals).get(amount.currency, exponent_of(amount.currency))
        whole = int(major.scaleb(digits))
        return str(whole) if type(like) is str else whole
    if type(like) is str:
        return major_text(amount)
    return int(major) if type(like) is int and major == int(major) else float(major)


def _date(now: Instant, like: Any, zone: str) -> Any:
    at = datetime.fromisoformat(format_instant(now).replace("Z", "+00:00")).astimezone(UTC)
    sign = -1 if zone[0] == "-" else 1
    offset_of_zone = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    local = at.astimezone(timezone(sign * offset_of_zone))
    text, kind = str(like), type(like)
    if text.isdigit() and len(text) == 14:
        return kind(f"{local:%Y%m%d%H%M%S}")
    if kind is float or text.isdigit():
        unit = 1_000 if len(text.partition(".")[0]) > 11 else 1
        return kind(str(int(at.timestamp() * unit)))
    if _DAY_FIRST.fullmatch(text):
        return f"{local.day}/{local:%m/%Y %I:%M:%S %p}"
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    offset = match[8]
    shown = local if offset is None else at
    ending = (
        ""
        if offset is None
        else "Z"
        if offset == "Z"
        else offset[0].replace("-", "+") + ("00:00" if ":" in offset else "0000")
    )
    fraction = f".{at.microsecond // 1000:03}" if match[6] else ""
    return f"{shown:%Y-%m-%d}{match[4]}{shown:%H:%M:%S}{fraction}{match[7]}{ending}"


def _made(old: Any, key: str) -> Any:
    digest = hashlib.sha256(f"{key}\n{old}".encode()).hexdigest()
    text = str(old)
    if text.isdigit():
        digits = str(int(digest, 16))[: max(9, min(len(text), 15))]
        kind: type[Any] = type(old)
        return kind(digits.replace("0", "1", 1) if digits[0] == "0" else digits)
    head = re.match(r".*[_-](?=[^_-]+$)", text)
    made = (head[0] if head else "") + digest[:16]
    return made.upper() if text.isupper() else made
