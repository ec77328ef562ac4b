"""Compares answers with the ground truth of their tasks; code runs in sandboxes."""
