"""Reads files of traces, of our own and of others, into records."""
