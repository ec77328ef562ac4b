"""Scores attempts: reward functions of any author, weighted into what an attempt was worth."""
