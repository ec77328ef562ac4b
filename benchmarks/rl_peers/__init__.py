"""The peers of ``rl``: scripts for their own environments, and what both sides share. Nothing here needs learnloop."""
