"""learnloop: a self-hosted learning loop for AI agents."""
