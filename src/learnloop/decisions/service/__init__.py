"""Policies that are served from memory, their settings and the versions that they follow."""
