"""Decisions of a workspace: imported, read back, rewarded, and what another policy would have earned."""
