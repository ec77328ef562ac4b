"""Shares out what was earned: shaping, credit for steps and agents, groups, and the ledger of it."""
