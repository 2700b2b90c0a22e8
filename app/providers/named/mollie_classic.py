"""Mollie: the refunds and chargebacks that an answer embeds (docs.mollie.com, "Get payment")."""

from collections.abc import Iterator
from typing import Any, Final

from app.core.reading import Unreadable
from app.providers import kit
from app.providers.paths import find_paths
from reconcile.ledger.events import StateMember, StateWord

_REFUNDED: Final[dict[object, StateWord]] = {
    "refunded": "done",
    "failed": "undone",
    "canceled": "undone",
}
"""Movements that are done or undone. Other words, such as `queued` and `pending`, are under way."""


def _listed(answer: Any) -> Iterator[kit.StatedMovement]:
    members: tuple[tuple[StateMember, str], ...] = (
        ("refund", "refunds"),
        ("chargeback", "chargebacks"),
    )
    for member, name in members:
        for each in find_paths(answer, ("_embedded", name)) or ():
            if type(each) is not dict:
                raise Unreadable("a list of the answer holds something that is not an object")
            reversed_at = each.get("reversedAt")
            word: StateWord = "done" if reversed_at is None else "undone"
            yield kit.StatedMovement(
                member=member,
                word=_REFUNDED.get(each.get("status"), "pending") if member == "refund" else word,
                reference=each.get("id"),
                amount=find_paths(each, ("amount", "value")),
                currency=find_paths(each, ("amount", "currency")),
                at=each.get("createdAt") if reversed_at is None else reversed_at,
            )


PARTICULARS: Final = kit.Particulars(movements=_listed)
