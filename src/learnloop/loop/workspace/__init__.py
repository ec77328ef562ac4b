"""Where a loop keeps its things, and the care of it: keys, backups, settings, checks."""
