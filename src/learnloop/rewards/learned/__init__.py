"""Rewards that are learned from labels, and the queue by which people are asked for them."""
