"""Which spans the index of words holds, and the episodes that wait for it: all that are there, at first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "search_queue",
        sa.Column("episode_id", text, nullable=False),
        sa.PrimaryKeyConstraint("episode_id", name="pk_search_queue"),
    )
    op.create_table(
        "search_episodes",
        sa.Column("number", counter, autoincrement=True, nullable=False),
        sa.Column("episode_id", text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_search_episodes"),
        sa.UniqueConstraint("episode_id", name="uq_search_episodes_episode_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "search_spans",
        sa.Column("search_id", counter, autoincrement=False, nullable=False),
        sa.Column("span_id", text, nullable=False),
        sa.PrimaryKeyConstraint("search_id", name="pk_search_spans"),
        sa.UniqueConstraint("span_id", name="uq_search_spans_span_id"),
    )
    op.execute("INSERT INTO search_queue SELECT DISTINCT episode_id FROM spans WHERE episode_id IS NOT NULL")
