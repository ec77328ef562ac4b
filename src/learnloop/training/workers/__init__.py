"""Processes of a training: actors beside a learner, and seeds side by side."""
