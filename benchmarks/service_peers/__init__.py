"""Servers that the decision service is measured against; each runs by the Python of its own environment."""
