"""Convert a history to JSON and back, so that anyone with the document can compute its ledger.

Money is decimal strings, instants are RFC 3339 texts, and durations whole microseconds. Signatures
and raw bytes are not included.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar, get_args

from reconcile.instants import Instant, format_instant, parse_instant
from reconcile.ledger.events import CLAIM_KINDS, Delivery, Event, Standing
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger_documents import FoldedDocument
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import RECORD_KINDS, Record, Tender
from reconcile.money import Money, from_major, to_json
from reconcile.transparency.event_members import part_document, part_of, state_document, state_of

Value = TypeVar("Value")

_INSTANTS: Final = frozenset(
    ("received_at", "occurred_at", "recorded_at", "at", "expires_at", "expected_by", "stated_at")
)
_NUMBERS: Final = frozenset(("revocable_days",))
_MONEY: Final = frozenset(("money", "order_money", "refunded_total"))
_FLAGS: Final = frozenset(("free", "dated", "standalone"))
_TUPLES: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "tenders": lambda each: Tender(kind=_text(each["kind"]), money=_money(each)),
    "parts": part_of,
    "states": state_of,
}
_DOCUMENTS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "tenders": lambda each: {"kind": each.kind, **to_json(each.money)},
    "parts": part_document,
    "states": state_document,
}
_MEMBERS: Final = {kind: tuple(each.name for each in fields(kind)) for kind in (Event, Record)}

_US: Final = "_us"

_NAMES: Final = frozenset(("mismatch_held",))
"""Names of policy settings whose values are lists of names.

Some other settings are percentages, and all others are microseconds or None.
"""

_PERCENT: Final = frozenset(("provider_discount_percent",))


def history_document(history: History, *, policy: Policy, as_of: Instant) -> dict[str, Any]:
    """Return everything from which an order's ledger is computed, as JSON values.

    Each event has its first delivery, and in `again` the ids and arrivals of further ones. Wrong
    times of a fast clock stay; `history_of` corrects them.
    """
    known = history.known_at(as_of).as_stored()
    records = sorted(known.records, key=lambda each: (each.recorded_at, each.record_id))
    return {
        "order": history.order,
        "as_of": format_instant(as_of),
        "policy": policy_document(policy),
        "deliveries": [
            {
                "delivery_id": each.delivery_id,
                "received_at": format_instant(each.received_at),
                "event": value_document(each.event),
                **({"again": again} if again else {}),
            }
            for each, again in (
                (first, [[one.delivery_id, format_instant(one.received_at)] for one in later])
                for first, *later in by_event(known.deliveries)
            )
        ],
        "records": [value_document(each) for each in records],
    }


def by_event(deliveries: Iterable[Delivery]) -> list[list[Delivery]]:
    """Group the deliveries by event. Events and deliveries are sorted by arrival."""
    found: dict[Event, list[Delivery]] = {}
    for each in sorted(deliveries, key=lambda one: (one.received_at, one.delivery_id)):
        found.setdefault(each.event, []).append(each)
    return list(found.values())


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return a policy as JSON values: durations in microseconds, names as lists."""
    choices = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return {
        **{
            f"{name}{_US}": given
            for name, given in choices.items()
            if name not in _NAMES | _PERCENT
        },
        **{name: list(choices[name]) for name in _NAMES if choices[name]},
        **{name: choices[name] for name in _PERCENT if choices[name]},
    }


def value_document(value: Event | Record) -> dict[str, Any]:
    """Return an event or a record as JSON values, without members that are empty or False."""
    document: dict[str, Any] = {}
    for name in _MEMBERS[type(value)]:
        given = getattr(value, name)
        if given is None or given is False or given == ():
            continue
        if name in _INSTANTS:
            document[name] = format_instant(given)
        elif name in _MONEY:
            document[name] = to_json(given)
        elif name in _DOCUMENTS:
            document[name] = [_DOCUMENTS[name](one) for one in given]
        else:
            document[name] = given
    return document


def ledger_of(document: Mapping[str, Any]) -> FoldedDocument:
    """Compute the ledger from a history document. Raises ValueError if the document is
    malformed."""
    history, policy, as_of = history_of(document)
    return ledger_document(fold(history, policy=policy, as_of=as_of))


def history_of(document: Mapping[str, Any]) -> tuple[History, Policy, Instant]:
    """Parse the document that `history_document` returns. Raises ValueError for any other input."""
    try:
        deliveries = [
            Delivery(delivery_id=_text(name), received_at=parse_instant(_text(at)), event=event)
            for each in document["deliveries"]
            for event in (event_of(each["event"]),)
            for name, at in ((each["delivery_id"], each["received_at"]), *each.get("again", ()))
        ]
        records = []
        for each in document["records"]:
            record = record_of(each)
            # The digits of an amount must equal the sealed ones.
            written = value_document(record)
            if any(written.get(name) != each.get(name) for name in ("money", "tenders")):
                raise ValueError(
                    "the history has an amount that is not written with its currency's decimals"
                )
            records.append(record)
        choices = {name.removesuffix(_US): given for name, given in document["policy"].items()}
        for name in _NAMES & choices.keys():
            choices[name] = tuple([_text(each) for each in choices[name]])
        if not all(
            given is None or type(given) is int
            for name, given in choices.items()
            if name not in _NAMES
        ):
            raise ValueError("the policy's durations and percentages must be whole numbers")
        history = History(
            order=_text(document["order"]),
            deliveries=frozenset(deliveries),
            records=frozenset(records),
        )
        return history.as_it_counts(), Policy(**choices), parse_instant(_text(document["as_of"]))
    except KeyError as error:
        raise ValueError(f"the history has no {error}") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the history is not in form: {error}") from None


def event_of(document: Mapping[str, Any]) -> Event:
    """Parse an event from the JSON values of `value_document`. Raises ValueError if they are
    invalid."""
    event = _value_of(Event, document)
    if event.claim not in CLAIM_KINDS or event.standing not in get_args(Standing):
        raise ValueError("the history has an event with an unknown claim or standing")
    return event


def record_of(document: Mapping[str, Any]) -> Record:
    """Parse a record from the JSON values of `value_document`. Raises ValueError if they are
    invalid."""
    record = _value_of(Record, document)
    if record.kind not in RECORD_KINDS:
        raise ValueError("the history has a record of an unknown kind")
    return record


def _value_of(kind: Callable[..., Value], document: Mapping[str, Any]) -> Value:
    members: dict[str, Any] = {}
    for name, given in document.items():
        if name in _MONEY:
            members[name] = _money(given)
        elif name in _TUPLES:
            members[name] = tuple([_TUPLES[name](each) for each in given])
        elif name in _NUMBERS:
            if type(given) is not int:
                raise ValueError("the history has a member that must be a whole number, but is not")
            members[name] = given
        elif name in _FLAGS:
            if given is not True:
                raise ValueError("the history has a member that must be true, but is not")
            members[name] = True
        else:
            members[name] = parse_instant(_text(given)) if name in _INSTANTS else _text(given)
    return kind(**members)


def _money(given: Mapping[str, Any]) -> Money:
    return from_major(_text(given["amount"]), _text(given["currency"]))


def _text(given: Any) -> str:
    if type(given) is not str:
        raise ValueError("the history has a member that must be a text, but is not")
    return given
