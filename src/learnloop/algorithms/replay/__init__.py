"""Transitions on their way into a replay, in it, and out of it as minibatches."""
