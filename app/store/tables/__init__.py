"""The tables. Private to this folder: `mapping` turns rows into values of `reconcile` and back.

SQLModel validates nothing in a table model, so every value that enters has been checked before:
events by the provider's profile, records by the operation that makes them.

    truth   deliveries  records  revisions  rejections  tokens  signoffs
            operators  audit  log_leaves  log_checkpoints  log_keys
    index   events  links  contested        rebuilt from deliveries by `reindex`
            log_nodes                        rebuilt from log_leaves by `log verify`
    cache   ledgers                          rebuilt by `refold --all`
    marks   order_due  unanswered  notifications  meta  counters  unsealed
"""

from app.store.tables import core, evidence, outgoing, people
from app.store.tables.base import ONLY, metadata

__all__ = ["ONLY", "core", "evidence", "metadata", "outgoing", "people"]
