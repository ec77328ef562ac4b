"""Policies that a network computes, and the files that they become."""
