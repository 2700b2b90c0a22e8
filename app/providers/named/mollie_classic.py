"""Mollie: the refunds and chargebacks that are contained in an answer (docs.mollie.com, "Get
payment")."""

from collections.abc import Iterator
from typing import Any, Final

from app.core.reading import Unreadable
from app.providers import fields, kit
from app.providers.paths import find_paths
from reconcile.ledger.events import StateMember, StateWord

_REFUNDED: Final[dict[str | None, StateWord]] = {
    "refunded": "done",
    "failed": "undone",
    "canceled": "undone",
}


def _listed(answer: Any) -> Iterator[kit.StatedMovement]:
    members: tuple[tuple[StateMember, str], ...] = (
        ("refund", "refunds"),
        ("chargeback", "chargebacks"),
    )
    for member, name in members:
        listed = find_paths(answer, ("_embedded", name))
        for each in listed if type(listed) is list else ():
            if type(each) is not dict:
                raise Unreadable("a list of the answer holds something that is not an object")
            reversed_at = each.get("reversedAt")
            word: StateWord = "done" if reversed_at is None else "undone"
            if member == "refund":
                status = fields.as_text(each.get("status"), "the status of a refund")
                word = _REFUNDED.get(status, "pending")
            yield kit.StatedMovement(
                member=member,
                word=word,
                reference=each.get("id"),
                amount=find_paths(each, ("amount", "value")),
                currency=find_paths(each, ("amount", "currency")),
                # The answer does not date a refund's failure.
                at=reversed_at if word == "undone" else each.get("createdAt"),
            )


PARTICULARS: Final = kit.Particulars(movements=_listed)
