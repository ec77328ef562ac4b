"""Algorithms that learn from a replay of transitions: DQN and SAC."""
