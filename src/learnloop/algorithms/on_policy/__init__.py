"""Algorithms that learn from what their newest policy did: PPO, A2C and A3C."""
