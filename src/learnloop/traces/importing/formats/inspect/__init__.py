"""inspect_ai's logs: JSON and archives, their messages and their events."""
