"""Traces of a workspace: imported, received, read back, exported, removed."""
