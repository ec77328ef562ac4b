"""Benchmarks: one command per published number, peers side by side. ``python -m benchmarks --help``."""
