"""Rewards of a workspace: scored, labelled, learned."""
