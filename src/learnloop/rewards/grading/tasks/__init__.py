"""How the answer to a task of each type is compared with the ground truth: one module a type."""
