"""Training runs: options, seeds side by side, checkpoints, metrics, and the proof that something was learned."""
