"""Export an order's evidence as a scenario without personal data."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import ConfigurationError, UsageError
from app.core.masking import Masking, masked_words
from app.core.strict_json import NumberText, parse_written
from app.evidence.gather_evidence import DeliveryEvidence, Dossier, ReadsLines, gather_dossier
from app.providers.fetched import is_answer
from app.providers.request import Headers, Incoming
from app.providers.source import ProfileReader, Source
from reconcile import instants
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import RecordKind
from reconcile.transparency.evidence import by_event, history_document

# --- A JSON body without its personal data --------------------------------------------------------


FORMAT: Final = "tallyhook scenario 1"

Read = Callable[[bytes], Event]
"""Function that reads the event from a body."""

Path = tuple[str | int, ...]
Piece = str | dict[str, str | int]
"""Piece of a scenario's body: a text or a date."""

_SHORT: Final = 9
"""Minimum length of a number that may be a phone number or an account."""

_KEPT_MAX: Final = 300
"""Maximum characters of a value that a scenario keeps unchanged, such as a reference."""

_UNITS: Final[dict[str, instants.Duration]] = {
    "s": instants.SECOND,
    "ms": instants.MILLISECOND,
    "us": instants.TICK,
}

_MARK: Final = "\ue000"
"""Private-use character that stands for a date."""


class StandIns:
    """Replacements for personal texts in a scenario; equal texts get equal ones.

    masking  masks the customers' phone numbers
    """

    def __init__(self, masking: Masking | None = None) -> None:
        self._masking = masking or Masking()
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        """Return a replacement of the same kind as the text."""
        if text not in self._known:
            number = len(self._known) + 1
            digits = text.removeprefix("+").isdigit()
            plus = "+" if text.startswith("+") else ""
            self._known[text] = f"{plus}25470000{number:04}" if digits else f"text-{number}"
        return self._known[text]

    def body(self, body: bytes, read: Read) -> list[Piece]:
        """Return the body in pieces, without personal data.

        Raise UsageError if personal data must remain.
        """
        event, document = read(body), parse_written(body)
        for path, leaf in list(_leaves(document)):
            document = self._without(document, path, leaf, event=event, read=read)
        document, form = _dated(document, event, read)
        text = written(document)
        if form is None or event.occurred_at is None:
            return [text]
        before, _, after = text.partition(_MARK)
        return [before, {"at": instants.format_instant(event.occurred_at), "as": form}, after]

    def _without(self, document: Any, path: Path, leaf: Any, *, event: Event, read: Read) -> Any:
        if isinstance(leaf, NumberText) and (len(leaf) < _SHORT or not leaf.isdigit()):
            return document
        number = isinstance(leaf, NumberText)
        # The replacement, or the words without their numbers.
        bare = leaf if number else masked_words(leaf)
        for other in (self.of(leaf), *([bare] if bare != leaf else [])):
            changed = put(document, path, NumberText(other) if number else other)
            if says(changed, event, read):
                return changed
        if self._masking.touches(leaf):
            where = f"{shown(path)} of the body of the event {event.event_id}"
            raise UsageError(
                f"{self._masking.text(where)} holds a customer's number and cannot be masked: "
                "no scenario can be made"
            )
        if len(leaf) > _KEPT_MAX or leaf.lstrip()[:1] in ("{", "["):
            raise UsageError(
                f"no scenario can be made: the body has the value {shown(path)} only inside a "
                "longer text"
            )
        return document


def shown(path: Path) -> str:
    """Return the path of a value in a document as text, such as `data.items[0].reason`."""
    steps = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in path]
    return "".join(steps).removeprefix(".")


def says(document: Any, event: Event, read: Read) -> bool:
    """Check whether reading the document gives this event."""
    try:
        found = read(written(document).encode())
    except ValueError:
        return False
    return replace(found, digest=event.digest) == event


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif isinstance(value, str):
        yield path, value


def put(document: Any, path: Path, value: Any) -> Any:
    """Return a copy of the document with the value at this path replaced."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


def written(value: Any) -> str:
    """Write a value as JSON. Numbers keep their original form."""
    if isinstance(value, NumberText):
        return value
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)}: {written(item)}" for name, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value, ensure_ascii=False)


# --- dates ---------------------------------------------------------------------------------------


def _dated(document: Any, event: Event, read: Read) -> tuple[Any, str | None]:
    if event.occurred_at is None:
        return document, None
    later = replace(event, occurred_at=event.occurred_at + instants.DAY)
    for path, leaf in _leaves(document):
        form = date_form(leaf)
        if form is None:
            continue
        moved = dated(date_moment(leaf, form) + instants.DAY, form)
        number = isinstance(leaf, NumberText)
        if says(put(document, path, NumberText(moved) if number else moved), later, read):
            mark = NumberText(_MARK) if number else _MARK
            return put(document, path, mark), form
    return document, None


def date_form(leaf: str) -> str | None:
    """Return a date's format: `rfc3339`, `s`, `ms` or `us`."""
    if leaf.isascii() and leaf.isdigit():
        return {10: "s", 13: "ms", 16: "us"}.get(len(leaf))
    try:
        instants.parse_instant(leaf)
    except ValueError:
        return None
    return "rfc3339"


def date_moment(leaf: str, form: str) -> instants.Instant:
    """Parse a date in a format that `date_form` returned."""
    return (
        instants.parse_instant(leaf)
        if form == "rfc3339"
        else instants.EARLIEST + int(leaf) * _UNITS[form]
    )


