"""Contextual bandits: one linear model an action, learned one reward at a time, and how they explore."""
