"""A history and its proofs with their customers' numbers masked, wherever a text holds one.

What is masked stays one and the same for the same number, so that the masked history folds to the
masked ledger.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from app.core.masking import Masking
from app.evidence.dossier import Sealed
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.history import History
from reconcile.ledger.records import Record

Text = TypeVar("Text", Event, Record)


def masked_history(history: History, masking: Masking) -> History:
    """The history with its customers' numbers masked wherever a reference or a word holds one."""
    return History(
        order=masking.text(history.order),
        deliveries=frozenset(_masked_delivery(each, masking) for each in history.deliveries),
        records=frozenset(_masked(each, masking) for each in history.records),
    )


def masked_leaves(sealed: Sealed, masking: Masking) -> Sealed:
    """The proofs; of a leaf whose text holds a customer's number only the hash, which is salted."""
    leaves = tuple(
        replace(each, text=None) if each.text is None or masking.touches(each.text) else each
        for each in sealed.leaves
    )
    return replace(sealed, leaves=leaves)


def _masked_delivery(delivery: Delivery, masking: Masking) -> Delivery:
    return replace(delivery, event=_masked(delivery.event, masking))


_OURS: Final = frozenset(("source", "digest", "claim", "standing", "record_id", "kind"))


def _masked(value: Text, masking: Masking) -> Text:
    changes: dict[str, Any] = {}
    for name in (each.name for each in fields(value)):
        given = getattr(value, name)
        if type(given) is str and name not in _OURS and masking.touches(given):
            changes[name] = masking.text(given)
    return replace(value, **changes) if changes else value
