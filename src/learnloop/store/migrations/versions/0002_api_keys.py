"""The keys of the HTTP API."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
json_value = sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("api_key_id", text, nullable=False),
        sa.Column("name", text, nullable=False),
        sa.Column("prefix", text, nullable=False),
        sa.Column("secret_hash", text, nullable=False),
        sa.Column("scopes", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=True),
        sa.Column("revoked_at", moment, nullable=True),
        sa.PrimaryKeyConstraint("api_key_id", name="pk_api_keys"),
        sa.UniqueConstraint("secret_hash", name="uq_api_keys_secret_hash"),
    )
