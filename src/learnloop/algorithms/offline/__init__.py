"""Algorithms that learn from logged data alone: BC, AWAC, CQL and IQL."""
