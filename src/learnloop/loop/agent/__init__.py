"""An agent's own loop: record its runs, choose for it, reward it, prove what was learned."""
