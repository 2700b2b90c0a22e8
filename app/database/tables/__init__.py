"""The tables. Private to this room: `mapping` turns rows into values of `reconcile` and back.

The room's README says which tables are truth, index, cache or marks. SQLModel validates nothing in
a table model, so values are validated before they are stored: an event by the provider's profile, a
record by its use case.
"""

from app.database.tables import core, finance, people
from app.database.tables.core import metadata

__all__ = ["core", "finance", "metadata", "people"]
