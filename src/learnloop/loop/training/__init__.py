"""Trainings of a workspace, and what becomes of their policies."""
