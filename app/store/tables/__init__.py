"""The tables. Private to this folder: `mapping` turns rows into values of `reconcile` and back.

SQLModel validates nothing in a table model, so every value that enters has been checked before:
events by the provider's profile, records by the operation that makes them.

    truth   deliveries  records  revisions  rejections  tokens  signoffs
            operators  audit
    index   events  links  contested        rebuilt from deliveries by `reindex`
    cache   ledgers                          rebuilt by `refold --all`
    marks   order_due  unanswered  notifications  meta  counters
"""

from app.store.tables import core, outgoing, people, reconciling
from app.store.tables.base import ONLY, metadata

__all__ = ["ONLY", "core", "metadata", "outgoing", "people", "reconciling"]
