"""The history of the schema, one file a revision, run by Alembic."""
