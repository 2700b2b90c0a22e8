"""Run migrations on the connection that the caller passes in. There is no other entry point."""

from alembic import context

from app.database.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