def dated(moment: instants.Instant, form: str) -> str:
    """Format a moment as a date, in a format that `date_form` returned."""
    return instants.format_instant(moment) if form == "rfc3339" else str(moment // _UNITS[form])


# --- an order's evidence as a scenario ------------------------------------------------------------


REPORTED: Final[frozenset[RecordKind]] = frozenset(
    {
        "order_placed",
        "order_canceled",
        "order_not_canceled",
        "order_fulfilled",
        "order_not_fulfilled",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderScenario:
    """Scenario of an order as JSON values."""

    document: dict[str, Any]
    left_out: tuple[str, ...]
    """Sentences on what a replay cannot reproduce."""


async def tell_scenario(
    context: AppContext,
    order: str,
    *,
    as_of: instants.Instant | None,
    by: str | None,
    lines: ReadsLines,
) -> OrderScenario:
    """Make an order's scenario, with an audit entry.

    Raise NotFoundError for an unknown order, and UsageError for deleted bodies or remaining
    personal data.
    """
    async with context.database.reading() as connection:
        await permitted(connection, by=by, action="evidence_built")
    dossier = await gather_dossier(context, order, as_of=as_of, full=True, lines=lines)
    scenario = scenario_of(dossier, context.sources)
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="evidence_built")
        await note_in_trail(
            connection,
            who,
            action="evidence_built",
            subject=order,
            at=now,
            facts={"kind": "scenario", "as_of": instants.format_instant(dossier.as_of)},
        )
    return scenario


def scenario_of(dossier: Dossier, sources: Mapping[str, Source]) -> OrderScenario:
    """Build the scenario of a dossier, with the results that a replay can reproduce."""
    played, left_out = _playable(dossier)
    masking = Masking(dossier.phones)
    stand_ins = StandIns(masking)
    stored = dossier.history.as_stored().deliveries
    arrivals = {each[0].delivery_id: each for each in by_event(stored)}
    steps, deliveries = list[dict[str, Any]](), set[Delivery]()
    for evidence in played:
        first, *later = arrivals[evidence.arrived.delivery_id]
        step = _arrival(evidence, first.event.event_id, stand_ins, sources)
        again = {"verdict": "duplicate"}
        steps += [
            step,
            *({**step, "at": instants.format_instant(each.received_at), **again} for each in later),
        ]
        deliveries |= {first, *later}
    history = History(
        order=dossier.history.order,
        deliveries=frozenset(deliveries),
        records=frozenset(r for r in dossier.history.records if r.kind in REPORTED),
    )
    stated = history_document(history, policy=dossier.policy, as_of=dossier.as_of)
    steps += [{"at": each["recorded_at"], "record": each} for each in stated["records"]]
    if not steps:
        raise UsageError("there is nothing to replay for this order")
    steps.sort(key=lambda step: step["at"])
    # The earliest instant from which the ledger stays as at the scenario's end.
    last = _expected(fold(history, policy=dossier.policy, as_of=dossier.as_of))
    since = max(
        *(each.received_at for each in history.deliveries),
        *(each.recorded_at for each in history.records),
        instants.EARLIEST,
    )
    ledger = fold(history, policy=dossier.policy, as_of=since)
    while _expected(ledger) != last and ledger.next_decision_at is not None:
        ledger = fold(history, policy=dossier.policy, as_of=ledger.next_decision_at)
    names = {each.arrived.source for each in played}
    document = {
        "format": FORMAT,
        "order": dossier.history.order,
        "sources": [
            {"source": each.source, "profile": each.profile, "text": each.text.decode()}
            for each in dossier.profiles
            if each.source in names
        ],
        "policy": stated["policy"],
        "steps": steps,
        "expected": {"at": instants.format_instant(ledger.as_of), **_expected(ledger)},
    }
    if masking.touches(json.dumps(document, ensure_ascii=False)):
        raise UsageError(
            "a reference of this order holds a customer's number: no scenario can be made"
        )
    return OrderScenario(document=document, left_out=tuple(left_out))


def _playable(dossier: Dossier) -> tuple[list[DeliveryEvidence], list[str]]:
    played, left_out = [], []
    for evidence in dossier.deliveries:
        if is_answer(evidence.arrived.headers):
            left_out.append(
                "answers that were fetched from the provider, because a replay asks nobody"
            )
        elif evidence.body is None:
            raise UsageError("bodies of this order were deleted: nothing can be replayed")
        elif evidence.arrived.envelope is not None:
            raise UsageError(
                "an event of this order came with other events in one request: no scenario can "
                "be made"
            )
        else:
            played.append(evidence)
    if any(record.kind not in REPORTED for record in dossier.history.records):
        left_out.append("its checkout session, because a replay begins with the first webhook")
    return played, sorted(set(left_out))


def _expected(ledger: Ledger) -> dict[str, Any]:
    document = ledger_document(ledger)
    return {
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "findings": [each["code"] for each in document["findings"]],
        "explanation": document["explanation"],
    }


def _arrival(
    evidence: DeliveryEvidence, event_id: str, stand_ins: StandIns, sources: Mapping[str, Source]
) -> dict[str, Any]:
    arrived = evidence.arrived
    source = sources.get(arrived.source)
    if source is None:
        raise UsageError(
            f"source {arrived.source} is no longer configured, so its bodies cannot be read: "
            "no scenario can be made"
        )
    profile = source.profile
    if profile.request.body != "json" or not evidence.body:
        raise UsageError(f"bodies of profile {profile.name} are not JSON: no scenario can be made")
    try:
        reader = ProfileReader(arrived.source, profile)
    except ConfigurationError as error:
        raise UsageError(f"{error.problems[0]}: no scenario can be made") from None
    headers: Headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in evidence.headers]

    def read(body: bytes) -> Event:
        return reader.read(Incoming(headers, body, url=evidence.url), digest="").events[0]

    return {
        "at": instants.format_instant(arrived.received_at),
        "source": arrived.source,
        "event_id": event_id,
        "verdict": arrived.verdict,
        "body": stand_ins.body(evidence.body, read),
    }
