"""Keeps out of records what must not be stored, and takes it out of those that are."""
