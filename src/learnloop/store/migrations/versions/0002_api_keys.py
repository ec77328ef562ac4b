"""The keys of the HTTP API."""

from __future__ import annotations

from learnloop.store.migrations.tables import JSON, TEXT, TIME, columns, create_table

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "api_keys",
        *columns(TEXT, "api_key_id", "name", "prefix", "secret_hash"),
        *columns(JSON, "scopes"),
        *columns(TIME, "created_at", "expires_at?", "revoked_at?"),
        unique=["secret_hash"],
    )
