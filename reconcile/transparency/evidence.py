"""A history as JSON and back, so that whoever has the document can fold it again.

Leaves out: files, signatures, and what arrived as bytes. What is written here is all that `fold`
reads; money is a decimal string, a moment RFC 3339, a duration whole microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar, get_args

from reconcile.instants import Instant, format_instant, parse_instant
from reconcile.ledger.events import CLAIM_KINDS, Delivery, Event, Standing
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import RECORD_KINDS, Record
from reconcile.money import Money, from_major, to_json

Value = TypeVar("Value")

_INSTANTS: Final = frozenset(("received_at", "occurred_at", "recorded_at", "at", "expires_at"))
_MONEY: Final = frozenset(("money", "order_money", "refunded_total"))
_US: Final = "_us"


def history_document(history: History, *, policy: Policy, as_of: Instant) -> dict[str, Any]:
    """What was known at `as_of`, the policy and the instant: all that a fold takes."""
    known = history.known_at(as_of)
    deliveries = sorted(known.deliveries, key=lambda each: (each.received_at, each.delivery_id))
    records = sorted(known.records, key=lambda each: (each.recorded_at, each.record_id))
    return {
        "order": history.order,
        "as_of": format_instant(as_of),
        "policy": {f"{each.name}{_US}": getattr(policy, each.name) for each in fields(policy)},
        "deliveries": [_delivery_document(each) for each in deliveries],
        "records": [value_document(each) for each in records],
    }


def _delivery_document(delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery_id": delivery.delivery_id,
        "received_at": format_instant(delivery.received_at),
        "event": value_document(delivery.event),
    }


def value_document(value: Event | Record) -> dict[str, Any]:
    """An event or a record as JSON values; what it does not say is left out."""
    members = ((each.name, getattr(value, each.name)) for each in fields(value))
    return {name: _written(name, given) for name, given in members if given is not None}


def _written(name: str, given: Any) -> Any:
    if isinstance(given, Money):
        return to_json(given)
    return format_instant(given) if name in _INSTANTS else given


def ledger_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger that a history document folds to. Raises ValueError for one that is none."""
    history, policy, as_of = history_of(document)
    return ledger_document(fold(history, policy=policy, as_of=as_of))


def history_of(document: Mapping[str, Any]) -> tuple[History, Policy, Instant]:
    """What `history_document` wrote. Raises ValueError with a sentence where it did not."""
    try:
        history = History(
            order=_text(document["order"]),
            deliveries=frozenset(_delivery_of(each) for each in document["deliveries"]),
            records=frozenset(_record_of(each) for each in document["records"]),
        )
        return history, _policy_of(document["policy"]), parse_instant(_text(document["as_of"]))
    except KeyError as error:
        raise ValueError(f"the history has no {error}") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the history is not in form: {error}") from None


def _delivery_of(document: Mapping[str, Any]) -> Delivery:
    return Delivery(
        delivery_id=_text(document["delivery_id"]),
        received_at=parse_instant(_text(document["received_at"])),
        event=event_of(document["event"]),
    )


def event_of(document: Mapping[str, Any]) -> Event:
    """The event that `value_document` wrote. Raises ValueError."""
    event = _value_of(Event, document)
    if event.claim not in CLAIM_KINDS or event.standing not in get_args(Standing):
        raise ValueError("the history has an event whose claim or standing is none of ours")
    return event


def _record_of(document: Mapping[str, Any]) -> Record:
    """With its money written out: the digits of an amount are compared with what was sealed."""
    record = record_of(document)
    if record.money is not None and to_json(record.money) != document["money"]:
        raise ValueError("the history has an amount that is not written with its decimals")
    return record


def record_of(document: Mapping[str, Any]) -> Record:
    """The record that `value_document` wrote. Raises ValueError."""
    record = _value_of(Record, document)
    if record.kind not in RECORD_KINDS:
        raise ValueError("the history has a record whose kind is none of ours")
    return record


def _value_of(kind: Callable[..., Value], document: Mapping[str, Any]) -> Value:
    return kind(**{str(name): _read(str(name), given) for name, given in document.items()})


def _read(name: str, given: Any) -> Any:
    if name in _MONEY:
        return from_major(_text(given["amount"]), _text(given["currency"]))
    return parse_instant(_text(given)) if name in _INSTANTS else _text(given)


def _policy_of(document: Mapping[str, Any]) -> Policy:
    given = {str(name).removesuffix(_US): length for name, length in document.items()}
    if not all(length is None or type(length) is int for length in given.values()):
        raise ValueError("the policy's durations are whole microseconds")
    return Policy(**given)


def _text(given: Any) -> str:
    if type(given) is not str:
        raise ValueError("the history has something else where a text must be")
    return given
