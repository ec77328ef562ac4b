"""What Alembic runs: the migrations, on the connection and in the transaction that the caller gives."""

from __future__ import annotations

from alembic import context

from learnloop.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    compare_type=True,
    compare_server_default=True,
)
context.run_migrations()
