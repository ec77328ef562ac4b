"""Which spans the index of words holds, and the episodes that wait for it: all that are there, at first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from learnloop.store.migrations.tables import COUNTER, TEXT, columns, create_table

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table("search_queue", *columns(TEXT, "episode_id"))
    create_table(
        "search_episodes",
        sa.Column("number", COUNTER, autoincrement=True, nullable=False),
        *columns(TEXT, "episode_id"),
        unique=["episode_id"],
        sqlite_autoincrement=True,
    )
    create_table(
        "search_spans",
        sa.Column("search_id", COUNTER, autoincrement=False, nullable=False),
        *columns(TEXT, "span_id"),
        unique=["span_id"],
    )
    op.execute("INSERT INTO search_queue SELECT DISTINCT episode_id FROM spans WHERE episode_id IS NOT NULL")
