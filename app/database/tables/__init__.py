"""Tables of the database, as SQLModel classes that define the schema.

SQLModel validates nothing in a table model, so values are validated before they are stored.
"""

from app.database.tables import core, finance, people
from app.database.tables.core import metadata

__all__ = ["core", "finance", "metadata", "people"]
