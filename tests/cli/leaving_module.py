"""A module that ends the process where it is imported, as some do."""

raise SystemExit(3)
