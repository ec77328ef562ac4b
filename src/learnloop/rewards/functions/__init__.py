"""learnloop's own reward functions, one file each, and what they check with."""
