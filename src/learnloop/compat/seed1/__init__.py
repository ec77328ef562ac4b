"""Seed 1's eight endpoints at the root: choose a prompt mutation, take experiences, learn, save and load."""
