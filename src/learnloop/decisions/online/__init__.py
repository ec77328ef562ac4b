"""A policy that chooses inside an agent, and learns from what its choices earned."""
