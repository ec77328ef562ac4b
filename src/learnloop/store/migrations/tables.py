"""What the revisions make tables of; like them it is frozen once they are released."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine, UserDefinedType


class HalfVector(UserDefinedType[object]):
    """pgvector's half-precision vector of any dimension."""

    cache_ok = True

    def get_col_spec(self, **options: object) -> str:
        """Returns its name in SQL."""
        return "HALFVEC"


TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")
FLOAT = sa.Float().with_variant(postgresql.DOUBLE_PRECISION(), "postgresql")
INTEGER = sa.BigInteger()
BOOLEAN = sa.Boolean()
BYTES = sa.LargeBinary()
EMBEDDING = sa.LargeBinary().with_variant(HalfVector(), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def columns(kind: TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    """Returns columns of one type; one whose name ends with ``?`` may be NULL."""
    return [sa.Column(name.rstrip("?"), kind, nullable=name.endswith("?")) for name in names]


def create_table(
    name: str,
    *parts: sa.Column[Any] | sa.Constraint,
    refers: Sequence[str] = (),
    unique: Collection[str] = (),
    indexes: Sequence[str] = (),
    **options: Any,
) -> None:
    """Makes a table whose first column is its key.

    Args:
        name: of the table.
        parts: its columns, and its further constraints.
        refers: what the columns of the same names refer to, such as ``agents.agent_id``.
        unique: columns that are unique together.
        indexes: the columns of each, apart by spaces.
        options: of the table.
    """
    key = next(part.name for part in parts if isinstance(part, sa.Column))
    keys = [target.rpartition(".")[2] for target in refers]
    constraints: list[sa.Constraint] = [
        sa.ForeignKeyConstraint([column], [target], name=f"fk_{name}_{column}")
        for column, target in zip(keys, refers, strict=True)
    ]
    constraints.append(sa.PrimaryKeyConstraint(key, name=f"pk_{name}"))
    if unique:
        constraints.append(sa.UniqueConstraint(*unique, name=f"uq_{name}_{'_'.join(unique)}"))
    op.create_table(name, *parts, *constraints, **options)
    create_indexes(name, *indexes)


def create_indexes(table: str, *indexes: str) -> None:
    """Makes indexes; the columns of each are apart by spaces."""
    for index in indexes:
        op.create_index(f"ix_{table}_{index.replace(' ', '_')}", table, index.split(), unique=False)
