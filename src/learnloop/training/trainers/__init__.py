"""Trains one algorithm with one seed: in an environment or from a data set."""
