"""Convert an event's amount parts and payment states to JSON and back, for evidence and
database."""

from collections.abc import Mapping
from typing import Any

from reconcile.instants import format_instant, parse_instant
from reconcile.ledger.events import PART_KINDS, STATE_MEMBERS, STATE_WORDS, Part, State
from reconcile.money import Money, from_major, to_json


def part_document(part: Part) -> dict[str, Any]:
    """Return a part of an amount as JSON values."""
    return {"kind": part.kind, **to_json(part.money)}


def part_of(document: Mapping[str, Any]) -> Part:
    """Parse a part from the result of `part_document`. Raises ValueError or KeyError for other
    input."""
    if document["kind"] not in PART_KINDS:
        raise ValueError("the history has a part of an unknown kind")
    return Part(kind=document["kind"], money=_money(document))


def state_document(state: State) -> dict[str, Any]:
    """Return a provider's statement about a payment as JSON values, without empty members."""
    document: dict[str, Any] = {"member": state.member, "word": state.word}
    if state.money is not None:
        document["money"] = to_json(state.money)
    if state.reference is not None:
        document["reference"] = state.reference
    if state.at is not None:
        document["at"] = format_instant(state.at)
    return document


def state_of(document: Mapping[str, Any]) -> State:
    """Parse a state from the result of `state_document`. Raises ValueError or KeyError for other
    input."""
    member, word, money = document["member"], document["word"], document.get("money")
    reference, at = document.get("reference"), document.get("at")
    if member not in STATE_MEMBERS or word not in STATE_WORDS:
        raise ValueError("the history has a state with an unknown member or word")
    if reference is not None and type(reference) is not str:
        raise ValueError("the history has a member that must be a text, but is not")
    return State(
        member=member,
        word=word,
        money=None if money is None else _money(money),
        reference=reference,
        at=None if at is None else parse_instant(at),
    )


def _money(document: Mapping[str, Any]) -> Money:
    amount, currency = document["amount"], document["currency"]
    if type(amount) is not str or type(currency) is not str:
        raise ValueError("the history has a member that must be a text, but is not")
    return from_major(amount, currency)
