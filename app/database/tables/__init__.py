"""Tables of the database, as SQLModel classes that define the schema. `mapping` converts rows to
values of `reconcile` and back.

The README of `app/database` says which tables hold original data, and which hold an index, a cache
or marks for due work. SQLModel validates nothing in a table model, so values are validated before
they are stored: an event by the provider's profile, a record by its use case.
"""

from app.database.tables import core, finance, people
from app.database.tables.core import metadata

__all__ = ["core", "finance", "metadata", "people"]
